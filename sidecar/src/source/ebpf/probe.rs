//! What this kernel and these privileges allow, found by trying.

use std::io;

use super::{
    EbpfOptions,
    error::{LoadError, MissingKind, chain, lockdown_forbids, missing_capabilities},
    interfaces::Interfaces,
    kernel_types::KernelTypes,
    loader::{Hook, PROGRAMS, Prepared, ProgramSpec, SAMPLE_TRACKED, pass, prepare},
    object,
    selftest::{self, SelfTest, Stage},
};
use crate::source::Ports;

/// What came of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It works.
    Works,
    /// It does not.
    Missing {
        /// Why.
        reason: String,
        /// What to do about it.
        fix: String,
        /// Whether whoever deploys can grant it.
        kind: MissingKind,
    },
    /// Something before it failed, so it was not tried.
    NotTried {
        /// What failed.
        after: &'static str,
        /// What kind of thing that was.
        kind: MissingKind,
    },
}

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What was tried.
    pub thing: &'static str,
    /// Whether `ackbeat run` needs it in the mode with kernel programs.
    pub required: bool,
    /// What came of it.
    pub outcome: Outcome,
}

impl Probe {
    fn new(thing: &'static str, required: bool, outcome: Outcome) -> Self {
        Self { thing, required, outcome }
    }
}

const OBJECT: &str = "kernel programs in this build";
const CAPABILITIES: &str = "capabilities";
const LOCKDOWN: &str = "kernel lockdown";
const TYPES: &str = "kernel types (BTF)";
const MAPS: &str = "maps and ring buffer";
const WIRE: &str = "wire parser on the interfaces (TCX or clsact)";
const SELF_TEST: &str = "self-test: a connection over the loopback interface is seen by every hook";

/// Tries everything that the mode with kernel programs needs, and undoes it. Nothing is watched.
#[must_use]
pub fn probe() -> Vec<Probe> {
    let mut probes =
        vec![Probe::new(CAPABILITIES, true, capabilities()), Probe::new(LOCKDOWN, true, lockdown())];
    let object = object::embedded().ok_or(LoadError::NoObject);
    probes.push(Probe::new(OBJECT, true, outcome(object.as_ref().map(|_| ()))));
    let types = KernelTypes::of_running_kernel();
    probes.push(Probe::new(TYPES, true, outcome(types.as_ref().map(|_| ()))));
    let (object, types) = match (object, types) {
        (Ok(object), Ok(types)) => (object, types),
        (Err(error), _) => return without(probes, OBJECT, error.kind()),
        (_, Err(error)) => return without(probes, TYPES, error.kind()),
    };
    // Listed with no port: programs that are attached for a moment see nothing but the self-test.
    let options = EbpfOptions { ring_bytes: 1 << 16, ..EbpfOptions::new(Ports::Listed(Vec::new())) };
    match prepare(object, &types, &options) {
        Err(error) => {
            probes.push(Probe::new(MAPS, true, outcome(Err(&error))));
            not_tried(&mut probes, MAPS, error.kind());
        }
        Ok(mut prepared) => {
            probes.push(Probe::new(MAPS, true, Outcome::Works));
            let stage = Stage::bind();
            for spec in PROGRAMS {
                let tried = try_program(&mut prepared, spec);
                probes.push(Probe::new(spec.name, spec.required, outcome(tried.as_ref().copied())));
            }
            let (wire, seen) = try_wire(&mut prepared, stage);
            probes.push(Probe::new(WIRE, false, wire));
            // Without what it tests it would only say the same again.
            let is_complete = probes.iter().all(|probe| probe.outcome == Outcome::Works);
            let seen = if is_complete {
                seen
            } else {
                Outcome::NotTried { after: "what is missing", kind: MissingKind::Feature }
            };
            probes.push(Probe::new(SELF_TEST, false, seen));
        }
    }
    probes
}

/// The probes, where nothing could be made.
fn without(mut probes: Vec<Probe>, after: &'static str, kind: MissingKind) -> Vec<Probe> {
    probes.push(Probe::new(MAPS, true, Outcome::NotTried { after, kind }));
    not_tried(&mut probes, after, kind);
    probes
}

fn not_tried(probes: &mut Vec<Probe>, after: &'static str, kind: MissingKind) {
    probes
        .extend(PROGRAMS.map(|spec| Probe::new(spec.name, spec.required, Outcome::NotTried { after, kind })));
    probes.push(Probe::new(WIRE, false, Outcome::NotTried { after, kind }));
    probes.push(Probe::new(SELF_TEST, false, Outcome::NotTried { after, kind }));
}

/// Attaches the wire parser, and runs the self-test while everything is attached.
fn try_wire(prepared: &mut Prepared, stage: io::Result<Stage>) -> (Outcome, Outcome) {
    let missing = |reason: String| {
        let lacking = missing_capabilities();
        let fix = if lacking.is_empty() {
            "see the reason; until then heartbeats are unknown and kernel evidence alone is used".to_owned()
        } else {
            format!("add {} to the container's securityContext.capabilities.add", lacking.join(", "))
        };
        // Nothing depends on it, so it does not decide whether a privilege is missing.
        let kind = if lacking.is_empty() { MissingKind::Feature } else { MissingKind::Privilege };
        Outcome::Missing { reason, fix, kind }
    };
    // The news of interfaces come over a socket that a runtime watches; one that is never run is enough here.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let outcome = missing(chain(&error));
            return (outcome.clone(), outcome);
        }
    };
    let entered = runtime.enter();
    let interfaces = Interfaces::attach(&mut prepared.ebpf, &[]);
    let has_wire = interfaces.as_ref().is_ok_and(Interfaces::has_loopback);
    let seen = test(prepared, stage, has_wire);
    let outcome = match interfaces {
        Ok(_detached_at_once) => Outcome::Works,
        Err(error) => missing(chain(&error)),
    };
    drop(entered);
    runtime.shutdown_background();
    (outcome, seen)
}

fn test(prepared: &mut Prepared, stage: io::Result<Stage>, has_wire: bool) -> Outcome {
    let missing = |reason: String, fix: &str| Outcome::Missing {
        reason,
        fix: fix.to_owned(),
        kind: MissingKind::Feature,
    };
    let stage = match stage {
        Ok(stage) => stage,
        Err(error) => {
            return missing(
                format!("nothing can listen on the loopback interface: {error}"),
                "let the loopback interface be up",
            );
        }
    };
    let ready = prepared.watch(stage.port(), true).and_then(|()| prepared.take_events());
    let mut events = match ready {
        Ok(events) => events,
        Err(error) => return outcome(Err(&error)),
    };
    let (found, _reading) = selftest::run(stage, &mut events, has_wire, |written| {
        pass(&mut prepared.ebpf, SAMPLE_TRACKED, written)
    });
    match found {
        SelfTest::Ran { blind } if blind.is_empty() => Outcome::Works,
        SelfTest::Ran { blind } => {
            missing(format!("{} saw nothing of it", blind.join(", ")), "report the kernel version")
        }
        SelfTest::NotRun { reason } => {
            missing(reason, "let the loopback interface pass traffic; until then nothing is proven")
        }
    }
}

fn try_program(prepared: &mut Prepared, spec: ProgramSpec) -> Result<(), LoadError> {
    prepared.start(spec)?;
    match spec.hook {
        Hook::Tracepoint(_) => Ok(()),
        Hook::Iterator(_) => pass(&mut prepared.ebpf, spec.name, &mut Vec::new()),
    }
}

fn outcome(result: Result<(), &LoadError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Works,
        Err(error) => {
            let reason = match error {
                LoadError::Program { cause, step, .. } => format!("{step} failed: {cause}"),
                LoadError::Types { cause, .. } | LoadError::Preparation { cause, .. } => cause.clone(),
                error => error.to_string(),
            };
            Outcome::Missing { reason, fix: error.fix().to_owned(), kind: error.kind() }
        }
    }
}

fn capabilities() -> Outcome {
    let missing = missing_capabilities();
    if missing.is_empty() {
        return Outcome::Works;
    }
    let names = missing.join(", ");
    Outcome::Missing {
        reason: format!("this process lacks {names}"),
        fix: format!("add {names} to the container's securityContext.capabilities.add"),
        kind: MissingKind::Privilege,
    }
}

fn lockdown() -> Outcome {
    if lockdown_forbids() {
        return Outcome::Missing {
            reason: "the kernel is locked down for confidentiality".to_owned(),
            fix: "boot without lockdown=confidentiality".to_owned(),
            kind: MissingKind::Privilege,
        };
    }
    Outcome::Works
}
