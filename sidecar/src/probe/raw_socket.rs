//! Raw sockets that only send.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};

use ackbeat_liveness::ProbeWanted;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, SockaddrLike, sendto,
    socket,
};

use super::{Prober, SendError, packet};

/// What grants raw sockets.
pub const CAPABILITY_FIX: &str =
    "add NET_RAW to the container's securityContext.capabilities.add (CAP_NET_RAW)";

/// Own window probes cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("opening a raw socket for own window probes failed: {cause}; {fix}")]
pub struct OpenError {
    /// Why.
    pub cause: io::Error,
    /// What to do about it.
    pub fix: &'static str,
}

/// Sends through raw sockets of protocol `IPPROTO_RAW`, which give the IP header themselves and receive nothing (raw(7)).
#[derive(Debug)]
pub struct RawSocketProber {
    v4: OwnedFd,
    /// `None` where the kernel has no IPv6.
    v6: Option<OwnedFd>,
}

impl RawSocketProber {
    /// Opens the sockets. It needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// [`OpenError`], with the fix.
    pub fn open() -> Result<Self, OpenError> {
        let open = |family| {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            socket(family, SockType::Raw, flags, SockProtocol::Raw)
        };
        let failed = |error: Errno| OpenError {
            fix: match error {
                Errno::EPERM | Errno::EACCES => CAPABILITY_FIX,
                _ => {
                    "let the seccomp profile or the security module allow raw sockets, or set probe.window to false"
                }
            },
            cause: error.into(),
        };
        let v6 = match open(AddressFamily::Inet6) {
            Ok(socket) => Some(socket),
            Err(Errno::EAFNOSUPPORT) => None,
            Err(error) => return Err(failed(error)),
        };
        Ok(Self { v4: open(AddressFamily::Inet).map_err(failed)?, v6 })
    }
}

impl Prober for RawSocketProber {
    fn send(&mut self, wanted: &ProbeWanted) -> Result<(), SendError> {
        let bytes = packet(wanted)?;
        // The port of a raw address is the protocol or 0 (raw(7)).
        match wanted.endpoints.peer_address.to_canonical() {
            IpAddr::V4(peer) => {
                let to = SockaddrIn::from(std::net::SocketAddrV4::new(peer, 0));
                send(&self.v4, &bytes, &to)
            }
            IpAddr::V6(peer) => {
                let to = SockaddrIn6::from(std::net::SocketAddrV6::new(peer, 0, 0, 0));
                send(self.v6.as_ref().ok_or(SendError::NoIpv6)?, &bytes, &to)
            }
        }
    }
}

fn send(socket: &OwnedFd, bytes: &[u8], to: &impl SockaddrLike) -> Result<(), SendError> {
    sendto(socket.as_raw_fd(), bytes, to, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)
        .map(drop)
        .map_err(|error| SendError::Refused(error.into()))
}
