//! The netlink socket: one dump for each address family, and single sockets.

use std::io;
use std::net::IpAddr;

use ackbeat_liveness::{ConnectionId, Endpoints};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_packet_sock_diag::{SockDiagDestroy, SockDiagMessage};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr};

use super::rows::Row;
use crate::source::SourceError;

/// Answers come in parts of at most 32 KiB (`NLMSG_GOODSIZE` bounds, `netlink_dump`).
const PART_BYTES: usize = 64 * 1024;

pub(crate) struct Netlink {
    socket: Socket,
    buffer: Vec<u8>,
}

fn failed(step: &'static str) -> impl Fn(std::io::Error) -> SourceError {
    move |error| SourceError {
        step,
        cause: format!("{error}; a seccomp profile or a kernel without CONFIG_INET_DIAG may refuse it"),
    }
}

/// Reads one part of a dump into `rows`, which take no more than `limit` of them. Gives whether the dump has ended.
///
/// # Errors
/// [`SourceError`] if the bytes are no netlink messages, or say that the kernel refused.
pub fn read_dump_part(part: &[u8], limit: usize, rows: &mut Vec<Row>) -> Result<bool, SourceError> {
    let mut part = part;
    while !part.is_empty() {
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(part)
            .map_err(|error| SourceError { step: "decoding a sock_diag dump", cause: error.to_string() })?;
        match message.payload {
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                let room = limit.saturating_sub(rows.len());
                rows.extend(Row::read(&response).into_iter().take(room));
            }
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => {
                // Its `to_io` overflows on the one number that has no opposite.
                let cause = std::io::Error::from_raw_os_error(error.raw_code().saturating_abs());
                return Err(failed("asking for a sock_diag dump")(cause));
            }
            _ => {}
        }
        // Messages are aligned to four bytes (netlink(7)).
        let length = (message.header.length as usize).next_multiple_of(4);
        if length == 0 {
            break;
        }
        part = part.get(length..).unwrap_or_default();
    }
    Ok(false)
}

impl Netlink {
    pub(crate) fn open() -> Result<Self, SourceError> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG).map_err(failed("opening a sock_diag socket"))?;
        socket.bind_auto().map_err(failed("binding the sock_diag socket"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(failed("connecting the sock_diag socket"))?;
        let mut netlink = Self { socket, buffer: Vec::with_capacity(PART_BYTES) };
        // Refused now rather than later: on a kernel without the module the first request fails.
        netlink.dump(1)?;
        Ok(netlink)
    }

    /// Every TCP socket of this network namespace, at most `limit`.
    pub(crate) fn dump(&mut self, limit: usize) -> Result<Vec<Row>, SourceError> {
        let mut rows = Vec::new();
        self.dump_family(AF_INET, SocketId::new_v4(), limit, &mut rows)?;
        self.dump_family(AF_INET6, SocketId::new_v6(), limit, &mut rows)?;
        Ok(rows)
    }

    fn dump_family(
        &mut self,
        family: u8,
        socket_id: SocketId,
        limit: usize,
        rows: &mut Vec<Row>,
    ) -> Result<(), SourceError> {
        self.request(family, socket_id)?;
        loop {
            self.buffer.clear();
            let size = self.socket.recv(&mut self.buffer, 0).map_err(failed("reading a sock_diag dump"))?;
            let part = self.buffer.get(..size).unwrap_or_default();
            if read_dump_part(part, limit, rows)? {
                return Ok(());
            }
        }
    }

    /// One socket, found by its ends and its cookie; `None` if it is gone.
    ///
    /// # Errors
    /// [`SourceError`] if the kernel refuses the question.
    pub(crate) fn find(
        &mut self,
        connection: ConnectionId,
        endpoints: &Endpoints,
    ) -> Result<Option<Row>, SourceError> {
        const STEP: &str = "asking for one socket";
        let request = one_socket(connection, endpoints);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST;
        let message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
        let answer = self.ask(message).map_err(failed(STEP))?;
        match answer {
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                Ok(Row::read(&response).filter(|row| row.cookie == connection))
            }
            NetlinkPayload::Error(error) => {
                let cause = io::Error::from_raw_os_error(error.raw_code().saturating_abs());
                // ESTALE: the ends are there, and the cookie is another one (`sock_diag_check_cookie`).
                match cause.raw_os_error() {
                    Some(libc::ENOENT | libc::ESTALE) => Ok(None),
                    _ => Err(failed(STEP)(cause)),
                }
            }
            _ => Ok(None),
        }
    }

    /// Destroys one socket, found by its ends and its cookie (`SOCK_DESTROY`, Linux 4.5): both sides see a reset.
    ///
    /// # Errors
    /// The kernel's: `NotFound` if it is gone, `PermissionDenied` without `CAP_NET_ADMIN`, `Unsupported` without
    /// `CONFIG_INET_DIAG_DESTROY`.
    pub(crate) fn destroy(&mut self, connection: ConnectionId, endpoints: &Endpoints) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK;
        let request = SockDiagMessage::InetRequest(one_socket(connection, endpoints));
        let message =
            NetlinkMessage::new(header, NetlinkPayload::InnerMessage(SockDiagDestroy::new(request)));
        match self.ask(message)? {
            NetlinkPayload::Error(error) if error.code.is_some() => {
                let errno = error.raw_code().saturating_abs();
                let errno = if errno == libc::ESTALE { libc::ENOENT } else { errno };
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => Ok(()),
        }
    }

    /// Sends one request and reads its one answer.
    fn ask<M: NetlinkSerializable>(
        &mut self,
        mut message: NetlinkMessage<M>,
    ) -> io::Result<NetlinkPayload<SockDiagMessage>> {
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        self.buffer.clear();
        let size = self.socket.recv(&mut self.buffer, 0)?;
        let answer = self.buffer.get(..size).unwrap_or_default();
        NetlinkMessage::<SockDiagMessage>::deserialize(answer)
            .map(|message| message.payload)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    }

    fn request(&self, family: u8, socket_id: SocketId) -> Result<(), SourceError> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut message = NetlinkMessage::new(
            header,
            SockDiagMessage::InetRequest(InetRequest {
                family,
                protocol: IPPROTO_TCP,
                extensions: ExtensionFlags::INFO | ExtensionFlags::SHUTDOWN,
                states: StateFlags::all(),
                socket_id,
            })
            .into(),
        );
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(failed("asking for a sock_diag dump"))?;
        Ok(())
    }
}

/// The question for one socket.
fn one_socket(connection: ConnectionId, endpoints: &Endpoints) -> InetRequest {
    let (family, mut socket_id) = match endpoints.local_address {
        IpAddr::V4(_) => (AF_INET, SocketId::new_v4()),
        IpAddr::V6(_) => (AF_INET6, SocketId::new_v6()),
    };
    socket_id.source_address = endpoints.local_address;
    socket_id.source_port = endpoints.local_port;
    socket_id.destination_address = endpoints.peer_address;
    socket_id.destination_port = endpoints.peer_port;
    socket_id.cookie = connection.0.to_ne_bytes();
    InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO | ExtensionFlags::SHUTDOWN,
        states: StateFlags::all(),
        socket_id,
    }
}
