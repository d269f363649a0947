//! Why the kernel programs did not start, and what to do about it.

use std::{fmt, fs, io};

use aya::{EbpfError, maps::MapError, programs::ProgramError};

/// A signal that this kernel, or these privileges, do not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSignal {
    /// The signal, as a stable word.
    pub signal: &'static str,
    /// Why it is missing.
    pub reason: String,
    /// What to do about it.
    pub fix: String,
}

impl fmt::Display for MissingSignal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}; {}", self.signal, self.reason, self.fix)
    }
}

/// What was done with a program when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was looked for in the object.
    Find,
    /// The kernel was asked to load it.
    Load,
    /// It was attached to its hook.
    Attach,
    /// Its output was read.
    Read,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Find => "finding it in the object",
            Self::Load => "loading",
            Self::Attach => "attaching",
            Self::Read => "reading its output",
        })
    }
}

/// What kind of thing is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingKind {
    /// A privilege that whoever deploys can grant: a capability, or what withholds it from a process that has it (a user
    /// namespace, a seccomp profile, a security module, kernel lockdown).
    Privilege,
    /// Something that this kernel, or this build, does not have.
    Feature,
}

impl MissingKind {
    /// The kernel answers EPERM and EACCES to who may not, and something else to what it cannot.
    pub(super) fn of(error: Option<&io::Error>) -> Self {
        match error.and_then(io::Error::raw_os_error) {
            Some(libc::EPERM | libc::EACCES) => Self::Privilege,
            _ => Self::Feature,
        }
    }
}

/// A source of evidence did not start.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The build embedded no kernel programs.
    #[error(
        "this build of ackbeat carries no kernel programs; run `cargo xtask build`, which builds and embeds them"
    )]
    NoObject,
    /// The object was built for another version of the contract.
    #[error(
        "the kernel programs speak version {found} of the contract, this sidecar {expected}; run `cargo xtask build`"
    )]
    OtherAbi {
        /// The object's version.
        found: u32,
        /// This sidecar's version.
        expected: u32,
    },
    /// The running kernel's types could not be read.
    #[error("reading the kernel's type information failed: {cause}; {fix}")]
    Types {
        /// Why.
        cause: String,
        /// What to do about it.
        fix: String,
        /// Whether whoever deploys can grant what is missing.
        kind: MissingKind,
    },
    /// Something that is not a program of its own: the object, a map, the network namespace, the reader.
    #[error("{step} failed: {cause}; {fix}")]
    Preparation {
        /// The step, as a noun phrase.
        step: &'static str,
        /// Why.
        cause: String,
        /// What to do about it.
        fix: String,
        /// Whether whoever deploys can grant what is missing.
        kind: MissingKind,
    },
    /// One kernel program.
    #[error("kernel program {program}: {step} failed: {cause}; {fix}{}", log_suffix(verifier_log.as_deref()))]
    Program {
        /// The program.
        program: &'static str,
        /// The step.
        step: Step,
        /// Why.
        cause: String,
        /// What to do about it.
        fix: String,
        /// Whether whoever deploys can grant what is missing.
        kind: MissingKind,
        /// End of the verifier's log, where the kernel refused the program itself.
        verifier_log: Option<String>,
    },
    /// A program that nothing works without is attached, and saw nothing of a connection made for it.
    #[error(
        "kernel program {program} is attached but did not see a connection on the loopback interface; \
         check that ackbeat runs in the pod's network namespace, and report the kernel version"
    )]
    Blind {
        /// The program.
        program: &'static str,
    },
}

impl LoadError {
    /// What to do about it.
    #[must_use]
    pub fn fix(&self) -> &str {
        match self {
            Self::NoObject | Self::OtherAbi { .. } => "run `cargo xtask build`",
            Self::Types { fix, .. } | Self::Preparation { fix, .. } | Self::Program { fix, .. } => fix,
            Self::Blind { .. } => "check that ackbeat runs in the pod's network namespace",
        }
    }

    /// Whether whoever deploys can grant what is missing, or nobody can.
    #[must_use]
    pub const fn kind(&self) -> MissingKind {
        match self {
            Self::Types { kind, .. } | Self::Preparation { kind, .. } | Self::Program { kind, .. } => *kind,
            Self::NoObject | Self::OtherAbi { .. } | Self::Blind { .. } => MissingKind::Feature,
        }
    }

    /// A failed step that is not about one program.
    pub(super) fn preparation(step: &'static str, cause: &(dyn std::error::Error + 'static)) -> Self {
        let io_error = io_error_of(cause);
        Self::Preparation {
            step,
            fix: fix_for(io_error),
            kind: MissingKind::of(io_error),
            cause: chain(cause),
        }
    }

    /// The object's maps could not be made.
    pub(super) fn maps(cause: &EbpfError) -> Self {
        let mut error = Self::preparation("making the kernel programs' maps", cause);
        // Which map is tried first changes from run to run, and all of them are refused alike.
        if let (
            Self::Preparation { cause, .. },
            EbpfError::MapError(MapError::CreateError { io_error, .. }),
        ) = (&mut error, cause)
        {
            *cause = format!("the kernel refused to make a map: {io_error}");
        }
        error
    }

    /// A failed step of one program.
    pub(super) fn program(program: &'static str, step: Step, cause: &ProgramError) -> Self {
        let verifier_log = match cause {
            ProgramError::LoadError { verifier_log, .. } => tail(&verifier_log.to_string()),
            _ => None,
        };
        let text = match cause {
            ProgramError::LoadError { io_error, .. } => format!("the kernel refused it: {io_error}"),
            ProgramError::Btf(error) => format!("{error}: this kernel does not have the hook"),
            other => chain(other),
        };
        let fix = match cause {
            ProgramError::LoadError { io_error, .. } if io_error.raw_os_error() != Some(libc::EPERM) => {
                "report the kernel version and the verifier's log".to_owned()
            }
            ProgramError::Btf(_) => "use a newer kernel; see the table of kernels in the README".to_owned(),
            // Transparent for its cause, so that a walk over the causes does not meet it.
            ProgramError::IOError(io_error) => fix_for(Some(io_error)),
            other => fix_for(io_error_of(other)),
        };
        let kind = match cause {
            ProgramError::LoadError { io_error, .. } => of_refusal(io_error, verifier_log.is_some()),
            ProgramError::IOError(io_error) => MissingKind::of(Some(io_error)),
            other => MissingKind::of(io_error_of(other)),
        };
        Self::Program { program, step, cause: text, fix, kind, verifier_log }
    }
}

/// Whether a program was refused to this process, or by the verifier, which says EACCES too but leaves a log.
fn of_refusal(error: &io::Error, has_log: bool) -> MissingKind {
    if has_log && error.raw_os_error() != Some(libc::EPERM) {
        return MissingKind::Feature;
    }
    MissingKind::of(Some(error))
}

/// Lines of the verifier's log that are shown: the refusal stands at its end.
const LOG_TAIL_LINES: usize = 12;

fn tail(log: &str) -> Option<String> {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let start = lines.len().saturating_sub(LOG_TAIL_LINES);
    (!lines.is_empty()).then(|| lines[start..].join("\n"))
}

fn log_suffix(log: Option<&str>) -> String {
    log.map(|log| format!("\nend of the verifier's log:\n{log}")).unwrap_or_default()
}

/// An error and its causes, joined; a cause that the error repeats already is left out.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

fn io_error_of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(found) = next {
        if let Some(io_error) = found.downcast_ref::<io::Error>() {
            return Some(io_error);
        }
        next = found.source();
    }
    None
}

/// What to do about a refusal of `bpf(2)`.
fn fix_for(error: Option<&io::Error>) -> String {
    match error.and_then(io::Error::raw_os_error) {
        Some(libc::EPERM | libc::EACCES) => permission_fix(),
        Some(libc::ENOSYS) => {
            "use a kernel with CONFIG_BPF_SYSCALL=y, or allow bpf(2) in the seccomp profile".to_owned()
        }
        Some(libc::ENOMEM) => "raise the container's memory limit".to_owned(),
        Some(libc::EINVAL) => "use a newer kernel; see the table of kernels in the README".to_owned(),
        _ => "report this message and the kernel version".to_owned(),
    }
}

fn permission_fix() -> String {
    let missing = missing_capabilities();
    if !missing.is_empty() {
        return format!("add the missing capabilities to the container: {}", missing.join(", "));
    }
    if in_user_namespace() {
        return format!(
            "the capabilities are those of a user namespace ({UID_MAP} is not the full identity map), and bpf(2) asks for \
             them in the initial one: run it outside (Kubernetes: hostUsers: true; no rootless container runtime)"
        );
    }
    if lockdown_forbids() {
        return "the kernel is locked down for confidentiality, which forbids this; boot without lockdown=confidentiality"
            .to_owned();
    }
    "all capabilities are there: let the seccomp profile or the security module (AppArmor, SELinux) allow bpf(2)"
        .to_owned()
}

/// How user ids of this process's user namespace map to those of the parent (user_namespaces(7)).
const UID_MAP: &str = "/proc/self/uid_map";

/// Whether this process is in a user namespace other than the initial one. What cannot be read says nothing.
fn in_user_namespace() -> bool {
    fs::read_to_string(UID_MAP).is_ok_and(|text| !is_identity_map(&text))
}

/// `0 0 4294967295`: every id is itself, as in the initial user namespace.
fn is_identity_map(text: &str) -> bool {
    text.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether the kernel is locked down so far that programs may not read kernel memory.
pub(super) fn lockdown_forbids() -> bool {
    fs::read_to_string("/sys/kernel/security/lockdown").is_ok_and(|text| text.contains("[confidentiality]"))
}

/// Capabilities that are needed, with their numbers (`include/uapi/linux/capability.h`).
const CAPABILITIES: [(&str, u32); 3] = [("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];
/// Implies the two newer ones.
const CAP_SYS_ADMIN: u32 = 21;

/// The capabilities that this process lacks.
#[must_use]
pub fn missing_capabilities() -> Vec<&'static str> {
    let Some(effective) = effective_capabilities() else { return Vec::new() };
    missing_from(effective)
}

fn missing_from(effective: u64) -> Vec<&'static str> {
    let has = |number: u32| effective >> number & 1 == 1;
    CAPABILITIES
        .into_iter()
        .filter(|(name, number)| !has(*number) && (*name == "CAP_NET_ADMIN" || !has(CAP_SYS_ADMIN)))
        .map(|(name, _)| name)
        .collect()
}

fn effective_capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_are_missing_are_named() {
        assert_eq!(missing_from(0), ["CAP_NET_ADMIN", "CAP_PERFMON", "CAP_BPF"]);
        assert_eq!(missing_from(1 << 12 | 1 << 38 | 1 << 39), Vec::<&str>::new());
        assert_eq!(missing_from(1 << CAP_SYS_ADMIN), ["CAP_NET_ADMIN"]);
        assert_eq!(missing_from(1 << 12 | 1 << 39), ["CAP_PERFMON"]);
    }

    #[test]
    fn the_initial_user_namespace_maps_every_id_to_itself() {
        assert!(is_identity_map("         0          0 4294967295\n"));
        assert!(!is_identity_map("         0       1000          1\n"));
        assert!(!is_identity_map("0 0 1000\n1000 1001 64536\n"));
        assert!(!is_identity_map(""));
    }

    #[test]
    fn a_refusal_is_a_privilege_and_an_inability_is_a_feature() {
        let os_error = io::Error::from_raw_os_error;
        for (errno, kind) in [
            (libc::EPERM, MissingKind::Privilege),
            (libc::EACCES, MissingKind::Privilege),
            (libc::ENOSYS, MissingKind::Feature),
            (libc::EINVAL, MissingKind::Feature),
            (libc::ENOENT, MissingKind::Feature),
        ] {
            let program = ProgramError::IOError(os_error(errno));
            assert_eq!(LoadError::program("lifecycle", Step::Load, &program).kind(), kind, "{errno}");
            assert_eq!(LoadError::preparation("opening", &os_error(errno)).kind(), kind, "{errno}");
            let map = |name: &str| {
                LoadError::maps(&EbpfError::MapError(MapError::CreateError {
                    name: name.to_owned(),
                    io_error: os_error(errno),
                }))
            };
            assert_eq!(map("FLOWS").kind(), kind, "{errno}");
            assert_eq!(map("FLOWS").to_string(), map("EVENTS").to_string(), "it is the same from run to run");
        }
        assert_eq!(LoadError::NoObject.kind(), MissingKind::Feature);
    }

    #[test]
    fn what_the_verifier_refuses_is_no_privilege() {
        let refusal = |errno, has_log| of_refusal(&io::Error::from_raw_os_error(errno), has_log);
        assert_eq!(refusal(libc::EACCES, true), MissingKind::Feature);
        assert_eq!(refusal(libc::EINVAL, true), MissingKind::Feature);
        assert_eq!(refusal(libc::EACCES, false), MissingKind::Privilege);
        // What a process may not (reading kernel memory, say) is refused with EPERM, with or without a log.
        assert_eq!(refusal(libc::EPERM, true), MissingKind::Privilege);
        assert_eq!(refusal(libc::EPERM, false), MissingKind::Privilege);
    }

    #[test]
    fn the_end_of_a_long_log_is_kept() {
        let log: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let kept = tail(&log).unwrap();
        assert!(kept.starts_with("line 88") && kept.ends_with("line 99"));
        assert_eq!(tail("\n\n"), None);
    }

    #[test]
    fn a_message_names_program_step_cause_and_fix() {
        let cause = ProgramError::IOError(io::Error::from_raw_os_error(libc::ENOSYS));
        let message = LoadError::program("lifecycle", Step::Load, &cause).to_string();
        assert!(message.starts_with("kernel program lifecycle: loading failed: "), "{message}");
        assert!(message.contains("CONFIG_BPF_SYSCALL"), "{message}");
    }
}
