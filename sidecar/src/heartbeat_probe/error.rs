//! Why there is no report.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio_tungstenite::tungstenite;

/// A probe that came to no result.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The name has no address.
    #[error("looking up {host} failed: {cause}")]
    Lookup {
        /// The name.
        host: String,
        /// Why.
        cause: io::Error,
    },
    /// No TCP connection.
    #[error("connecting to {address} failed: {cause}")]
    Connect {
        /// `ADDRESS:PORT`, the last one that was tried.
        address: String,
        /// Why.
        cause: io::Error,
    },
    /// A file with certificates cannot be used.
    #[error("--ca {}: {problem}; a PEM file with at least one certificate is needed", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// The system has no certificates that can be trusted.
    #[error(
        "this system has no trusted certificates ({problem}): install ca-certificates, or name a file with --ca"
    )]
    NoRoots {
        /// Why.
        problem: String,
    },
    /// TLS cannot be set up on this side.
    #[error("setting up TLS failed: {0}")]
    Tls(String),
    /// The TLS handshake failed.
    #[error("the TLS handshake with {host} failed: {cause}")]
    TlsHandshake {
        /// The name that the certificate must have.
        host: String,
        /// Why.
        cause: io::Error,
    },
    /// The host answered, but with no 101.
    #[error("the handshake failed: the host answered {status}, not 101 Switching Protocols{more}")]
    Refused {
        /// Status code and its phrase.
        status: String,
        /// Where a redirection leads to; empty otherwise.
        more: String,
    },
    /// The host's answer is no handshake.
    #[error("the handshake failed: {0}")]
    Handshake(#[source] Box<tungstenite::Error>),
    /// The handshake took too long.
    #[error("the handshake failed: it was not done within {} ms", limit.as_millis())]
    HandshakeTime {
        /// How long was waited.
        limit: Duration,
    },
    /// The host sent what no WebSocket may contain.
    #[error("reading the host's frames failed: {0}")]
    Protocol(&'static str),
    /// The connection broke, and not by the host's FIN or RST.
    #[error("reading from the host failed: {0}")]
    Read(#[source] io::Error),
    /// A message cannot be written as a frame.
    #[error("writing a message as a frame failed: {0}")]
    Encode(#[source] Box<tungstenite::Error>),
}
