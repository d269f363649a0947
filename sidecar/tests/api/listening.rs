//! Where the API listens, and what stands in its way.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ackbeat::api::listen::Listeners;
use ackbeat::api::server::Serving;
use ackbeat::config::ApiSettings;
use ackbeat::listening::{Listener, Standing};

const DEADLINE: Duration = Duration::from_secs(30);

fn over(socket: &Path) -> ApiSettings {
    ApiSettings { listen: None, socket: Some(socket.to_path_buf()) }
}

#[tokio::test]
async fn an_address_that_is_taken_is_no_reason_to_stop() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = ApiSettings { listen: Some(taken.local_addr().unwrap()), socket: None };
    let listeners = Listeners::bind(&settings);
    assert!(listeners.is_empty() && listeners.is_busy());
    let off = Listeners::bind(&ApiSettings { listen: None, socket: None });
    assert!(off.is_empty() && !off.is_busy());
    assert_eq!(off.standings().of(Listener::Api), Standing::Off);
}

/// The sidecar before this one goes, and this one has the address.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_becomes_free_is_listened_on() {
    use std::io::{Read as _, Write as _};
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let listeners = Listeners::bind(&ApiSettings { listen: Some(address), socket: None });
    let standings = listeners.standings();
    assert_eq!(standings.of(Listener::Api), Standing::Busy);
    let router = axum::Router::new().fallback(|| async { "it is there" });
    let _serving = Serving::start(listeners, &router, &Arc::default());
    drop(taken);
    let until = Instant::now() + DEADLINE;
    while standings.of(Listener::Api) != Standing::Listening {
        assert!(Instant::now() < until, "{:?}", standings.words());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    assert!(answer.await.unwrap().ends_with("it is there"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_becomes_free_is_listened_on() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("api.sock");
    let before = Listeners::bind(&over(&socket));
    let listeners = Listeners::bind(&over(&socket));
    let standings = listeners.standings();
    assert_eq!(standings.of(Listener::ApiSocket), Standing::Busy);
    let serving = Serving::start(listeners, &axum::Router::new(), &Arc::default());
    drop(before);
    let until = Instant::now() + DEADLINE;
    while standings.of(Listener::ApiSocket) != Standing::Listening {
        assert!(Instant::now() < until, "{:?}", standings.words());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::net::UnixStream::connect(&socket).await.unwrap();
    drop(serving);
    let until = Instant::now() + DEADLINE;
    while socket.exists() {
        assert!(Instant::now() < until, "the file is left");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_stale_socket_is_replaced_a_live_one_and_a_file_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("api.sock");
    // Stale: a process was killed.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let first = Listeners::bind(&over(&socket));
    assert!(!first.is_empty());
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    assert!(Listeners::bind(&over(&socket)).is_empty(), "somebody listens there");
    // Somebody else's file is not removed.
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, "notes").unwrap();
    drop(first);
    assert!(Listeners::bind(&over(&socket)).is_empty());
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "notes");
    // Its own is.
    std::fs::remove_file(&socket).unwrap();
    let second = Listeners::bind(&over(&socket));
    assert!(socket.exists());
    drop(second);
    assert!(!socket.exists());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "something is left");
    assert!(Listeners::bind(&over(Path::new("/nowhere/api.sock"))).is_empty());
}
