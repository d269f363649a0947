//! A TCP stream that is read at a given pace.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Pace;

/// A frozen stream looks this often whether it may go on.
const FROZEN_POLL: Duration = Duration::from_millis(10);

/// Reads from the socket at the pace that it was told, counts the bytes, and can keep its own writes to itself.
pub(super) struct PacedStream {
    stream: TcpStream,
    bytes_read: Arc<AtomicU64>,
    frozen: Arc<AtomicBool>,
    pace: Pace,
    mute: bool,
    /// Nothing is read before it fires.
    rest: Option<Pin<Box<Sleep>>>,
}

impl PacedStream {
    pub(super) const fn new(stream: TcpStream, bytes_read: Arc<AtomicU64>, frozen: Arc<AtomicBool>) -> Self {
        Self { stream, bytes_read, frozen, pace: Pace::Full, mute: false, rest: None }
    }

    /// From now on (after the handshake) the stream keeps to `pace`.
    pub(super) const fn begin(&mut self, pace: Pace, mute: bool) {
        self.pace = pace;
        self.mute = mute;
    }

    fn rest_until(&mut self, instant: Instant) {
        self.rest = Some(Box::pin(sleep_until(instant)));
    }

    fn after_read(&mut self, bytes: usize) {
        match self.pace {
            Pace::Full => {}
            Pace::Slow { bytes_per_second, .. } => {
                let seconds =
                    u32::try_from(bytes).map_or(f64::MAX, f64::from) / f64::from(bytes_per_second.max(1));
                self.rest_until(Instant::now() + Duration::from_secs_f64(seconds));
            }
            Pace::Busy { busy } => {
                self.rest_until(Instant::now() + busy);
                self.pace = Pace::Full;
            }
        }
    }
}

impl AsyncRead for PacedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        loop {
            if let Some(rest) = &mut self.rest {
                ready!(rest.as_mut().poll(context));
                self.rest = None;
            }
            if !self.frozen.load(Ordering::Relaxed) {
                break;
            }
            self.rest_until(Instant::now() + FROZEN_POLL);
        }
        let limit = match self.pace {
            Pace::Slow { read_bytes, .. } => read_bytes.clamp(1, buffer.remaining()),
            Pace::Full | Pace::Busy { .. } => buffer.remaining(),
        };
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(limit));
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut part))?;
        let bytes = part.filled().len();
        buffer.advance(bytes);
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
        if bytes > 0 {
            self.after_read(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PacedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if self.mute {
            // Said to be written, and kept.
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
