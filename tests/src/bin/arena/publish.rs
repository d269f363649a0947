//! `arena publish`: puts a set's result into the repository: files, page, plots, timelines, and the README's block.
#![expect(clippy::print_stdout, reason = "a program for people: its output is its purpose")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ackbeat::comparison::{self, Contestant, TruthBand};
use ackbeat::recording::Reader;
use ackbeat_liveness::Timestamp;
use ackbeat_tests::arena::judge::{connections_of, peer_reports};
use ackbeat_tests::arena::report::{ArenaResult, markdown};
use ackbeat_tests::arena::runner;
use ackbeat_tests::arena::stage::{RECORDING_FILE, TRUTH_FILE};
use ackbeat_tests::arena::truth::{State, Subject, Truth};
use anyhow::{Context, Result};
use clap::Args;

use crate::run::RESULT_FILE;
use crate::{drawings, policy};

/// Name of the block of a file that the arena writes.
const BLOCK: &str = "arena";
/// Page of the folder of results.
const PAGE: &str = "README.md";
/// Folder of the drawn runs.
const TIMELINES: &str = "timelines";
/// Scenarios of which a run is drawn: the reports' own, the outage, and peers that are gone.
const DRAWN_ROWS: &[u8] = &[2, 5, 9, 11, 17, 20, 21, 23];

/// Options of `arena publish`.
#[derive(Debug, Args)]
pub(crate) struct PublishArguments {
    /// Folder of a set that was played and judged.
    #[arg(long = "in")]
    input: PathBuf,
    /// Folder of committed results; its README.md has a block between `<!-- arena -->` and `<!-- /arena -->`.
    #[arg(long, default_value = "tests/arena")]
    out: PathBuf,
    /// Another file with such a block, for the short table and the plot.
    #[arg(long)]
    readme: Option<PathBuf>,
    /// Scenarios of which a run is drawn.
    #[arg(long, value_delimiter = ',', default_values_t = DRAWN_ROWS.to_vec())]
    draw: Vec<u8>,
    /// Who is shown in the drawn runs.
    #[arg(
        long,
        default_value = "ackbeat,ackbeat-fast,ws-2,ws-readme,any-inbound,user-timeout,keepalive,phi"
    )]
    contestants: String,
}

/// Writes everything.
///
/// # Errors
/// If the set was not judged, or something cannot be drawn or written.
pub(crate) fn publish(arguments: &PublishArguments) -> Result<ExitCode> {
    let result = ArenaResult::read(&arguments.input.join(RESULT_FILE))?;
    let timelines = arguments.out.join(TIMELINES);
    std::fs::create_dir_all(&timelines).with_context(|| format!("making {} failed", timelines.display()))?;
    result.write(&arguments.out.join(RESULT_FILE))?;
    drawings::pareto(&result, &arguments.out)?;
    let has_roc = policy::draw_roc(&arguments.input, &arguments.out)?;
    let contestants = Contestant::list(&arguments.contestants)?;
    let mut drawn = Vec::new();
    for row in &arguments.draw {
        drawn.extend(draw_row(*row, &arguments.input, &timelines, &contestants)?);
    }
    let mut page = format!("![Detection time against false kills]({})\n\n", drawings::PARETO_FILE);
    if has_roc {
        page.push_str(&format!("![What the threshold buys]({})\n\n", drawings::ROC_FILE));
    }
    page.push_str(&markdown::full(&result));
    if !drawn.is_empty() {
        page.push_str("\n### Single runs\n\n");
        for (title, file) in &drawn {
            page.push_str(&format!("- [{title}]({TIMELINES}/{file})\n"));
        }
    }
    markdown::write_block(&arguments.out.join(PAGE), BLOCK, &page)?;
    if let Some(readme) = &arguments.readme {
        let folder = arguments.out.display();
        let block = format!(
            "{}\n![Detection time against false kills]({folder}/{})\n\n{}",
            markdown::overview(&result),
            drawings::PARETO_FILE,
            markdown::origin(&result, &format!("{folder}/{PAGE}"))
        );
        markdown::write_block(readme, BLOCK, &block)?;
    }
    println!(
        "published {} cells and {} timelines to {}",
        result.cells.len(),
        drawn.len(),
        arguments.out.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Draws the first subject of the first stage of each variant of a row; hands back titles and file names.
fn draw_row(row: u8, input: &Path, out: &Path, contestants: &[Contestant]) -> Result<Vec<(String, String)>> {
    let mut drawn: Vec<(String, String)> = Vec::new();
    let mut variants: Vec<String> = Vec::new();
    for folder in runner::stage_folders(&input.join(format!("row-{row:02}"))).unwrap_or_default() {
        let truth = Truth::read(&folder.join(TRUTH_FILE))?;
        if variants.contains(&truth.variant) {
            continue;
        }
        variants.push(truth.variant.clone());
        let Some(subject) = truth.subjects.first() else { continue };
        let slug: String = truth
            .variant
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
            .collect();
        let name =
            if slug.is_empty() { format!("row-{row:02}.svg") } else { format!("row-{row:02}-{slug}.svg") };
        let svg = timeline(&folder, &truth, subject, contestants)
            .with_context(|| format!("drawing {} failed", folder.display()))?;
        drawings::write(&out.join(&name), &svg)?;
        let title = ackbeat_tests::arena::rows::row(row).map_or("", |row| row.title);
        let variant = if truth.variant.is_empty() { String::new() } else { format!(": {}", truth.variant) };
        drawn.push((format!("{row} {title}{variant}"), name));
    }
    Ok(drawn)
}

fn timeline(folder: &Path, truth: &Truth, subject: &Subject, contestants: &[Contestant]) -> Result<String> {
    let mut reader = Reader::open(&folder.join(RECORDING_FILE))?;
    let mut is_of_subject = |opened: &ackbeat_liveness::Opened| {
        let ends = &opened.endpoints;
        ends.peer_port == subject.peer.port() && ends.peer_address.to_canonical() == subject.peer.ip()
    };
    let options = comparison::Options { draw: &mut is_of_subject, decided: &mut |_, _| {} };
    let (compared, timelines) =
        comparison::compare_with(&mut reader, &peer_reports(truth), contestants, options)?;
    let chosen = connections_of(truth, &compared.connections)?
        .first()
        .map(|compared| compared.connection)
        .context("a subject has a connection")?;
    let timeline = timelines
        .into_iter()
        .find(|timeline| timeline.compared.connection == chosen)
        .context("the subject's connection has no timeline")?;
    Ok(timeline.with_truth(bands(truth, subject)).svg()?)
}

/// What was true, as the timeline shows it.
fn bands(truth: &Truth, subject: &Subject) -> Vec<TruthBand> {
    subject
        .states
        .iter()
        .enumerate()
        .filter_map(|(place, change)| {
            let truth_is = match change.state {
                State::Alive => comparison::Truth::Alive,
                State::Outage => comparison::Truth::Outage,
                State::Hung => comparison::Truth::Hung,
                State::Gone => comparison::Truth::Gone,
                State::Leaked | State::Ended => return None,
            };
            let until_ns = subject.states.get(place + 1).map_or(truth.ended_at_ns, |next| next.at_ns);
            Some(TruthBand {
                from: Timestamp::from_ns(change.at_ns),
                until: Some(Timestamp::from_ns(until_ns)),
                truth: truth_is,
            })
        })
        .collect()
}
