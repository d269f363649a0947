//! From the kernel's records to the engine's words. Pure: no IO, no clock.

use std::net::{IpAddr, Ipv6Addr};

use ackbeat_abi as abi;
use ackbeat_abi::{LossReason, Member, Record, task_flags};
use ackbeat_liveness::{
    ConnectionId, Direction, Endpoints, Frame, FrameKind, HeartbeatProfile, Input, Opened, Process, Reset,
    Role, Seq, Snapshot, Synchronization, TcpState, Timestamp, Transition,
};

use super::{clock::JiffiesClock, upgrade};
use crate::heartbeat::DataFrame;

/// What one record means.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// For the engine, in this order.
    Inputs(Vec<Input>),
    /// A data frame that may be a text heartbeat.
    Data(DataFrame),
    /// Something began to listen.
    Listening {
        /// The port.
        port: u16,
    },
    /// A listener was closed.
    ListenerClosed {
        /// The port.
        port: u16,
    },
}

/// A record that decodes and still makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// A TCP state that is not in `include/net/tcp_states.h`.
    #[error("{0} is no TCP state")]
    UnknownState(u8),
    /// An opcode that is not one of a control frame, text or binary (RFC 6455 section 11.8).
    #[error("{0} is no opcode of a control frame, text or binary")]
    UnknownOpcode(u8),
    /// The record does not say which connection it is about.
    #[error("the record has no socket cookie")]
    NoCookie,
}

/// The meaning of one record.
///
/// # Errors
/// [`Rejection`] where a member holds a value that has no meaning.
pub fn record(clock: JiffiesClock, record: &Record) -> Result<Meaning, Rejection> {
    let inputs = match record {
        Record::Lifecycle(found) => return lifecycle(clock, found),
        Record::Reset(found) => Input::Reset(Reset {
            connection: connection(found.header.cookie)?,
            at: Timestamp::from_ns(found.header.time_ns),
            direction: direction(found.direction),
            answers_segment: found.answers_segment != 0,
            reason: (found.has_reason != 0).then_some(found.reason),
        }),
        Record::Frame(found) if matches!(found.opcode, TEXT | BINARY) => {
            return Ok(Meaning::Data(data_frame(found)?));
        }
        Record::Frame(found) => Input::Frame(frame(found)?),
        Record::Synchronization(found) => Input::Synchronization(Synchronization {
            connection: connection(found.header.cookie)?,
            at: Timestamp::from_ns(found.header.time_ns),
            direction: direction(found.direction),
            synchronized: found.synchronized != 0,
            reason: (found.synchronized == 0).then(|| loss_reason(found.reason).to_owned()),
        }),
        Record::Outstanding(found) => Input::Outstanding {
            connection: connection(found.header.cookie)?,
            at: Timestamp::from_ns(found.header.time_ns),
        },
        Record::Termination(found) => Input::Terminating {
            at: Timestamp::from_ns(found.header.time_ns),
            process: Some(found.process_id),
        },
        Record::UpgradeHead(found) => {
            let head = found.head.get(..found.head_bytes as usize).unwrap_or(&found.head);
            Input::Upgrade(upgrade::read(
                connection(found.header.cookie)?,
                Timestamp::from_ns(found.header.time_ns),
                head,
            ))
        }
    };
    Ok(Meaning::Inputs(vec![inputs]))
}

fn lifecycle(clock: JiffiesClock, found: &abi::Lifecycle) -> Result<Meaning, Rejection> {
    let (old_state, new_state) = (tcp_state(found.old_state)?, tcp_state(found.new_state)?);
    let port = found.snapshot.flow.local_port;
    if new_state == TcpState::Listen {
        return Ok(Meaning::Listening { port });
    }
    if old_state == TcpState::Listen && new_state == TcpState::Close {
        return Ok(Meaning::ListenerClosed { port });
    }
    let mut taken = snapshot(clock, &found.snapshot)?;
    if new_state == TcpState::Close && peer_has_closed(old_state) {
        taken.unread_bytes = taken.unread_bytes.map(without_fin);
    }
    if old_state == TcpState::SynRecv && new_state == TcpState::Established {
        return Ok(Meaning::Inputs(opened(&found.snapshot, taken, false).into()));
    }
    let process = process(found, old_state, new_state);
    Ok(Meaning::Inputs(vec![Input::Transition(Transition {
        old_state,
        new_state,
        process,
        snapshot: taken,
    })]))
}

/// A connection that was established, or (`preexisting`) found, with the first look at it.
pub(super) fn opened(found: &abi::Snapshot, taken: Snapshot, preexisting: bool) -> [Input; 2] {
    let opened = Opened {
        connection: taken.connection,
        at: taken.at,
        endpoints: endpoints(&found.flow),
        role: Role::Server,
        preexisting,
        // The source says otherwise where its wire parser is missing.
        frames_visible: true,
    };
    [Input::Opened(opened), Input::Sample(taken)]
}

/// Whether the peer's FIN has arrived: then `rcv_nxt` counts it like a byte (RFC 9293 section 3.4).
const fn peer_has_closed(state: TcpState) -> bool {
    matches!(state, TcpState::CloseWait | TcpState::LastAck | TcpState::Closing | TcpState::TimeWait)
}

/// Bytes that wait to be read. Once the application has read the end of the stream, `copied_seq` counts the FIN too.
const fn without_fin(unread_bytes: u32) -> u32 {
    unread_bytes.saturating_sub(1)
}

/// `ECONNABORTED`: `tcp_abort()` ended the connection on behalf of a task (`ss --kill`, `SOCK_DESTROY`).
const ECONNABORTED: u32 = 103;

/// The task that caused a transition; `None` where the kernel acted on a segment or a timer.
///
/// A task that owns the socket also works off segments that came meanwhile (the backlog). So the context alone does not
/// say that the task acted; the transition does: `FIN_WAIT1` and `LAST_ACK` are entered only by `close()` and
/// `shutdown()`, and `CLOSE` without an error of the socket only by a `close()` that resets (unread data, linger 0).
fn process(found: &abi::Lifecycle, old_state: TcpState, new_state: TcpState) -> Option<Process> {
    let context_known = found.task_flags & task_flags::CONTEXT_KNOWN != 0;
    if context_known && found.task_flags & task_flags::INTERRUPT != 0 {
        return None;
    }
    let error = has(&found.snapshot, Member::SkErr).then_some(found.snapshot.sk_err);
    let acted = match new_state {
        TcpState::FinWait1 | TcpState::LastAck => true,
        TcpState::Close => match old_state {
            TcpState::Established | TcpState::CloseWait | TcpState::FinWait1 => {
                context_known && matches!(error, Some(0 | ECONNABORTED))
            }
            _ => context_known && error == Some(ECONNABORTED),
        },
        _ => false,
    };
    acted.then(|| Process {
        pid: found.process_id,
        command: command(&found.comm),
        exiting: found.task_flags & task_flags::EXITING != 0,
        // The node's own first process is everybody's ancestor, and stops nobody's host.
        ancestors: found.ancestors.iter().copied().filter(|pid| *pid > 1).collect(),
    })
}

fn command(comm: &[u8]) -> String {
    let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(comm.get(..end).unwrap_or_default()).into_owned()
}

/// The kernel's accounting of one socket.
///
/// # Errors
/// [`Rejection`] where the state or the cookie has no meaning.
pub fn snapshot(clock: JiffiesClock, found: &abi::Snapshot) -> Result<Snapshot, Rejection> {
    let at = Timestamp::from_ns(found.time_ns);
    let moment =
        |member, stamp| when(found, member, stamp).and_then(|stamp| clock.moment(stamp, found.jiffies, at));
    let seq = |member, value| when(found, member, value).map(Seq);
    let (write_seq, snd_nxt) = (seq(Member::WriteSeq, found.write_seq), seq(Member::SndNxt, found.snd_nxt));
    let (snd_una, rcv_nxt) = (seq(Member::SndUna, found.snd_una), seq(Member::RcvNxt, found.rcv_nxt));
    let copied_seq = seq(Member::CopiedSeq, found.copied_seq);
    let state = tcp_state(found.state)?;
    let unread_bytes = distance(rcv_nxt, copied_seq);
    Ok(Snapshot {
        connection: connection(found.cookie)?,
        at,
        state,
        write_seq,
        snd_nxt,
        snd_una,
        snd_wnd_bytes: when(found, Member::SndWnd, found.snd_wnd),
        rcv_nxt,
        copied_seq,
        send_queue_bytes: distance(write_seq, snd_una),
        unsent_bytes: distance(write_seq, snd_nxt),
        unread_bytes: if peer_has_closed(state) { unread_bytes.map(without_fin) } else { unread_bytes },
        last_ack_at: moment(Member::RcvTstamp, found.rcv_tstamp),
        last_send_at: moment(Member::Lsndtime, found.lsndtime),
        last_inbound_at: moment(Member::Lrcvtime, found.lrcvtime),
        bytes_acked: when(found, Member::BytesAcked, found.bytes_acked),
        bytes_received: when(found, Member::BytesReceived, found.bytes_received),
        // 0 means that no round trip was measured yet.
        srtt_us: when(found, Member::Srtt, found.srtt_eighth_us / 8).filter(|srtt| *srtt != 0),
        rto_ms: when(found, Member::Rto, clock.milliseconds(found.rto_jiffies)),
        backoff: when(found, Member::Backoff, found.backoff),
        retransmits: when(found, Member::Retransmits, found.retransmits),
        probes_out: when(found, Member::ProbesOut, found.probes_out),
        packets_out: when(found, Member::PacketsOut, found.packets_out),
        total_retransmits: when(found, Member::TotalRetrans, found.total_retrans),
        retransmitting_since: (found.retransmitting_since_ns != 0)
            .then(|| Timestamp::from_ns(found.retransmitting_since_ns)),
        socket_error: when(found, Member::SkErr, found.sk_err),
        soft_error: when(found, Member::SkErrSoft, found.sk_err_soft),
        shutdown: when(found, Member::SkShutdown, found.sk_shutdown),
        queued_memory_bytes: when(found, Member::SkWmemQueued, found.sk_wmem_queued),
    })
}

fn has(found: &abi::Snapshot, member: Member) -> bool {
    found.available & member.bit() != 0
}

fn when<T>(found: &abi::Snapshot, member: Member, value: T) -> Option<T> {
    has(found, member).then_some(value)
}

fn distance(later: Option<Seq>, earlier: Option<Seq>) -> Option<u32> {
    Some(later?.bytes_since(earlier?))
}

fn connection(cookie: u64) -> Result<ConnectionId, Rejection> {
    if cookie == 0 { Err(Rejection::NoCookie) } else { Ok(ConnectionId(cookie)) }
}

fn endpoints(flow: &abi::FlowKey) -> Endpoints {
    Endpoints {
        local_address: address(flow.local_address),
        local_port: flow.local_port,
        peer_address: address(flow.peer_address),
        peer_port: flow.peer_port,
    }
}

/// An IPv4-mapped address is IPv4 on the wire (RFC 4291 section 2.5.5.2).
fn address(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

const fn direction(number: u8) -> Direction {
    if number == abi::Direction::Egress as u8 { Direction::Egress } else { Direction::Ingress }
}

/// The numbers of `include/net/tcp_states.h`.
fn tcp_state(number: u8) -> Result<TcpState, Rejection> {
    Ok(match number {
        1 => TcpState::Established,
        2 => TcpState::SynSent,
        // 12 is `TCP_NEW_SYN_RECV`: a request that becomes a socket.
        3 | 12 => TcpState::SynRecv,
        4 => TcpState::FinWait1,
        5 => TcpState::FinWait2,
        6 => TcpState::TimeWait,
        7 => TcpState::Close,
        8 => TcpState::CloseWait,
        9 => TcpState::LastAck,
        abi::TCP_LISTEN => TcpState::Listen,
        11 => TcpState::Closing,
        other => return Err(Rejection::UnknownState(other)),
    })
}

/// Opcode of a text frame (RFC 6455 section 11.8).
const TEXT: u8 = 1;
/// Opcode of a binary frame.
const BINARY: u8 = 2;

/// The payload, unmasked.
fn payload(found: &abi::Frame) -> Vec<u8> {
    let mut payload =
        found.payload.get(..usize::from(found.payload_bytes)).unwrap_or(&found.payload).to_vec();
    if found.masked != 0 {
        // RFC 6455 section 5.3.
        for (byte, key) in payload.iter_mut().zip(found.mask.iter().cycle()) {
            *byte ^= key;
        }
    }
    payload
}

fn data_frame(found: &abi::Frame) -> Result<DataFrame, Rejection> {
    Ok(DataFrame {
        connection: connection(found.header.cookie)?,
        at: Timestamp::from_ns(found.header.time_ns),
        direction: direction(found.direction),
        local_port: found.flow.local_port,
        binary: found.opcode == BINARY,
        seq_start: Seq(found.seq_start),
        seq_end: Seq(found.seq_end),
        payload: payload(found),
    })
}

fn frame(found: &abi::Frame) -> Result<Frame, Rejection> {
    let kind = match found.opcode {
        8 => FrameKind::Close,
        9 => FrameKind::Ping,
        10 => FrameKind::Pong,
        other => return Err(Rejection::UnknownOpcode(other)),
    };
    let mut payload = payload(found);
    let (mut close_code, mut close_reason) = (None, None);
    if kind == FrameKind::Close {
        // RFC 6455 section 5.5.1: a body begins with a 2-byte code in network order; the reason is UTF-8 behind it.
        if let Some((code, reason)) = payload.split_first_chunk::<2>() {
            close_code = Some(u16::from_be_bytes(*code));
            close_reason = (!reason.is_empty()).then(|| String::from_utf8_lossy(reason).into_owned());
        }
        payload.clear();
    }
    Ok(Frame {
        connection: connection(found.header.cookie)?,
        at: Timestamp::from_ns(found.header.time_ns),
        direction: direction(found.direction),
        kind,
        profile: HeartbeatProfile::Rfc6455,
        seq_start: Some(Seq(found.seq_start)),
        seq_end: Some(Seq(found.seq_end)),
        payload,
        close_code,
        close_reason,
    })
}

/// A stable word for a [`LossReason`].
fn loss_reason(number: u8) -> &'static str {
    match LossReason::from_number(number) {
        Some(LossReason::Midstream) => "midstream",
        Some(LossReason::Hole) => "hole",
        Some(LossReason::TooManyFrames) => "too_many_frames",
        Some(LossReason::InvalidHeader) => "invalid_header",
        Some(LossReason::NotHttp) => "not_http",
        Some(LossReason::HeadTooLong) => "head_too_long",
        Some(LossReason::Contended) => "contended",
        Some(LossReason::Unreadable) => "unreadable",
        None => "unknown",
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
