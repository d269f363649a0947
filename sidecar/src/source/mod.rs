//! Where evidence comes from: eBPF programs ([`ebpf`]), or `inet_diag` where a pod gets no capabilities.
//!
//! A source turns what the kernel says into [`Input`]s; it decides nothing.

use ackbeat_liveness::Input;

pub mod ebpf;
pub mod sock_diag;

/// How evidence is gathered (`ackbeat.mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// eBPF programs: lifecycle, resets, retransmits, sampler, wire.
    Ebpf,
    /// Netlink `inet_diag` only: no capability is needed, attribution and heartbeats are unknown.
    SockDiag,
}

impl Mode {
    /// The stable word for it, as spans and logs show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ebpf => "ebpf",
            Self::SockDiag => "sock_diag",
        }
    }
}

/// Which listening ports are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Every port that something listens on, now or later.
    Listening,
    /// These.
    Listed(Vec<u16>),
}

/// Totals since the start. `records_seen + records_dropped + records_rejected = records_sent` once the ring is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounters {
    /// Records that the kernel programs wanted to send.
    pub records_sent: u64,
    /// Records that found no room in the ring buffer.
    pub records_dropped: u64,
    /// Records that userspace read and understood.
    pub records_seen: u64,
    /// Records that userspace read and refused.
    pub records_rejected: u64,
    /// Flows that found no room in the kernel's table.
    pub flows_rejected: u64,
    /// Control frames that the wire parser reported.
    pub wire_control_frames: u64,
    /// Short data frames that the wire parser compared with the patterns of text heartbeats.
    pub wire_text_frames: u64,
    /// Of them, those that a pattern fits.
    pub wire_text_matches: u64,
    /// Data frames that the wire parser handed over.
    pub text_frames_seen: u64,
    /// Of them, those that are no heartbeat, or one that is not proven yet.
    pub text_frames_refused: u64,
    /// Times that the wire parser lost its place.
    pub wire_losses: u64,
    /// Times that it found it again.
    pub wire_recoveries: u64,
    /// Passes of the sampler.
    pub sampler_passes: u64,
}

/// A source failed while running.
#[derive(Debug, thiserror::Error)]
#[error("{step} failed: {cause}")]
pub struct SourceError {
    /// The step that failed, as a noun phrase.
    pub step: &'static str,
    /// Why, and what to do about it.
    pub cause: String,
}

/// A stream of evidence. All methods are called from one task.
pub trait Source: Send {
    /// How this source works.
    fn mode(&self) -> Mode;

    /// Waits until [`Source::drain`] may have something to give. Cancel-safe.
    fn readable(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Whether an `Outstanding` input tells when data goes out on a quiet connection. Where none does, the driver
    /// samples steadily as long as something is watched.
    fn announces_outstanding(&self) -> bool;

    /// Takes what is there now, in the order of its time as far as the kernel keeps it, and at most `limit` records.
    /// Returns whether more may be waiting. What was lost since the last call is told as one `RecordsLost`.
    ///
    /// # Errors
    /// [`SourceError`] if the source broke for good.
    fn drain(&mut self, limit: usize, inputs: &mut Vec<Input>) -> Result<bool, SourceError>;

    /// Finds the connections that exist already: one `Opened { preexisting: true }` and one `Sample` each.
    ///
    /// # Errors
    /// [`SourceError`] if the pass failed.
    fn discover(&mut self, inputs: &mut Vec<Input>) -> Result<(), SourceError>;

    /// One pass over the tracked sockets: a `Sample` each, then `SamplingDone`.
    ///
    /// # Errors
    /// [`SourceError`] if the pass failed.
    fn sample(&mut self, inputs: &mut Vec<Input>) -> Result<(), SourceError>;

    /// Whether what is done again and again works with the capabilities that this thread has now. Nothing is taken by it.
    fn can_sample(&mut self) -> bool {
        true
    }

    /// Totals since the start.
    fn counters(&self) -> SourceCounters;
}
