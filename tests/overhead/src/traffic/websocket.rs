//! As much of RFC 6455 as the traffic needs.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail, ensure};

/// Opcodes (section 5.2).
pub(crate) const BINARY: u8 = 0x2;
pub(crate) const PING: u8 = 0x9;
pub(crate) const PONG: u8 = 0xa;

/// The key of every frame to the host: it may be anything.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
/// The longest head that is read, in bytes.
const HEAD_MAX_BYTES: usize = 1_024;
/// The longest payload of a control frame (section 5.5).
const CONTROL_MAX_BYTES: u64 = 125;

/// An upgrade request, with the key of section 1.3.
pub(crate) const REQUEST: &str = "GET /stream HTTP/1.1\r\nHost: host\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
/// Its answer, with the value that belongs to the key.
pub(crate) const ANSWER: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                                 Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZbK+xOo=\r\n\r\n";

/// Where a head ends in `bytes`, the blank line included.
pub(crate) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Asks for an upgrade and reads the answer. Gives what came behind it.
///
/// # Errors
/// The stream broke, or the answer is no 101.
pub(crate) fn upgrade(stream: &mut (impl Read + Write)) -> Result<Vec<u8>> {
    stream.write_all(REQUEST.as_bytes()).context("asking for an upgrade failed")?;
    let (head, rest) = read_head(stream)?;
    ensure!(head.starts_with(b"HTTP/1.1 101 "), "the host refused the upgrade");
    Ok(rest)
}

/// Reads an upgrade request and answers it.
///
/// # Errors
/// The stream broke, or more than a request came.
pub(crate) fn answer(stream: &mut (impl Read + Write)) -> Result<()> {
    let (_, rest) = read_head(stream)?;
    ensure!(rest.is_empty(), "the client did not wait for the answer");
    stream.write_all(ANSWER.as_bytes()).context("answering an upgrade failed")
}

fn read_head(stream: &mut impl Read) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut head = Vec::with_capacity(HEAD_MAX_BYTES);
    let mut chunk = [0; HEAD_MAX_BYTES];
    loop {
        let read = stream.read(&mut chunk).context("reading a head failed")?;
        ensure!(read > 0, "the stream ended inside a head");
        head.extend_from_slice(chunk.get(..read).unwrap_or_default());
        if let Some(end) = end_of_head(&head) {
            let rest = head.split_off(end);
            return Ok((head, rest));
        }
        ensure!(head.len() <= HEAD_MAX_BYTES, "a head is longer than {HEAD_MAX_BYTES} bytes");
    }
}

/// A frame to the client: one message, or a control frame.
pub(crate) fn frame_to_client(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = header(opcode, payload.len(), 0);
    frame.extend_from_slice(payload);
    frame
}

/// A frame to the host: masked (section 5.3).
pub(crate) fn frame_to_host(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = header(opcode, payload.len(), 0x80);
    frame.extend_from_slice(&MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

fn header(opcode: u8, length: usize, mask_bit: u8) -> Vec<u8> {
    let mut header = vec![0x80 | opcode];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..126), _) => header.push(mask_bit | short),
        (_, Ok(medium)) => {
            header.push(mask_bit | 126);
            header.extend(medium.to_be_bytes());
        }
        _ => {
            header.push(mask_bit | 127);
            header.extend((length as u64).to_be_bytes());
        }
    }
    header
}

/// Finds the Pings in the stream of frames to a client, and steps over everything else.
#[derive(Debug, Default)]
pub(crate) struct PingFinder {
    header: Vec<u8>,
    skip_bytes: u64,
    ping: Option<(usize, Vec<u8>)>,
}

impl PingFinder {
    /// Looks at what was read and gives the payloads of the Pings that ended in it.
    ///
    /// # Errors
    /// A frame is masked, or a Ping too long: the stream is not what it should be.
    pub(crate) fn look(&mut self, mut bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        loop {
            if let Some((length, payload)) = &mut self.ping {
                let (taken, rest) = bytes.split_at(bytes.len().min(*length - payload.len()));
                payload.extend_from_slice(taken);
                bytes = rest;
                if payload.len() < *length {
                    return Ok(found);
                }
                found.extend(self.ping.take().map(|(_, payload)| payload));
            }
            let skipped = usize::try_from(self.skip_bytes).unwrap_or(usize::MAX).min(bytes.len());
            self.skip_bytes -= skipped as u64;
            let Some((first, rest)) = bytes.split_at(skipped).1.split_first() else { return Ok(found) };
            self.header.push(*first);
            bytes = rest;
            self.end_header()?;
        }
    }

    fn end_header(&mut self) -> Result<()> {
        let [first, second, extended @ ..] = self.header.as_slice() else { return Ok(()) };
        if second & 0x80 != 0 {
            bail!("a frame from the host is masked");
        }
        let extended_bytes = match second {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if extended.len() < extended_bytes {
            return Ok(());
        }
        let length = match extended_bytes {
            0 => u64::from(*second),
            _ => extended.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
        };
        if first & 0x0f == PING {
            ensure!(length <= CONTROL_MAX_BYTES, "a Ping is longer than {CONTROL_MAX_BYTES} bytes");
            self.ping = Some((usize::try_from(length)?, Vec::new()));
        } else {
            self.skip_bytes = length;
        }
        self.header.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_found_wherever_the_stream_is_cut() {
        let stream: Vec<u8> = [
            frame_to_client(BINARY, &[0x89; 70_000]),
            frame_to_client(PING, b"one"),
            frame_to_client(BINARY, &[0x89; 300]),
            frame_to_client(BINARY, b""),
            frame_to_client(PING, b""),
            frame_to_client(PING, b"three"),
            frame_to_client(BINARY, &[0x89; 12]),
        ]
        .concat();
        for piece in [1, 2, 3, 5, 64, 1_000, 1_000_000] {
            let mut finder = PingFinder::default();
            let mut found = Vec::new();
            for bytes in stream.chunks(piece) {
                found.extend(finder.look(bytes).expect("well-formed"));
            }
            assert_eq!(found, [b"one".to_vec(), b"".to_vec(), b"three".to_vec()], "pieces of {piece}");
        }
    }

    #[test]
    fn what_goes_to_the_host_is_masked() {
        // The masked "Hello" of section 5.7.
        assert_eq!(frame_to_host(0x1, b"Hello"), b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
        assert!(PingFinder::default().look(&frame_to_host(PING, b"x")).is_err());
    }

    #[test]
    fn an_answer_may_bring_the_first_frame_with_it() {
        struct Scripted(std::io::Cursor<Vec<u8>>);
        impl Read for Scripted {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(buffer)
            }
        }
        impl Write for Scripted {
            fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
                Ok(buffer.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let answer = [ANSWER.as_bytes(), b"\x89\x00"].concat();
        let mut stream = Scripted(std::io::Cursor::new(answer));
        assert_eq!(upgrade(&mut stream).expect("upgraded"), b"\x89\x00");
    }
}
