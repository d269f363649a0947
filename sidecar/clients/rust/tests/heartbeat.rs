//! The heartbeat of real connections against a sidecar that answers as it should, or does not.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ackbeat_client::{CloseFrame, Decider, Heartbeat, HeartbeatOptions, Next, NoAnswer, Sidecar};
use anyhow::{Context as _, Result};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(100);
const ALIVE: &str = r#"{"verdict":"congested","kill_justified":false,"suggested_close":null,"more":[1]}"#;
const GONE: &str = r#"{"verdict":"unreachable","kill_justified":true,"suggested_close":{"code":1011,"reason":"heartbeat timeout"}}"#;

/// What the sidecar does next, and what it was asked.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<(String, Vec<String>)>>);

impl Fake {
    fn answering(answer: &str) -> Self {
        let fake = Self::default();
        fake.answer(answer);
        fake
    }

    fn ok(body: &str) -> Self {
        Self::answering(&ok(body))
    }

    fn answer(&self, answer: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 = answer.to_owned();
    }

    fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// One exchange; an empty answer never comes.
    async fn serve(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            head.push(byte);
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        if stream.read_exact(&mut body).await.is_err() {
            return;
        }
        let asked = format!("{} {}", head.lines().next().unwrap_or_default(), String::from_utf8_lossy(&body));
        let answer = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.1.push(asked.trim().to_owned());
            state.0.clone()
        };
        if answer.is_empty() {
            std::future::pending::<()>().await;
        }
        // A client that went away meanwhile is the test's own affair.
        let _ = stream.write_all(answer.as_bytes()).await;
    }

    async fn listen(self) -> Result<(SocketAddr, tokio::task::JoinHandle<()>)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(self.clone().serve(stream));
            }
        });
        Ok((address, task))
    }
}

fn with_status(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn ok(body: &str) -> String {
    with_status("200 OK", body)
}

fn peer() -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped(), 40_000).into()
}

fn local() -> SocketAddr {
    ([10, 0, 0, 1], 443).into()
}

fn heartbeat(sidecar: &Arc<Sidecar>) -> Heartbeat {
    let options = HeartbeatOptions { interval: INTERVAL, missed: 2 };
    Heartbeat::new(Arc::clone(sidecar), options, peer(), local())
}

async fn against(fake: &Fake) -> Result<(Arc<Sidecar>, Heartbeat)> {
    let (address, _) = fake.clone().listen().await?;
    let sidecar = Arc::new(Sidecar::at(&format!("http://{address}"))?);
    let heartbeat = heartbeat(&sidecar);
    Ok((sidecar, heartbeat))
}

/// What comes before the first thing of which `pick` makes something, and that.
async fn until<T>(heartbeat: &mut Heartbeat, mut pick: impl FnMut(Next) -> Option<T>) -> Result<T> {
    let found = async {
        loop {
            if let Some(found) = pick(heartbeat.next().await) {
                return found;
            }
        }
    };
    timeout(DEADLINE, found).await.context("it did not come in time")
}

async fn close(heartbeat: &mut Heartbeat) -> Result<(CloseFrame, Decider)> {
    until(heartbeat, |next| match next {
        Next::Close { frame, by } => Some((frame, by)),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn a_peer_that_answers_is_never_asked_about() -> Result<()> {
    let fake = Fake::ok(GONE);
    let (_, mut heartbeat) = against(&fake).await?;
    for _ in 0..10 {
        assert!(matches!(timeout(DEADLINE, heartbeat.next()).await?, Next::Ping));
        heartbeat.heard();
    }
    assert_eq!(fake.asked(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_late_pong_is_no_kill_unless_it_is_justified() -> Result<()> {
    let fake = Fake::ok(ALIVE);
    let (_, mut heartbeat) = against(&fake).await?;
    for _ in 0..20 {
        assert!(matches!(timeout(DEADLINE, heartbeat.next()).await?, Next::Ping));
    }
    let asked = fake.asked();
    assert!(asked.len() >= 10, "{asked:?}");
    assert_eq!(asked[0], "get /v1/verdict?peer=10.0.0.2:40000&local=10.0.0.1:443 http/1.1");
    fake.answer(&ok(GONE));
    let (frame, by) = close(&mut heartbeat).await?;
    assert_eq!(frame, CloseFrame::heartbeat_timeout());
    let Decider::Verdict(verdict) = by else { panic!("{by:?}") };
    assert_eq!(verdict.verdict, "unreachable");
    // The Close frame may never be seen on the wire.
    let told = async {
        while !fake
            .asked()
            .iter()
            .any(|asked| asked.contains("post /v1/heartbeats") && asked.contains("1011"))
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, told).await.expect("the sidecar is told of the Close frame");
    Ok(())
}

#[tokio::test]
async fn only_what_may_be_sent_is_taken_from_the_sidecar() -> Result<()> {
    let suggesting = |close: &str| ok(&GONE.replace(r#"{"code":1011,"reason":"heartbeat timeout"}"#, close));
    for (suggestion, expected) in [
        (r#"{"code":4008,"reason":"no progress"}"#, CloseFrame { code: 4008, reason: "no progress".into() }),
        (r#"{"code":1006,"reason":""}"#, CloseFrame::heartbeat_timeout()),
        ("null", CloseFrame::heartbeat_timeout()),
    ] {
        let fake = Fake::answering(&suggesting(suggestion));
        let (_, mut heartbeat) = against(&fake).await?;
        assert_eq!(close(&mut heartbeat).await?.0, expected);
    }
    Ok(())
}

#[tokio::test]
async fn a_window_decides_where_the_answer_is_of_no_use() -> Result<()> {
    for answer in [
        with_status("404 Not Found", "{}"),
        with_status("409 Conflict", "{}"),
        with_status("503 Service Unavailable", "{}"),
        with_status("500 Internal Server Error", ""),
        ok("<h1>It works!</h1>"),
        ok(r#"{"verdict":"alive"}"#),
        ok(&format!("\"{}\"", "x".repeat(100_000))),
        "HTTP/1.1 200 OK\r\ncontent-length: 4096\r\n\r\n{".to_owned(),
        "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
        String::new(),
    ] {
        let fake = Fake::answering(&answer);
        let (_, mut heartbeat) = against(&fake).await?;
        let began = Instant::now();
        let (frame, by) = close(&mut heartbeat).await?;
        assert_eq!((frame, by), (CloseFrame::heartbeat_timeout(), Decider::Window), "{answer:.40}");
        assert!(began.elapsed() >= 3 * INTERVAL);
        assert!(!fake.asked().is_empty());
    }
    Ok(())
}

#[tokio::test]
async fn it_goes_back_to_the_sidecar_when_that_answers_again() -> Result<()> {
    let fake = Fake::answering(&with_status("500 Internal Server Error", ""));
    let (address, _) = fake.clone().listen().await?;
    let sidecar = Arc::new(Sidecar::at(&format!("http://{address}"))?);
    // Long enough for a question every half a second, and asked early enough for the window to be open still.
    let options = HeartbeatOptions { interval: Duration::from_millis(400), missed: 1 };
    let mut heartbeat = Heartbeat::new(Arc::clone(&sidecar), options, peer(), local());
    let why = until(&mut heartbeat, |next| match next {
        Next::Fallback(why) => Some(why),
        _ => None,
    })
    .await?;
    assert!(matches!(why, NoAnswer::Status(_)), "{why}");
    assert!(sidecar.is_out());
    fake.answer(&ok(ALIVE));
    heartbeat.heard();
    until(&mut heartbeat, |next| match next {
        Next::Recovered => Some(()),
        Next::Close { .. } => panic!("the window was open"),
        Next::Ping | Next::Fallback(_) => None,
    })
    .await?;
    assert!(!sidecar.is_out());
    Ok(())
}

#[tokio::test]
async fn while_the_sidecar_is_away_few_ask_for_it() -> Result<()> {
    let fake = Fake::answering(&with_status("500 Internal Server Error", ""));
    let (address, _) = fake.clone().listen().await?;
    let sidecar = Arc::new(Sidecar::at(&format!("http://{address}"))?);
    let began = Instant::now();
    let closes = (0..50).map(|_| {
        let mut heartbeat = heartbeat(&sidecar);
        tokio::spawn(async move { close(&mut heartbeat).await })
    });
    for end in closes.collect::<Vec<_>>() {
        assert_eq!(end.await??.1, Decider::Window);
    }
    // The first four may be under way before anybody knows; then one every half a second.
    let limit = 4 + began.elapsed().as_millis() / 500;
    assert!(fake.asked().len() as u128 <= limit, "{} questions", fake.asked().len());
    Ok(())
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_goes_on() -> Result<()> {
    let fake = Fake::ok(GONE);
    let (_, mut heartbeat) = against(&fake).await?;
    let found = async {
        loop {
            // As in a select! whose other branch is always ready.
            let Ok(next) = timeout(Duration::from_millis(1), heartbeat.next()).await else { continue };
            if let Next::Close { by, .. } = next {
                return by;
            }
        }
    };
    let by = timeout(DEADLINE, found).await.expect("in time");
    assert!(matches!(by, Decider::Verdict(_)));
    Ok(())
}

#[tokio::test]
async fn a_unix_socket() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("api.sock");
    let listener = UnixListener::bind(&path)?;
    let fake = Fake::ok(GONE);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(fake.clone().serve(stream));
        }
    });
    let sidecar = Arc::new(Sidecar::at(&format!("unix:{}", path.display()))?);
    assert!(matches!(close(&mut heartbeat(&sidecar)).await?.1, Decider::Verdict(_)));
    Ok(())
}

#[tokio::test]
async fn nobody_listens() -> Result<()> {
    let (address, task) = Fake::ok(ALIVE).listen().await?;
    task.abort();
    // It is over once the listener is dropped with it.
    assert!(task.await.is_err());
    let sidecar = Arc::new(Sidecar::at(&format!("http://{address}"))?);
    assert_eq!(close(&mut heartbeat(&sidecar)).await?.1, Decider::Window);
    Ok(())
}
