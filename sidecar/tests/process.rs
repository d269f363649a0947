//! The binary as a process: what it prints, its exit codes, its end. Needs no privilege (mode sock-diag).
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const DEADLINE: Duration = Duration::from_secs(30);

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ackbeat"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("OTEL_") || text.starts_with("ACKBEAT_") || text == "RUST_LOG" {
            command.env_remove(&name);
        }
    }
    command
}

fn output(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The process with its log as it comes.
struct Running {
    child: Child,
    log: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let (sender, log) = channel();
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, log, seen: Vec::new() }
    }

    fn wait_for_log(&mut self, part: &str) {
        self.wait_for_line(part, |line| line.contains(part));
    }

    /// An address that is busy is "already in use" before.
    fn wait_until_ready(&mut self) {
        self.wait_for_line("ready", |line| line.contains(": ready") || line.contains("\"ready\""));
    }

    fn wait_for_line(&mut self, what: &str, is_it: impl Fn(&str) -> bool) {
        let start = Instant::now();
        while !self.seen.iter().any(|line| is_it(line)) {
            let left = DEADLINE.saturating_sub(start.elapsed());
            match self.log.recv_timeout(left) {
                Ok(line) => self.seen.push(line),
                Err(_) => panic!("no {what:?} in {:#?}", self.seen),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    fn stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().unwrap()
    }

    fn end(&mut self) -> i32 {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(start.elapsed() < DEADLINE, "it did not end: {:#?}", self.seen);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already, as a rule.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A host's listening socket, and the arguments that watch it.
fn watched(extra: &[&str]) -> (TcpListener, Command) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut arguments = vec!["run", "--mode", "sock-diag", "--ports", &port];
    arguments.extend_from_slice(extra);
    let mut command = command(&arguments);
    // At this level the log tells when a connection is watched.
    command.env("ACKBEAT_LOG_LEVEL", "debug").env("ACKBEAT_THRESHOLDS_POSTMORTEM_WINDOW_MS", "300");
    (listener, command)
}

/// A recording without inputs, under the default policy but for these thresholds.
fn header_with(thresholds: &str) -> String {
    format!(
        "{{\"ackbeat_recording\":1,\"version\":\"0.1.0\",\"mode\":\"ebpf\",\"policy\":\"default\",\
         \"thresholds\":{{{thresholds}}},\"began_at\":1,\"began_unix_ns\":1}}\n"
    )
}

#[test]
fn standard_output_that_cannot_be_written_is_told_and_a_reader_that_left_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("empty.jsonl");
    std::fs::write(&file, header_with("")).unwrap();
    let replay = |out: Stdio| {
        let mut command = command(&["replay", file.to_str().unwrap()]);
        command.stdout(out).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
    };
    let full = replay(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into());
    assert_eq!(full.status.code(), Some(1), "{}", stderr(&full));
    assert!(stderr(&full).contains("writing to standard output"), "{}", stderr(&full));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let left = replay(writer.into());
    assert_eq!((left.status.code(), stderr(&left).as_str()), (Some(0), ""));
}

#[test]
fn help_is_for_people() {
    let output = output(&["run", "--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Prefers to keep a connection"), "{text}");
    assert!(!text.contains('`') && !text.contains("::"), "{text}");
}

#[test]
fn bad_usage_and_bad_settings_exit_2_and_name_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ackbeat.yaml");
    std::fs::write(&file, "mode: ebpf\nportz: [1]\n").unwrap();
    let file = file.to_str().unwrap();
    let recording = directory.path().join("bad.jsonl");
    std::fs::write(&recording, "{}\n").unwrap();
    let endless = directory.path().join("endless.jsonl");
    std::fs::write(&endless, header_with("\"fresh_ms\":18446744073709551615")).unwrap();
    for (arguments, named) in [
        (vec!["run", "--ports", "http"], "--ports"),
        (vec!["run", "--policy", "slow"], "slow"),
        (vec!["run", "--no-such-flag"], "--no-such-flag"),
        (vec!["run", "--config", file], "portz"),
        (vec!["run", "--config", "/nowhere.yaml"], "/nowhere.yaml"),
        (vec!["replay", "/nowhere.jsonl"], "/nowhere.jsonl"),
        (vec!["run", "--config", "/dev/zero"], "/dev/zero"),
        (vec!["run", "--record", ""], "--record"),
        (vec!["replay", recording.to_str().unwrap()], "line 1"),
        (vec!["replay", endless.to_str().unwrap()], "thresholds.fresh_ms"),
        (vec![], "Usage"),
    ] {
        let output = output(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    let output = command(&["run"]).env("ACKBEAT_MOOD", "good").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("ACKBEAT_MOOD"), "{}", stderr(&output));
}

#[test]
fn a_close_is_told_on_both_outputs_and_sigterm_ends_in_order() {
    let (listener, mut command) = watched(&[]);
    command.env("ACKBEAT_LOG_FORMAT", "json");
    let mut running = Running::start(command);
    running.wait_until_ready();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (host, _) = listener.accept().unwrap();
    // The connection must be there for one pass before it goes.
    running.wait_for_log("watched");
    drop(host);
    running.wait_for_log("this side closed");
    let line = running.seen.iter().find(|line| line.contains("this side closed")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["initiator"], "host");
    assert_eq!(line["peer_port"], peer.local_addr().unwrap().port());

    running.signal(Signal::SIGTERM);
    assert_eq!(running.end(), 0);
    let mut text = String::new();
    running.stdout().read_to_string(&mut text).unwrap();
    let spans: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no span: {line}")))
        .collect();
    let close = spans.iter().find(|span| span["name"] == "tcp.host_close").unwrap();
    assert_eq!(close["attributes"]["ackbeat.mode"], "sock_diag");
    assert_eq!(line["trace_id"], close["trace_id"]);
    assert_eq!(line["span_id"], close["span_id"]);
    let root = spans.iter().find(|span| span["name"] == "tcp.connection").unwrap();
    assert_eq!(close["parent_span_id"], root["span_id"]);
    // A pass found the connection some time after it opened.
    for span in [close, root] {
        assert!(span["attributes"].get("ackbeat.connection.lifetime_ms").is_none(), "{span}");
    }
}

#[test]
fn own_work_is_traced_if_asked_for() {
    let (_listener, mut command) = watched(&[]);
    command.env("ACKBEAT_EXPORT_OWN_SPANS", "true");
    let mut running = Running::start(command);
    running.wait_until_ready();
    running.signal(Signal::SIGINT);
    assert_eq!(running.end(), 0);
    let mut text = String::new();
    running.stdout().read_to_string(&mut text).unwrap();
    for name in ["ackbeat.discover", "ackbeat.drain"] {
        assert!(text.contains(&format!("\"name\":\"{name}\"")), "{name}: {text}");
    }
}

#[test]
fn a_recording_replays_to_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.jsonl");
    let file = file.to_str().unwrap();
    let (listener, command) = watched(&["--record", file]);
    let mut running = Running::start(command);
    running.wait_until_ready();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (host, _) = listener.accept().unwrap();
    running.wait_for_log("watched");
    drop((host, peer));
    running.wait_for_log("this side closed");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end(), 0);
    for arguments in [vec!["replay", file], vec!["replay", file, "--policy", "fast"]] {
        let output = output(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("assessment") && table.contains("mode sock_diag"), "{table}");
        assert!(table.contains("127.0.0.1:"), "{table}");
    }
}

#[test]
fn a_reader_that_went_away_does_not_end_it() {
    let (listener, command) = watched(&[]);
    let mut running = Running::start(command);
    running.wait_until_ready();
    drop(running.stdout());
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (host, _) = listener.accept().unwrap();
    running.wait_for_log("watched");
    drop((host, peer));
    running.wait_for_log("spans were lost");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end(), 0);
}

#[test]
fn a_collector_that_never_answers_does_not_hold_the_end() {
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    for protocol in ["grpc", "http/protobuf"] {
        let (listener, mut command) = watched(&[]);
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", hole.local_addr().unwrap()))
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")
            .env("OTEL_BSP_EXPORT_TIMEOUT", "600000")
            .env("ACKBEAT_SHUTDOWN_DRAIN_MS", "100")
            .env("ACKBEAT_SHUTDOWN_FLUSH_MS", "300");
        let mut running = Running::start(command);
        running.wait_until_ready();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _host = listener.accept().unwrap();
        running.wait_for_log("watched");
        running.signal(Signal::SIGTERM);
        assert_eq!(running.end(), 0, "{protocol}: {:#?}", running.seen);
    }
}

/// Two connections, told by the kernel alone, as a script wrote them.
fn scripted_recording(directory: &std::path::Path) -> String {
    let mut text = header_with("");
    for (connection, port) in [(1, 40_001), (2, 40_002), (3, 40_002)] {
        text.push_str(&format!(
            "{{\"input\":\"opened\",\"connection\":{connection},\"at\":{connection}000000000,\"endpoints\":{{\
             \"local_address\":\"10.0.0.1\",\"local_port\":80,\"peer_address\":\"10.0.0.2\",\"peer_port\":{port}}},\
             \"role\":\"server\",\"preexisting\":false}}\n"
        ));
    }
    let file = directory.join("night.jsonl");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_replay_tells_what_others_would_have_done_and_draws_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = scripted_recording(directory.path());
    let svg = directory.path().join("night.svg");
    let svg_text = svg.to_str().unwrap();
    let output = output(&[
        "replay",
        &file,
        "--set",
        "silent_after=30s",
        "--compare",
        "ws-2,ws-2:interval_ms=30000,missed=3",
        "--compare",
        "ackbeat-fast,buffered-gate",
        "--plot",
        svg_text,
        "--connection",
        "10.0.0.2:40001",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "replayed under policy ackbeat:silent_after_ms=30000",
        "#3  10.0.0.2:40002, open at the end of the recording",
        "ws-2:interval_ms=30000,missed=3",
        "needs application reports",
        "in sum",
        "night.svg shows the connection of 10.0.0.2:40001",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
}

#[test]
fn a_replay_that_is_asked_for_what_is_not_there_says_what_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = scripted_recording(directory.path());
    let svg = directory.path().join("night.svg");
    let svg = svg.to_str().unwrap();
    for (arguments, named) in [
        (vec!["--compare", "ws-3"], "ws-readme"),
        (vec!["--compare", "ws-2:pace=1"], "interval_ms"),
        (vec!["--compare", "ackbeat:pace=1"], "silent_after_ms"),
        (vec!["--set", "pace=1"], "silent_after_ms"),
        (vec!["--set", "silent_after=soon"], "milliseconds"),
        (vec!["--plot", svg, "--connection", "4"], "#1 10.0.0.2:40001"),
        (vec!["--plot", svg, "--connection", "10.0.0.2:9"], "#1 10.0.0.2:40001"),
        (vec!["--plot", svg, "--connection", "10.0.0.2:40002"], "#2, #3"),
        (vec!["--plot", svg, "--connection", "the slow one"], "ADDRESS:PORT"),
        (vec!["--plot", "/nowhere/night.svg"], "/nowhere/night.svg"),
        (vec!["--connection", "1"], "--plot"),
    ] {
        let output = output(&[vec!["replay", file.as_str()], arguments.clone()].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{arguments:?}: {}", stderr(&output));
    }
    let both = output(&["replay", &file, &file]);
    assert_eq!(both.status.code(), Some(2));
    assert!(stderr(&both).contains("oldest first"), "{}", stderr(&both));
}

/// Asks over HTTP/1.0: the answer ends with the connection.
fn asked<S: std::io::Read + std::io::Write>(mut stream: S, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.0\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_api_answers_and_holds_nobody_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("api.sock");
    let (listener, mut command) = watched(&[]);
    command.env("ACKBEAT_API_LISTEN", "127.0.0.1:0").env("ACKBEAT_API_SOCKET", &socket);
    let mut running = Running::start(command);
    running.wait_for_log("the API listens");
    running.wait_until_ready();
    let line = running.seen.iter().find(|line| line.contains("the API listens")).unwrap();
    let address = line.split("address=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
    let _host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    running.wait_for_log("watched");
    let over_unix = || std::os::unix::net::UnixStream::connect(&socket).unwrap();
    assert!(asked(TcpStream::connect(&address).unwrap(), "/healthz").starts_with("HTTP/1.0 200 "));
    let ready = asked(over_unix(), "/readyz");
    assert!(ready.contains("\"ready\":true") && ready.contains("\"mode\":\"sock_diag\""), "{ready}");
    let answer = asked(over_unix(), "/v1/connections");
    assert!(answer.contains("\"total\":1,"), "{answer}");

    // One that asks and never reads to the end, one that only holds its connection, and one that listens to events.
    let mut half = TcpStream::connect(&address).unwrap();
    half.write_all(b"GET /v1/connections HTTP/1.1\r\nhost").unwrap();
    let _idle = TcpStream::connect(&address).unwrap();
    let mut events = TcpStream::connect(&address).unwrap();
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    write!(events, "GET /v1/events HTTP/1.1\r\nhost: x\r\n{upgrade}").unwrap();
    let mut status = [0; 12];
    events.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 101");
    // The second signal ends the drain: what is left is the end itself.
    running.signal(Signal::SIGTERM);
    running.wait_for_log("stopping");
    let start = Instant::now();
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end(), 0);
    // Less than any of the deadlines that clients have.
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(!socket.exists());
}

#[test]
fn an_api_that_cannot_listen_is_a_warning_that_names_the_setting() {
    let (listener, mut command) = watched(&[]);
    // Where the host itself listens.
    command.env("ACKBEAT_API_LISTEN", listener.local_addr().unwrap().to_string());
    let mut running = Running::start(command);
    running.wait_for_log("api.listen: listening on");
    running.wait_until_ready();
    // That port is the host's: its connections are watched.
    let _host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    running.wait_for_log("watched");
    running.signal(Signal::SIGTERM);
    running.wait_for_log("stopping");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end(), 0);
}
