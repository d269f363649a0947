//! Steps over the host's frames without holding them.

use std::io::Cursor;

use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::ProbeError;

/// A header without a mask has at most this many bytes (RFC 6455 section 5.2).
const HEADER_MAX_BYTES: usize = 14;
/// Payload of a control frame at most (RFC 6455 section 5.5).
const CONTROL_MAX_BYTES: u64 = 125;
/// A text frame that is longer is no heartbeat: its payload is not looked at. engine.io's first packet, the longest that
/// matters here, has about a hundred bytes.
const TEXT_MAX_BYTES: u64 = 4_096;

/// A frame that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A Ping with its payload.
    Ping(Vec<u8>),
    /// A Pong.
    Pong,
    /// A Close.
    Close {
        /// Status code, if there was one.
        code: Option<u16>,
        /// Reason; bytes that are no UTF-8 are replaced.
        reason: String,
    },
    /// A text frame, with its payload if it is a whole message and short.
    Text(Option<String>),
    /// A binary frame.
    Binary,
    /// The continuation of a message.
    Continuation,
}

/// A frame whose payload is on its way.
#[derive(Debug)]
struct Current {
    opcode: OpCode,
    /// Payload that is still to come, in bytes.
    remaining: u64,
    /// The payload so far, if it is kept: at most [`TEXT_MAX_BYTES`].
    kept: Option<Vec<u8>>,
}

/// Follows a stream of frames, however it is cut up.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    header: Vec<u8>,
    current: Option<Current>,
}

impl FrameReader {
    /// Takes the bytes that came and says which frames are complete with them.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        mut complete: impl FnMut(Frame),
    ) -> Result<(), ProbeError> {
        loop {
            if self.current.is_none() {
                self.take_header(&mut bytes)?;
            }
            let Some(current) = &mut self.current else { return Ok(()) };
            let here = usize::try_from(current.remaining).unwrap_or(usize::MAX).min(bytes.len());
            let (payload, rest) = bytes.split_at(here);
            if let Some(kept) = &mut current.kept {
                kept.extend_from_slice(payload);
            }
            current.remaining -= here as u64;
            bytes = rest;
            if current.remaining > 0 {
                return Ok(());
            }
            if let Some(done) = self.current.take() {
                complete(done.into_frame()?);
            }
        }
    }

    fn take_header(&mut self, bytes: &mut &[u8]) -> Result<(), ProbeError> {
        let before = self.header.len();
        let more = (HEADER_MAX_BYTES - before).min(bytes.len());
        self.header.extend_from_slice(bytes.get(..more).unwrap_or_default());
        let mut cursor = Cursor::new(&self.header);
        let parsed = FrameHeader::parse(&mut cursor)
            .map_err(|_| ProbeError::Protocol("a frame's opcode is a reserved one (RFC 6455 section 5.2)"))?;
        let length = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
        let Some((header, payload_bytes)) = parsed else {
            *bytes = bytes.get(more..).unwrap_or_default();
            return Ok(());
        };
        // What was taken beyond the header is payload; of the bytes before, all belong to the header.
        *bytes = bytes.get(length.saturating_sub(before)..).unwrap_or_default();
        self.header.clear();
        self.current = Some(Current::begin(&header, payload_bytes)?);
        Ok(())
    }
}

impl Current {
    fn begin(header: &FrameHeader, payload_bytes: u64) -> Result<Self, ProbeError> {
        if header.mask.is_some() {
            return Err(ProbeError::Protocol(
                "a frame of the host is masked, which only a client's is (RFC 6455 section 5.1)",
            ));
        }
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(ProbeError::Protocol(
                "a frame uses an extension that was not agreed upon (RFC 6455 section 5.2)",
            ));
        }
        let is_kept = match header.opcode {
            OpCode::Control(_) if payload_bytes > CONTROL_MAX_BYTES || !header.is_final => {
                return Err(ProbeError::Protocol(
                    "a control frame is in fragments or has more than 125 bytes (RFC 6455 section 5.5)",
                ));
            }
            OpCode::Control(_) => true,
            OpCode::Data(Data::Text) => header.is_final && payload_bytes <= TEXT_MAX_BYTES,
            OpCode::Data(_) => false,
        };
        Ok(Self { opcode: header.opcode, remaining: payload_bytes, kept: is_kept.then(Vec::new) })
    }

    fn into_frame(self) -> Result<Frame, ProbeError> {
        let kept = self.kept;
        Ok(match self.opcode {
            OpCode::Control(Control::Ping) => Frame::Ping(kept.unwrap_or_default()),
            OpCode::Control(Control::Close) => close(&kept.unwrap_or_default())?,
            OpCode::Control(_) => Frame::Pong,
            OpCode::Data(Data::Text) => Frame::Text(kept.and_then(|bytes| String::from_utf8(bytes).ok())),
            OpCode::Data(Data::Continue) => Frame::Continuation,
            OpCode::Data(_) => Frame::Binary,
        })
    }
}

/// RFC 6455 section 5.5.1: nothing, or a status code with a reason.
fn close(payload: &[u8]) -> Result<Frame, ProbeError> {
    match payload {
        [] => Ok(Frame::Close { code: None, reason: String::new() }),
        [high, low, reason @ ..] => Ok(Frame::Close {
            code: Some(u16::from_be_bytes([*high, *low])),
            reason: String::from_utf8_lossy(reason).into_owned(),
        }),
        [_] => Err(ProbeError::Protocol("a Close frame has half a status code (RFC 6455 section 5.5.1)")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame as LibraryFrame};

    use super::*;

    /// A frame as the library writes it, and what must be seen of it.
    fn frame() -> impl Strategy<Value = (Vec<u8>, Frame)> {
        let bytes = |frame: LibraryFrame| {
            let mut out = Vec::new();
            frame.format(&mut out).unwrap();
            out
        };
        let small = prop::collection::vec(any::<u8>(), 0..=125);
        let any_size = prop_oneof![0_usize..300, 65_000_usize..66_000];
        prop_oneof![
            small.clone().prop_map(move |payload| {
                (bytes(LibraryFrame::ping(payload.clone())), Frame::Ping(payload))
            }),
            small.prop_map(move |payload| (bytes(LibraryFrame::pong(payload)), Frame::Pong)),
            "[a-z]{0,60}".prop_map(move |reason| {
                let code = 1011.into();
                let close = CloseFrame { code, reason: reason.clone().into() };
                (bytes(LibraryFrame::close(Some(close))), Frame::Close { code: Some(1011), reason })
            }),
            (any_size, any::<bool>()).prop_map(move |(size, is_final)| {
                let text = "é".repeat(size / 2);
                let kept = (is_final && text.len() <= 4_096).then(|| text.clone());
                (bytes(LibraryFrame::message(text, OpCode::Data(Data::Text), is_final)), Frame::Text(kept))
            }),
            prop::collection::vec(any::<u8>(), 0..70_000).prop_map(move |payload| {
                (bytes(LibraryFrame::message(payload, OpCode::Data(Data::Binary), true)), Frame::Binary)
            }),
        ]
    }

    proptest! {
        #[test]
        fn every_frame_is_seen_however_the_stream_is_cut(
            frames in prop::collection::vec(frame(), 1..12),
            cut in prop::collection::vec(1_usize..9_000, 1..30),
        ) {
            let stream: Vec<u8> = frames.iter().flat_map(|(bytes, _)| bytes).copied().collect();
            let mut reader = FrameReader::default();
            let mut seen = Vec::new();
            let mut left = stream.as_slice();
            for size in cut.into_iter().cycle() {
                if left.is_empty() { break; }
                let (piece, more) = left.split_at(size.min(left.len()));
                reader.take(piece, |frame| seen.push(frame)).unwrap();
                left = more;
            }
            let expected: Vec<Frame> = frames.into_iter().map(|(_, frame)| frame).collect();
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn whatever_comes_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            // Garbage may be refused; it must not panic.
            let _ = FrameReader::default().take(&bytes, |_| {});
        }
    }

    #[test]
    fn a_message_of_any_size_is_not_held() {
        let mut reader = FrameReader::default();
        // A binary frame of 2^40 bytes.
        reader.take(&[0x82, 127, 0, 0, 1, 0, 0, 0, 0, 0], |_| {}).unwrap();
        for _ in 0..1_000 {
            reader.take(&[0; 65_536], |_| {}).unwrap();
        }
        let current = reader.current.unwrap();
        assert_eq!((current.remaining, current.kept), ((1 << 40) - 65_536_000, None));
    }

    #[test]
    fn what_no_host_may_send_is_named() {
        let refused = |bytes: &[u8]| FrameReader::default().take(bytes, |_| {}).unwrap_err().to_string();
        assert!(refused(&[0x89, 0x80, 1, 2, 3, 4]).contains("masked"));
        assert!(refused(&[0xC1, 0]).contains("extension"));
        assert!(refused(&[0x89, 126, 0, 200]).contains("125 bytes"));
        assert!(refused(&[0x09, 0]).contains("fragments"));
        assert!(refused(&[0x83, 0]).contains("reserved"));
        assert!(refused(&[0x88, 1, 3]).contains("half a status code"));
    }
}
