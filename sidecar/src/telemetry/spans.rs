//! From a [`CloseRecord`] to its spans.
//!
//! A connection is one trace: a root span from its establishment to its end and, if this side closed it, a child from
//! the last proof of life to the end of the post-mortem. Spans are built after the fact, with explicit times: this is
//! what OpenTelemetry's own `SpanBuilder` is for. (`tracing-opentelemetry` makes spans from code that runs *now*; it
//! serves ackbeat's own work, see [`super::own_spans`].)

use ackbeat_liveness::{Assessment, CloseRecord, Timestamp, VerdictChange};
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{
    Event, Link, Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer,
};
use opentelemetry_sdk::propagation::TraceContextPropagator;

use super::attributes::{self, Attributes};
use super::wall_clock::WallClock;
use crate::kubernetes::PeerName;
use crate::source::Mode;

/// Names of the root span: with and without a heartbeat or an upgrade.
pub const ROOT_NAMES: [&str; 2] = ["websocket.connection", "tcp.connection"];
/// Names of the span of a close that this side started.
pub const CLOSE_NAMES: [&str; 2] = ["websocket.host_close", "tcp.host_close"];

/// Where a record's spans went.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// The root span.
    pub root: SpanContext,
    /// The close's span, if this side closed.
    pub host_close: Option<SpanContext>,
}

/// Hands the spans of a record to `tracer`. It never blocks: the tracer's processor queues or drops.
///
/// `follows` is the span of the end that the connection followed, if it is the return of a peer; `peer` is who the peer is to
/// Kubernetes.
pub fn emit<T: Tracer>(
    tracer: &T,
    record: &CloseRecord,
    mode: Mode,
    clock: &WallClock,
    follows: Option<&SpanContext>,
    peer: Option<&PeerName>,
) -> Emitted
where
    T::Span: Send + Sync + 'static,
{
    let name = |names: [&'static str; 2]| if record.is_websocket { names[0] } else { names[1] };
    let end = record.ended_at.max(record.closed_at);

    let mut of_root = Attributes::default();
    of_root.common(record, mode);
    of_root.root(record);
    of_root.peer(peer);
    let links = record
        .reconnect
        .as_ref()
        .zip(follows)
        .map(|(reconnect, follows)| Link::new(follows.clone(), attributes::of_reconnect(reconnect), 0));
    let mut root = start(
        tracer,
        SpanBuilder::from_name(name(ROOT_NAMES))
            // Not SERVER: a connection is no request, and must not count as one in a backend's rates and latencies.
            .with_kind(SpanKind::Internal)
            .with_start_time(clock.time_of(record.opened_at))
            .with_attributes(of_root.0)
            .with_links(links.into_iter().collect())
            .with_events(events(&record.verdict_changes, record.opened_at, clock)),
        &remote_parent(record),
    );

    let host_close = attributes::is_host_close(record).then(|| {
        let begin = record.last_proof_of_life_at.clamp(record.opened_at.min(end), end);
        let mut of_close = Attributes::default();
        of_close.common(record, mode);
        of_close.close(record);
        of_close.peer(peer);
        let mut span = start(
            tracer,
            SpanBuilder::from_name(name(CLOSE_NAMES))
                .with_kind(SpanKind::Internal)
                .with_start_time(clock.time_of(begin))
                .with_attributes(of_close.0)
                .with_events(events(&record.verdict_changes, begin, clock)),
            &Context::new().with_remote_span_context(root.span_context().clone()),
        );
        if record.assessment == Some(Assessment::FalseKill) {
            span.set_status(Status::error("the host closed a connection whose peer was alive"));
        }
        span.end_with_timestamp(clock.time_of(end));
        span.span_context().clone()
    });

    root.end_with_timestamp(clock.time_of(end));
    Emitted { root: root.span_context().clone(), host_close }
}

fn start<T: Tracer>(tracer: &T, builder: SpanBuilder, parent: &Context) -> T::Span {
    builder.start_with_context(tracer, parent)
}

/// The trace that the upgrade request belonged to (W3C Trace Context), if any.
fn remote_parent(record: &CloseRecord) -> Context {
    let Some(traceparent) = record.upgrade.as_ref().and_then(|upgrade| upgrade.traceparent.as_ref()) else {
        return Context::new();
    };
    let carrier = std::collections::HashMap::from([("traceparent".to_owned(), traceparent.clone())]);
    TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier)
}

/// Verdict changes, and turns of what they justify, from `since` on.
fn events(changes: &[VerdictChange], since: Timestamp, clock: &WallClock) -> Vec<Event> {
    changes
        .iter()
        .filter(|change| change.at >= since)
        .map(|change| {
            Event::new(
                if change.is_turn() {
                    attributes::KILL_JUSTIFIED_EVENT
                } else {
                    attributes::VERDICT_CHANGE_EVENT
                },
                clock.time_of(change.at),
                attributes::of_verdict_change(change),
                0,
            )
        })
        .collect()
}
