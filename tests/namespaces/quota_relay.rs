//! The relay of report D: it serves streams on one port, and refuses those beyond a limit.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ackbeat_tests::namespace::Namespace;
use ackbeat_tests::sockets;
use anyhow::{Context, Result};

/// What it counts. A plain counter is also its quota, as in the report.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    streams: AtomicU64,
    peak: AtomicU64,
    denied: AtomicU64,
    reset: AtomicU64,
    bytes_echoed: AtomicU64,
}

impl Counts {
    /// Streams that are open.
    pub(crate) fn streams(&self) -> u64 {
        self.streams.load(Ordering::SeqCst)
    }

    /// How many there were at most.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::SeqCst)
    }

    /// Streams that were refused.
    pub(crate) fn denied(&self) -> u64 {
        self.denied.load(Ordering::SeqCst)
    }

    /// Streams that ended by a reset.
    pub(crate) fn reset(&self) -> u64 {
        self.reset.load(Ordering::SeqCst)
    }

    /// Payload that was sent back.
    pub(crate) fn bytes_echoed(&self) -> u64 {
        self.bytes_echoed.load(Ordering::SeqCst)
    }
}

/// The relay; it ends with the test's process.
pub(crate) struct QuotaRelay {
    pub(crate) address: SocketAddr,
    pub(crate) counts: Arc<Counts>,
}

impl QuotaRelay {
    /// Serves in `namespace`: each line is answered with `200 ` and the line; beyond `limit` streams at once the first one
    /// is answered with `503 no stream` and the stream is closed.
    pub(crate) fn start(namespace: &Namespace, address: std::net::IpAddr, limit: u64) -> Result<Self> {
        let (listener, address) = namespace.run(|| sockets::listen(address))??;
        let counts = Arc::new(Counts::default());
        let of_thread = Arc::clone(&counts);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counts = Arc::clone(&of_thread);
                std::thread::spawn(move || {
                    if counts.streams.fetch_add(1, Ordering::SeqCst) >= limit {
                        counts.streams.fetch_sub(1, Ordering::SeqCst);
                        counts.denied.fetch_add(1, Ordering::SeqCst);
                        refuse(stream);
                        return;
                    }
                    counts.peak.fetch_max(counts.streams(), Ordering::SeqCst);
                    if serve(stream, &counts).is_err() {
                        counts.reset.fetch_add(1, Ordering::SeqCst);
                    }
                    counts.streams.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Ok(Self { address, counts })
    }
}

fn refuse(stream: TcpStream) {
    let mut lines = BufReader::new(stream);
    // Read before it closes: unread data would make a reset of the FIN.
    if lines.read_line(&mut String::new()).is_ok() {
        // Who left does not read it.
        let _ = lines.get_mut().write_all(b"503 no stream\n");
    }
}

fn serve(stream: TcpStream, counts: &Counts) -> Result<()> {
    stream.set_nodelay(true).context("setting TCP_NODELAY failed")?;
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    while lines.read_line(&mut line).context("reading failed")? > 0 {
        lines.get_mut().write_all(format!("200 {line}").as_bytes()).context("writing failed")?;
        counts.bytes_echoed.fetch_add(line.len() as u64, Ordering::SeqCst);
        line.clear();
    }
    Ok(())
}
