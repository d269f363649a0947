//! Bytes from the kernel to records: one total, length-checked function.

use crate::{
    ANCESTORS_MAX, COMM_BYTES, CONTROL_PAYLOAD_MAX_BYTES, FlowKey, Frame, HEAD_MAX_BYTES, Header, Lifecycle,
    Outstanding, RecordKind, Reset, Snapshot, Synchronization, Termination, UpgradeHead,
};

/// Why bytes from the kernel are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Fewer bytes than the record needs.
    Short {
        /// Bytes that the record needs.
        needed_bytes: usize,
        /// Bytes that are there.
        found_bytes: usize,
    },
    /// The header's kind is none of [`RecordKind`].
    UnknownKind(u32),
    /// The header's size is not that of its kind.
    WrongSize {
        /// The kind.
        kind: RecordKind,
        /// The size that the header claims, in bytes.
        claimed_bytes: u32,
    },
    /// A member holds a value that the contract does not allow.
    WrongValue {
        /// The kind.
        kind: RecordKind,
        /// The member.
        member: &'static str,
        /// The value.
        value: u64,
    },
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Short { needed_bytes, found_bytes } => {
                write!(formatter, "record from the kernel is cut: {found_bytes} of {needed_bytes} bytes")
            }
            Self::UnknownKind(kind) => {
                write!(formatter, "record from the kernel has the unknown kind {kind}")
            }
            Self::WrongSize { kind, claimed_bytes } => {
                write!(formatter, "{kind:?} record from the kernel claims {claimed_bytes} bytes")
            }
            Self::WrongValue { kind, member, value } => {
                write!(formatter, "{kind:?} record from the kernel has {member} = {value}")
            }
        }
    }
}

impl core::error::Error for DecodeError {}

/// A record from the ring buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a record lives on the stack for one dispatch; no_std, no Box")]
pub enum Record {
    /// A state transition.
    Lifecycle(Lifecycle),
    /// A reset.
    Reset(Reset),
    /// A control frame, or a data frame that a pattern fits.
    Frame(Frame),
    /// The wire parser found or lost its place.
    Synchronization(Synchronization),
    /// Data went out after a quiet time.
    Outstanding(Outstanding),
    /// The head of an upgrade request.
    UpgradeHead(UpgradeHead),
    /// A process was sent SIGTERM.
    Termination(Termination),
}

/// Reads members one after the other; running out of bytes cannot happen after the length check, and gives zeros.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        match self.bytes.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.bytes = rest;
                *head
            }
            None => [0; N],
        }
    }

    fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.array())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.array())
    }

    fn words<const N: usize>(&mut self) -> [u32; N] {
        core::array::from_fn(|_| self.u32())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.array())
    }

    fn header(&mut self) -> Header {
        Header { kind: self.u32(), size_bytes: self.u32(), time_ns: self.u64(), cookie: self.u64() }
    }

    fn flow(&mut self) -> FlowKey {
        FlowKey {
            local_address: self.array(),
            peer_address: self.array(),
            local_port: self.u16(),
            peer_port: self.u16(),
            padding: self.u32(),
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        Snapshot {
            flow: self.flow(),
            cookie: self.u64(),
            time_ns: self.u64(),
            jiffies: self.u64(),
            available: self.u64(),
            bytes_acked: self.u64(),
            bytes_received: self.u64(),
            retransmitting_since_ns: self.u64(),
            write_seq: self.u32(),
            snd_nxt: self.u32(),
            snd_una: self.u32(),
            snd_wnd: self.u32(),
            rcv_nxt: self.u32(),
            copied_seq: self.u32(),
            rcv_tstamp: self.u32(),
            lsndtime: self.u32(),
            lrcvtime: self.u32(),
            srtt_eighth_us: self.u32(),
            rto_jiffies: self.u32(),
            packets_out: self.u32(),
            retrans_out: self.u32(),
            total_retrans: self.u32(),
            sk_err: self.u32(),
            sk_wmem_queued: self.u32(),
            sk_err_soft: self.u32(),
            padding: self.u32(),
            state: self.u8(),
            sk_shutdown: self.u8(),
            backoff: self.u8(),
            retransmits: self.u8(),
            probes_out: self.u8(),
            pending_timer: self.u8(),
            ip_version: self.u8(),
            adopted: self.u8(),
        }
    }
}

/// Bytes that a record of this kind takes.
const fn size_bytes(kind: RecordKind) -> usize {
    match kind {
        RecordKind::Lifecycle => size_of::<Lifecycle>(),
        RecordKind::Reset => size_of::<Reset>(),
        RecordKind::Frame => size_of::<Frame>(),
        RecordKind::Synchronization => size_of::<Synchronization>(),
        RecordKind::Outstanding => size_of::<Outstanding>(),
        RecordKind::UpgradeHead => size_of::<UpgradeHead>(),
        RecordKind::Termination => size_of::<Termination>(),
    }
}

impl Record {
    /// Reads one record. Bytes after it are ignored (the ring buffer rounds lengths up).
    ///
    /// # Errors
    /// [`DecodeError`] where the bytes are no record of this contract.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let short = |needed_bytes| DecodeError::Short { needed_bytes, found_bytes: bytes.len() };
        if bytes.len() < size_of::<Header>() {
            return Err(short(size_of::<Header>()));
        }
        let mut reader = Reader { bytes };
        let header = reader.header();
        let kind = RecordKind::from_number(header.kind).ok_or(DecodeError::UnknownKind(header.kind))?;
        if header.size_bytes as usize != size_bytes(kind) {
            return Err(DecodeError::WrongSize { kind, claimed_bytes: header.size_bytes });
        }
        if bytes.len() < size_bytes(kind) {
            return Err(short(size_bytes(kind)));
        }
        let bounded = |member, value: u64, max: u64| {
            if value <= max { Ok(()) } else { Err(DecodeError::WrongValue { kind, member, value }) }
        };
        Ok(match kind {
            RecordKind::Lifecycle => Self::Lifecycle(Lifecycle {
                header,
                old_state: reader.u8(),
                new_state: reader.u8(),
                task_flags: reader.u8(),
                padding: reader.u8(),
                thread_id: reader.u32(),
                process_id: reader.u32(),
                ancestors: reader.words::<ANCESTORS_MAX>(),
                comm: reader.array::<COMM_BYTES>(),
                snapshot: reader.snapshot(),
            }),
            RecordKind::Reset => {
                let record = Reset {
                    header,
                    direction: reader.u8(),
                    state: reader.u8(),
                    answers_segment: reader.u8(),
                    has_reason: reader.u8(),
                    reason: reader.u32(),
                    flow: reader.flow(),
                };
                bounded("direction", record.direction.into(), 1)?;
                Self::Reset(record)
            }
            RecordKind::Frame => {
                let record = Frame {
                    header,
                    flow: reader.flow(),
                    seq_start: reader.u32(),
                    seq_end: reader.u32(),
                    mask: reader.array(),
                    direction: reader.u8(),
                    opcode: reader.u8(),
                    masked: reader.u8(),
                    payload_bytes: reader.u8(),
                    payload: reader.array(),
                    padding: reader.array(),
                };
                bounded("direction", record.direction.into(), 1)?;
                let opcode = record.opcode;
                // Text, binary, Close, Ping, Pong (RFC 6455 section 11.8).
                if !matches!(opcode, 1 | 2 | 8..=10) {
                    return Err(DecodeError::WrongValue { kind, member: "opcode", value: opcode.into() });
                }
                bounded("payload_bytes", record.payload_bytes.into(), CONTROL_PAYLOAD_MAX_BYTES as u64)?;
                Self::Frame(record)
            }
            RecordKind::Synchronization => {
                let record = Synchronization {
                    header,
                    flow: reader.flow(),
                    seq: reader.u32(),
                    direction: reader.u8(),
                    synchronized: reader.u8(),
                    reason: reader.u8(),
                    padding: reader.u8(),
                };
                bounded("direction", record.direction.into(), 1)?;
                Self::Synchronization(record)
            }
            RecordKind::Outstanding => Self::Outstanding(Outstanding { header, flow: reader.flow() }),
            RecordKind::Termination => {
                Self::Termination(Termination { header, process_id: reader.u32(), padding: reader.u32() })
            }
            RecordKind::UpgradeHead => {
                let record = UpgradeHead {
                    header,
                    flow: reader.flow(),
                    head_bytes: reader.u32(),
                    padding: reader.u32(),
                    head: reader.array(),
                };
                bounded("head_bytes", record.head_bytes.into(), HEAD_MAX_BYTES as u64)?;
                Self::UpgradeHead(record)
            }
        })
    }
}

/// Reads what one pass of the sampler wrote: snapshots one after the other.
///
/// The second value is the number of bytes at the end that make no whole snapshot (0 after a whole pass).
pub fn decode_snapshots(bytes: &[u8]) -> (impl Iterator<Item = Snapshot> + '_, usize) {
    let (whole, rest) = bytes.as_chunks::<{ size_of::<Snapshot>() }>();
    (whole.iter().map(|chunk| Reader { bytes: chunk }.snapshot()), rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any bytes either decode or give an error; nothing panics.
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..4300)) {
            let _ = Record::decode(&bytes);
            let (snapshots, rest) = decode_snapshots(&bytes);
            prop_assert_eq!(snapshots.count() * size_of::<Snapshot>() + rest, bytes.len());
        }

        /// A right header in front of any bytes: the length alone decides, or a bound is named.
        #[test]
        fn any_payload_behind_a_right_header_is_survived(
            kind in 1_u32..=7, mut bytes in proptest::collection::vec(any::<u8>(), 24..4300)
        ) {
            let known = RecordKind::from_number(kind).unwrap();
            bytes[0..4].copy_from_slice(&kind.to_ne_bytes());
            bytes[4..8].copy_from_slice(&u32::try_from(size_bytes(known)).unwrap().to_ne_bytes());
            match Record::decode(&bytes) {
                Ok(_) => prop_assert!(bytes.len() >= size_bytes(known)),
                Err(DecodeError::Short { .. }) => prop_assert!(bytes.len() < size_bytes(known)),
                Err(DecodeError::WrongValue { .. }) => {}
                Err(other) => return Err(TestCaseError::fail(format!("{other}"))),
            }
        }
    }

    #[test]
    fn a_cut_record_names_the_bytes_that_are_missing() {
        assert_eq!(Record::decode(&[0; 3]), Err(DecodeError::Short { needed_bytes: 24, found_bytes: 3 }));
        assert_eq!(Record::decode(&[0; 24]), Err(DecodeError::UnknownKind(0)));
    }
}
