//! The probe against hosts in this process, over loopback.

use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ackbeat_liveness::HeartbeatProfile;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message, WebSocket, accept, accept_hdr};

use super::*;

type Socket = WebSocket<TcpStream>;

/// The interval of hosts here, and the hint to the probe.
const INTERVAL: Duration = Duration::from_millis(300);
/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// Accepts one connection and hands it to `play`, whose return value is the thread's.
fn tcp_host<T: Send + 'static>(
    scheme: &str,
    play: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (String, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("{scheme}://localhost:{}", listener.local_addr().unwrap().port());
    let playing = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        play(stream)
    });
    (url, playing)
}

fn host<T: Send + 'static>(play: impl FnOnce(Socket) -> T + Send + 'static) -> (Options, JoinHandle<T>) {
    let (url, playing) = tcp_host("ws", |stream| play(accept(stream).unwrap()));
    (options(&url), playing)
}

fn options(url: &str) -> Options {
    Options { interval_hint: Some(INTERVAL), ..Options::new(url.parse().unwrap()) }
}

fn probe(options: &Options) -> Result<Report, ProbeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, run(options, &mut |_| {})).await.unwrap() })
}

/// What comes within `time`, as long as it comes.
fn received(socket: &mut Socket, time: Duration) -> Vec<Message> {
    let until = Instant::now() + time;
    let mut messages = Vec::new();
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        socket.get_mut().set_read_timeout(Some(left)).unwrap();
        match socket.read() {
            Ok(message) => messages.push(message),
            Err(Error::Io(_)) => {}
            Err(_) => break,
        }
    }
    socket.get_mut().set_read_timeout(Some(DEADLINE)).unwrap();
    messages
}

/// Reads until an answer, for as long as a busy machine may need.
fn one_answer(socket: &mut Socket, is_answer: &impl Fn(&Message) -> bool) {
    while !is_answer(&socket.read().unwrap()) {}
}

/// A watchdog that counts to two, and Pings each interval. The first `answers` are waited for, so that no busy machine makes
/// it kill early. Returns how many came in all.
fn watchdog(
    socket: &mut Socket,
    heartbeat: &Message,
    answers: usize,
    is_answer: impl Fn(&Message) -> bool,
) -> usize {
    for _ in 0..answers {
        let began = Instant::now();
        socket.send(heartbeat.clone()).unwrap();
        one_answer(socket, &is_answer);
        std::thread::sleep(INTERVAL.saturating_sub(began.elapsed()));
    }
    let mut late = 0;
    for _ in 0..2 {
        socket.send(heartbeat.clone()).unwrap();
        late += received(socket, INTERVAL).iter().filter(|message| is_answer(message)).count();
    }
    answers + late
}

/// Three intervals after the last answer, give or take what a busy machine needs.
fn is_three_intervals(report: &Report) -> bool {
    let time = report.line.last_pong_to_close_ms.unwrap();
    (880..2_700).contains(&time)
}

#[test]
fn a_watchdog_that_counts_to_two_kills_after_three_intervals() {
    let (options, playing) = host(|mut socket| {
        watchdog(&mut socket, &Message::Ping(vec![7].into()), 4, |message| {
            *message == Message::Pong(vec![7].into())
        })
    });
    let report = probe(&options).unwrap();
    assert_eq!(playing.join().unwrap(), 4);
    let line = &report.line;
    assert_eq!((line.pings, report.pongs, line.result), (6, 4, WireResult::Killed));
    assert_eq!((line.close_code, line.text_frames), (None, 0));
    assert!(is_three_intervals(&report), "{report:?}");
    assert!(line.median_gap_ms.unwrap() >= 290, "{report:?}");
    assert_eq!(line.since_mute_ms, line.last_pong_to_close_ms);
    assert!(report.first_unanswered_ping_to_close_ms < line.last_pong_to_close_ms, "{report:?}");
    assert_eq!(report.close, Some(Close { frame: false, reason: None, end: Some(End::Fin) }));
    assert_eq!((report.profile, report.asks), (Some(HeartbeatProfile::Rfc6455), Who::Host));
}

#[test]
fn no_pong_leaves_after_the_mute_however_many_pings_wait_at_once() {
    let (options, playing) = host(|mut socket| {
        for number in 0..50_u8 {
            socket.write(Message::Ping(vec![number].into())).unwrap();
        }
        socket.flush().unwrap();
        let first = [0; 3].map(|_| socket.read().unwrap());
        for number in 50..100_u8 {
            socket.send(Message::Ping(vec![number].into())).unwrap();
        }
        let then = received(&mut socket, Duration::from_millis(300));
        // The end of TCP, so that nothing can be on its way any more.
        socket.get_mut().shutdown(Shutdown::Write).unwrap();
        let rest = received(&mut socket, Duration::from_millis(700));
        (first, [then, rest].concat())
    });
    let report = probe(&Options { mute_after: 3, ..options }).unwrap();
    let (first, then) = playing.join().unwrap();
    assert_eq!(first, [0_u8, 1, 2].map(|number| Message::Pong(vec![number].into())));
    assert_eq!(then, []);
    assert_eq!((report.line.pings, report.pongs, report.messages_dropped), (100, 3, 0));
    assert_eq!(report.line.result, WireResult::Killed);
}

#[test]
fn a_host_that_never_kills_is_survived() {
    let (options, playing) = host(|mut socket| {
        loop {
            if socket.send(Message::Ping(vec![].into())).is_err() {
                return;
            }
            received(&mut socket, INTERVAL);
        }
    });
    let report = probe(&Options { mute_after: 2, ..options }).unwrap();
    playing.join().unwrap();
    assert_eq!(report.line.result, WireResult::SurvivedMuted);
    assert_eq!((report.line.last_pong_to_close_ms, &report.close), (None, &None));
    // Six intervals and a second.
    assert!(report.line.since_mute_ms.unwrap() >= 2_800, "{report:?}");
}

#[test]
fn a_host_without_a_heartbeat_is_muted_all_the_same() {
    let (options, playing) = host(|mut socket| received(&mut socket, DEADLINE).len());
    let report = probe(&options).unwrap();
    playing.join().unwrap();
    let line = &report.line;
    assert_eq!((line.pings, line.median_gap_ms, line.result), (0, None, WireResult::SurvivedMuted));
    assert!(line.since_mute_ms.is_some() && report.profile.is_none(), "{report:?}");
}

#[test]
fn a_close_frame_is_recorded_with_its_reason() {
    let (options, playing) = host(|mut socket| {
        socket.send(Message::Ping(vec![].into())).unwrap();
        one_answer(&mut socket, &Message::is_pong);
        let frame = CloseFrame { code: 1011.into(), reason: "heartbeat timeout".into() };
        socket.close(Some(frame)).unwrap();
        // Until the probe's own Close and its end.
        while socket.read().is_ok() {}
    });
    let report = probe(&Options { mute_after: 1, ..options }).unwrap();
    playing.join().unwrap();
    assert_eq!((report.line.close_code, report.line.result), (Some(1011), WireResult::Killed));
    let reason = Some("heartbeat timeout".to_owned());
    assert_eq!(report.close, Some(Close { frame: true, reason, end: Some(End::Fin) }));
}

#[test]
fn a_close_frame_without_a_code_is_1005() {
    let (options, playing) = host(|mut socket| {
        socket.close(None).unwrap();
        while socket.read().is_ok() {}
    });
    let report = probe(&Options { mute_after: 0, ..options }).unwrap();
    playing.join().unwrap();
    assert_eq!(report.line.close_code, Some(1005));
}

#[test]
fn a_reset_is_no_close_frame() {
    let (options, playing) = host(|mut socket| {
        socket.send(Message::Ping(vec![].into())).unwrap();
        // The Pong lies unread when the socket is closed, so the kernel resets (RFC 1122 section 4.2.2.13).
        socket.get_mut().peek(&mut [0]).unwrap();
    });
    let report = probe(&Options { mute_after: 1, ..options }).unwrap();
    playing.join().unwrap();
    assert_eq!((report.line.close_code, report.line.result), (None, WireResult::Killed));
    assert_eq!(report.close, Some(Close { frame: false, reason: None, end: Some(End::Rst) }));
}

#[test]
fn a_close_before_the_mute_measures_nothing() {
    let (options, playing) = host(|mut socket| {
        socket.send(Message::Ping(vec![].into())).unwrap();
        one_answer(&mut socket, &Message::is_pong);
    });
    let report = probe(&options).unwrap();
    playing.join().unwrap();
    assert_eq!((report.line.result, report.line.since_mute_ms), (WireResult::ClosedBeforeMute, None));
}

#[test]
fn the_time_may_be_over_before_the_mute() {
    let (options, playing) = host(|mut socket| received(&mut socket, DEADLINE).len());
    let timeout = Some(Duration::from_millis(300));
    let report = probe(&Options { timeout, interval_hint: None, ..options }).unwrap();
    playing.join().unwrap();
    assert_eq!((report.line.result, report.line.since_mute_ms), (WireResult::NeverMuted, None));
}

#[test]
fn a_message_of_28_megabytes_is_read_without_being_held() {
    let (options, playing) = host(|mut socket| {
        let ask = socket.read().unwrap();
        socket.send(Message::binary(vec![0x89_u8; 28_000_000])).unwrap();
        watchdog(&mut socket, &Message::Ping(vec![].into()), 2, Message::is_pong);
        ask
    });
    let send = vec!["follow".to_owned(), "second".to_owned()];
    // The first Ping comes behind the 28 MB, which a busy machine reads slowly.
    let interval_hint = Some(DEADLINE / 10);
    let report = probe(&Options { mute_after: 2, send, interval_hint, ..options }).unwrap();
    assert_eq!(playing.join().unwrap(), Message::text("follow"));
    assert_eq!((report.line.pings, report.binary_frames, report.line.result), (4, 1, WireResult::Killed));
    assert!(report.bytes_read > 28_000_000, "{report:?}");
}

#[test]
fn a_slow_reader_answers_when_it_gets_to_the_ping() {
    let (options, playing) = host(|mut socket| {
        socket.send(Message::binary(vec![0; 60_000])).unwrap();
        socket.send(Message::Ping(vec![].into())).unwrap();
        let began = Instant::now();
        let answer = socket.read().unwrap();
        let waited = began.elapsed();
        received(&mut socket, DEADLINE);
        (answer, waited)
    });
    let report = probe(&Options { slow_read: Some(100_000), ..options }).unwrap();
    let (answer, waited) = playing.join().unwrap();
    assert!(answer.is_pong() && waited >= Duration::from_millis(400), "{waited:?}");
    let slow = report.line.slow_read.unwrap();
    assert_eq!(report.line.result, WireResult::SurvivedSlowReader);
    assert_eq!((slow.pongs, report.line.pings, report.line.since_mute_ms), (1, 1, None));
    assert!(slow.bytes_read > 60_000 && slow.behind_ms > 0, "{slow:?}");
}

#[test]
fn a_host_that_gives_a_slow_reader_up_is_found_behind_what_it_left() {
    let (options, playing) = host(|mut socket| {
        // More than is read within the probe's time.
        socket.get_mut().set_write_timeout(Some(Duration::from_millis(400))).unwrap();
        let _ = socket.send(Message::binary(vec![0; 20_000_000]));
    });
    let report = probe(&Options { slow_read: Some(50_000), ..options }).unwrap();
    playing.join().unwrap();
    assert_eq!(report.line.result, WireResult::KilledSlowReader);
    let slow = report.line.slow_read.unwrap();
    assert!(slow.read_ms >= 2_000 && slow.behind_ms > 1_000, "{slow:?}");
}

#[test]
fn headers_cookies_and_the_path_are_sent() {
    let (url, playing) = tcp_host("ws", |stream| {
        let mut seen = Vec::new();
        #[expect(clippy::result_large_err, reason = "the library's callback has this type")]
        let look = |request: &Request, response: Response| {
            seen.push(request.uri().to_string());
            for name in ["host", "x-one", "authorization", "cookie"] {
                let values = request.headers().get_all(name);
                seen.extend(values.iter().map(|value| format!("{name}: {}", value.to_str().unwrap())));
            }
            Ok(response)
        };
        drop(accept_hdr(stream, look).unwrap());
        seen
    });
    let header = |text: &str| text.parse().unwrap();
    let headers =
        [header("X-One: 1"), header("X-One: 2"), header("Authorization: Bearer x"), header("Host: a.b")];
    let target: Target = format!("{url}/api/remote.mux?a=b").parse().unwrap();
    let target = target.with_headers(headers).with_cookies(&["s=1".into(), "t=2".into()]).unwrap();
    probe(&Options::new(target)).unwrap();
    assert_eq!(
        playing.join().unwrap(),
        [
            "/api/remote.mux?a=b",
            "host: a.b",
            "x-one: 1",
            "x-one: 2",
            "authorization: Bearer x",
            "cookie: s=1; t=2"
        ]
    );
}

#[test]
fn what_is_no_handshake_is_an_error_with_its_reason() {
    let answered = |answer: &'static str| {
        let (url, playing) = tcp_host("ws", move |mut stream| {
            stream.write_all(answer.as_bytes()).unwrap();
            // Until the probe has left.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let error = probe(&options(&url)).unwrap_err().to_string();
        playing.join().unwrap();
        error
    };
    assert_eq!(
        answered("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"),
        "the handshake failed: the host answered 404 Not Found, not 101 Switching Protocols"
    );
    assert!(answered("HTTP/1.1 302 Found\r\nlocation: /login\r\n\r\n").ends_with("not followed: /login"));
    assert!(answered("SSH-2.0-x\r\n\r\n").starts_with("the handshake failed: "));
    let accepted =
        "HTTP/1.1 101 x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: x\r\n\r\n";
    assert!(answered(accepted).contains("the handshake failed: "));
}

#[test]
fn a_host_that_breaks_the_protocol_is_named() {
    let (options, playing) = host(|mut socket| {
        socket.get_mut().write_all(&[0x89, 0x80, 1, 2, 3, 4]).unwrap();
        received(&mut socket, DEADLINE);
    });
    let error = probe(&options).unwrap_err().to_string();
    playing.join().unwrap();
    assert!(error.contains("masked"), "{error}");
}

#[test]
fn text_heartbeats_are_answered_until_the_mute() {
    let play = |heartbeat: &'static str, answer: &'static str| {
        let (options, playing) = host(move |mut socket| {
            watchdog(&mut socket, &Message::text(heartbeat), 4, |message| *message == Message::text(answer))
        });
        let report = probe(&options).unwrap();
        assert_eq!(playing.join().unwrap(), 4);
        assert_eq!(
            (report.line.pings, report.line.text_frames, report.line.result),
            (6, 6, WireResult::Killed)
        );
        assert!(is_three_intervals(&report), "{report:?}");
        report.profile
    };
    assert_eq!(play("ping", "pong"), Some(HeartbeatProfile::PingPong));
    assert_eq!(play(r#"{"id":3,"type":"ping"}"#, r#"{"id":3,"type":"pong"}"#), Some(HeartbeatProfile::Json));
}

#[test]
fn a_named_text_profile_goes_on_answering_ping_frames() {
    let (options, playing) = host(|mut socket| {
        socket.send(Message::text("ping")).unwrap();
        one_answer(&mut socket, &|message| *message == Message::text("pong"));
        // Mute by now.
        socket.send(Message::Ping(vec![].into())).unwrap();
        let seen = vec![socket.read().unwrap()];
        socket.send(Message::text("ping")).unwrap();
        (seen, received(&mut socket, INTERVAL))
    });
    let profile = ProfileChoice::Only(HeartbeatProfile::PingPong);
    let report = probe(&Options { profile, mute_after: 1, ..options }).unwrap();
    assert_eq!(playing.join().unwrap(), (vec![Message::Pong(vec![].into())], vec![]));
    assert_eq!((report.line.pings, report.other_ping_frames), (2, 1));
    assert_eq!(report.line.result, WireResult::Killed);
}

/// A host that answers what its clients ask, and closes who has not asked for four intervals.
fn asked(profile: HeartbeatProfile, path: &str, answer: &'static str) -> (Report, Vec<String>) {
    let (url, playing) = tcp_host("ws", move |stream| {
        let mut socket = accept(stream).unwrap();
        let mut seen = Vec::new();
        loop {
            let came = received(&mut socket, INTERVAL * 4);
            if came.is_empty() {
                return seen;
            }
            for message in came {
                seen.push(message.to_text().unwrap().to_owned());
                socket.send(Message::text(answer)).unwrap();
            }
        }
    });
    let profile = ProfileChoice::Only(profile);
    let report = probe(&Options { profile, mute_after: 2, ..options(&format!("{url}{path}")) }).unwrap();
    (report, playing.join().unwrap())
}

#[test]
fn where_the_client_asks_the_probe_asks_and_then_stops() {
    let reply = r#"[null,"1","phoenix","phx_reply",{"status":"ok","response":{}}]"#;
    let (phoenix, seen) = asked(HeartbeatProfile::Phoenix, "/socket/websocket", reply);
    assert_eq!(seen, [r#"[null,"1","phoenix","heartbeat",{}]"#, r#"[null,"2","phoenix","heartbeat",{}]"#]);
    assert_eq!((phoenix.line.pings, phoenix.pongs, phoenix.asks), (2, 2, Who::Client));
    assert_eq!(phoenix.line.result, WireResult::Killed);

    let (signalr, seen) = asked(HeartbeatProfile::SignalR, "/hub", "{\"type\":6}\u{1e}");
    assert_eq!(
        seen,
        ["{\"protocol\":\"json\",\"version\":1}\u{1e}", "{\"type\":6}\u{1e}", "{\"type\":6}\u{1e}"]
    );
    assert_eq!((signalr.pongs, signalr.line.result), (2, WireResult::Killed));
}

/// A host with TLS, and the file with the certificate that signed its own.
fn tls_host() -> (String, tempfile::NamedTempFile, JoinHandle<usize>) {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(ca_certificate.pem().as_bytes()).unwrap();

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    let (url, playing) = tcp_host("wss", move |stream| {
        let connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let Ok(mut socket) = accept(rustls::StreamOwned::new(connection, stream)) else { return 0 };
        let mut pongs = 0;
        for _ in 0..3 {
            socket.send(Message::Ping(vec![].into())).unwrap();
            // The first is answered, however long a busy machine takes.
            let patience = if pongs == 0 { DEADLINE } else { INTERVAL };
            socket.get_mut().sock.set_read_timeout(Some(patience)).unwrap();
            pongs += usize::from(socket.read().is_ok_and(|message| message.is_pong()));
        }
        pongs
    });
    (url, file, playing)
}

#[test]
fn tls_is_trusted_only_as_asked() {
    let (url, file, playing) = tls_host();
    let trust = Trust::File(file.path().to_path_buf());
    let report = probe(&Options { trust, mute_after: 1, ..options(&url) }).unwrap();
    assert_eq!((playing.join().unwrap(), report.line.result), (1, WireResult::Killed));
    assert!(report.tls_ms.is_some());
    // Without close_notify, and so without a Close frame.
    assert_eq!((report.line.close_code, report.line.pings), (None, 3));

    let (url, _file, playing) = tls_host();
    let report = probe(&Options { trust: Trust::Anything, mute_after: 1, ..options(&url) }).unwrap();
    assert_eq!((playing.join().unwrap(), report.line.result), (1, WireResult::Killed));

    let (url, _file, playing) = tls_host();
    let (_, another, _) = tls_host();
    let trust = Trust::File(another.path().to_path_buf());
    let error = probe(&Options { trust, ..options(&url) }).unwrap_err();
    assert!(matches!(error, ProbeError::TlsHandshake { .. }), "{error}");
    playing.join().unwrap();

    let empty = tempfile::NamedTempFile::new().unwrap();
    let trust = Trust::File(empty.path().to_path_buf());
    let error = probe(&Options { trust, ..options(&url) }).unwrap_err();
    assert!(matches!(error, ProbeError::Certificates { .. }), "{error}");
}
