//! The engine: any inputs, in any order, under any thresholds.

use std::collections::BTreeMap;

use ackbeat_liveness::{
    ConnectionId, Engine, Input, Output, Policy, RECONNECT_WITHIN_MS, Timestamp, VERDICT_HISTORY_MAX,
    Verdict, WindowProbes,
};

use super::inputs::{self, Clock};
use super::{Target, ensure};
use crate::draw::{Draw, noise};

pub(super) const TARGET: Target = Target {
    name: "engine",
    about: "the liveness engine: any inputs in any order",
    generate: |rng| noise(rng, 4_096),
    run,
    // Six connections at most, each bounded, and the outputs of one call.
    memory_limit_bytes: |bytes| 256 * 1024 + 16 * bytes as u64,
};

fn policy(draw: &mut Draw<'_>) -> Policy {
    match draw.below(4) {
        0 | 1 => Policy::default_policy(),
        2 => Policy::fast_policy(),
        _ => {
            let mut ms = || if draw.below(8) == 0 { draw.u64() } else { u64::from(draw.u16()) };
            Policy {
                fresh_ms: ms(),
                pong_budget_ms: ms(),
                unreachable_floor_ms: ms(),
                unreachable_after_ms: ms(),
                lossy_after_ms: ms(),
                silent_after_ms: ms(),
                stalled_after_ms: ms(),
                min_progress_bytes: ms(),
                progress_window_ms: ms(),
                postmortem_window_ms: ms(),
                sample_interval_ms: ms(),
                late_tick_ms: ms(),
                unreachable_retransmits: draw.below(5),
            }
        }
    }
}

#[derive(Default)]
struct Heard {
    said: BTreeMap<ConnectionId, (Verdict, bool)>,
    closings: BTreeMap<ConnectionId, u64>,
    records: u64,
    may_probe: bool,
}

impl Heard {
    fn hear(&mut self, engine: &mut Engine, connections_before: usize) -> Result<(), String> {
        let mut outputs = 0;
        while let Some(output) = engine.poll() {
            outputs += 1;
            match output {
                Output::VerdictChanged(change) => {
                    let now = (change.to, change.kill_justified);
                    let before = self.said.insert(change.connection, now);
                    ensure!(before != Some(now), "the same twice: {change:?}");
                    ensure!(
                        before.is_none_or(|(verdict, _)| verdict == change.from),
                        "{change:?} after {before:?}"
                    );
                }
                Output::ProbeWanted(wanted) => {
                    ensure!(self.may_probe, "{wanted:?} although no probes may be sent");
                }
                Output::Leak(_) => {}
                Output::ReapWanted(wanted) => {
                    ensure!(false, "{wanted:?} although nothing may be reaped");
                }
                Output::Answered(answered) => {
                    let parts = answered.ping_to_ack_us.zip(answered.ack_to_pong_us);
                    ensure!(
                        parts.is_some()
                            == (answered.ping_to_ack_us.is_some() || answered.ack_to_pong_us.is_some()),
                        "half of an answer: {answered:?}"
                    );
                    let sum = parts.map(|(ack, pong)| ack.saturating_add(pong));
                    ensure!(
                        sum.is_none_or(|sum| sum.abs_diff(answered.ping_to_pong_us) <= 1),
                        "the parts make another sum: {answered:?}"
                    );
                }
                Output::Reconnected(reconnect) => {
                    ensure!(
                        reconnect.follows != reconnect.connection
                            && reconnect.after_ms <= RECONNECT_WITHIN_MS,
                        "nobody's return: {reconnect:?}"
                    );
                }
                Output::Closing { connection, .. } => {
                    self.said.insert(connection, (Verdict::Closed, false));
                    *self.closings.entry(connection).or_default() += 1;
                }
                Output::Closed(record) => {
                    self.records += 1;
                    self.said.remove(&record.connection);
                    let closings = self.closings.remove(&record.connection).unwrap_or(0);
                    ensure!(closings == u64::from(!record.still_open), "{closings} closings: {record:?}");
                    ensure!(record.ended_at >= record.closed_at, "ended before it was closed: {record:?}");
                    ensure!(
                        record.verdict_changes.len() <= VERDICT_HISTORY_MAX,
                        "a history of {}",
                        record.verdict_changes.len()
                    );
                }
            }
        }
        let limit = 8 * (connections_before + 1);
        ensure!(outputs <= limit, "{outputs} outputs of one call with {connections_before} connections");
        Ok(())
    }
}

fn run(bytes: &[u8]) -> Result<(), String> {
    let mut draw = Draw::new(bytes);
    let limit = usize::from(draw.below(6)) + 1;
    let mut engine = Engine::with_connection_limit(policy(&mut draw), limit);
    let mut clock = Clock::new();
    let mut latest = Timestamp::default();
    let mut heard = Heard::default();
    while !draw.is_empty() {
        clock.go_on(&mut draw);
        let before = engine.connections().count();
        match draw.below(16) {
            0 if draw.is_odd() => {
                heard.may_probe = draw.is_odd();
                engine.set_window_probes(heard.may_probe.then(WindowProbes::default));
            }
            0 => engine.set_policy(policy(&mut draw)),
            1 => {
                latest = latest.max(clock.now);
                engine.handle_timeout(clock.now);
            }
            _ => {
                let input: Input = inputs::input(&mut draw, &clock);
                latest = latest.max(input.at());
                engine.handle_input(input);
            }
        }
        heard.hear(&mut engine, before)?;
        let before = engine.connections().count();
        ensure!(before <= limit, "{before} connections, {limit} allowed");
        // What a driver does next: handle what is due.
        engine.handle_timeout(latest);
        heard.hear(&mut engine, before)?;
        ensure!(
            engine.poll_timeout().is_none_or(|due| due > latest),
            "due at {:?} although {latest:?} was handled",
            engine.poll_timeout()
        );
        let _ = engine.next_sample_at();
        for info in engine.connections() {
            let Some(assessed) = engine.assess(info.connection, latest) else {
                return Err("a listed connection is not known".to_owned());
            };
            let start = if info.preexisting { Verdict::Unknown } else { Verdict::Alive };
            let said = heard.said.get(&info.connection).copied().unwrap_or((start, false));
            ensure!(
                said == (assessed.verdict, assessed.kill_justified)
                    || said.0 == Verdict::Closed
                    || assessed.verdict == Verdict::Closed,
                "said {said:?}, answers {assessed:?}"
            );
        }
    }
    let before = engine.connections().count();
    engine.shut_down(latest);
    heard.hear(&mut engine, before)?;
    let counters = engine.counters();
    ensure!(
        heard.records == counters.connections_opened && counters.connections_closed == heard.records,
        "{} records, {counters:?}",
        heard.records
    );
    ensure!(
        engine.connections().count() == 0
            && engine.poll_timeout().is_none()
            && engine.next_sample_at().is_none(),
        "something is left after the end"
    );
    Ok(())
}
