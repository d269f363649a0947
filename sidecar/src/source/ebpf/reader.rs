//! The running source: records from the ring buffer, samples on demand.

use std::collections::VecDeque;
use std::sync::Arc;

use ackbeat_abi::{Counter, Record, Snapshot, TCP_LISTEN, decode_snapshots};
use ackbeat_liveness::{Input, TcpState, Timestamp};
use aya::{
    Ebpf,
    maps::{MapData, PerCpuArray, RingBuf},
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    clock::{self, JiffiesClock},
    convert::{self, Meaning},
    debug_log::DebugLog,
    error::{LoadError, MissingKind, MissingSignal, chain},
    interfaces::{self, Interfaces},
    kernel_types::KernelTypes,
    loader::{self, EbpfOptions, PROGRAMS, SAMPLE_ALL, SAMPLE_TRACKED},
    neighbor::{self, Neighbors},
    object,
    selftest::{self, SelfTest, Stage},
};
use crate::heartbeat::HeartbeatReader;
use crate::listening::Standings;
use crate::source::{Mode, Ports, Source, SourceCounters, SourceError};

/// Evidence from the kernel programs.
///
/// Records of all processors share one ring, in the order in which room was reserved for them. Records of one connection
/// are in the order of its events as long as its socket's lock orders them; wire records come from hooks outside that
/// lock, so they may stand a little before or after the lifecycle record of the same moment: compare times, not places.
pub struct EbpfSource {
    ebpf: Ebpf,
    events: AsyncFd<RingBuf<MapData>>,
    counters: PerCpuArray<MapData, u64>,
    /// Where the wire parser is attached; `None` where it could not be.
    interfaces: Option<Interfaces>,
    /// Whether it is attached to interfaces that come later.
    interfaces_followed: bool,
    clock: JiffiesClock,
    neighbors: Neighbors,
    /// Ports that ackbeat itself listens on: their connections are left out.
    listening: Arc<Standings>,
    /// Decides which data frames are heartbeats.
    heartbeats: HeartbeatReader,
    /// Records that were read before the first drain.
    pending: VecDeque<Record>,
    /// The last drain stopped at its limit, so no wake-up will come for what is left.
    more: bool,
    seen: u64,
    rejected: u64,
    /// Drops that the engine was told of.
    losses_told: u64,
    /// The record of an opening may be among what was lost: the next pass says of every connection that it is there.
    must_find: bool,
    sampler_passes: u64,
    /// What the last pass wrote; kept for its memory.
    written: Vec<u8>,
    missing: Vec<MissingSignal>,
    self_test: SelfTest,
    /// Control frames that the self-test sent itself: nobody's.
    self_test_frames: u64,
    debug_log: DebugLog,
}

impl EbpfSource {
    /// Loads and attaches the kernel programs in the network namespace of the calling thread, and proves that they see
    /// something. Blocks for about half a second of processor time, two thirds of it the verifier's over the wire
    /// programs; a second more where the loopback interface is filtered.
    ///
    /// # Errors
    /// [`LoadError`] if something is missing without which nothing works. What else is missing is in
    /// [`EbpfSource::missing_signals`].
    pub fn load(options: &EbpfOptions) -> Result<Self, LoadError> {
        let object = object::embedded().ok_or(LoadError::NoObject)?;
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(LoadError::Preparation {
                step: "registering the ring buffer",
                cause: "there is no tokio runtime here".to_owned(),
                fix: "call EbpfSource::load inside a runtime".to_owned(),
                kind: MissingKind::Feature,
            });
        }
        let types = KernelTypes::of_running_kernel()?;
        let clock = JiffiesClock::of_running_kernel()?;
        let mut prepared = loader::prepare(object, &types, options)?;
        let debug_log = DebugLog::start(&mut prepared.ebpf)?;
        let mut missing: Vec<MissingSignal> = types.missing_members().collect();
        let stage = Stage::bind();
        if let Ok(stage) = &stage {
            prepared.watch(stage.port(), true)?;
        }
        // Before the lifecycle program, which makes the entries that the wire parser works on: so it sees each connection
        // that opens from its first byte on.
        let mut interfaces = match Interfaces::attach(&mut prepared.ebpf, &options.unattached) {
            Ok(interfaces) => Some(interfaces),
            Err(error) => {
                missing.push(MissingSignal {
                    signal: "heartbeats",
                    reason: chain(&error),
                    fix: "see the reason; until then kernel evidence alone is used, and sampled steadily"
                        .to_owned(),
                });
                None
            }
        };
        for spec in PROGRAMS {
            match prepared.start(spec) {
                Ok(()) => {}
                Err(error) if spec.required => return Err(error),
                Err(error) => missing.push(MissingSignal {
                    signal: spec.signal,
                    reason: error.to_string(),
                    fix: error.fix().to_owned(),
                }),
            }
        }
        let mut events = prepared.take_events()?;
        let counters = prepared.take_counters()?;
        let (self_test, reading) = match stage {
            Err(error) => {
                let reason = format!("nothing can listen on the loopback interface: {error}");
                (SelfTest::NotRun { reason }, selftest::Reading::default())
            }
            Ok(stage) => {
                let port = stage.port();
                let has_wire = interfaces.as_ref().is_some_and(Interfaces::has_loopback);
                let ebpf = &mut prepared.ebpf;
                let ran = selftest::run(stage, &mut events, has_wire, |written| {
                    loader::pass(ebpf, SAMPLE_TRACKED, written)
                });
                // In the other mode the programs write this map too; there the bit stays, and watches a port that nobody
                // listens on.
                if matches!(&options.ports, Ports::Listed(ports) if !ports.contains(&port)) {
                    prepared.watch(port, false)?;
                }
                ran
            }
        };
        note_blind(&self_test, &mut missing)?;
        if self_test.blind().iter().any(|program| interfaces::PROGRAMS.contains(program)) {
            // Half a conversation is worse than none: whoever sees Pings and no Pongs takes everybody for silent.
            interfaces = None;
        }
        // SAFETY: the ring owns its map's file descriptor and gives the same one as long as it lives; the AsyncFd owns the
        // ring, and nothing takes the ring out of it.
        let events = unsafe { AsyncFd::register_with_interest(events, Interest::READABLE) }
            .map_err(|error| LoadError::preparation("registering the ring buffer", &error))?;
        Ok(Self {
            ebpf: prepared.ebpf,
            events,
            counters,
            interfaces_followed: interfaces.is_some(),
            interfaces,
            clock,
            neighbors: Neighbors::default(),
            listening: Arc::clone(&options.listening),
            heartbeats: HeartbeatReader::new(options.heartbeats.clone()),
            pending: reading.pending,
            more: false,
            seen: reading.seen,
            rejected: reading.rejected,
            losses_told: 0,
            must_find: false,
            sampler_passes: 0,
            written: Vec::new(),
            missing,
            self_test,
            self_test_frames: reading.own_frames,
            debug_log,
        })
    }

    /// Signals that this kernel, or these privileges, do not give.
    #[must_use]
    pub fn missing_signals(&self) -> &[MissingSignal] {
        &self.missing
    }

    /// What the self-test at the start found.
    #[must_use]
    pub const fn self_test(&self) -> &SelfTest {
        &self.self_test
    }

    /// Names of the interfaces that the wire parser is attached to.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.interfaces.iter().flat_map(Interfaces::names)
    }

    /// The clock that the kernel's time stamps are read with.
    #[must_use]
    pub const fn clock(&self) -> JiffiesClock {
        self.clock
    }

    /// One total, summed over the processors; what cannot be read counts as 0 and is logged.
    fn counter(&self, counter: Counter) -> u64 {
        match self.counters.get(&counter.number(), 0) {
            Ok(values) => values.iter().fold(0, |sum, value| sum.wrapping_add(*value)),
            Err(error) => {
                tracing::warn!(?counter, %error, "a counter of the kernel programs cannot be read");
                0
            }
        }
    }

    /// Tells the engine of records that were lost since it was last told: the ring was full, or they made no sense.
    fn tell_losses(&mut self, inputs: &mut Vec<Input>) {
        let lost = self.counter(Counter::RecordsDropped).saturating_add(self.rejected);
        if lost > self.losses_told {
            inputs.push(Input::RecordsLost { at: clock::now(), count: lost - self.losses_told });
            self.losses_told = lost;
            self.must_find = true;
        }
    }

    /// Says of a new connection whether its control frames would be seen.
    fn with_sight(&self, mut input: Input) -> Input {
        if let Input::Opened(opened) = &mut input {
            opened.frames_visible = self.interfaces.is_some();
        }
        input
    }

    /// A connection that is there, whenever it opened.
    fn found(&self, found: &Snapshot, taken: ackbeat_liveness::Snapshot) -> [Input; 2] {
        convert::opened(found, taken, true).map(|input| self.with_sight(input))
    }

    /// Hands on one record.
    fn hand_on(&mut self, record: &Record, inputs: &mut Vec<Input>) {
        let is_own_port =
            neighbor::flow(record).is_some_and(|flow| self.listening.is_own_port(flow.local_port));
        if self.neighbors.own(record) || is_own_port {
            self.seen += 1;
            return;
        }
        if let Record::Lifecycle(found) = record {
            self.clock.observe(found.snapshot.jiffies, Timestamp::from_ns(found.snapshot.time_ns));
        }
        match convert::record(self.clock, record) {
            Ok(meaning) => {
                self.seen += 1;
                match meaning {
                    Meaning::Inputs(found) => {
                        inputs.extend(found.into_iter().map(|input| self.with_sight(input)));
                    }
                    Meaning::Data(found) => inputs.extend(self.heartbeats.read(&found).map(Input::Frame)),
                    Meaning::Listening { port } => tracing::debug!(port, "listening"),
                    Meaning::ListenerClosed { port } => {
                        self.heartbeats.listener_closed(port);
                        tracing::debug!(port, "listener closed");
                    }
                }
            }
            Err(rejection) => {
                self.rejected += 1;
                tracing::debug!(%rejection, "record refused");
            }
        }
    }

    fn pass(&mut self, name: &'static str, step: &'static str) -> Result<(), SourceError> {
        self.sampler_passes += 1;
        loader::pass(&mut self.ebpf, name, &mut self.written)
            .map_err(|error| SourceError { step, cause: error.to_string() })
    }
}

/// Waits for records.
async fn wait(events: &mut AsyncFd<RingBuf<MapData>>) -> Result<(), SourceError> {
    let mut guard = events
        .readable_mut()
        .await
        .map_err(|error| SourceError { step: "waiting for the ring buffer", cause: error.to_string() })?;
    // Edge-triggered: cleared before the ring is read, so that a record that comes during the reading wakes again.
    guard.clear_ready();
    Ok(())
}

const REPORT_KERNEL: &str = "report the kernel version";

/// A required program that saw nothing is an error, another one a missing signal.
fn note_blind(self_test: &SelfTest, missing: &mut Vec<MissingSignal>) -> Result<(), LoadError> {
    match self_test {
        SelfTest::NotRun { reason } => tracing::info!(reason, "the kernel programs were not tested at start"),
        SelfTest::Ran { blind } => {
            for spec in PROGRAMS.into_iter().filter(|spec| blind.contains(&spec.name)) {
                if spec.required {
                    return Err(LoadError::Blind { program: spec.name });
                }
                if missing.iter().all(|known| known.signal != spec.signal) {
                    missing.push(MissingSignal {
                        signal: spec.signal,
                        reason: format!("{} is attached, but did not see a reset made for it", spec.name),
                        fix: REPORT_KERNEL.to_owned(),
                    });
                }
            }
            if let Some(program) = blind.iter().find(|program| interfaces::PROGRAMS.contains(program)) {
                missing.push(MissingSignal {
                    signal: "heartbeats",
                    reason: format!(
                        "{program} is attached to the loopback interface, but did not see a Ping or Pong made for it"
                    ),
                    fix: REPORT_KERNEL.to_owned(),
                });
            }
        }
    }
    Ok(())
}

impl Source for EbpfSource {
    fn mode(&self) -> Mode {
        Mode::Ebpf
    }

    fn announces_outstanding(&self) -> bool {
        self.interfaces.is_some()
    }

    async fn readable(&mut self) -> Result<(), SourceError> {
        if self.more || !self.pending.is_empty() {
            return Ok(());
        }
        loop {
            let Some(interfaces) = &mut self.interfaces else {
                return wait(&mut self.events).await;
            };
            if !self.interfaces_followed {
                return wait(&mut self.events).await;
            }
            let news = tokio::select! {
                result = wait(&mut self.events) => return result,
                news = interfaces.changed() => news,
            };
            // Not awaited: nothing is lost if the caller gives up waiting.
            let followed = news.and_then(|()| interfaces.follow(&mut self.ebpf));
            if let Err(error) = followed {
                tracing::warn!(
                    error = chain(&error),
                    "the wire parser does not follow interfaces that come later any more"
                );
                // Where it is attached it stays.
                self.interfaces_followed = false;
            }
        }
    }

    fn drain(&mut self, limit: usize, inputs: &mut Vec<Input>) -> Result<bool, SourceError> {
        let mut taken = 0;
        while taken < limit {
            let record = match self.pending.pop_front() {
                Some(record) => Ok(record),
                None => match self.events.get_mut().next() {
                    Some(item) => Record::decode(&item),
                    None => break,
                },
            };
            taken += 1;
            match record {
                Ok(record) => self.hand_on(&record, inputs),
                Err(error) => {
                    self.rejected += 1;
                    tracing::debug!(%error, "record refused");
                }
            }
        }
        self.more = taken == limit;
        self.tell_losses(inputs);
        self.debug_log.flush();
        Ok(self.more)
    }

    fn discover(&mut self, inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        self.pass(SAMPLE_ALL, "finding the connections that exist")?;
        let (snapshots, rest) = decode_snapshots(&self.written);
        for found in snapshots {
            if found.state == TCP_LISTEN {
                tracing::debug!(port = found.flow.local_port, "listening");
                continue;
            }
            self.clock.observe(found.jiffies, Timestamp::from_ns(found.time_ns));
            if found.adopted != 0 && !self.listening.is_own_port(found.flow.local_port) {
                match convert::snapshot(self.clock, &found) {
                    Ok(taken) => {
                        inputs.extend(self.found(&found, taken));
                    }
                    Err(rejection) => tracing::warn!(%rejection, "a connection that exists cannot be read"),
                }
            }
        }
        note_rest(rest);
        Ok(())
    }

    fn sample(&mut self, inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        let began_at = clock::now();
        self.pass(SAMPLE_TRACKED, "sampling the tracked connections")?;
        let (snapshots, rest) = decode_snapshots(&self.written);
        let must_find = std::mem::take(&mut self.must_find);
        for found in snapshots.filter(|found| !self.listening.is_own_port(found.flow.local_port)) {
            self.clock.observe(found.jiffies, Timestamp::from_ns(found.time_ns));
            match convert::snapshot(self.clock, &found) {
                Ok(taken) if must_find && taken.state == TcpState::Established => {
                    inputs.extend(self.found(&found, taken));
                }
                Ok(taken) => inputs.push(Input::Sample(taken)),
                Err(rejection) => tracing::warn!(%rejection, "a sample cannot be read"),
            }
        }
        note_rest(rest);
        inputs.push(Input::SamplingDone { began_at, at: clock::now() });
        Ok(())
    }

    fn can_sample(&mut self) -> bool {
        self.counters.get(&Counter::RecordsSent.number(), 0).is_ok()
            && loader::pass(&mut self.ebpf, SAMPLE_TRACKED, &mut self.written).is_ok()
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters {
            records_sent: self.counter(Counter::RecordsSent),
            records_dropped: self.counter(Counter::RecordsDropped),
            records_seen: self.seen,
            records_rejected: self.rejected,
            flows_rejected: self.counter(Counter::FlowsRejected),
            wire_control_frames: self
                .counter(Counter::WireControlFrames)
                .saturating_sub(self.self_test_frames),
            wire_text_frames: self.counter(Counter::WireTextFrames),
            wire_text_matches: self.counter(Counter::WireTextMatches),
            text_frames_seen: self.heartbeats.counters().seen,
            text_frames_refused: self.heartbeats.counters().refused,
            wire_losses: self.counter(Counter::WireLosses),
            wire_recoveries: self.counter(Counter::WireRecoveries),
            sampler_passes: self.sampler_passes,
        }
    }
}

/// A pass writes whole snapshots; anything else is a fault worth a line.
fn note_rest(rest: usize) {
    if rest != 0 {
        tracing::warn!(bytes = rest, "a pass of the sampler ended in the middle of a snapshot");
    }
}
