//! Feeds a recording through the engine, without a clock.

use ackbeat_liveness::{Engine, Input, Output, Policy, Timestamp};

use super::{Line, ReadError, Reader};

/// What a replay came across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Inputs that were fed.
    pub inputs: u64,
    /// Lines that the recording misses.
    pub missing: u64,
    /// Its last line was cut off.
    pub is_cut_off: bool,
}

/// Feeds `reader` through an engine under `policy` and hands each decision to `decided`.
///
/// Under the recorded thresholds the engine is called exactly as it was in life, so it decides the same. Under others
/// its deadlines differ: they expire between the lines, but never inside a pause of the recorded sidecar, which stays
/// the pause that it was.
///
/// # Errors
/// [`ReadError`], with the number of the line that makes no sense.
pub fn replay(
    reader: &mut Reader,
    policy: Policy,
    mut decided: impl FnMut(&Output),
) -> Result<Summary, ReadError> {
    let is_as_recorded = reader.header().ticks && policy == reader.header().thresholds;
    let mut engine = Engine::new(policy);
    let mut summary = Summary::default();
    let mut last = reader.header().began_at;
    let mut is_shut_down = false;
    while let Some(line) = reader.next_line()? {
        match line {
            Line::Input(input) => {
                let at = input.at();
                if !is_as_recorded {
                    pass_time(&mut engine, at, &mut decided);
                }
                last = last.max(at);
                engine.handle_input(*input);
                summary.inputs += 1;
            }
            Line::Tick(tick) => {
                if !is_as_recorded {
                    pass_time(&mut engine, tick.due, &mut decided);
                }
                last = last.max(tick.at);
                engine.handle_timeout(tick.at);
            }
            Line::Gap(count) => {
                summary.missing += count;
                // What is not there proves nothing.
                engine.handle_input(Input::RecordsLost { at: last, count });
            }
            Line::ShutDown(at) => {
                if !is_as_recorded {
                    pass_time(&mut engine, at, &mut decided);
                }
                engine.shut_down(at);
                is_shut_down = true;
            }
        }
        hand_over(&mut engine, &mut decided);
    }
    if !is_shut_down {
        engine.shut_down(last);
        hand_over(&mut engine, &mut decided);
    }
    summary.is_cut_off = reader.is_cut_off();
    Ok(summary)
}

/// Lets the engine's own deadlines up to `until` expire, each on time.
fn pass_time(engine: &mut Engine, until: Timestamp, decided: &mut impl FnMut(&Output)) {
    let mut last = None;
    while let Some(due) = engine.poll_timeout().filter(|due| *due < until) {
        // An engine that stands still must not hold the replay.
        if last.is_some_and(|last| due <= last) {
            break;
        }
        last = Some(due);
        engine.handle_timeout(due);
        hand_over(engine, decided);
    }
}

fn hand_over(engine: &mut Engine, decided: &mut impl FnMut(&Output)) {
    while let Some(output) = engine.poll() {
        decided(&output);
    }
}
