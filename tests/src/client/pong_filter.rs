//! Takes the Pongs out of a stream of WebSocket frames.

/// Opcode of a Pong (RFC 6455 section 5.5.3).
const PONG: u8 = 0xA;

/// Follows the frames (RFC 6455 section 5.2) of a stream that begins with a frame, however the stream is cut up.
#[derive(Debug, Default)]
pub(super) struct PongFilter {
    /// The header so far, while it is incomplete; at most 14 bytes.
    header: Vec<u8>,
    /// Payload of the current frame that is still to come.
    remaining: u64,
    withholding: bool,
}

/// Length of the header that begins with `header`, and of its payload, once both are known.
fn lengths(header: &[u8]) -> Option<(usize, u64)> {
    let second = *header.get(1)?;
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let (extended, payload) = match second & 0x7F {
        126 => (2, u64::from(u16::from_be_bytes(header.get(2..4)?.try_into().ok()?))),
        127 => (8, u64::from_be_bytes(header.get(2..10)?.try_into().ok()?)),
        short => (0, u64::from(short)),
    };
    Some((2 + extended + mask, payload))
}

impl PongFilter {
    /// Appends `bytes` without the Pongs to `kept`.
    pub(super) fn pass(&mut self, mut bytes: &[u8], kept: &mut impl Extend<u8>) {
        while !bytes.is_empty() {
            if self.remaining > 0 {
                let here = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(bytes.len());
                let (payload, rest) = bytes.split_at(here);
                if !self.withholding {
                    kept.extend(payload.iter().copied());
                }
                self.remaining -= here as u64;
                bytes = rest;
                continue;
            }
            let Some((first, rest)) = bytes.split_first() else { return };
            self.header.push(*first);
            bytes = rest;
            if let Some((header_bytes, payload_bytes)) = lengths(&self.header)
                && self.header.len() == header_bytes
            {
                self.withholding = self.header.first().is_some_and(|byte| byte & 0x0F == PONG);
                self.remaining = payload_bytes;
                if !self.withholding {
                    kept.extend(self.header.iter().copied());
                }
                self.header.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![0x80 | opcode];
        match payload {
            0..126 => frame.push(0x80 | u8::try_from(payload).unwrap()),
            126..65_536 => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(payload).unwrap().to_be_bytes());
            }
            _ => {
                frame.push(0x80 | 127);
                frame.extend((payload as u64).to_be_bytes());
            }
        }
        frame.extend([1, 2, 3, 4]);
        // Every payload byte looks like the beginning of a Pong.
        frame.extend(std::iter::repeat_n(0x8A, payload));
        frame
    }

    #[test]
    fn pongs_are_taken_out_however_the_stream_is_cut_up() {
        let frames = [
            frame(PONG, 0),
            frame(2, 70_000),
            frame(PONG, 125),
            frame(1, 300),
            frame(8, 2),
            frame(PONG, 4),
            frame(2, 0),
        ];
        let sent = frames.concat();
        let without_pongs = [&frames[1], &frames[3], &frames[4], &frames[6]].map(Vec::as_slice).concat();
        for part in [1, 2, 3, 7, 13, 4_096, sent.len()] {
            let (mut filter, mut kept) = (PongFilter::default(), Vec::new());
            for bytes in sent.chunks(part) {
                filter.pass(bytes, &mut kept);
            }
            assert!(kept == without_pongs, "in parts of {part} bytes");
        }
    }
}
