//! Hands out a stream up to the end of the first HTTP head, and keeps what stands behind it.
//!
//! `tungstenite` reads as much as there is and keeps it inside its WebSocket, from where it cannot be taken. Through this
//! it sees the head of the answer and no byte more; the frames are read by [`super::frames`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes taken from the stream at a time.
const READ_BYTES: usize = 2_048;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// A stream that ends for its reader where the head ends.
#[derive(Debug)]
pub(super) struct Head<S> {
    stream: S,
    buffer: Vec<u8>,
    given: usize,
    /// Bytes of [`END_OF_HEAD`] that the last bytes given out make.
    matched: usize,
}

impl<S> Head<S> {
    pub(super) const fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::new(), given: 0, matched: 0 }
    }

    /// Whether the end of the head was seen.
    pub(super) const fn is_complete(&self) -> bool {
        self.matched == END_OF_HEAD.len()
    }

    /// The stream, and the bytes that were read off it beyond the head.
    pub(super) fn into_parts(mut self) -> (S, Vec<u8>) {
        self.buffer.drain(..self.given);
        (self.stream, self.buffer)
    }

    /// Gives out what belongs to the head. False if nothing does that is there.
    fn give(&mut self, into: &mut ReadBuf<'_>) -> bool {
        let from = self.given;
        while into.remaining() > self.given - from && !self.is_complete() {
            let Some(byte) = self.buffer.get(self.given) else { break };
            self.given += 1;
            self.matched = match END_OF_HEAD.get(self.matched) {
                Some(wanted) if wanted == byte => self.matched + 1,
                // `\r` begins the pattern anew wherever it stands in it.
                _ => usize::from(*byte == b'\r'),
            };
        }
        into.put_slice(self.buffer.get(from..self.given).unwrap_or_default());
        self.given > from
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Head<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // Whoever reads on after the head is told that there is no more.
        if into.remaining() == 0 || this.give(into) || this.is_complete() {
            return Poll::Ready(Ok(()));
        }
        this.buffer.clear();
        this.given = 0;
        let mut bytes = [0; READ_BYTES];
        let mut read = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
        this.buffer.extend_from_slice(read.filled());
        this.give(into);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Head<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// A stream that gives out its bytes in pieces.
    struct Pieces(Vec<Vec<u8>>);

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if !self.0.is_empty() {
                let mut piece = self.0.remove(0);
                let rest = piece.split_off(piece.len().min(into.remaining()));
                into.put_slice(&piece);
                if !rest.is_empty() {
                    self.0.insert(0, rest);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    proptest! {
        #[test]
        fn the_head_and_the_rest_are_parted_however_they_are_cut(
            lines in prop::collection::vec("[a-z\r]{0,9}", 0..6),
            rest in prop::collection::vec(any::<u8>(), 0..6_000),
            cut in prop::collection::vec(1_usize..400, 1..40),
        ) {
            let head = format!("HTTP/1.1 101 x\r\n{}\r\n\r\n", lines.join("\n")).into_bytes();
            let length = head.windows(4).position(|four| four == END_OF_HEAD).unwrap() + 4;
            let all: Vec<u8> = head.iter().chain(&rest).copied().collect();
            let mut left = all.as_slice();
            let mut pieces = Vec::new();
            for size in cut.into_iter().cycle() {
                if left.is_empty() { break; }
                let (piece, more) = left.split_at(size.min(left.len()));
                pieces.push(piece.to_vec());
                left = more;
            }
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let mut stream = Head::new(Pieces(pieces));
                let mut seen = Vec::new();
                stream.read_to_end(&mut seen).await.unwrap();
                prop_assert_eq!(&seen, &all[..length]);
                let (mut stream, mut tail) = stream.into_parts();
                stream.read_to_end(&mut tail).await.unwrap();
                prop_assert_eq!(&tail, &all[length..]);
                Ok(())
            })?;
        }
    }
}
