//! Every contestant over a recording, and the drawing of its connections.

use std::io::Cursor;
use std::path::Path;

use ackbeat::comparison::{self, Contestant, Options, table};
use ackbeat::recording::Reader;

use super::{Target, ensure, recordings};

pub(super) const TARGET: Target = Target {
    name: "comparisons",
    about: "every contestant over a recording, and the drawings",
    generate: recordings::generate,
    run,
    // Each contestant keeps something of each connection, and a drawing holds some words for each mark.
    memory_limit_bytes: |bytes| 4 * 1024 * 1024 + 256 * bytes as u64,
};

fn run(bytes: &[u8]) -> Result<(), String> {
    let Ok(mut reader) = Reader::new(Path::new("case"), Box::new(Cursor::new(bytes.to_vec()))) else {
        return Ok(());
    };
    let contestants = Contestant::all();
    let mut drawn = 0_u32;
    let options = Options {
        draw: &mut |_| {
            drawn += 1;
            drawn <= 2
        },
        decided: &mut |_, _| {},
    };
    let Ok((compared, timelines)) = comparison::compare_with(&mut reader, &[], &contestants, options) else {
        return Ok(());
    };
    for connection in &compared.connections {
        ensure!(
            connection.outcomes.len() == contestants.len(),
            "{} outcomes of {} contestants",
            connection.outcomes.len(),
            contestants.len()
        );
        for outcome in &connection.outcomes {
            ensure!(
                outcome.kill.is_none() || outcome.not_judged.is_none(),
                "killed and did not judge: {outcome:?}"
            );
        }
    }
    ensure!(!table::render(&compared).is_empty(), "an empty table");
    for timeline in timelines {
        let svg = timeline.svg().map_err(|error| format!("no drawing: {error}"))?;
        ensure!(svg.trim_end().ends_with("</svg>"), "a drawing without an end");
    }
    Ok(())
}
