//! A receiver that hangs: what waits for it is bounded, and what is given up is the oldest detail.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use super::*;

/// Closed until somebody opens it.
#[derive(Clone, Debug, Default)]
struct Gate(Arc<(Mutex<Standing>, Condvar)>);

#[derive(Debug, Default)]
struct Standing {
    is_open: bool,
    /// Somebody stands before it.
    is_reached: bool,
}

impl Gate {
    fn pass(&self) {
        let (standing, changed) = &*self.0;
        let mut standing = standing.lock().unwrap();
        standing.is_reached = true;
        changed.notify_all();
        drop(changed.wait_timeout_while(standing, DEADLINE, |standing| !standing.is_open).unwrap());
    }

    fn wait_until_reached(&self) {
        let (standing, changed) = &*self.0;
        let standing = standing.lock().unwrap();
        let (_standing, waited) =
            changed.wait_timeout_while(standing, DEADLINE, |standing| !standing.is_reached).unwrap();
        assert!(!waited.timed_out(), "nothing was exported");
    }

    fn open(&self) {
        self.0.0.lock().unwrap().is_open = true;
        self.0.1.notify_all();
    }
}

/// Keeps what it gets, once the gate is open.
#[derive(Clone, Debug, Default)]
struct Gated {
    gate: Gate,
    collector: Collector,
}

impl SpanExporter for Gated {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.gate.pass();
        self.collector.export(batch).await
    }
}

const CLOSES: u64 = 20;
const DETAILS: u64 = 40;

/// Forty connections that their peers closed (a root each), then twenty that the host killed (a close and a root each), into a
/// queue of forty.
fn crowd(pipeline: &Pipeline, is_hanging: impl FnOnce()) {
    let emit =
        |record: &CloseRecord| spans::emit(&pipeline.tracer(), record, Mode::Ebpf, &clock(), None, None);
    (0..DETAILS).for_each(|_| drop(emit(&records::peer_reset())));
    is_hanging();
    (0..CLOSES).for_each(|_| drop(emit(&records::false_kill())));
    let totals = pipeline.counts().totals();
    assert_eq!(totals.ended, DETAILS + 2 * CLOSES);
    assert_eq!((totals.waiting, totals.dropped), (40, 40), "the bound holds: {totals:?}");
}

fn hanging_plan() -> Plan {
    Plan { max_queue_size: 40, max_export_batch_size: 10, ..plan() }
}

#[test]
fn while_a_receiver_hangs_the_oldest_detail_goes_and_every_close_stays() {
    let exporter = Gated::default();
    let pipeline = Pipeline::with_exporter(&hanging_plan(), resource(), exporter.clone()).unwrap();
    crowd(&pipeline, || exporter.gate.wait_until_reached());
    exporter.gate.open();
    assert!(pipeline.shut_down(DEADLINE));
    let spans = exporter.collector.0.lock().unwrap();
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_ref()).collect();
    let closes = names.iter().filter(|name| name.ends_with("host_close")).count();
    assert_eq!((names.len(), closes as u64), (40, CLOSES), "{names:?}");
    // Of the details those in flight, and the youngest.
    assert!(names[..10].iter().all(|name| name.ends_with(".connection")), "{names:?}");
    let totals = pipeline.counts().totals();
    assert_eq!((totals.exported, totals.dropped, totals.waiting), (40, 40, 0));
}

/// Reads requests of one connection, and answers each once the gate is open. Gives the bodies.
fn serve(mut stream: TcpStream, gate: &Gate, bodies: &Mutex<Vec<u8>>) -> io::Result<()> {
    let mut text = Vec::new();
    loop {
        let head_end = loop {
            if let Some(end) = text.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            let mut part = [0; 4_096];
            let read = stream.read(&mut part)?;
            if read == 0 {
                return Ok(());
            }
            text.extend_from_slice(&part[..read]);
        };
        let head = String::from_utf8_lossy(&text[..head_end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = text.split_off(head_end);
        let read = body.len();
        body.resize(length.expect("a length"), 0);
        stream.read_exact(&mut body[read..])?;
        text.clear();
        gate.pass();
        bodies.lock().unwrap().extend(body);
        stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n",
        )?;
    }
}

#[test]
fn a_collector_that_hangs_for_a_while_gets_every_close_that_found_room() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let (gate, bodies) = (Gate::default(), Arc::new(Mutex::new(Vec::new())));
    let server = (gate.clone(), Arc::clone(&bodies));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (gate, bodies) = server.clone();
            std::thread::spawn(move || serve(stream, &gate, &bodies));
        }
    });
    let timeout = Duration::from_secs(60);
    let otlp = OtlpPlan { protocol: OtlpProtocol::HttpProtobuf, endpoint, timeout, certificate: None };
    let plan = Plan { exporters: vec![ExporterPlan::Otlp(otlp)], ..hanging_plan() };
    let pipeline = Pipeline::start(&plan, resource()).unwrap();
    crowd(&pipeline, || gate.wait_until_reached());
    gate.open();
    assert!(pipeline.shut_down(DEADLINE));
    let totals = pipeline.counts().totals();
    assert_eq!((totals.exported, totals.failed, totals.dropped), (40, 0, 40), "{totals:?}");
    let bodies = bodies.lock().unwrap();
    let name = b"websocket.host_close";
    let closes = bodies.windows(name.len()).filter(|window| window == name).count();
    assert_eq!(closes as u64, CLOSES);
}
