//! Loads and attaches the kernel programs, each by itself, so that one that fails is one signal that is missing.

use std::{
    fs,
    io::{self, ErrorKind, Read},
    os::unix::fs::MetadataExt,
};

use ackbeat_abi::{ABI_VERSION, WATCHED_PORT_WORDS};
use aya::{
    Btf, Ebpf, EbpfError, EbpfLoader,
    maps::{Array, MapData, MapError, PerCpuArray, RingBuf},
    programs::{BtfTracePoint, Iter, Program, ProgramError, links::LinkError},
};

use super::{
    debug_log,
    error::{LoadError, MissingKind, Step},
    kernel_types::KernelTypes,
    object::names,
};
use std::sync::Arc;

use crate::heartbeat::Selection;
use crate::listening::Standings;
use crate::source::Ports;

/// How the kernel programs are set up.
#[derive(Clone, Debug)]
pub struct EbpfOptions {
    /// Which local ports are watched.
    pub ports: Ports,
    /// What ackbeat itself listens on: nobody's connections.
    pub listening: Arc<Standings>,
    /// Which text heartbeats are looked for.
    pub heartbeats: Selection,
    /// Size of the ring buffer in bytes; rounded up to a power of two pages.
    pub ring_bytes: u32,
    /// Connections that can be tracked at once. Memory is taken as they come.
    pub flows_max: u32,
    /// Programs that are loaded and not attached, by name: so tests see what becomes of a hook that is blind.
    pub unattached: Vec<String>,
}

impl EbpfOptions {
    /// The defaults, for these ports: 4 MiB of ring hold 18,000 transitions, 65,536 flows are as many as one port of one
    /// peer can make.
    #[must_use]
    pub fn new(ports: Ports) -> Self {
        Self {
            ports,
            listening: Arc::default(),
            heartbeats: Selection::off(),
            ring_bytes: 4 << 20,
            flows_max: 65_536,
            unattached: Vec::new(),
        }
    }
}

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// A tracepoint with typed arguments (Linux 5.5).
    Tracepoint(&'static str),
    /// An iterator over kernel objects (Linux 5.9 for TCP): attached anew for each pass.
    Iterator(&'static str),
}

/// One kernel program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProgramSpec {
    /// Its name in the object.
    pub(super) name: &'static str,
    /// Where it is attached.
    pub(super) hook: Hook,
    /// The signal that it gives.
    pub(super) signal: &'static str,
    /// Whether nothing works without it.
    pub(super) required: bool,
}

/// The iterator over the tracked connections.
pub(super) const SAMPLE_TRACKED: &str = "sample_tracked";
/// The iterator over listeners and all connections.
pub(super) const SAMPLE_ALL: &str = "sample_all";
/// Opens and closes.
pub(super) const LIFECYCLE: &str = "lifecycle";
/// Resets that this host sends.
pub(super) const SEND_RESET: &str = "send_reset";
/// Resets that the peer sent.
pub(super) const RECEIVE_RESET: &str = "receive_reset";

/// The tracing programs, in the order in which they are attached.
///
/// `lifecycle` comes before the first pass of `sample_all`: a connection that opens in between is seen by one of the two.
pub(super) const PROGRAMS: [ProgramSpec; 7] = [
    ProgramSpec {
        name: "retransmits",
        hook: Hook::Tracepoint("tcp_retransmit_skb"),
        signal: "retransmits",
        required: false,
    },
    ProgramSpec {
        name: SEND_RESET,
        hook: Hook::Tracepoint("tcp_send_reset"),
        signal: "resets_sent",
        required: false,
    },
    ProgramSpec {
        name: RECEIVE_RESET,
        hook: Hook::Tracepoint("tcp_receive_reset"),
        signal: "resets_received",
        required: false,
    },
    ProgramSpec {
        name: "terminations",
        hook: Hook::Tracepoint("signal_generate"),
        signal: "terminations",
        required: false,
    },
    ProgramSpec {
        name: LIFECYCLE,
        hook: Hook::Tracepoint("inet_sock_set_state"),
        signal: "lifecycle",
        required: true,
    },
    ProgramSpec { name: SAMPLE_TRACKED, hook: Hook::Iterator("tcp"), signal: "samples", required: true },
    ProgramSpec { name: SAMPLE_ALL, hook: Hook::Iterator("tcp"), signal: "discovery", required: true },
];

/// The object with its maps made, its programs not loaded yet.
pub(super) struct Prepared {
    /// The object.
    pub(super) ebpf: Ebpf,
    /// The kernel's types, as the loader of programs wants them.
    btf: Btf,
    unattached: Vec<String>,
}

/// Makes the maps and fills in what the programs must know of this kernel.
pub(super) fn prepare(
    object: &[u8],
    types: &KernelTypes,
    options: &EbpfOptions,
) -> Result<Prepared, LoadError> {
    let btf = Btf::from_sys_fs().map_err(|error| LoadError::Types {
        cause: error.to_string(),
        fix: "use a kernel that is built with CONFIG_DEBUG_INFO_BTF=y".to_owned(),
        kind: MissingKind::Feature,
    })?;
    let inode = network_namespace_inode()?;
    let watch_all = u8::from(options.ports == Ports::Listening);
    let has_reason = u8::from(types.send_reset_has_reason);
    let available = types.available();
    let members: Vec<u8> = types
        .members
        .iter()
        .flat_map(|location| {
            [location.offset_bytes, location.width_bytes, location.shift_bits, location.size_bits]
        })
        .flat_map(u32::to_ne_bytes)
        .collect();
    let patterns = options.heartbeats.patterns().map_err(|error| LoadError::Preparation {
        step: "writing the patterns of text heartbeats",
        cause: error.to_string(),
        fix: "name fewer in `heartbeat.profiles`".to_owned(),
        kind: MissingKind::Feature,
    })?;
    let patterns = patterns.to_bytes();
    let log_level = debug_log::level();
    let ebpf = EbpfLoader::new()
        // The programs have no CO-RE relocations (rustc emits none); the places are in `MEMBERS`.
        .btf(None)
        .override_global(names::NETWORK_NAMESPACE_INODE, &inode, true)
        .override_global(names::WATCH_ALL_LISTENERS, &watch_all, true)
        .override_global(names::SEND_RESET_HAS_REASON, &has_reason, true)
        .override_global(names::AVAILABLE, &available, true)
        .override_global(names::MEMBERS, members.as_slice(), true)
        .override_global(names::HEARTBEAT_PATTERNS, patterns.as_slice(), true)
        .override_global(aya_log::LEVEL, &log_level, true)
        .map_max_entries(names::EVENTS, options.ring_bytes)
        .map_max_entries(names::FLOWS, options.flows_max)
        .map_max_entries(names::RETRANSMITS, options.flows_max)
        .load(object)
        .map_err(|error: EbpfError| LoadError::maps(&error))?;
    let mut prepared = Prepared { ebpf, btf, unattached: options.unattached.clone() };
    prepared.check_abi()?;
    if let Ports::Listed(ports) = &options.ports {
        for port in ports {
            prepared.watch(*port, true)?;
        }
    }
    Ok(prepared)
}

impl Prepared {
    fn check_abi(&self) -> Result<(), LoadError> {
        let step = "reading the version of the kernel programs";
        let map = self.ebpf.map(names::ABI_SECTION).ok_or_else(|| missing_map(step, names::ABI_SECTION))?;
        let version: Array<&MapData, u32> =
            map.try_into().map_err(|error: MapError| LoadError::preparation(step, &error))?;
        let found = version.get(&0, 0).map_err(|error| LoadError::preparation(step, &error))?;
        if found == ABI_VERSION { Ok(()) } else { Err(LoadError::OtherAbi { found, expected: ABI_VERSION }) }
    }

    /// Sets or clears a port's bit.
    ///
    /// Only before the programs are attached, or where the programs themselves set none: two writers of one word would
    /// lose bits.
    pub(super) fn watch(&mut self, port: u16, on: bool) -> Result<(), LoadError> {
        let step = "writing the watched ports";
        let map =
            self.ebpf.map_mut(names::WATCHED_PORTS).ok_or_else(|| missing_map(step, names::WATCHED_PORTS))?;
        let mut words: Array<&mut MapData, u64> =
            map.try_into().map_err(|error: MapError| LoadError::preparation(step, &error))?;
        let index = u32::from(port) / 64;
        debug_assert!(index < WATCHED_PORT_WORDS);
        let bit = 1_u64 << (port % 64);
        let word = words.get(&index, 0).map_err(|error| LoadError::preparation(step, &error))?;
        words
            .set(index, if on { word | bit } else { word & !bit }, 0)
            .map_err(|error| LoadError::preparation(step, &error))
    }

    /// Loads a program and attaches it. An iterator is attached by [`pass`].
    pub(super) fn start(&mut self, spec: ProgramSpec) -> Result<(), LoadError> {
        let failed = |step: Step| move |error: ProgramError| LoadError::program(spec.name, step, &error);
        let program = find(&mut self.ebpf, spec.name)?;
        match spec.hook {
            Hook::Tracepoint(tracepoint) => {
                let program: &mut BtfTracePoint = program.try_into().map_err(failed(Step::Find))?;
                program.load(tracepoint, &self.btf).map_err(failed(Step::Load))?;
                if !self.unattached.iter().any(|name| name == spec.name) {
                    program.attach().map_err(failed(Step::Attach))?;
                }
            }
            Hook::Iterator(objects) => {
                let program: &mut Iter = program.try_into().map_err(failed(Step::Find))?;
                program.load(objects, &self.btf).map_err(failed(Step::Load))?;
            }
        }
        Ok(())
    }

    /// The reading end of the ring buffer.
    pub(super) fn take_events(&mut self) -> Result<RingBuf<MapData>, LoadError> {
        let step = "opening the ring buffer";
        let map = self.ebpf.take_map(names::EVENTS).ok_or_else(|| missing_map(step, names::EVENTS))?;
        RingBuf::try_from(map).map_err(|error| LoadError::preparation(step, &error))
    }

    /// The totals.
    pub(super) fn take_counters(&mut self) -> Result<PerCpuArray<MapData, u64>, LoadError> {
        let step = "opening the counters";
        let map = self.ebpf.take_map(names::COUNTERS).ok_or_else(|| missing_map(step, names::COUNTERS))?;
        PerCpuArray::try_from(map).map_err(|error| LoadError::preparation(step, &error))
    }
}

fn find<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Program, LoadError> {
    ebpf.program_mut(name).ok_or_else(|| LoadError::Program {
        program: name,
        step: Step::Find,
        cause: "the object has no program of this name".to_owned(),
        fix: "run `cargo xtask build`".to_owned(),
        kind: MissingKind::Feature,
        verifier_log: None,
    })
}

fn missing_map(step: &'static str, name: &'static str) -> LoadError {
    LoadError::Preparation {
        step,
        cause: format!("the object has no map {name}"),
        fix: "run `cargo xtask build`".to_owned(),
        kind: MissingKind::Feature,
    }
}

/// Inode number of the network namespace that this thread is in.
fn network_namespace_inode() -> Result<u32, LoadError> {
    let step = "reading the network namespace";
    let inode =
        fs::metadata("/proc/thread-self/ns/net").map_err(|error| LoadError::preparation(step, &error))?.ino();
    u32::try_from(inode).map_err(|error| LoadError::preparation(step, &error))
}

/// Bytes that one read of a pass asks for. The kernel gives at most 8 pages at once.
const READ_BYTES: usize = 64 * 1024;

/// Runs an iterator over everything and reads what it wrote, into `output`, which is emptied first.
pub(super) fn pass(ebpf: &mut Ebpf, name: &'static str, output: &mut Vec<u8>) -> Result<(), LoadError> {
    let failed = |step: Step| move |error: ProgramError| LoadError::program(name, step, &error);
    let program: &mut Iter = find(ebpf, name)?.try_into().map_err(failed(Step::Find))?;
    let link = program.attach().map_err(failed(Step::Attach))?;
    let link = program.take_link(link).map_err(failed(Step::Attach))?;
    let mut file = link.into_file().map_err(|error| {
        let cause = match error {
            LinkError::SyscallError(error) => ProgramError::SyscallError(error),
            other => ProgramError::IOError(io::Error::other(other)),
        };
        LoadError::program(name, Step::Attach, &cause)
    })?;
    output.clear();
    loop {
        let filled = output.len();
        output.resize(filled + READ_BYTES, 0);
        let read = file.read(output.get_mut(filled..).unwrap_or_default());
        output.truncate(filled + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // The kernel gives up the processor after a million objects that wrote nothing, and says EAGAIN.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(LoadError::program(name, Step::Read, &ProgramError::IOError(error))),
        }
    }
}
