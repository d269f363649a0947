//! Where the API listens, and what stands in its way.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ackbeat::api::listen::Listeners;
use ackbeat::config::ApiSettings;

fn over(socket: &Path) -> ApiSettings {
    ApiSettings { listen: None, socket: Some(socket.to_path_buf()) }
}

#[tokio::test]
async fn an_address_that_is_taken_is_no_reason_to_stop() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = ApiSettings { listen: Some(taken.local_addr().unwrap()), socket: None };
    assert!(Listeners::bind(&settings).is_empty());
    assert!(Listeners::bind(&ApiSettings { listen: None, socket: None }).is_empty());
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
