//! The kernel programs, loaded without the sidecar.

use std::{mem::offset_of, path::PathBuf};

use ackbeat_abi::{Counter, FlowKey, Record, patterns::Patterns};
use ackbeat_wire::state::{DirectionState, FlowState, phase};
use anyhow::{Context, Result, anyhow};
use aya::{
    Ebpf, EbpfLoader, TestRun as _, VerifierLogLevel,
    maps::{Array, HashMap, MapData, PerCpuArray, RingBuf},
    programs::{SchedClassifier, TcAttachType, TestRunOptions},
};

const KEY_BYTES: usize = size_of::<FlowKey>();
const STATE_BYTES: usize = size_of::<FlowState>();

pub(crate) struct Kernel {
    pub(crate) ebpf: Ebpf,
    flows: HashMap<MapData, [u8; KEY_BYTES], [u8; STATE_BYTES]>,
    watched: Array<MapData, u64>,
    events: RingBuf<MapData>,
    counters: PerCpuArray<MapData, u64>,
}

pub(crate) fn object_path() -> PathBuf {
    std::env::var_os("ACKBEAT_EBPF_OBJECT").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/ebpf/ackbeat-ebpf")),
        PathBuf::from,
    )
}

fn key_bytes(flow: &FlowKey) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    bytes[..16].copy_from_slice(&flow.local_address);
    bytes[16..32].copy_from_slice(&flow.peer_address);
    bytes[32..34].copy_from_slice(&flow.local_port.to_ne_bytes());
    bytes[34..36].copy_from_slice(&flow.peer_port.to_ne_bytes());
    bytes
}

impl Kernel {
    /// Loads the wire programs; they look for no text heartbeats.
    pub(crate) fn load() -> Result<Self> {
        Self::load_with(&Patterns::default())
    }

    /// Loads the wire programs; they look for these text heartbeats.
    pub(crate) fn load_with(patterns: &Patterns) -> Result<Self> {
        let path = object_path();
        let mut ebpf = EbpfLoader::new()
            .verifier_log_level(VerifierLogLevel::STATS)
            .override_global("HEARTBEAT_PATTERNS", patterns.to_bytes().as_slice(), true)
            .load_file(&path)
            .with_context(|| format!("BPF object {}: run `cargo xtask build` first", path.display()))?;
        for name in ["wire_ingress", "wire_egress", "wire_ingress_ip", "wire_egress_ip"] {
            let program: &mut SchedClassifier =
                ebpf.program_mut(name).with_context(|| format!("no program {name}"))?.try_into()?;
            program.load().with_context(|| format!("loading {name}"))?;
        }
        let mut take = |name: &str| ebpf.take_map(name).with_context(|| format!("no map {name}"));
        Ok(Self {
            flows: take("FLOWS")?.try_into()?,
            watched: take("WATCHED_PORTS")?.try_into()?,
            events: take("EVENTS")?.try_into()?,
            counters: take("COUNTERS")?.try_into()?,
            ebpf,
        })
    }

    pub(crate) fn watch(&mut self, port: u16) -> Result<()> {
        let word = u32::from(port) / 64;
        let bits = self.watched.get(&word, 0)? | 1 << (port % 64);
        Ok(self.watched.set(word, bits, 0)?)
    }

    /// Tracks a connection that was just established.
    pub(crate) fn open(&mut self, flow: &FlowKey) -> Result<()> {
        Ok(self.flows.insert(key_bytes(flow), [0; STATE_BYTES], 0)?)
    }

    /// Tracks a connection that is older than the programs.
    pub(crate) fn open_midstream(&mut self, flow: &FlowKey) -> Result<()> {
        let mut state = [0; STATE_BYTES];
        let ingress = offset_of!(FlowState, ingress) + offset_of!(DirectionState, phase);
        let egress = offset_of!(FlowState, egress) + offset_of!(DirectionState, phase);
        state[ingress] = phase::MIDSTREAM;
        state[egress] = phase::MIDSTREAM;
        Ok(self.flows.insert(key_bytes(flow), state, 0)?)
    }

    pub(crate) fn close(&mut self, flow: &FlowKey) -> Result<()> {
        Ok(self.flows.remove(&key_bytes(flow))?)
    }

    /// Every test run has a socket of its own, hence another cookie: 0 lets the next one adopt the entry.
    pub(crate) fn forget_cookie(&mut self, flow: &FlowKey) -> Result<()> {
        let key = key_bytes(flow);
        let mut state = self.flows.get(&key, 0)?;
        state[..8].fill(0);
        Ok(self.flows.insert(key, state, 0)?)
    }

    /// Says that the send queue was empty at the last sample.
    pub(crate) fn set_quiet(&mut self, flow: &FlowKey) -> Result<()> {
        let key = key_bytes(flow);
        let mut state = self.flows.get(&key, 0)?;
        state[offset_of!(FlowState, quiet)] = 1;
        Ok(self.flows.insert(key, state, 0)?)
    }

    /// Runs a program on a packet; gives the program's time in nanoseconds, the mean of `repeat` runs.
    pub(crate) fn run(&self, program: &str, packet: &[u8], repeat: u32) -> Result<u64> {
        let program: &SchedClassifier =
            self.ebpf.program(program).with_context(|| format!("no program {program}"))?.try_into()?;
        let result =
            program.test_run(TestRunOptions { data_in: Some(packet), repeat, ..TestRunOptions::new() })?;
        if result.return_value.cast_signed() != -1 {
            return Err(anyhow!("the program decides about the packet: {}", result.return_value));
        }
        Ok(u64::try_from(result.duration.as_nanos())?)
    }

    /// Attaches the programs to an interface of the calling thread's network namespace, for as long as this lives.
    pub(crate) fn attach(&mut self, interface: &str) -> Result<()> {
        for (name, hook) in [("wire_ingress", TcAttachType::Ingress), ("wire_egress", TcAttachType::Egress)] {
            let program: &mut SchedClassifier =
                self.ebpf.program_mut(name).with_context(|| format!("no program {name}"))?.try_into()?;
            program.attach(interface, hook).with_context(|| format!("attaching {name} to {interface}"))?;
        }
        Ok(())
    }

    /// Instructions that the verifier looked at (at most a million).
    pub(crate) fn verified_instructions(&self, program: &str) -> Result<Option<u32>> {
        let program: &SchedClassifier =
            self.ebpf.program(program).with_context(|| format!("no program {program}"))?.try_into()?;
        Ok(program.info()?.verified_instruction_count())
    }

    /// Total run time in nanoseconds and number of runs, while statistics are on.
    pub(crate) fn statistics(&self, program: &str) -> Result<(u64, u64)> {
        let program: &SchedClassifier =
            self.ebpf.program(program).with_context(|| format!("no program {program}"))?.try_into()?;
        let info = program.info()?;
        Ok((u64::try_from(info.run_time().as_nanos())?, info.run_count()))
    }

    /// Takes the records that are there.
    pub(crate) fn records(&mut self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        while let Some(item) = self.events.next() {
            records.push(Record::decode(&item)?);
        }
        Ok(records)
    }

    pub(crate) fn counter(&self, counter: Counter) -> Result<u64> {
        Ok(self.counters.get(&counter.number(), 0)?.iter().sum())
    }
}
