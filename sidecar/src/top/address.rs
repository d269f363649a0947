//! Where the API is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;

use crate::api::types::ADDRESS_DEFAULT;

/// An address of the API: TCP, or a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiAddress {
    /// `http://HOST:PORT`, the setting `api.listen`.
    Tcp {
        /// Name or address; an IPv6 address in brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// `unix:/PATH`, the setting `api.socket`.
    Unix(PathBuf),
}

/// Text that is no address of the API.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; write http://HOST:PORT or unix:/PATH")]
pub struct AddressError {
    problem: String,
}

impl ApiAddress {
    /// The address of a server whose setting `api.listen` is `ADDRESS:PORT`.
    #[must_use]
    pub fn from_listen(listen: &str) -> Self {
        let (host, port) = listen.rsplit_once(':').unwrap_or((listen, ""));
        Self::Tcp { host: host.to_owned(), port: port.parse().unwrap_or_else(|_| default_port()) }
    }

    /// Value of the header `Host` (RFC 9110 section 7.2). A unix socket has no name of its own.
    #[must_use]
    pub fn host(&self) -> String {
        match self {
            Self::Tcp { host, port } => format!("{host}:{port}"),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }

    /// The setting of `ackbeat run` that makes the API listen at such an address.
    #[must_use]
    pub const fn setting(&self) -> &'static str {
        match self {
            Self::Tcp { .. } => "api.listen",
            Self::Unix(_) => "api.socket",
        }
    }
}

impl FromStr for ApiAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refuse = |problem: String| Err(AddressError { problem });
        if let Some(path) = text.strip_prefix("unix:") {
            // unix:///PATH is the same, as curl and gRPC write it.
            let path = path.strip_prefix("//").unwrap_or(path);
            if !path.starts_with('/') {
                return refuse(format!("{text:?} names no absolute path"));
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let Ok(uri) = text.parse::<Uri>() else { return refuse(format!("{text:?} is no URL")) };
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return refuse("the API speaks plain HTTP, on the pod's loopback".to_owned()),
            _ => return refuse(format!("{text:?} has no scheme")),
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return refuse(format!("{text:?} names a page: only the address is wanted"));
        }
        let Some(authority) = uri.authority() else { return refuse(format!("{text:?} names no host")) };
        let host = authority.host().to_owned();
        if host.is_empty() || authority.as_str().contains('@') {
            return refuse(format!("{text:?} names no host"));
        }
        let port = match (authority.port_u16(), authority.as_str() == host) {
            (Some(port), _) => port,
            // As the server's own default: 80 would be nobody's wish.
            (None, true) => default_port(),
            (None, false) => return refuse(format!("{text:?} has no port")),
        };
        Ok(Self::Tcp { host, port })
    }
}

fn default_port() -> u16 {
    ADDRESS_DEFAULT.parse::<Authority>().ok().and_then(|authority| authority.port_u16()).unwrap_or(9465)
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(formatter, "http://{host}:{port}"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_read_and_written() {
        for (text, written, host) in [
            ("http://127.0.0.1:9465", "http://127.0.0.1:9465", "127.0.0.1:9465"),
            ("http://[::1]:80/", "http://[::1]:80", "[::1]:80"),
            ("http://localhost", "http://localhost:9465", "localhost:9465"),
            ("unix:/run/ackbeat.sock", "unix:/run/ackbeat.sock", "localhost"),
            ("unix:///run/ackbeat.sock", "unix:/run/ackbeat.sock", "localhost"),
        ] {
            let address: ApiAddress = text.parse().expect(text);
            assert_eq!((address.to_string().as_str(), address.host().as_str()), (written, host));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        for (text, part) in [
            ("127.0.0.1:9465", "no scheme"),
            ("https://127.0.0.1:9465", "plain HTTP"),
            ("http://127.0.0.1:9465/v1", "only the address"),
            ("http://127.0.0.1:", "no port"),
            ("http://127.0.0.1:99999", "no port"),
            ("http://u@h:1", "no host"),
            ("unix:ackbeat.sock", "no absolute path"),
            ("", "is no URL"),
        ] {
            let error = text.parse::<ApiAddress>().expect_err(text).to_string();
            assert!(error.contains(part) && error.contains("http://HOST:PORT"), "{text:?}: {error}");
        }
    }
}
