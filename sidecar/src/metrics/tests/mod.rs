//! The metrics: the table, the page and what the code exports are one.

mod export;
mod outage;
mod page;
mod server;
mod table;

use std::sync::Arc;

use ackbeat_liveness::{
    Assessment, CloseInitiator, CloseKind, CloseRecord, HeartbeatAnswered, HeartbeatProfile, Reconnect, Rung,
    Timestamp, Verdict, VerdictChange,
};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::Resource;

use super::pipeline::MetricsPipeline;
use super::{Metrics, Sources};
use crate::api::counters::ApiCounters;
use crate::driver::Housekeeping;
use crate::source::Mode;
use crate::telemetry::environment::MetricsPlan;
use crate::telemetry::pipeline::SpanCounts;
use crate::telemetry::test_records as records;

/// A plan from variables.
fn plan(variables: &[(&str, &str)]) -> MetricsPlan {
    MetricsPlan::read(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

fn sources() -> Sources {
    Sources { spans: Arc::new(SpanCounts::default()), lost_log_lines: Box::new(|| 3) }
}

fn start(plan: &MetricsPlan) -> MetricsPipeline {
    let resource = Resource::builder_empty()
        .with_attributes([opentelemetry::KeyValue::new("service.name", "ackbeat")])
        .build();
    MetricsPipeline::start(plan, resource, sources()).unwrap()
}

/// The context of a span that is sampled.
fn span(number: u64) -> SpanContext {
    SpanContext::new(
        TraceId::from(u128::from(number)),
        SpanId::from(number),
        TraceFlags::SAMPLED,
        false,
        TraceState::NONE,
    )
}

/// A close of each kind.
fn every_close() -> Vec<CloseRecord> {
    let mut unseen = records::peer_reset();
    unseen.initiator = CloseInitiator::Unknown;
    vec![
        records::false_kill(),
        records::justified_kill(),
        records::unknown_abort(),
        records::graceful(),
        records::process_exit(),
        records::kernel_timeout(),
        records::peer_reset(),
        unseen,
        records::planned_restart(),
    ]
}

/// Something for every instrument.
fn record_everything(metrics: &Metrics) {
    metrics.source_is(Mode::Ebpf, true);
    for (number, record) in (1..).zip(every_close()) {
        metrics.closed(&record, &span(number));
    }
    metrics.closed(&records::still_open(), &span(99));
    for from in Verdict::ALL {
        for to in Verdict::ALL {
            metrics.verdict_changed(&VerdictChange {
                connection: ackbeat_liveness::ConnectionId(1),
                at: Timestamp::from_ms(1),
                from: *from,
                to: *to,
                rung: Rung::Hop,
                kill_justified: false,
            });
        }
    }
    metrics.answered(&answered(Some(1_500), Some(40_000)));
    metrics.answered(&answered(None, None));
    for (initiator, assessment) in
        [(CloseInitiator::Host, Some(Assessment::FalseKill)), (CloseInitiator::Peer, None)]
    {
        metrics.reconnected(&Reconnect {
            connection: ackbeat_liveness::ConnectionId(2),
            at: Timestamp::from_ms(9),
            follows: ackbeat_liveness::ConnectionId(1),
            after_ms: 1_250,
            kind: CloseKind::HeartbeatKill,
            initiator,
            assessment,
        });
    }
    sweep(metrics, 1);
    metrics.keep_house(&Housekeeping { recording_lost: 7, connections: 1, ..Housekeeping::default() });
    metrics.storms(storms());
    let api = Arc::new(ApiCounters::default());
    for (route, status) in
        [("/v1/verdict", 200), ("/v1/verdict", 200), ("/x/{peer}", 200), ("unknown", 404), ("/metrics", 799)]
    {
        api.count_request(route, status);
    }
    metrics.api_is(api);
    metrics.sockets_are([1; 11]);
    metrics.reaps_are(Arc::default());
    metrics.kubernetes_is(Arc::new(crate::kubernetes::KubernetesCounters::everything()));
    metrics.reloads_are(Arc::new(crate::reload::ReloadState::new(crate::config::PolicyName::Default)));
}

/// A port with a resonance, and arrivals beyond the ports that are told apart.
fn storms() -> crate::connections::Storms {
    crate::connections::Storms {
        ports: vec![ackbeat_storms::PortArrivals {
            local_port: 9_000,
            arrivals: 12,
            arrivals_per_second: Some(2),
            baseline_per_second: 0.5,
            storm_since: Some(Timestamp::from_ms(1)),
            storms: 1,
            resonance: Some(ackbeat_storms::Resonance { period_ms: 3_000.0, strength: 0.9, windows: 8 }),
            windows: 8,
            outage: None,
        }],
        totals: ackbeat_storms::Totals { arrivals: 14, arrivals_unwatched: 2, storms: 1, outages: 3 },
        recent: Vec::new(),
    }
}

fn answered(ping_to_ack_us: Option<u64>, ack_to_pong_us: Option<u64>) -> HeartbeatAnswered {
    HeartbeatAnswered {
        connection: ackbeat_liveness::ConnectionId(1),
        at: Timestamp::from_ms(5),
        profile: HeartbeatProfile::Rfc6455,
        ping_to_pong_us: 41_500,
        ping_to_ack_us,
        ack_to_pong_us,
    }
}

/// A sweep over this many connections of an engine that had a reading of each.
fn sweep(metrics: &Metrics, connections: u64) {
    let engine = engine(connections);
    super::Feed::new(metrics.clone()).sweep(|look| engine.connections().for_each(|info| look(&info)));
}

/// An engine with this many connections, each of whose sockets was read.
fn engine(connections: u64) -> ackbeat_liveness::Engine {
    use ackbeat_liveness::{ConnectionId, Engine, Input, Opened, Policy};
    let mut engine = Engine::new(Policy::default_policy());
    let false_kill = records::false_kill();
    for number in 1..=connections {
        let (connection, at) = (ConnectionId(number), Timestamp::from_ms(1_000));
        engine.handle_input(Input::Opened(Opened {
            connection,
            at,
            endpoints: false_kill.endpoints,
            role: false_kill.role,
            preexisting: false,
            frames_visible: true,
        }));
        let mut snapshot = records::full_snapshot(at);
        snapshot.connection = connection;
        snapshot.state = ackbeat_liveness::TcpState::Established;
        engine.handle_input(Input::Sample(snapshot));
    }
    engine
}
