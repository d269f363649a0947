//! Real recordings, kept small, through every contestant: when each would have killed, and what ackbeat said when.
//!
//! The recordings are in `tests/arena/corpus`, made by `arena corpus` from a set of the arena. A change of the engine or
//! of a detector that moves a verdict shows as a difference of a snapshot.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ackbeat::comparison::{self, Contestant};
use ackbeat::recording::Reader;
use ackbeat_tests::arena::corpus::{RECORDING_SUFFIX, TRUTH_SUFFIX};
use ackbeat_tests::arena::judge::{connections_of, ms_between, peer_reports};
use ackbeat_tests::arena::truth::{State, Truth};
use anyhow::{Context, Result, ensure};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("arena/corpus")
}

/// Names of the recordings, without their ending.
fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder()).context("the corpus is there")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(RECORDING_SUFFIX).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn files(name: &str) -> (PathBuf, PathBuf) {
    (folder().join(format!("{name}{RECORDING_SUFFIX}")), folder().join(format!("{name}{TRUTH_SUFFIX}")))
}

/// What was true and what everybody made of it, in milliseconds since the subject began.
fn timeline(name: &str) -> Result<String> {
    let (recording, truth) = files(name);
    let truth = Truth::read(&truth)?;
    let mut reader = Reader::open(&recording)?;
    let compared = comparison::compare(&mut reader, &peer_reports(&truth), &Contestant::all())?;
    let connections = connections_of(&truth, &compared.connections)?;
    ensure!(connections.len() == 1, "{name} has {} subjects, one is kept", connections.len());
    let (connection, subject) =
        connections.first().zip(truth.subjects.first()).context("one subject has one connection")?;
    let began_ns = subject.states.first().map_or(0, |change| change.at_ns);
    let ms = |at_ns: u64| format!("{:>9.0} ms", ms_between(began_ns, at_ns));
    let mut text = String::new();
    for change in &subject.states {
        writeln!(text, "truth            {}  {:?}", ms(change.at_ns), change.state)?;
    }
    for outcome in &connection.outcomes {
        for change in &outcome.verdicts {
            let justified = if change.kill_justified { ", kill justified" } else { "" };
            writeln!(
                text,
                "{:<16} {}  {} on {}{justified}",
                outcome.name,
                ms(change.at.as_ns()),
                change.to,
                change.rung
            )?;
        }
        match (&outcome.not_judged, &outcome.kill) {
            (Some(reason), _) => writeln!(text, "{:<16} not judged: {reason}", outcome.name)?,
            (None, Some(kill)) => {
                writeln!(text, "{:<16} {}  KILL: {}", outcome.name, ms(kill.at.as_ns()), kill.reason)?;
            }
            (None, None) => writeln!(text, "{:<16} no kill", outcome.name)?,
        }
    }
    Ok(text)
}

#[test]
fn golden_timelines() -> Result<()> {
    let names = names()?;
    ensure!(!names.is_empty(), "the corpus is empty: run `arena corpus --in FOLDER`");
    for name in names {
        insta::assert_snapshot!(name.clone(), timeline(&name)?);
    }
    Ok(())
}

/// The corpus stays small enough to be carried by every clone.
#[test]
fn the_corpus_is_small() -> Result<()> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder()).context("the corpus is there")? {
        bytes += entry?.metadata()?.len();
    }
    ensure!(bytes < 3_000_000, "the corpus has {bytes} bytes: leave larger recordings out");
    Ok(())
}

/// Whatever the snapshots say: the policy `default` kills nobody in the corpus who is there.
#[test]
fn default_kills_no_living_peer_of_the_corpus() -> Result<()> {
    for name in names()? {
        let (recording, truth) = files(&name);
        let truth = Truth::read(&truth)?;
        let compared = comparison::compare(
            &mut Reader::open(&recording)?,
            &peer_reports(&truth),
            &["ackbeat".parse::<Contestant>()?],
        )?;
        let connections = connections_of(&truth, &compared.connections)?;
        for (subject, connection) in truth.subjects.iter().zip(connections) {
            let kills = connection.outcomes.iter().filter_map(|outcome| outcome.kill.as_ref());
            for kill in kills {
                let state = subject.state_at(kill.at.as_ns());
                ensure!(!matches!(state, Some(State::Alive | State::Outage)), "{name}: {}", kill.reason);
            }
        }
    }
    Ok(())
}
