//! The parser's environment in a test process.

use std::borrow::Cow;

use ackbeat_abi::{
    CONTROL_PAYLOAD_MAX_BYTES, Counter, Direction, FRAMES_PER_BUFFER_MAX, FlowKey, Frame, HEAD_MAX_BYTES,
    Header, LossReason, Record, RecordKind, Synchronization, UpgradeHead,
    patterns::{Lengths, Pattern, Patterns, Word},
};
use ackbeat_wire::{
    Environment, KEPT_BYTES_MAX, KEPT_SEGMENTS_MAX, Outcome, ReportedFrame, Segment, before, handshake,
    state::{DirectionState, FlowState},
    stream, text,
};

/// One connection, parsed here.
pub(crate) struct Host {
    pub(crate) flow: FlowState,
    pub(crate) records: Vec<Record>,
    /// What text heartbeats look like; nothing, as long as nobody says otherwise.
    pub(crate) patterns: Patterns,
    pub(crate) counters: [u64; ackbeat_abi::COUNTER_COUNT as usize],
    head: Option<(u32, Vec<u8>)>,
    kept: [Option<Kept>; KEPT_SEGMENTS_MAX],
    now_ns: [u64; 2],
}

impl Host {
    pub(crate) fn new(flow: FlowState) -> Self {
        Self {
            flow,
            records: Vec::new(),
            patterns: Patterns::default(),
            counters: [0; _],
            head: None,
            kept: [const { None }; _],
            now_ns: [1_000_000_000; 2],
        }
    }

    pub(crate) fn deliver(
        &mut self,
        direction: Direction,
        seq: u32,
        bytes: &[u8],
        ack_seq: u32,
        pause_ns: u64,
    ) {
        self.now_ns[usize::from(direction.number())] += pause_ns;
        let segment = Segment { seq, length_bytes: bytes.len() as u32, ack_seq };
        let mut flow = self.flow;
        let mut environment = HostEnvironment {
            host: self,
            bytes: Cow::Borrowed(bytes),
            masked: direction == Direction::Ingress,
        };
        stream::on_segment(&mut environment, &mut flow, direction, &segment);
        self.flow = flow;
    }

    /// A segment of this direction went by unseen.
    pub(crate) fn contended(&mut self, direction: Direction) {
        let mut flow = self.flow;
        let mut environment = HostEnvironment {
            host: self,
            bytes: Cow::Borrowed(&[]),
            masked: direction == Direction::Ingress,
        };
        let state = match direction {
            Direction::Ingress => &mut flow.ingress,
            Direction::Egress => &mut flow.egress,
        };
        stream::contended(&mut environment, state, direction);
        self.flow = flow;
    }
}

/// A segment that waits: its sequence number, what was kept of it, its length.
#[derive(Clone, Debug)]
struct Kept {
    seq: u32,
    bytes: Vec<u8>,
    length: u32,
}

struct HostEnvironment<'a> {
    host: &'a mut Host,
    bytes: Cow<'a, [u8]>,
    masked: bool,
}

fn header(kind: RecordKind, size: usize) -> Header {
    Header { kind: kind.number(), size_bytes: size as u32, time_ns: 0, cookie: 0 }
}

impl Environment for HostEnvironment<'_> {
    fn load<const N: usize>(&mut self, offset: u32, room: &mut [u8; N], at: u32, length: u32) -> bool {
        let (offset, at, length) = (offset as usize, at as usize, length as usize);
        assert!(at < N / 2 && length < N / 2, "{length} bytes at {at} of {N}");
        assert!(offset + length <= self.bytes.len(), "reads {offset}+{length} of {}", self.bytes.len());
        room[at..at + length].copy_from_slice(&self.bytes[offset..offset + length]);
        true
    }

    fn walk_frames(&mut self, state: &mut DirectionState) {
        for _ in 0..=FRAMES_PER_BUFFER_MAX {
            if !stream::go_on(self, state, self.masked) {
                break;
            }
        }
    }

    fn walk_answer(&mut self, state: &mut DirectionState) {
        for _ in 0..=HEAD_MAX_BYTES {
            if !handshake::answer_step(self, state) {
                break;
            }
        }
    }

    fn keep_head(&mut self, seq: u32, offset: u32, length: u32, fresh: bool) {
        if fresh {
            self.host.head = Some((seq, Vec::new()));
        } else if !self.continues_head(seq) {
            return;
        }
        if let Some((_, kept)) = &mut self.host.head {
            kept.extend_from_slice(&self.bytes[offset as usize..(offset + length) as usize]);
            kept.truncate(HEAD_MAX_BYTES);
        }
    }

    fn continues_head(&mut self, seq: u32) -> bool {
        matches!(&self.host.head, Some((first, kept)) if first.wrapping_add(kept.len() as u32) == seq)
    }

    fn take_head(&mut self, end_seq: u32) -> u32 {
        let Some((first, kept)) = self.host.head.take() else {
            self.count(Counter::HeadsMissing, 1);
            return end_seq;
        };
        let beyond = end_seq.wrapping_sub(first).wrapping_sub(kept.len() as u32);
        if beyond > 1 && kept.len() < HEAD_MAX_BYTES {
            self.count(Counter::HeadsMissing, 1);
            return end_seq;
        }
        let mut head = [0; HEAD_MAX_BYTES];
        head[..kept.len()].copy_from_slice(&kept);
        self.host.records.push(Record::UpgradeHead(UpgradeHead {
            header: header(RecordKind::UpgradeHead, size_of::<UpgradeHead>()),
            flow: FlowKey::default(),
            head_bytes: kept.len() as u32,
            padding: 0,
            head,
        }));
        match kept.windows(4).position(|window| window == b"\r\n\r\n") {
            Some(at) if at + 4 < kept.len() => first.wrapping_add(at as u32 + 4),
            _ => end_seq,
        }
    }

    fn keep_segment(&mut self, kept: &mut u8, segment: &Segment) -> bool {
        if !self.masked {
            return false;
        }
        let mut free = None;
        for place in 0..KEPT_SEGMENTS_MAX {
            let bit = 1 << place;
            if *kept & bit == 0 {
                free = Some(place);
                continue;
            }
            let Some(slot) = &mut self.host.kept[place] else { unreachable!() };
            if slot.seq == segment.seq && slot.length >= segment.length_bytes {
                return true;
            }
            if slot.seq.wrapping_add(slot.length) == segment.seq && slot.length as usize > slot.bytes.len() {
                slot.length += segment.length_bytes;
                return true;
            }
        }
        let Some(place) = free else { return false };
        let bytes = self.bytes[..self.bytes.len().min(KEPT_BYTES_MAX)].to_vec();
        self.host.kept[place] = Some(Kept { seq: segment.seq, bytes, length: segment.length_bytes });
        *kept |= 1 << place;
        true
    }

    fn next_kept(&mut self, state: &mut DirectionState) -> bool {
        for place in 0..KEPT_SEGMENTS_MAX {
            let bit = 1 << place;
            let Some(slot) = self.host.kept[place].clone().filter(|_| state.kept & bit != 0) else {
                continue;
            };
            if before(state.expected_seq, slot.seq) {
                continue;
            }
            state.kept &= !bit;
            let end = slot.seq.wrapping_add(slot.length);
            if !before(state.expected_seq, end) {
                continue;
            }
            let stored = slot.bytes.len() as u32;
            state.walk.position = state.expected_seq.wrapping_sub(slot.seq).min(stored);
            state.walk.length_bytes = stored;
            state.walk.from_kept = 1;
            state.walk.kept_end = end;
            state.walk.outcome = Outcome::Unfinished as u32;
            self.bytes = Cow::Owned(slot.bytes);
            return true;
        }
        false
    }

    fn text_lengths(&mut self, opcode: u8) -> Lengths {
        self.host.patterns.lengths[usize::from(!self.masked)][usize::from(opcode) - 1]
    }

    fn pattern(&mut self, index: usize) -> Option<Pattern> {
        let patterns = &self.host.patterns;
        (index < patterns.count as usize).then(|| patterns.patterns[index])
    }

    fn word(&mut self, index: usize) -> Option<Word> {
        let patterns = &self.host.patterns;
        (index < patterns.word_count as usize).then(|| patterns.words[index])
    }

    fn payload_byte(&mut self, state: &DirectionState, position: u32) -> u8 {
        assert!(position < u32::from(state.payload_bytes), "reads {position} of {}", state.payload_bytes);
        state.payload[position as usize]
    }

    fn search_words(&mut self, state: &mut DirectionState) {
        for _ in 0..CONTROL_PAYLOAD_MAX_BYTES {
            if !text::search_step(self, state, self.masked) {
                break;
            }
        }
    }

    fn frame(&mut self, frame: &ReportedFrame<'_>) {
        if frame.opcode & 0x08 != 0 {
            self.count(Counter::WireControlFrames, 1);
        }
        let mut payload = [0; CONTROL_PAYLOAD_MAX_BYTES];
        payload.copy_from_slice(&frame.payload[..CONTROL_PAYLOAD_MAX_BYTES]);
        self.host.records.push(Record::Frame(Frame {
            header: header(RecordKind::Frame, size_of::<Frame>()),
            flow: FlowKey::default(),
            seq_start: frame.seq_start,
            seq_end: frame.seq_end,
            mask: if self.masked { frame.mask } else { [0; 4] },
            direction: u8::from(!self.masked),
            opcode: frame.opcode,
            masked: u8::from(self.masked),
            payload_bytes: frame.payload_bytes,
            payload,
            padding: [0; 3],
        }));
    }

    fn synchronization(&mut self, direction: Direction, seq: u32, reason: Option<LossReason>) {
        self.host.records.push(Record::Synchronization(Synchronization {
            header: header(RecordKind::Synchronization, size_of::<Synchronization>()),
            flow: FlowKey::default(),
            seq,
            direction: direction.number(),
            synchronized: u8::from(reason.is_none()),
            reason: reason.map_or(0, LossReason::number),
            padding: 0,
        }));
    }

    fn now_ns(&mut self) -> u64 {
        self.host.now_ns[usize::from(!self.masked)]
    }

    fn count(&mut self, counter: Counter, amount: u64) {
        self.host.counters[counter.number() as usize] += amount;
    }
}
