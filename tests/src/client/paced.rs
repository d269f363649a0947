//! A TCP stream that is read and written at a given pace.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::pong_filter::PongFilter;
use super::{ClientOptions, Pace};

/// A frozen stream looks this often whether it may go on.
const FROZEN_POLL: Duration = Duration::from_millis(10);
/// A paced writer gives the kernel what is due this many times a second.
const WRITES_PER_SECOND: u64 = 50;

/// What the stream shares with its client.
#[derive(Clone, Default)]
pub(super) struct Controls {
    /// Bytes that were read from the socket since the connection was made.
    pub(super) bytes_read: Arc<AtomicU64>,
    /// Nothing is read while it is set.
    pub(super) frozen: Arc<AtomicBool>,
    /// What is written while it is set is said to be written, and kept.
    pub(super) muted: Arc<AtomicBool>,
    /// What is written once it is set is said to be written, and kept.
    pub(super) half_closed: Arc<AtomicBool>,
}

/// Reads from the socket at the pace that it was told, counts the bytes, and writes at a pace of its own, or not at all.
pub(super) struct PacedStream {
    stream: TcpStream,
    controls: Controls,
    pace: Pace,
    /// When the pace began.
    began: Instant,
    /// Nothing is read before it fires.
    rest: Option<Pin<Box<Sleep>>>,
    /// Present if Pongs are withheld.
    pong_filter: Option<PongFilter>,
    /// Present if writing has a pace or Pongs are withheld: what was written waits here for the kernel.
    outgoing: Option<VecDeque<u8>>,
    upstream_bytes_per_second: Option<u32>,
    /// Nothing is written before it fires.
    write_rest: Option<Pin<Box<Sleep>>>,
}

fn seconds_for(bytes: usize, bytes_per_second: u32) -> f64 {
    u32::try_from(bytes).map_or(f64::MAX, f64::from) / f64::from(bytes_per_second.max(1))
}

impl PacedStream {
    pub(super) fn new(stream: TcpStream, controls: Controls) -> Self {
        Self {
            stream,
            controls,
            pace: Pace::Full,
            began: Instant::now(),
            rest: None,
            pong_filter: None,
            outgoing: None,
            upstream_bytes_per_second: None,
            write_rest: None,
        }
    }

    /// From now on (after the handshake) the stream keeps to what `options` say.
    pub(super) fn begin(&mut self, options: &ClientOptions) {
        self.pace = options.pace;
        self.controls.muted.store(options.mute, Ordering::Relaxed);
        self.began = Instant::now();
        self.pong_filter = options.withhold_pongs.then(PongFilter::default);
        self.upstream_bytes_per_second = options.upstream_bytes_per_second;
        if options.withhold_pongs || options.upstream_bytes_per_second.is_some() {
            self.outgoing = Some(VecDeque::new());
        }
    }

    fn rest_until(&mut self, instant: Instant) {
        self.rest = Some(Box::pin(sleep_until(instant)));
    }

    fn after_read(&mut self, bytes: usize) {
        match self.pace {
            Pace::Full | Pace::Pausing { .. } => {}
            Pace::Slow { bytes_per_second, .. } => {
                let rest = Duration::from_secs_f64(seconds_for(bytes, bytes_per_second));
                self.rest_until(Instant::now() + rest);
            }
            Pace::Busy { busy } => {
                self.rest_until(Instant::now() + busy);
                self.pace = Pace::Full;
            }
            Pace::Trickle { rest } => self.rest_until(Instant::now() + rest),
        }
    }

    /// The end of the pause that it is in now, if it is in one.
    fn end_of_pause(&self) -> Option<Instant> {
        let Pace::Pausing { pause, period } = self.pace else { return None };
        let period_ns = period.as_nanos().max(1);
        let phase_ns = self.began.elapsed().as_nanos() % period_ns;
        let left = Duration::from_nanos(u64::try_from(period_ns - phase_ns).unwrap_or(u64::MAX));
        (left <= pause).then(|| Instant::now() + left)
    }

    /// Gives the kernel what waits for it, as fast as the pace allows.
    fn poll_outgoing(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let Some(outgoing) = &mut self.outgoing else { return Poll::Ready(Ok(())) };
        while !outgoing.is_empty() {
            if let Some(rest) = &mut self.write_rest {
                ready!(rest.as_mut().poll(context));
                self.write_rest = None;
            }
            let (waiting, _) = outgoing.as_slices();
            let limit = match self.upstream_bytes_per_second {
                Some(rate) => {
                    let due = u64::from(rate) / WRITES_PER_SECOND;
                    waiting.len().min(usize::try_from(due.max(1)).unwrap_or(usize::MAX))
                }
                None => waiting.len(),
            };
            let part = waiting.get(..limit).unwrap_or(waiting);
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, part))?;
            if written == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            outgoing.drain(..written);
            if let Some(rate) = self.upstream_bytes_per_second {
                let rest = Duration::from_secs_f64(seconds_for(written, rate));
                self.write_rest = Some(Box::pin(sleep_until(Instant::now() + rest)));
            }
        }
        Poll::Ready(Ok(()))
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
            if self.controls.frozen.load(Ordering::Relaxed) {
                self.rest_until(Instant::now() + FROZEN_POLL);
            } else if let Some(end) = self.end_of_pause() {
                self.rest_until(end);
            } else {
                break;
            }
        }
        let limit = match self.pace {
            Pace::Slow { read_bytes, .. } => read_bytes.clamp(1, buffer.remaining()),
            Pace::Trickle { .. } => 1,
            Pace::Full | Pace::Busy { .. } | Pace::Pausing { .. } => buffer.remaining(),
        };
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(limit));
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut part))?;
        let bytes = part.filled().len();
        buffer.advance(bytes);
        self.controls.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
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
        if self.controls.muted.load(Ordering::Relaxed) || self.controls.half_closed.load(Ordering::Relaxed) {
            // Said to be written, and kept.
            return Poll::Ready(Ok(bytes.len()));
        }
        let this = &mut *self;
        let Some(outgoing) = &mut this.outgoing else {
            return Pin::new(&mut this.stream).poll_write(context, bytes);
        };
        match &mut this.pong_filter {
            Some(filter) => filter.pass(bytes, outgoing),
            None => outgoing.extend(bytes),
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(self.poll_outgoing(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(self.poll_outgoing(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
