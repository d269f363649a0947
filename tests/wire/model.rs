//! Streams whose frames are known, cut into segments; and the judge of what a parser says about them.

use ackbeat_abi::{Direction, Record};

use super::{heartbeats, random::Random};

/// A frame that was written into a stream and that the parser must report: a control frame, or a text heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// Offset of the frame's first byte in its stream.
    pub(crate) start: usize,
    /// Offset after its last byte.
    pub(crate) end: usize,
    pub(crate) opcode: u8,
    pub(crate) mask: [u8; 4],
    /// As on the wire.
    pub(crate) payload: Vec<u8>,
}

/// Everything that one end writes, and where its control frames and text heartbeats are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    /// Sequence number of the first byte.
    pub(crate) first_seq: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) expected: Vec<Expected>,
    /// Data frames in it that are no text heartbeat.
    pub(crate) data_frames: usize,
    /// Offset of the first frame.
    pub(crate) frames_start: usize,
    /// Offset of each frame.
    pub(crate) starts: Vec<usize>,
}

impl Stream {
    pub(crate) fn seq(&self, offset: usize) -> u32 {
        self.first_seq.wrapping_add(offset as u32)
    }
}

/// One segment on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) direction: Direction,
    pub(crate) start: usize,
    pub(crate) length: usize,
    /// Bytes of the other stream that are acknowledged by it.
    pub(crate) acknowledged: usize,
    /// Time since the delivery before in the same direction, in nanoseconds.
    pub(crate) pause_ns: u64,
}

/// A whole connection.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) ingress: Stream,
    pub(crate) egress: Stream,
    pub(crate) deliveries: Vec<Delivery>,
    /// Every byte is delivered in order the first time (repetitions aside), so nothing may be lost.
    pub(crate) in_order: bool,
    /// Every byte is delivered sooner or later.
    pub(crate) complete: bool,
    pub(crate) head: Vec<u8>,
    /// The request's head was delivered in order, so it must be reported.
    pub(crate) head_promised: bool,
}

/// What is done to a connection on its way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    /// Segments are sent again, cut differently.
    pub(crate) repeat: bool,
    /// Segments overtake each other.
    pub(crate) reorder: bool,
    /// Segments are never seen.
    pub(crate) drop: bool,
    /// Largest number of frames in one direction.
    pub(crate) frames_max: usize,
    /// Largest payload in one frame.
    pub(crate) payload_max: usize,
    /// Largest segment.
    pub(crate) segment_max: usize,
    /// Longest pause between two segments, in nanoseconds.
    pub(crate) pause_max_ns: u64,
    /// The parser looks for [`heartbeats::patterns`], and the streams hold what they fit, and lures.
    pub(crate) heartbeats: bool,
}

/// Appends one frame with a payload that is noise, or looks like frames itself.
pub(crate) fn push_frame(
    random: &mut Random,
    stream: &mut Stream,
    first: u8,
    payload_length: usize,
    masked: bool,
    heartbeats: bool,
) {
    let payload = if random.one_in(2) {
        random.bytes(payload_length)
    } else {
        let lure = if masked { [0x8a, 0x80, 1, 2, 3, 4] } else { [0x8a, 0x00, 0x89, 0x00, 0x82, 0x00] };
        lure.iter().copied().cycle().take(payload_length).collect()
    };
    push_frame_of(random, stream, first, payload, masked, heartbeats);
}

/// Appends one frame whose payload is this, unmasked.
fn push_frame_of(
    random: &mut Random,
    stream: &mut Stream,
    first: u8,
    mut payload: Vec<u8>,
    masked: bool,
    heartbeats: bool,
) {
    let payload_length = payload.len();
    let start = stream.bytes.len();
    stream.starts.push(start);
    stream.bytes.push(first);
    let mask_bit = if masked { 0x80 } else { 0 };
    match payload_length {
        0..=125 => stream.bytes.push(mask_bit | payload_length as u8),
        126..=65_535 => {
            stream.bytes.push(mask_bit | 126);
            stream.bytes.extend_from_slice(&(payload_length as u16).to_be_bytes());
        }
        _ => {
            stream.bytes.push(mask_bit | 127);
            stream.bytes.extend_from_slice(&(payload_length as u64).to_be_bytes());
        }
    }
    let mut mask = [0; 4];
    if masked {
        mask.copy_from_slice(&random.bytes(4));
        stream.bytes.extend_from_slice(&mask);
    }
    let direction = if masked { Direction::Ingress } else { Direction::Egress };
    let heartbeat = heartbeats && heartbeats::is_heartbeat(direction, first, &payload);
    // RFC 6455 section 5.3. Without masking the key is zeros.
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
    stream.bytes.extend_from_slice(&payload);
    if first & 0x08 != 0 || heartbeat {
        stream.expected.push(Expected {
            start,
            end: stream.bytes.len(),
            opcode: first & 0x0f,
            mask,
            payload,
        });
    } else {
        stream.data_frames += 1;
    }
}

/// Appends frames as an endpoint may write them: fragmented messages, control frames between the fragments.
pub(crate) fn push_frames(
    random: &mut Random,
    stream: &mut Stream,
    count: usize,
    payload_max: usize,
    masked: bool,
    heartbeats: bool,
) {
    let mut open = false;
    stream.frames_start = stream.bytes.len();
    for _ in 0..count {
        if random.one_in(2) {
            let opcode = 0x8 | random.below(3) as u8;
            // A Close ends a stream in truth; to the parser it is one more control frame.
            let length = match random.below(4) {
                0 => 0,
                1 => 125,
                _ => random.below(126),
            };
            push_frame(random, stream, 0x80 | opcode, length, masked, heartbeats);
            continue;
        }
        if heartbeats && !open && random.one_in(2) {
            let plain = heartbeats::payload(random);
            let first = heartbeats::first_byte(random, &plain);
            open = first & 0x80 == 0;
            push_frame_of(random, stream, first, plain, masked, heartbeats);
            continue;
        }
        let fin = !random.one_in(3);
        let opcode = if open { 0 } else { random.between(1, 2) as u8 };
        let rsv1 = if !open && random.one_in(3) { 0x40 } else { 0 };
        open = !fin;
        let length = match random.below(12) {
            0 => 0,
            1 => 125,
            2 => 126,
            3 => 65_535,
            4 => 65_536,
            5 => random.below(payload_max + 1),
            6..=8 => random.below(2_000),
            _ => random.below(126),
        };
        let first = if fin { 0x80 } else { 0 } | rsv1 | opcode;
        push_frame(random, stream, first, length.min(payload_max), masked, heartbeats);
    }
}

fn request(random: &mut Random, number: usize) -> Vec<u8> {
    let filler = "x".repeat(match random.below(8) {
        0 => random.below(3_500),
        _ => random.below(300),
    });
    format!(
        "GET /mux/{number} HTTP/1.1\r\nHost: example.org\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Filler: {filler}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    .into_bytes()
}

fn answer(random: &mut Random) -> Vec<u8> {
    let field = ["Sec-WebSocket-Accept", "sec-websocket-accept", "SEC-WEBSOCKET-ACCEPT"][random.below(3)];
    let filler = "y".repeat(random.below(200));
    let mut bytes = Vec::new();
    if random.one_in(4) {
        bytes.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    }
    bytes.extend_from_slice(
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nX-Filler: {filler}\r\n{field}: \
             s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
        )
        .as_bytes(),
    );
    bytes
}

/// Cuts each frame into pieces of its own, as hosts write them. What comes before the first is one piece.
fn cut_at_frames(random: &mut Random, from: usize, stream: &Stream, longest: usize) -> Vec<(usize, usize)> {
    let mut pieces = Vec::new();
    let mut at = from;
    for end in stream.starts.iter().copied().chain([stream.bytes.len()]).filter(|end| *end > from) {
        if end - at > longest.min(3_000) {
            pieces.extend(cut(random, at, end, longest));
        } else if end > at {
            pieces.push((at, end - at));
        }
        at = end;
    }
    pieces
}

/// Cuts `from..to` into pieces.
fn cut(random: &mut Random, from: usize, to: usize, longest: usize) -> Vec<(usize, usize)> {
    let largest = [1, 2, 7, 14, 60, 536, 1_448, 9_000, 32_000, 65_000][random.below(10)];
    // Many tiny segments cost much time and show nothing new.
    let largest = largest.max((to - from) / 100 + 1).min(longest);
    let mut pieces = Vec::new();
    let mut at = from;
    while at < to {
        let length = random.between(1, largest).min(to - at);
        pieces.push((at, length));
        at += length;
    }
    pieces
}

impl Case {
    pub(crate) fn stream(&self, direction: Direction) -> &Stream {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }

    pub(crate) fn random(seed: u64, trouble: Trouble) -> Self {
        let mut random = Random::new(seed);
        let first_seq = |random: &mut Random| {
            if random.one_in(2) { u32::MAX - random.below(3_000) as u32 } else { random.number() as u32 }
        };
        let mut ingress = Stream { first_seq: first_seq(&mut random), ..Stream::default() };
        let mut egress = Stream { first_seq: first_seq(&mut random), ..Stream::default() };
        let mut deliveries = Vec::new();
        let pause = |random: &mut Random| random.number() % (trouble.pause_max_ns + 1);
        // A quiet time comes before a write, so before a frame; inside one only between the full segments of a bulk
        // transfer. An endpoint that chooses every byte, every pause and every cut could send real frames as well.
        let pause_at = |random: &mut Random, stream: &Stream, start: usize, length: usize| {
            let any = pause(random);
            if length >= 536 || stream.starts.binary_search(&start).is_ok() {
                any
            } else {
                any.min(4_000_000)
            }
        };
        let mut head = Vec::new();
        let earlier = if random.one_in(3) { random.below(3) } else { 0 };
        for number in 0..=earlier {
            let last = number == earlier;
            head = request(&mut random, number);
            let from = ingress.bytes.len();
            ingress.bytes.extend_from_slice(&head);
            for (start, length) in cut(&mut random, from, ingress.bytes.len(), trouble.segment_max) {
                deliveries.push(Delivery {
                    direction: Direction::Ingress,
                    start,
                    length,
                    acknowledged: egress.bytes.len(),
                    pause_ns: pause(&mut random),
                });
            }
            if last {
                break;
            }
            let from = egress.bytes.len();
            let body = random.below(3_000);
            egress.bytes.extend_from_slice(
                format!("HTTP/1.1 200 OK\r\nContent-Length: {body}\r\n\r\n{}", "z".repeat(body)).as_bytes(),
            );
            for (start, length) in cut(&mut random, from, egress.bytes.len(), trouble.segment_max) {
                deliveries.push(Delivery {
                    direction: Direction::Egress,
                    start,
                    length,
                    acknowledged: ingress.bytes.len(),
                    pause_ns: pause(&mut random),
                });
            }
        }
        let answer_start = egress.bytes.len();
        egress.bytes.extend(answer(&mut random));
        let answer_end = egress.bytes.len();
        let frames = random.between(0, trouble.frames_max);
        push_frames(&mut random, &mut egress, frames, trouble.payload_max, false, trouble.heartbeats);
        let request_end = ingress.bytes.len();
        let frames = random.between(0, trouble.frames_max);
        push_frames(&mut random, &mut ingress, frames, trouble.payload_max, true, trouble.heartbeats);

        // Both directions from here on, interleaved; the client sends nothing before it has the whole answer.
        let by_frame = random.one_in(2);
        let pieces = |random: &mut Random, from, stream: &Stream| {
            let longest = trouble.segment_max;
            if by_frame {
                cut_at_frames(random, from, stream, longest)
            } else {
                cut(random, from, stream.bytes.len(), longest)
            }
        };
        let out: Vec<_> = pieces(&mut random, answer_start, &egress)
            .into_iter()
            .map(|(start, length)| Delivery {
                direction: Direction::Egress,
                start,
                length,
                acknowledged: request_end,
                pause_ns: pause_at(&mut random, &egress, start, length),
            })
            .collect();
        let answered =
            out.iter().position(|piece| piece.start + piece.length >= answer_end).map_or(0, |at| at + 1);
        let (handshake, out) = out.split_at(answered);
        deliveries.extend_from_slice(handshake);
        let incoming: Vec<_> = pieces(&mut random, request_end, &ingress)
            .into_iter()
            .map(|(start, length)| Delivery {
                direction: Direction::Ingress,
                start,
                length,
                acknowledged: answer_end,
                pause_ns: pause_at(&mut random, &ingress, start, length),
            })
            .collect();
        let out = disturb(&mut random, out.to_vec(), trouble, answer_start);
        let incoming = disturb(&mut random, incoming, trouble, request_end);
        let (mut left, mut right) = (out.into_iter().peekable(), incoming.into_iter().peekable());
        while left.peek().is_some() || right.peek().is_some() {
            let from_left = right.peek().is_none() || (left.peek().is_some() && random.one_in(2));
            deliveries.extend(if from_left { left.next() } else { right.next() });
        }
        Self {
            seed,
            ingress,
            egress,
            deliveries,
            in_order: !trouble.reorder && !trouble.drop,
            complete: !trouble.drop,
            head,
            head_promised: true,
        }
    }
}

/// Repeats, reorders and drops segments of one direction. Nothing before `floor` is sent again.
fn disturb(random: &mut Random, pieces: Vec<Delivery>, trouble: Trouble, floor: usize) -> Vec<Delivery> {
    let mut result: Vec<Delivery> = Vec::new();
    let mut sent = floor;
    for piece in pieces {
        if trouble.drop && random.one_in(12) {
            continue;
        }
        let mut piece = piece;
        if trouble.repeat && random.one_in(6) && sent > floor {
            // Old bytes once more, alone, cut differently.
            let start = random.between(floor, sent - 1);
            let longest = if random.one_in(10) { 60_000 } else { 3_000 };
            let length = random.between(1, (sent - start).min(longest).min(trouble.segment_max));
            result.push(Delivery { start, length, pause_ns: 0, ..piece });
        }
        if trouble.repeat && random.one_in(6) && piece.start > floor {
            // Old bytes in front of the new ones.
            let start = random.between(floor.max(piece.start.saturating_sub(5_000)), piece.start);
            piece.length += piece.start - start;
            piece.start = start;
            if piece.length > trouble.segment_max {
                let over = piece.length - trouble.segment_max;
                piece.start += over;
                piece.length -= over;
            }
        }
        sent = sent.max(piece.start + piece.length);
        result.push(piece);
    }
    if trouble.reorder {
        for at in 1..result.len() {
            if random.one_in(8) {
                let back = random.between(1, at.min(4));
                let piece = result.remove(at);
                result.insert(at - back, piece);
            }
        }
    }
    result
}

/// What a run of many cases saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) sequences: u64,
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    /// Control frames and text heartbeats that were written.
    pub(crate) frames: u64,
    /// Of them, text heartbeats.
    pub(crate) heartbeats: u64,
    pub(crate) reported: u64,
    pub(crate) unreported_and_declared: u64,
    pub(crate) losses: u64,
    pub(crate) recoveries: u64,
    pub(crate) directions_lost: u64,
}

impl std::fmt::Display for Totals {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{} sequences, {} segments, {} bytes: {} of {} control frames and text heartbeats (these: {}) at their exact positions, {} inside a \
             declared loss, 0 wrong; {} losses in {} directions, {} recoveries",
            self.sequences,
            self.segments,
            self.bytes,
            self.reported,
            self.frames,
            self.heartbeats,
            self.unreported_and_declared,
            self.losses,
            self.directions_lost,
            self.recoveries
        )
    }
}

/// Compares what a parser said about a case with what was written. An error names the first wrong thing.
pub(crate) fn judge(case: &Case, records: &[Record], totals: &mut Totals) -> Result<(), String> {
    totals.sequences += 1;
    totals.segments += case.deliveries.len() as u64;
    totals.bytes += case.deliveries.iter().map(|delivery| delivery.length as u64).sum::<u64>();
    for direction in [Direction::Ingress, Direction::Egress] {
        judge_direction(case, direction, records, totals)
            .map_err(|wrong| format!("seed {}, {direction:?}: {wrong}", case.seed))?;
    }
    let heads: Vec<_> = records
        .iter()
        .filter_map(|record| if let Record::UpgradeHead(head) = record { Some(head) } else { None })
        .collect();
    match heads.as_slice() {
        [head] => {
            let kept = &head.head[..head.head_bytes as usize];
            if kept != &case.head[..case.head.len().min(kept.len().max(1))] {
                return Err(format!("seed {}: the upgrade's head is another", case.seed));
            }
        }
        [] if !case.head_promised => {}
        other => return Err(format!("seed {}: {} upgrade heads", case.seed, other.len())),
    }
    Ok(())
}

fn judge_direction(
    case: &Case,
    direction: Direction,
    records: &[Record],
    totals: &mut Totals,
) -> Result<(), String> {
    let stream = case.stream(direction);
    // Offsets, so that sequence numbers need not be compared with wrap: no stream here is 2^31 bytes long.
    let offset = |seq: u32| seq.wrapping_sub(stream.first_seq) as usize;
    let mut reported = vec![false; stream.expected.len()];
    // Ranges in which nothing is promised: from a loss to the recovery after it.
    let mut lost: Vec<(usize, usize)> = vec![(0, usize::MAX)];
    let mut synchronized = false;
    let mut first = true;
    for record in records {
        match record {
            Record::Synchronization(change) if change.direction == direction.number() => {
                let at = offset(change.seq);
                if change.synchronized == 1 {
                    if synchronized {
                        return Err("found again without having been lost".to_owned());
                    }
                    if first && at != stream.frames_start {
                        return Err(format!("frames begin at {}, not at {at}", stream.frames_start));
                    }
                    if let Some(range) = lost.last_mut() {
                        range.1 = at;
                    }
                    if !first {
                        totals.recoveries += 1;
                    }
                    first = false;
                } else {
                    if !synchronized {
                        return Err(format!("lost twice, reason {}", change.reason));
                    }
                    if case.in_order {
                        return Err(format!(
                            "lost at {at} for reason {} though all came in order",
                            change.reason
                        ));
                    }
                    lost.push((at, usize::MAX));
                    totals.losses += 1;
                }
                synchronized = change.synchronized == 1;
            }
            Record::Frame(frame) if frame.direction == direction.number() => {
                let (start, end) = (offset(frame.seq_start), offset(frame.seq_end));
                let found = stream.expected.iter().position(|expected| {
                    expected.start == start
                        && expected.end == end
                        && expected.opcode == frame.opcode
                        && expected.mask == frame.mask
                        && expected.payload == frame.payload[..usize::from(frame.payload_bytes)]
                });
                let Some(index) = found else {
                    return Err(format!("WRONG FRAME {start}..{end} opcode {}", frame.opcode));
                };
                if frame.payload[usize::from(frame.payload_bytes)..].iter().any(|byte| *byte != 0) {
                    return Err(format!("frame {start}..{end} carries bytes behind its payload"));
                }
                if std::mem::replace(&mut reported[index], true) {
                    return Err(format!("frame {start}..{end} reported twice"));
                }
                if !synchronized {
                    return Err(format!("frame {start}..{end} reported while lost"));
                }
            }
            _ => {}
        }
    }
    if first {
        return Err("the upgrade was not seen".to_owned());
    }
    if lost.len() > 1 {
        totals.directions_lost += 1;
    }
    for (expected, reported) in stream.expected.iter().zip(&reported) {
        totals.frames += 1;
        totals.heartbeats += u64::from(expected.opcode & 0x08 == 0);
        if *reported {
            totals.reported += 1;
            continue;
        }
        let declared = lost.iter().any(|(from, to)| expected.end > *from && expected.start < *to);
        if !declared && case.complete {
            return Err(format!("MISSED FRAME {}..{} in sync", expected.start, expected.end));
        }
        totals.unreported_and_declared += 1;
    }
    Ok(())
}
