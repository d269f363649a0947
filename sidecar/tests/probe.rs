//! `ackbeat probe` as a process: what it prints and its exit codes. Its hosts are in this process.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use ackbeat::heartbeat_probe::{Line, Report, WireResult};
use tokio_tungstenite::tungstenite::{Message, WebSocket, accept};

const DEADLINE: Duration = Duration::from_secs(60);

fn ackbeat(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ackbeat"));
    command.arg("probe").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Accepts one connection and hands it to `play`.
fn tcp_host(play: impl FnOnce(TcpStream) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/mux", listener.local_addr().unwrap());
    let playing = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        play(stream);
    });
    (url, playing)
}

/// A host that waits for two Pongs, and then for nobody.
fn killer() -> (String, JoinHandle<()>) {
    tcp_host(|stream| {
        let mut socket: WebSocket<TcpStream> = accept(stream).unwrap();
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(100));
            socket.send(Message::Ping(vec![].into())).unwrap();
            assert!(socket.read().unwrap().is_pong());
        }
        socket.send(Message::Ping(vec![].into())).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    })
}

#[test]
fn a_kill_is_one_line_and_exit_code_0() {
    let (url, playing) = killer();
    let output = ackbeat(&[&url, "--mute-after", "2", "--interval-hint", "500"]);
    playing.join().unwrap();
    let line: Line = text(&output.stdout).strip_suffix('\n').unwrap().parse().unwrap();
    assert_eq!((line.pings, line.close_code, line.result), (3, None, WireResult::Killed));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn who_survives_ends_with_exit_code_1() {
    let (url, playing) = tcp_host(|stream| {
        let mut socket = accept(stream).unwrap();
        while socket.read().is_ok() {}
    });
    let output = ackbeat(&[&url, "--mute-after", "0", "--timeout", "500"]);
    playing.join().unwrap();
    let line: Line = text(&output.stdout).trim_end().parse().unwrap();
    assert_eq!((line.result, output.status.code()), (WireResult::SurvivedMuted, Some(1)));
    assert!(text(&output.stderr).contains("no heartbeat came"), "{}", text(&output.stderr));
}

#[test]
fn a_refused_handshake_has_its_reason_on_standard_error() {
    let (url, playing) = tcp_host(|mut stream| {
        stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let output = ackbeat(&[&url]);
    playing.join().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    assert_eq!(
        text(&output.stderr),
        "ackbeat: the handshake failed: the host answered 404 Not Found, not 101 Switching Protocols\n"
    );
    // Port 1 of loopback: nobody listens there.
    let output = ackbeat(&["ws://127.0.0.1:1/"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("connecting to 127.0.0.1:1 failed"), "{}", text(&output.stderr));
}

#[test]
fn bad_usage_is_exit_code_2() {
    let url = "ws://127.0.0.1:1/";
    for (arguments, part) in [
        (&["http://x/"][..], "ws:// or wss://"),
        (&[], "ws://HOST"),
        (&["ws://me:secret@x/"], "--header 'Authorization"),
        (&[url, "--header", "nonsense"], "NAME: VALUE"),
        (&[url, "--header", "Upgrade: x"], "the handshake sets upgrade itself"),
        (&[url, "--cookie", "a=\n"], "--cookie: the value of cookie"),
        (&[url, "--ca", "/nowhere.pem"], "--ca: only a wss:// URL"),
        (&["wss://127.0.0.1:1/", "--ca", "/nowhere.pem"], "--ca /nowhere.pem: "),
        (&["wss://127.0.0.1:1/", "--ca", "x", "--insecure"], "cannot be used with"),
        (&[url, "--insecure"], "--insecure: only a wss:// URL"),
        (&[url, "--slow-read", "0"], "--slow-read"),
        (&[url, "--slow-read", "9", "--mute-after", "1"], "cannot be used with"),
        (&[url, "--interval-hint", "0"], "--interval-hint"),
        (&[url, "--profile", "morse"], "--profile"),
    ] {
        let output = ackbeat(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(part), "{arguments:?}: {error}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
}

/// With 0 in place of each number but those that cannot differ.
fn without_times(json: &mut serde_json::Value) {
    for (name, value) in json.as_object_mut().unwrap() {
        if value.is_number() && (name.ends_with("_ms") || name == "bytes_read") {
            *value = 0.into();
        } else if name == "url" || name == "address" {
            *value = "-".into();
        }
    }
}

#[test]
fn json_has_the_members_of_the_line_and_more() {
    let (url, playing) = killer();
    let output = ackbeat(&[&url, "--json", "--mute-after", "2", "--interval-hint", "500"]);
    playing.join().unwrap();
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.url, url);
    assert_eq!(text(&output.stdout), format!("{}\n", serde_json::to_string(&report).unwrap()));
    let mut json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    without_times(&mut json);
    insta::assert_json_snapshot!(json);
}

#[test]
fn the_help_says_what_the_exit_codes_are() {
    let output = ackbeat(&["--help"]);
    let help = text(&output.stdout);
    assert!(help.contains("Exit codes: 0 the host closed"), "{help}");
    assert!(!help.contains('`') && !help.contains("::"), "{help}");
}
