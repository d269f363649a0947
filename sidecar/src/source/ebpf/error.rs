//! Why the kernel programs did not start, and what to do about it.

use std::{fmt, fs, io};

use aya::programs::ProgramError;

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

    /// A failed step that is not about one program.
    pub(super) fn preparation(step: &'static str, cause: &(dyn std::error::Error + 'static)) -> Self {
        Self::Preparation { step, fix: fix_for(io_error_of(cause)), cause: chain(cause) }
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
        Self::Program { program, step, cause: text, fix, verifier_log }
    }
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
    if lockdown_forbids() {
        return "the kernel is locked down for confidentiality, which forbids this; boot without lockdown=confidentiality"
            .to_owned();
    }
    "all capabilities are there: let the seccomp profile or the security module (AppArmor, SELinux) allow bpf(2)"
        .to_owned()
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
