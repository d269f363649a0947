//! The table of detectors.

use ackbeat_liveness::Opened;

use super::Parameter;
use crate::aiohttp::Aiohttp;
use crate::any_inbound::AnyInbound;
use crate::engine_io::EngineIo;
use crate::idle_probe::IdleProbe;
use crate::keepalive::Keepalive;
use crate::missed_pings::{Backlog, MissedPings};
use crate::own_pings::tolerance_ms;
use crate::phi::{Phi, PhiSettings};
use crate::python_websockets::PythonWebsockets;
use crate::rule::{SAME_TIMER_MS, UntilEnd};
use crate::user_timeout::UserTimeout;
use crate::window::Window;
use crate::{Detector, Need};

/// A detector: what is known of it before it is started.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) source: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) parameters: &'static [Parameter],
    pub(crate) start: Start,
    pub(crate) earliest_kill_ms: fn(&[u64]) -> u64,
}

/// Starts a detector: the values of its parameters, the connection, whether the host reports its heartbeat.
pub(crate) type Start = fn(&[u64], &Opened, bool) -> Box<dyn Detector>;

const fn parameter(name: &'static str, default: u64, meaning: &'static str) -> Parameter {
    Parameter { name, default, meaning }
}

const fn interval_ms(default: u64) -> Parameter {
    parameter("interval_ms", default, "time between Pings")
}

const fn missed(default: u64) -> Parameter {
    parameter("missed", default, "unanswered Pings at which a tick kills")
}

const fn gate_bytes() -> Parameter {
    parameter("gate_bytes", 1 << 20, "bytes in the host's own memory above which a tick is skipped")
}

/// In the order of the arena's table.
pub(crate) static DEFINITIONS: &[Definition] = &[
    Definition {
        name: "ws-2",
        rule: "a Ping each interval, counted when sent; a tick at which `missed` are unanswered kills",
        source: "the `missed >= 2` watchdog around the npm package `ws`",
        needs: &[Need::Heartbeat],
        parameters: &[interval_ms(2_000), missed(2)],
        start: missed_pings,
        earliest_kill_ms: missed_earliest_ms,
    },
    Definition {
        name: "ws-2-slow",
        rule: "`ws-2` with a long interval",
        source: "the `missed >= 2` watchdog around the npm package `ws`",
        needs: &[Need::Heartbeat],
        parameters: &[interval_ms(30_000), missed(2)],
        start: missed_pings,
        earliest_kill_ms: missed_earliest_ms,
    },
    Definition {
        name: "ws-readme",
        rule: "a Ping each interval; a tick without a Pong since the last tick kills",
        source: "npm package `ws` 8.23.0, README.md, \"How to detect and close broken connections?\"",
        needs: &[Need::Heartbeat],
        parameters: &[interval_ms(30_000)],
        start: ws_readme,
        earliest_kill_ms: |values| missed_earliest_ms(&[value(values, 0), 1]),
    },
    Definition {
        name: "buffered-gate",
        rule: "`ws-2`, skipped at a tick while more than `gate_bytes` wait in the host's own memory",
        source: "`bufferedAmount` of the npm package `ws` 8.23.0, lib/websocket.js",
        needs: &[Need::Reports],
        parameters: &[interval_ms(2_000), missed(2), gate_bytes()],
        start: |values, opened, is_reported| {
            let gate = Backlog::Gate { gate_bytes: value(values, 2) };
            boxed(missed_of(values, opened, is_reported).with_backlog(gate))
        },
        earliest_kill_ms: missed_earliest_ms,
    },
    Definition {
        name: "any-inbound",
        rule: "`ws-2` in which any byte from the peer counts as an answer",
        source: "generic; Envoy does so for HTTP/2, source/common/http/http2/codec_impl.cc, `onBeforeFrameReceived`",
        needs: &[Need::Heartbeat, Need::Samples],
        parameters: &[interval_ms(2_000), missed(2)],
        start: |values, opened, is_reported| {
            boxed(AnyInbound::new(is_reported, opened.at, value(values, 0), value(values, 1)))
        },
        earliest_kill_ms: missed_earliest_ms,
    },
    Definition {
        name: "aiohttp",
        rule: "a Ping once no byte came for `heartbeat_ms`; half of that without a byte after it kills",
        source: "aiohttp 3.14.5, aiohttp/web_ws.py and client_ws.py",
        needs: &[Need::Heartbeat, Need::Samples],
        parameters: &[parameter("heartbeat_ms", 4_000, "`heartbeat` of WebSocketResponse and ws_connect")],
        start: |values, opened, is_reported| boxed(Aiohttp::new(is_reported, opened.at, value(values, 0))),
        earliest_kill_ms: |values| {
            let heartbeat_ms = value(values, 0);
            heartbeat_ms.saturating_add(heartbeat_ms / 2).saturating_sub(SAME_TIMER_MS)
        },
    },
    Definition {
        name: "python-websockets",
        rule: "a Ping each interval; `timeout_ms` without its Pong kills",
        source: "Python library `websockets` 17.4, websockets/asyncio/connection.py, `keepalive`",
        needs: &[Need::Heartbeat],
        parameters: &[
            parameter("interval_ms", 20_000, "`ping_interval`"),
            parameter("timeout_ms", 20_000, "`ping_timeout`"),
        ],
        start: |values, opened, is_reported| {
            boxed(PythonWebsockets::new(is_reported, opened.at, value(values, 0), value(values, 1)))
        },
        earliest_kill_ms: |values| sum_less_margin(values, 2),
    },
    Definition {
        name: "engine-io",
        rule: "a ping after the interval; `timeout_ms` without a pong kills, put off once by another packet",
        source: "npm package `engine.io` 6.6.13, build/socket.js, `schedulePing` and `onPacket`",
        needs: &[Need::Heartbeat, Need::Samples],
        parameters: &[
            parameter("interval_ms", 25_000, "`pingInterval`"),
            parameter("timeout_ms", 20_000, "`pingTimeout`"),
        ],
        start: |values, opened, is_reported| {
            boxed(EngineIo::new(is_reported, opened.at, value(values, 0), value(values, 1)))
        },
        earliest_kill_ms: |values| sum_less_margin(values, 2),
    },
    Definition {
        name: "window-3x",
        rule: "a Ping each interval; a tick `intervals` intervals or more after the last Pong kills",
        source: "watchdogs that remember the time of the last Pong",
        needs: &[Need::Heartbeat],
        parameters: &[
            interval_ms(2_000),
            parameter("intervals", 3, "intervals without a Pong at which a tick kills"),
        ],
        start: |values, opened, is_reported| {
            boxed(Window::new(is_reported, opened.at, value(values, 0), value(values, 1)))
        },
        earliest_kill_ms: |values| value(values, 0).saturating_mul(value(values, 1)),
    },
    Definition {
        name: "idle-probe",
        rule: "a probe after `idle_ms` without a byte; `answer_ms` without one after it kills",
        source: "a WebSocket client behind a CDN that drops idle connections silently",
        needs: &[Need::Heartbeat, Need::Samples],
        parameters: &[idle_ms(120_000), answer_ms(10_000), late_ms(30_000)],
        start: idle_probe,
        earliest_kill_ms: |values| sum_less_margin(values, 2),
    },
    Definition {
        name: "idle-probe-fast",
        rule: "`idle-probe` at a fifteenth of the time",
        source: "a WebSocket client behind a CDN that drops idle connections silently",
        needs: &[Need::Heartbeat, Need::Samples],
        parameters: &[idle_ms(8_000), answer_ms(667), late_ms(2_000)],
        start: idle_probe,
        earliest_kill_ms: |values| sum_less_margin(values, 2),
    },
    Definition {
        name: "user-timeout",
        rule: "TCP_USER_TIMEOUT: data retransmitted, or probed behind a closed window, for so long kills",
        source: "RFC 5482; Linux 5.11, net/ipv4/tcp_timer.c",
        needs: &[Need::Samples],
        parameters: &[parameter("timeout_ms", 2_000, "`TCP_USER_TIMEOUT`")],
        start: |values, _, _| boxed(UserTimeout::new(value(values, 0))),
        // The first clock starts with a retransmission that may be older than the recording of the connection.
        earliest_kill_ms: |_| 0,
    },
    Definition {
        name: "keepalive",
        rule: "TCP keepalive: an idle socket whose probes are unanswered is killed; nothing may be in flight",
        source: "RFC 9293 section 3.8.4; Linux, net/ipv4/tcp_timer.c, tcp_keepalive_timer",
        needs: &[Need::Samples],
        parameters: &[
            parameter("idle_ms", 1_000, "`TCP_KEEPIDLE`"),
            parameter("interval_ms", 1_000, "`TCP_KEEPINTVL`"),
            parameter("probes", 3, "`TCP_KEEPCNT`"),
        ],
        start: |values, opened, _| {
            boxed(Keepalive::new(opened.at, value(values, 0), value(values, 1), value(values, 2)))
        },
        earliest_kill_ms: |values| {
            value(values, 0).saturating_add(value(values, 1).saturating_mul(value(values, 2)))
        },
    },
    Definition {
        name: "phi",
        rule: "phi-accrual over the arrivals of Pongs: phi at the threshold kills",
        source: "Hayashibara et al., SRDS 2004, as in Akka's PhiAccrualFailureDetector, without a pause",
        needs: &[Need::Heartbeat],
        parameters: &[
            parameter("threshold", 8, "phi at which it kills"),
            parameter("window", 1_000, "arrivals that are remembered"),
            parameter("min_std_ms", 100, "least standard deviation of the times between arrivals"),
            parameter("first_ms", 2_000, "time between arrivals before any is known"),
        ],
        start: |values, _, is_reported| {
            let settings = PhiSettings {
                threshold: value(values, 0),
                window: value(values, 1),
                min_std_ms: value(values, 2),
                first_ms: value(values, 3),
            };
            boxed(Phi::new(is_reported, settings))
        },
        // Arrivals that were close together make it suspect at once.
        earliest_kill_ms: |_| 0,
    },
    Definition {
        name: "queue-moved",
        rule: "`ws-2`, begun anew at a tick at which the bytes in the host's own memory have changed",
        source: "Node.js 20, lib/net.js, `_onTimeout`; Netty 4.1, IdleStateHandler, `observeOutput`",
        needs: &[Need::Reports],
        parameters: &[interval_ms(2_000), missed(2)],
        start: |values, opened, is_reported| {
            boxed(missed_of(values, opened, is_reported).with_backlog(Backlog::Moved { last_bytes: 0 }))
        },
        earliest_kill_ms: missed_earliest_ms,
    },
];

const fn idle_ms(default: u64) -> Parameter {
    parameter("idle_ms", default, "time without a byte from the peer before the probe")
}

const fn answer_ms(default: u64) -> Parameter {
    parameter("answer_ms", default, "time for an answer")
}

const fn late_ms(default: u64) -> Parameter {
    parameter("late_ms", default, "a check later than this opens a new wait")
}

fn value(values: &[u64], index: usize) -> u64 {
    values.get(index).copied().unwrap_or(1)
}

fn boxed<R: crate::rule::Rule + 'static>(rule: R) -> Box<dyn Detector> {
    Box::new(UntilEnd::new(rule))
}

fn missed_of(values: &[u64], opened: &Opened, is_reported: bool) -> MissedPings {
    MissedPings::new(is_reported, opened.at, value(values, 0), value(values, 1))
}

fn missed_pings(values: &[u64], opened: &Opened, is_reported: bool) -> Box<dyn Detector> {
    boxed(missed_of(values, opened, is_reported))
}

fn ws_readme(values: &[u64], opened: &Opened, is_reported: bool) -> Box<dyn Detector> {
    boxed(MissedPings::new(is_reported, opened.at, value(values, 0), 1))
}

fn idle_probe(values: &[u64], opened: &Opened, is_reported: bool) -> Box<dyn Detector> {
    boxed(IdleProbe::new(is_reported, opened.at, value(values, 0), value(values, 1), value(values, 2)))
}

/// The first Ping may go out when the connection opens; the ticks after it may be early by the tolerance.
fn missed_earliest_ms(values: &[u64]) -> u64 {
    let interval_ms = value(values, 0);
    let early_ms = tolerance_ms(interval_ms).max(SAME_TIMER_MS);
    interval_ms.saturating_sub(early_ms).saturating_mul(value(values, 1))
}

fn sum_less_margin(values: &[u64], count: usize) -> u64 {
    let sum = values.iter().take(count).fold(0_u64, |sum, value| sum.saturating_add(*value));
    sum.saturating_sub(2 * SAME_TIMER_MS)
}
