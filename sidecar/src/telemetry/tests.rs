//! The spans are an interface: their names, attributes, units and lines are held here.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use ackbeat_liveness::{CloseRecord, ConnectionId, Reconnect, Timestamp};
use opentelemetry::trace::Status;
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::console::ConsoleExporter;
use super::end_spans::EndSpans;
use super::environment::{ExporterPlan, OtlpPlan, OtlpProtocol, Plan};
use super::pipeline::Pipeline;
use super::test_records as records;
use super::wall_clock::WallClock;
use super::{attributes, spans};
use crate::kubernetes::{PeerKind, PeerName};
use crate::source::Mode;

mod hanging;

const DEADLINE: Duration = Duration::from_secs(20);

fn plan() -> Plan {
    Plan {
        exporters: Vec::new(),
        schedule_delay: None,
        max_queue_size: 64,
        max_export_batch_size: 16,
        warnings: Vec::new(),
    }
}

fn resource() -> Resource {
    Resource::builder_empty().with_attributes([KeyValue::new("service.name", "ackbeat")]).build()
}

fn clock() -> WallClock {
    WallClock::at(Timestamp::from_ms(100_000), UNIX_EPOCH + Duration::from_secs(1_700_000_000))
}

/// Keeps what it gets.
#[derive(Clone, Debug, Default)]
struct Collector(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Collector {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().append(&mut batch);
        Ok(())
    }
}

/// The spans of one record: the close's first, if there is one, then the root.
fn spans_of(record: &CloseRecord) -> Vec<SpanData> {
    spans_in(Mode::Ebpf, record)
}

fn spans_in(mode: Mode, record: &CloseRecord) -> Vec<SpanData> {
    let collector = Collector::default();
    let pipeline = Pipeline::with_exporter(&plan(), resource(), collector.clone()).unwrap();
    spans::emit(&pipeline.tracer(), record, mode, &clock(), None, None);
    assert!(pipeline.shut_down(DEADLINE));
    std::mem::take(&mut *collector.0.lock().unwrap())
}

/// The two ages in mode `sock_diag`, of the close's span.
fn ages_of(record: &CloseRecord) -> [bool; 2] {
    let attributes = attributes_of(&spans_in(Mode::SockDiag, record)[0]);
    [attributes::TCP_LAST_ACK_AGE_MS, attributes::TCP_LAST_INBOUND_AGE_MS]
        .map(|name| attributes.contains_key(name))
}

#[test]
fn without_kernel_programs_an_age_from_before_the_close_is_no_age_at_the_close() {
    let mut record = records::false_kill();
    assert_eq!(ages_of(&record), [true, true], "the pass that found the close read the socket's accounting");
    let snapshot = record.snapshot.as_mut().unwrap();
    snapshot.last_inbound_at = None;
    assert_eq!(ages_of(&record), [true, false], "no accounting any more: TIME_WAIT");
    let mut record = records::false_kill();
    record.closed_at = record.closed_at.plus_ms(1);
    assert_eq!(ages_of(&record), [false, false], "gone by then: the accounting is that of the pass before");
    record.snapshot = None;
    assert_eq!(ages_of(&record), [false, false]);
}

fn attributes_of(span: &SpanData) -> BTreeMap<String, Value> {
    span.attributes.iter().map(|pair| (pair.key.to_string(), pair.value.clone())).collect()
}

fn text<'a>(attributes: &'a BTreeMap<String, Value>, name: &str) -> Option<std::borrow::Cow<'a, str>> {
    attributes.get(name).map(Value::as_str)
}

/// A writer whose text can be read afterwards.
#[derive(Clone, Debug, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines of one record, with its random identifiers named in the order of their appearance.
fn lines_of(record: &CloseRecord) -> Vec<serde_json::Value> {
    let written = Text::default();
    let pipeline =
        Pipeline::with_exporter(&plan(), resource(), ConsoleExporter::new(written.clone())).unwrap();
    spans::emit(&pipeline.tracer(), record, Mode::Ebpf, &clock(), None, None);
    assert!(pipeline.shut_down(DEADLINE));
    let bytes = written.0.lock().unwrap().clone();
    let mut names = BTreeMap::new();
    let mut lines = Vec::new();
    for line in String::from_utf8(bytes).unwrap().lines() {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        for key in ["trace_id", "span_id", "parent_span_id"] {
            if let Some(id) = line[key].as_str().map(str::to_owned) {
                let fixed = ["0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"].contains(&id.as_str());
                assert_eq!(id.len(), if key == "trace_id" { 32 } else { 16 });
                let next = format!("[id {}]", names.len() + 1);
                let name = if fixed { id.clone() } else { names.entry(id).or_insert(next).clone() };
                line[key] = name.into();
            }
        }
        lines.push(line);
    }
    lines
}

#[test]
fn the_console_prints_each_kind_of_close() {
    insta::assert_json_snapshot!("false_kill", lines_of(&records::false_kill()));
    insta::assert_json_snapshot!("justified_kill", lines_of(&records::justified_kill()));
    insta::assert_json_snapshot!("unknown_abort", lines_of(&records::unknown_abort()));
    insta::assert_json_snapshot!("graceful", lines_of(&records::graceful()));
    insta::assert_json_snapshot!("planned_restart", lines_of(&records::planned_restart()));
    insta::assert_json_snapshot!("process_exit", lines_of(&records::process_exit()));
    insta::assert_json_snapshot!("kernel_timeout", lines_of(&records::kernel_timeout()));
    insta::assert_json_snapshot!("peer_reset", lines_of(&records::peer_reset()));
    insta::assert_json_snapshot!("still_open", lines_of(&records::still_open()));
}

#[test]
fn a_console_line_has_exactly_the_promised_keys_in_order() {
    let written = Text::default();
    let pipeline =
        Pipeline::with_exporter(&plan(), resource(), ConsoleExporter::new(written.clone())).unwrap();
    spans::emit(&pipeline.tracer(), &records::false_kill(), Mode::Ebpf, &clock(), None, None);
    assert!(pipeline.shut_down(DEADLINE));
    let bytes = written.0.lock().unwrap().clone();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.lines().count(), 2);
    let keys = [
        "name",
        "kind",
        "trace_id",
        "span_id",
        "parent_span_id",
        "start_unix_ns",
        "end_unix_ns",
        "status",
        "attributes",
        "events",
        "links",
        "resource",
    ];
    for line in text.lines() {
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
        assert_eq!(object.keys().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(keys));
        let places: Vec<usize> = keys.iter().map(|key| line.find(&format!("\"{key}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{line}");
    }
}

/// Names and kinds of values, as the design has them.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("network.transport", "text"),
    ("network.type", "text"),
    ("network.local.address", "text"),
    ("network.local.port", "integer"),
    ("network.peer.address", "text"),
    ("network.peer.port", "integer"),
    ("process.pid", "integer"),
    ("process.executable.name", "text"),
    ("error.type", "text"),
    ("ackbeat.close.kind", "text"),
    ("ackbeat.close.initiator", "text"),
    ("ackbeat.close.method", "text"),
    ("ackbeat.close.ws_code", "integer"),
    ("ackbeat.close.ws_reason", "text"),
    ("ackbeat.close.ws_frame", "text"),
    ("ackbeat.close.final", "boolean"),
    ("ackbeat.verdict", "text"),
    ("ackbeat.verdict.evidence", "text"),
    ("ackbeat.kill.justified", "boolean"),
    ("ackbeat.kill.assessment", "text"),
    ("ackbeat.false_kill", "boolean"),
    ("ackbeat.postmortem", "text"),
    ("ackbeat.heartbeat.source", "text"),
    ("ackbeat.heartbeat.profile", "text"),
    ("ackbeat.heartbeat.interval_ms", "integer"),
    ("ackbeat.heartbeat.missed", "integer"),
    ("ackbeat.heartbeat.last_pong_age_ms", "integer"),
    ("ackbeat.heartbeat.ping_location", "text"),
    ("ackbeat.heartbeat.ping_bytes_ahead", "integer"),
    ("ackbeat.heartbeat.inferred", "boolean"),
    ("ackbeat.tcp.send_queue_bytes", "integer"),
    ("ackbeat.tcp.unsent_bytes", "integer"),
    ("ackbeat.tcp.unread_bytes", "integer"),
    ("ackbeat.tcp.snd_wnd_bytes", "integer"),
    ("ackbeat.tcp.srtt_us", "integer"),
    ("ackbeat.tcp.rto_ms", "integer"),
    ("ackbeat.tcp.backoff", "integer"),
    ("ackbeat.tcp.retransmits", "integer"),
    ("ackbeat.tcp.soft_error", "text"),
    ("ackbeat.tcp.bytes_acked", "integer"),
    ("ackbeat.tcp.bytes_received", "integer"),
    ("ackbeat.tcp.last_ack_age_ms", "integer"),
    ("ackbeat.tcp.last_inbound_age_ms", "integer"),
    ("ackbeat.connection.lifetime_ms", "integer"),
    ("ackbeat.evidence.scope", "text"),
    ("ackbeat.mode", "text"),
    ("ackbeat.events_dropped", "integer"),
];

#[test]
fn a_close_about_which_all_is_known_has_every_attribute_and_no_other() {
    let spans = spans_of(&records::false_kill());
    let found: BTreeMap<String, &str> = attributes_of(&spans[0])
        .into_iter()
        .map(|(name, value)| {
            let kind = match value {
                Value::Bool(_) => "boolean",
                Value::I64(_) => "integer",
                Value::String(_) => "text",
                _ => "something else",
            };
            (name, kind)
        })
        .collect();
    let expected: BTreeMap<String, &str> =
        ATTRIBUTES.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
    assert_eq!(found, expected);
    let root = attributes_of(&spans[1]);
    assert!(root.keys().all(|name| expected.contains_key(name)), "{root:?}");
}

#[test]
fn a_peer_that_is_known_is_named_on_both_spans() {
    let name = |kind| PeerName { kind, namespace: "shop".to_owned(), name: "reader-0".to_owned() };
    for (kind, of_name) in
        [(PeerKind::Pod, attributes::PEER_POD_NAME), (PeerKind::Service, attributes::PEER_SERVICE_NAME)]
    {
        let collector = Collector::default();
        let pipeline = Pipeline::with_exporter(&plan(), resource(), collector.clone()).unwrap();
        let peer = name(kind);
        spans::emit(&pipeline.tracer(), &records::false_kill(), Mode::Ebpf, &clock(), None, Some(&peer));
        assert!(pipeline.shut_down(DEADLINE));
        let spans = std::mem::take(&mut *collector.0.lock().unwrap());
        assert_eq!(spans.len(), 2);
        for span in &spans {
            let all = attributes_of(span);
            assert_eq!(text(&all, of_name).as_deref(), Some("reader-0"), "{}", span.name);
            assert_eq!(text(&all, attributes::PEER_NAMESPACE_NAME).as_deref(), Some("shop"));
            assert_eq!(all.keys().filter(|key| key.starts_with("ackbeat.peer.")).count(), 2);
        }
    }
}

#[test]
fn what_is_unknown_has_no_attribute() {
    let spans = spans_of(&records::unknown_abort());
    let close = attributes_of(&spans[0]);
    for (name, _) in ATTRIBUTES {
        let is_known = [
            "network.transport",
            "network.type",
            "network.local.address",
            "network.local.port",
            "network.peer.address",
            "network.peer.port",
            "error.type",
            "ackbeat.close.kind",
            "ackbeat.close.initiator",
            "ackbeat.verdict",
            "ackbeat.verdict.evidence",
            "ackbeat.kill.justified",
            "ackbeat.kill.assessment",
            "ackbeat.postmortem",
            "ackbeat.heartbeat.source",
            "ackbeat.heartbeat.ping_location",
            "ackbeat.heartbeat.inferred",
            "ackbeat.evidence.scope",
            "ackbeat.mode",
            "ackbeat.events_dropped",
        ]
        .contains(name);
        assert_eq!(close.contains_key(*name), is_known, "{name}");
    }
}

#[test]
fn a_kill_that_becomes_justified_under_the_same_verdict_is_an_event_of_its_own() {
    let mut record = records::justified_kill();
    let mut turn = records::false_kill().verdict_changes.remove(0);
    turn.at = record.closed_at;
    (turn.from, turn.to, turn.kill_justified) =
        (ackbeat_liveness::Verdict::Unreachable, ackbeat_liveness::Verdict::Unreachable, true);
    record.verdict_changes.push(turn);
    for span in spans_of(&record) {
        let event = span.events.iter().last().unwrap();
        assert_eq!(event.name, attributes::KILL_JUSTIFIED_EVENT);
        let attributes: BTreeMap<_, _> =
            event.attributes.iter().map(|pair| (pair.key.to_string(), pair.value.to_string())).collect();
        assert_eq!(attributes[attributes::KILL_JUSTIFIED], "true");
        assert_eq!(attributes[attributes::VERDICT], "unreachable");
        assert!(!attributes.contains_key(attributes::VERDICT_PREVIOUS));
    }
}

#[test]
fn a_return_links_to_the_end_that_it_follows_and_says_what_it_cost() {
    let collector = Collector::default();
    let pipeline = Pipeline::with_exporter(&plan(), resource(), collector.clone()).unwrap();
    let mut ends = EndSpans::default();
    let end = records::false_kill();
    let emitted = spans::emit(&pipeline.tracer(), &end, Mode::Ebpf, &clock(), None, None);
    let close = emitted.host_close.unwrap();
    ends.note(&end, &close);
    let mut back = records::graceful();
    back.connection = ConnectionId(8);
    let reconnect = Reconnect {
        connection: back.connection,
        at: back.opened_at,
        follows: end.connection,
        after_ms: 1_250,
        kind: end.kind,
        initiator: end.initiator,
        assessment: end.assessment,
    };
    back.reconnect = Some(reconnect);
    ends.follow(&reconnect);
    assert_eq!(ends.take_followed_by(end.connection), None);
    let follows = ends.take_followed_by(back.connection);
    assert_eq!(follows.as_ref(), Some(&close));
    assert_eq!(ends.take_followed_by(back.connection), None, "each span once");
    spans::emit(&pipeline.tracer(), &back, Mode::Ebpf, &clock(), follows.as_ref(), None);
    assert!(pipeline.shut_down(DEADLINE));
    let spans = std::mem::take(&mut *collector.0.lock().unwrap());
    let root = spans.last().unwrap();
    let attributes = attributes_of(root);
    assert_eq!(attributes[attributes::RECONNECT_AFTER_MS], Value::I64(1_250));
    assert_eq!(text(&attributes, attributes::RECONNECT_CLOSE_KIND).as_deref(), Some("heartbeat_kill"));
    let links: Vec<_> = root.links.iter().collect();
    assert_eq!(links.len(), 1);
    assert_eq!(links[0].span_context, close);
    let of_link: BTreeMap<_, _> =
        links[0].attributes.iter().map(|pair| (pair.key.to_string(), pair.value.to_string())).collect();
    assert_eq!(of_link[attributes::CLOSE_KIND], "heartbeat_kill");
    assert_eq!(of_link[attributes::CLOSE_INITIATOR], "host");
    assert_eq!(of_link[attributes::KILL_ASSESSMENT], "false_kill");
    // The close's own span says nothing of it.
    assert!(spans.iter().rev().skip(1).all(|span| span.links.is_empty()));
}

#[test]
fn names_follow_the_protocol_and_only_closes_of_this_side_have_a_child() {
    let names = |record: &CloseRecord| {
        spans_of(record).into_iter().map(|span| span.name.into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&records::false_kill()), ["websocket.host_close", "websocket.connection"]);
    assert_eq!(names(&records::unknown_abort()), ["tcp.host_close", "tcp.connection"]);
    assert_eq!(names(&records::kernel_timeout()), ["websocket.host_close", "websocket.connection"]);
    assert_eq!(names(&records::peer_reset()), ["websocket.connection"]);
    assert_eq!(names(&records::still_open()), ["websocket.connection"]);
}

#[test]
fn only_a_false_kill_is_an_error_and_a_clean_close_has_no_error_type() {
    for (record, is_error, false_kill, error_type) in [
        (records::false_kill(), true, Some(true), Some("heartbeat_timeout")),
        (records::justified_kill(), false, Some(false), Some("heartbeat_timeout")),
        (records::unknown_abort(), false, None, Some("_OTHER")),
        (records::graceful(), false, Some(false), None),
        (records::planned_restart(), false, Some(false), None),
        (records::process_exit(), false, Some(false), Some("connection_reset")),
        (records::kernel_timeout(), false, Some(false), Some("timed_out")),
    ] {
        let span = spans_of(&record).remove(0);
        assert_eq!(matches!(span.status, Status::Error { .. }), is_error, "{:?}", record.kind);
        let attributes = attributes_of(&span);
        let found = attributes.get(attributes::FALSE_KILL).map(|value| *value == Value::Bool(true));
        assert_eq!(found, false_kill, "{:?}", record.kind);
        assert_eq!(text(&attributes, "error.type").as_deref(), error_type, "{:?}", record.kind);
    }
    let mut unreachable = records::kernel_timeout();
    unreachable.socket_error = Some(113);
    assert_eq!(attributes::error_type(&unreachable), Some("host_unreachable"));
}

#[test]
fn the_root_joins_the_trace_of_the_upgrade_request() {
    let spans = spans_of(&records::false_kill());
    let (close, root) = (&spans[0], &spans[1]);
    assert_eq!(root.span_context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(root.parent_span_id.to_string(), "b7ad6b7169203331");
    assert!(root.parent_span_is_remote);
    assert_eq!(close.parent_span_id, root.span_context.span_id());
    assert_eq!(close.span_context.trace_id(), root.span_context.trace_id());
    let alone = spans_of(&records::justified_kill());
    assert_eq!(alone[1].parent_span_id, opentelemetry::SpanId::INVALID);
}

#[test]
fn times_are_those_of_the_monotonic_clock() {
    let spans = spans_of(&records::false_kill());
    let since = |time: std::time::SystemTime| {
        time.duration_since(UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap().as_millis()
    };
    let (close, root) = (&spans[0], &spans[1]);
    assert_eq!((since(root.start_time), since(root.end_time)), (0, 9_500));
    assert_eq!((since(close.start_time), since(close.end_time)), (5_750, 9_500));
    assert_eq!(root.events.iter().map(|event| since(event.timestamp)).collect::<Vec<_>>(), [1_000, 5_800]);
    assert_eq!(close.events.iter().map(|event| since(event.timestamp)).collect::<Vec<_>>(), [5_800]);
}

/// Waits for something that another thread does.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A collector that takes connections and never answers.
fn black_hole(protocol: OtlpProtocol) -> (std::net::TcpListener, Plan) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let otlp = OtlpPlan { protocol, endpoint, timeout: Duration::from_secs(60), certificate: None };
    let plan = Plan {
        exporters: vec![ExporterPlan::Otlp(otlp)],
        schedule_delay: Some(Duration::from_millis(10)),
        ..plan()
    };
    (listener, plan)
}

fn a_black_hole_costs_spans_and_nothing_else(protocol: OtlpProtocol) {
    let (_listener, plan) = black_hole(protocol);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _context = runtime.enter();
    let pipeline = Pipeline::start(&plan, resource()).unwrap();
    let (tracer, counts) = (pipeline.tracer(), pipeline.counts());
    let record = records::false_kill();
    const RECORDS: u64 = 2_000;
    let start = Instant::now();
    for _ in 0..RECORDS {
        spans::emit(&tracer, &record, Mode::Ebpf, &clock(), None, None);
    }
    // One export alone would take its timeout of 60 s.
    assert!(start.elapsed() < DEADLINE, "the caller waited for the collector");
    let totals = counts.totals();
    assert_eq!(totals.ended, 2 * RECORDS);
    assert!(totals.dropped > 0 && totals.waiting <= 64, "{totals:?}");
    assert_eq!(totals.ended, totals.exported + totals.failed + totals.dropped + totals.waiting);

    let start = Instant::now();
    assert!(!pipeline.shut_down(Duration::from_millis(300)), "nothing can have been exported");
    assert!(start.elapsed() < DEADLINE, "the end waited for the collector");
    // As the process does at its end: what hangs is left behind.
    std::mem::forget(pipeline);
    runtime.shutdown_background();
}

#[test]
fn a_collector_that_never_answers_blocks_nobody_over_http() {
    a_black_hole_costs_spans_and_nothing_else(OtlpProtocol::HttpProtobuf);
}

#[test]
fn a_collector_that_never_answers_blocks_nobody_over_grpc() {
    a_black_hole_costs_spans_and_nothing_else(OtlpProtocol::Grpc);
}

/// Spans wait for a collector that is down, and have failed once the sidecar stops without it.
fn a_collector_that_is_down_costs_counted_spans(protocol: OtlpProtocol) {
    let (listener, plan) = black_hole(protocol);
    drop(listener);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _context = runtime.enter();
    let pipeline = Pipeline::start(&plan, resource()).unwrap();
    let counts = pipeline.counts();
    for batch in 1..=2 {
        spans::emit(&pipeline.tracer(), &records::false_kill(), Mode::Ebpf, &clock(), None, None);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(counts.totals().waiting, 2 * batch, "refused connections pass");
    }
    assert!(pipeline.shut_down(DEADLINE), "nothing is left waiting");
    let totals = counts.totals();
    assert_eq!((totals.failed, totals.exported, totals.dropped), (4, 0, 0), "{totals:?}");
}

#[test]
fn a_collector_that_is_down_costs_counted_spans_over_http() {
    a_collector_that_is_down_costs_counted_spans(OtlpProtocol::HttpProtobuf);
}

#[test]
fn a_collector_that_is_down_costs_counted_spans_over_grpc() {
    a_collector_that_is_down_costs_counted_spans(OtlpProtocol::Grpc);
}

/// A standard output that nobody reads any more.
#[derive(Debug)]
struct Broken;

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_broken_pipe_is_counted_and_survived() {
    let pipeline = Pipeline::with_exporter(&plan(), resource(), ConsoleExporter::new(Broken)).unwrap();
    let counts = pipeline.counts();
    for spans in [2, 4] {
        spans::emit(&pipeline.tracer(), &records::false_kill(), Mode::Ebpf, &clock(), None, None);
        wait_until("the failed export", || counts.totals().failed == spans);
    }
    pipeline.shut_down(DEADLINE);
}
