//! Where the API listens. What cannot be listened on is a warning, and the sidecar goes on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, UnixListener};

use crate::config::ApiSettings;
use crate::listening::{Listener, Standing, Standings};

/// Answers that wait in the kernel for one client, in bytes: a client that does not read holds no more.
const SEND_BUFFER_BYTES: usize = 128 * 1024;
/// Who may write the socket may ask: its owner and its group.
const SOCKET_MODE: u32 = 0o660;

/// The API cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {step} {at} failed: {cause}; {fix}")]
pub struct ListenError {
    /// The setting that names the place.
    pub setting: &'static str,
    /// The step that failed.
    pub step: &'static str,
    /// The place.
    pub at: String,
    /// Why.
    pub cause: io::Error,
    /// What to do about it.
    pub fix: &'static str,
}

/// What the API listens on.
#[derive(Debug, Default)]
pub struct Listeners {
    pub(super) tcp: Option<TcpListener>,
    /// An address that somebody else has.
    pub(super) busy: Option<SocketAddr>,
    /// A Unix socket that somebody else listens on.
    pub(super) busy_socket: Option<PathBuf>,
    pub(super) standings: Arc<Standings>,
    pub(super) unix: Option<UnixSocket>,
}

/// A Unix socket, removed when it is dropped.
#[derive(Debug)]
pub(super) struct UnixSocket {
    pub(super) listener: UnixListener,
    file: SocketFile,
}

impl UnixSocket {
    pub(super) fn into_parts(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

/// The socket's file, removed when this is dropped unless somebody has put another in its place.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            // Whoever starts next replaces what is left.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Listeners {
    /// Listens where the settings say; a failure is told in the log. It needs a tokio runtime around the call.
    #[must_use]
    pub fn bind(settings: &ApiSettings) -> Self {
        let standings = Arc::<Standings>::default();
        let tcp = settings.listen.and_then(|address| told(Listener::Api, bind_tcp(address), &standings));
        if let Some(Ok(address)) = tcp.as_ref().map(tokio::net::TcpListener::local_addr) {
            standings.listens_at(Listener::Api, address.port());
        }
        let busy = settings.listen.filter(|_| standings.of(Listener::Api) == Standing::Busy);
        let unix = settings
            .socket
            .as_deref()
            .and_then(|path| told(Listener::ApiSocket, bind_unix(path), &standings));
        let busy_socket =
            settings.socket.clone().filter(|_| standings.of(Listener::ApiSocket) == Standing::Busy);
        Self { tcp, busy, busy_socket, standings, unix }
    }

    /// Whether somebody else has one of them: [`Serving`](super::server::Serving) tries it again.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.busy.is_some() || self.busy_socket.is_some()
    }

    /// How they stand, now and later.
    #[must_use]
    pub fn standings(&self) -> Arc<Standings> {
        Arc::clone(&self.standings)
    }

    /// The address that is listened on.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Says in the log where it listens.
    pub fn tell(&self) {
        let socket = self.unix.as_ref().map(|socket| socket.file.path.display().to_string());
        tracing::info!(
            address = self.address().map(|address| address.to_string()),
            socket,
            "the API listens"
        );
    }

    /// Whether nothing is listened on.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tcp.is_none() && self.unix.is_none()
    }
}

fn told<T>(listener: Listener, result: Result<T, ListenError>, standings: &Standings) -> Option<T> {
    let standing = match &result {
        Ok(_) => Standing::Listening,
        Err(error) => Standing::after(&error.cause),
    };
    standings.set(listener, standing);
    let again = if standing == Standing::Busy { "; it is tried again, at least twice a minute" } else { "" };
    result.inspect_err(|error| tracing::warn!("the API does not listen there: {error}{again}")).ok()
}

pub(super) fn bind_tcp(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let failed = |step| {
        move |cause| ListenError {
            setting: "api.listen",
            step,
            at: address.to_string(),
            cause,
            fix: "choose another address, or off",
        }
    };
    let listener = std::net::TcpListener::bind(address).map_err(failed("listening on"))?;
    listener.set_nonblocking(true).map_err(failed("setting up"))?;
    // Accepted sockets inherit it.
    setsockopt(&listener.as_fd(), sockopt::SndBuf, &SEND_BUFFER_BYTES)
        .map_err(|error| failed("setting up")(error.into()))?;
    TcpListener::from_std(listener).map_err(failed("setting up"))
}

pub(super) fn bind_unix(path: &Path) -> Result<UnixSocket, ListenError> {
    let failed = |step| {
        move |cause| ListenError {
            setting: "api.socket",
            step,
            at: path.display().to_string(),
            cause,
            fix: "choose another file in a folder that can be written",
        }
    };
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(failed("listening on")(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "it is there and no socket",
            )));
        }
        // A socket that somebody listens on is not stale: its file is not taken away.
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            let error = failed("listening on")(io::ErrorKind::AddrInUse.into());
            return Err(ListenError { fix: "let one sidecar have it, or choose another file", ..error });
        }
    }
    // Under another name until it has its mode, then put in the place of a stale one in one step.
    let mut made = path.as_os_str().to_owned();
    made.push(format!(".{}", std::process::id()));
    let made = PathBuf::from(made);
    // Left by a process of this number that was killed.
    let _ = std::fs::remove_file(&made);
    let listener = UnixListener::bind(&made).map_err(failed("listening on"))?;
    let placed = std::fs::set_permissions(&made, std::fs::Permissions::from_mode(SOCKET_MODE))
        .and_then(|()| std::fs::metadata(&made))
        .and_then(|found| std::fs::rename(&made, path).map(|()| found.ino()));
    match placed {
        Ok(inode) => Ok(UnixSocket { listener, file: SocketFile { path: path.to_path_buf(), inode } }),
        Err(cause) => {
            let _ = std::fs::remove_file(&made);
            Err(failed("placing")(cause))
        }
    }
}
