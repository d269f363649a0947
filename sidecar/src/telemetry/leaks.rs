//! Leaks, told to people and backends: spans `leak_suspected`, `leak_cleared` and `leak_reap`, and a sentence each.

use ackbeat_liveness::Timestamp;
use ackbeat_liveness::leak::{Certainty, GroupKey, LeakChange, LeakSign, ReapWanted, Side};
use opentelemetry::trace::{Link, Span as _, SpanBuilder, SpanContext, SpanKind, Tracer};
use opentelemetry::{KeyValue, Value};
use opentelemetry_semantic_conventions::attribute as semconv;

use super::attributes::{self, Attributes};
use super::wall_clock::WallClock;
use crate::census::control::ReapOutcome;
use crate::kubernetes::PeerName;
use crate::source::Mode;

/// Name of the span of a suspicion: from when its sign began to when it was raised.
pub const SUSPECTED: &str = "leak_suspected";
/// Name of the span of its end: from when its sign began to when it was cleared. It links to the span of the suspicion.
pub const CLEARED: &str = "leak_cleared";
/// Name of the span of a socket that was destroyed, or would have been: from its last byte to the destroy.
pub const REAP: &str = "leak_reap";

/// `ackbeat.leak.sign`: a [`LeakSign`].
pub const SIGN: &str = "ackbeat.leak.sign";
/// `ackbeat.leak.side`: `local`, a port that the pod listens on, or `remote`, one that it dials.
pub const SIDE: &str = "ackbeat.leak.side";
/// `ackbeat.leak.count`: established connections of the port.
pub const COUNT: &str = "ackbeat.leak.count";
/// `ackbeat.leak.maximum`: how many there were at most in the last hour.
pub const MAXIMUM: &str = "ackbeat.leak.maximum";
/// `ackbeat.leak.quota`: the configured quota.
pub const QUOTA: &str = "ackbeat.leak.quota";
/// `ackbeat.leak.likely_quota`: the number at which the count stands, where no quota is configured.
pub const LIKELY_QUOTA: &str = "ackbeat.leak.likely_quota";
/// `ackbeat.leak.idle`: of them, idle ones.
pub const IDLE: &str = "ackbeat.leak.idle";
/// `ackbeat.leak.idle_ms`: all of the idle ones have carried no byte for at least this long.
pub const IDLE_MS: &str = "ackbeat.leak.idle_ms";
/// `ackbeat.leak.age_ms`: how long the sign has been there; on `leak_reap`, how old the socket is at least.
pub const AGE_MS: &str = "ackbeat.leak.age_ms";
/// `ackbeat.leak.orphans`: dialled sockets that outlive the connections that they served.
pub const ORPHANS: &str = "ackbeat.leak.orphans";
/// `ackbeat.leak.certainty`: how sure the best of the named pairs is, a [`Certainty`].
pub const CERTAINTY: &str = "ackbeat.leak.certainty";
/// `ackbeat.leak.fd_count`: file descriptors that the owner has open.
pub const FD_COUNT: &str = "ackbeat.leak.fd_count";
/// `ackbeat.leak.reap_outcome`: a [`ReapOutcome`].
pub const REAP_OUTCOME: &str = "ackbeat.leak.reap_outcome";
/// `ackbeat.leak.dry_run`: nothing was destroyed, it only would have been.
pub const DRY_RUN: &str = "ackbeat.leak.dry_run";

/// What became of a socket that was to be destroyed.
#[derive(Clone, Copy, Debug)]
pub struct Reaped<'a> {
    /// What the engine wanted.
    pub wanted: &'a ReapWanted,
    /// What became of it.
    pub outcome: ReapOutcome,
    /// For how long it had carried nothing at the last look, in milliseconds.
    pub idle_ms: Option<u64>,
    /// How evidence is gathered.
    pub mode: Mode,
}

fn count(value: impl TryInto<i64>) -> Value {
    Value::I64(value.try_into().unwrap_or(i64::MAX))
}

/// Names the port, and where it is one socket, the socket.
fn place(group: &GroupKey, endpoints: Option<&ackbeat_liveness::Endpoints>, mode: Mode) -> Vec<KeyValue> {
    let mut all = vec![
        KeyValue::new(semconv::NETWORK_TRANSPORT, "tcp"),
        KeyValue::new(SIDE, group.side.as_str()),
        KeyValue::new(attributes::MODE, mode.as_str()),
    ];
    let mut end = |address, port, of_address, of_port| {
        all.push(KeyValue::new(of_address, std::net::IpAddr::to_canonical(&address).to_string()));
        all.push(KeyValue::new(of_port, i64::from(port)));
    };
    let local = (semconv::NETWORK_LOCAL_ADDRESS, semconv::NETWORK_LOCAL_PORT);
    let peer = (semconv::NETWORK_PEER_ADDRESS, semconv::NETWORK_PEER_PORT);
    match (endpoints, group.side) {
        (Some(ends), _) => {
            end(ends.local_address, ends.local_port, local.0, local.1);
            end(ends.peer_address, ends.peer_port, peer.0, peer.1);
        }
        (None, Side::Local) => end(group.address, group.port, local.0, local.1),
        (None, Side::Remote) => end(group.address, group.port, peer.0, peer.1),
    }
    all
}

/// Hands the span of a suspicion, or of its end, to `tracer`. It never blocks: the tracer's processor queues or drops.
pub fn emit<T: Tracer>(
    tracer: &T,
    change: &LeakChange,
    suspected: Option<SpanContext>,
    mode: Mode,
    peer: Option<&PeerName>,
    clock: &WallClock,
) -> SpanContext {
    let mut all = place(&change.group, change.endpoints.as_ref(), mode);
    all.push(KeyValue::new(SIGN, change.sign.as_str()));
    all.push(KeyValue::new(COUNT, count(change.count)));
    all.push(KeyValue::new(MAXIMUM, count(change.maximum)));
    all.push(KeyValue::new(IDLE, count(change.idle)));
    all.push(KeyValue::new(AGE_MS, count(change.at.ms_since(change.since))));
    all.push(KeyValue::new(ORPHANS, count(change.orphans)));
    let mut known = |name, value: Option<Value>| all.extend(value.map(|value| KeyValue::new(name, value)));
    known(QUOTA, change.quota.map(count));
    known(LIKELY_QUOTA, likely_quota(change).map(count));
    known(IDLE_MS, change.idle_ms.map(count));
    known(CERTAINTY, best(change).map(|certainty| certainty.as_str().into()));
    known(semconv::PROCESS_PID, change.pid.map(count));
    if let Some(owner) = &change.owner {
        known(semconv::PROCESS_EXECUTABLE_NAME, Some(owner.command.clone().into()));
        known(FD_COUNT, Some(count(owner.fd_count)));
    }
    let mut named = Attributes::default();
    named.peer(peer);
    all.append(&mut named.0);
    let builder = SpanBuilder::from_name(if change.suspected { SUSPECTED } else { CLEARED })
        .with_kind(SpanKind::Internal)
        .with_start_time(clock.time_of(change.since))
        .with_links(suspected.into_iter().map(Link::with_context).collect())
        .with_attributes(all);
    end(tracer, builder, change.at, clock)
}

/// Hands the span of a socket that was destroyed, or would have been, to `tracer`.
pub fn emit_reap<T: Tracer>(
    tracer: &T,
    reaped: &Reaped<'_>,
    at: Timestamp,
    clock: &WallClock,
) -> SpanContext {
    let wanted = reaped.wanted;
    let idle_ms = reaped.idle_ms.unwrap_or(wanted.idle_ms);
    let mut all = place(&wanted.group, Some(&wanted.endpoints), reaped.mode);
    all.extend([
        KeyValue::new(REAP_OUTCOME, reaped.outcome.as_str()),
        KeyValue::new(DRY_RUN, reaped.outcome == ReapOutcome::DryRun),
        KeyValue::new(QUOTA, count(wanted.quota)),
        KeyValue::new(COUNT, count(wanted.count)),
        KeyValue::new(AGE_MS, count(wanted.age_ms)),
        KeyValue::new(IDLE_MS, count(idle_ms)),
    ]);
    let builder = SpanBuilder::from_name(REAP)
        .with_kind(SpanKind::Internal)
        .with_start_time(clock.time_of(at.minus_ms(idle_ms)))
        .with_attributes(all);
    end(tracer, builder, at, clock)
}

fn end<T: Tracer>(tracer: &T, builder: SpanBuilder, at: Timestamp, clock: &WallClock) -> SpanContext {
    let mut span = builder.start_with_context(tracer, &opentelemetry::Context::new());
    span.end_with_timestamp(clock.time_of(at));
    span.span_context().clone()
}

/// The number at which the count stands: a quota that nobody configured here.
fn likely_quota(change: &LeakChange) -> Option<u32> {
    (change.sign == LeakSign::FlatCount && change.quota.is_none()).then_some(change.count)
}

fn best(change: &LeakChange) -> Option<Certainty> {
    change.pairs.iter().map(|pair| pair.certainty).max()
}

/// Whose port it is, and which.
pub(super) fn port(group: &GroupKey) -> String {
    format!("{} {}", group.side.as_str(), std::net::SocketAddr::new(group.address, group.port))
}

/// How long the sign has been there.
pub(super) fn age(change: &LeakChange) -> String {
    duration(change.at.ms_since(change.since))
}

/// What it is, in a sentence.
#[must_use]
pub fn sentence(change: &LeakChange) -> String {
    let (port, age) = (port(&change.group), age(change));
    if !change.suspected {
        return format!("{port}: no leak is suspected any more ({})", change.sign.as_str());
    }
    match change.sign {
        LeakSign::FlatCount => {
            let exactly = match change.quota {
                Some(quota) if change.count < quota => {
                    format!("exactly {} for {age}, its maximum below the quota of {quota}", change.count)
                }
                Some(quota) => format!("{} for {age}, the quota is {quota}", change.count),
                None => format!("exactly {} for {age}, likely a quota", change.count),
            };
            let idle =
                change.idle_ms.map_or_else(String::new, |idle_ms| format!(" for {}", duration(idle_ms)));
            format!("{port}: {exactly}; no bytes either way on {} of them{idle}", change.idle)
        }
        LeakSign::CloseWait => {
            let ends = change.endpoints.map_or_else(String::new, |ends| {
                format!(" {}", std::net::SocketAddr::new(ends.peer_address.to_canonical(), ends.peer_port))
            });
            format!("{port}: the peer{ends} closed {age} ago, and the host has not (CLOSE_WAIT)")
        }
        LeakSign::Orphans => {
            let sure = best(change).map_or("possible", Certainty::as_str);
            format!(
                "{port}: {} of {} connections outlive the ones that they served, whose peers closed, the first {age} ago; they \
                 carry nothing and are not used again ({sure} pairs)",
                change.orphans, change.count
            )
        }
    }
}

/// A duration as people say it.
fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} minutes", seconds / 60),
        _ => format!("{} hours", seconds / 3_600),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::telemetry) fn change(sign: LeakSign) -> LeakChange {
        LeakChange {
            at: Timestamp::from_ms(600_000),
            suspected: true,
            sign,
            group: GroupKey { side: Side::Remote, address: "10.0.0.7".parse().unwrap(), port: 8_080 },
            connection: None,
            endpoints: None,
            since: Timestamp::from_ms(60_000),
            count: 64,
            maximum: 64,
            quota: None,
            idle: 64,
            idle_ms: Some(545_000),
            orphans: 5,
            pairs: Vec::new(),
            owner: None,
            pid: None,
        }
    }

    #[test]
    fn the_sentence_names_the_likely_quota() {
        assert_eq!(
            sentence(&change(LeakSign::FlatCount)),
            "remote 10.0.0.7:8080: exactly 64 for 9 minutes, likely a quota; no bytes either way on 64 of them for 9 minutes"
        );
        let configured = LeakChange { quota: Some(64), ..change(LeakSign::FlatCount) };
        assert!(sentence(&configured).contains("64 for 9 minutes, the quota is 64"));
        let below = LeakChange { quota: Some(100), ..change(LeakSign::FlatCount) };
        assert!(sentence(&below).contains("exactly 64 for 9 minutes, its maximum below the quota of 100"));
        assert!(sentence(&change(LeakSign::Orphans)).contains("5 of 64"));
        let cleared = LeakChange { suspected: false, ..change(LeakSign::CloseWait) };
        assert!(sentence(&cleared).contains("no leak is suspected any more (close_wait)"));
    }
}
