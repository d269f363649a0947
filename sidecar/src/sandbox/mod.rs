//! What the sidecar gives up, for the day that somebody finds a way into it.
//!
//! In three steps:
//! 1. Before there is a second thread: `no_new_privs`, a seccomp filter ([`system_calls`]), and empty inheritable, ambient
//!    and bounding sets. Threads inherit all of it.
//! 2. Threads that read what others send, those of the API and of the exporters among them, have no capability at all.
//! 3. When everything is attached, the thread that drives keeps only what sampling needs, found by trying, and no thread
//!    can load a kernel program any more.
//!
//! Landlock is not used: a process that is confined by it may not look at another one's `/proc/PID/fd`
//! (`hook_ptrace_access_check`, security/landlock), and the census finds the owners of sockets there.

pub mod capabilities;
mod system_calls;

use caps::Capability;
use tracing::{info, warn};

/// What the census' thread needs: others' `/proc/PID/fd`.
const OF_CENSUS: [Capability; 2] = [Capability::CAP_SYS_PTRACE, Capability::CAP_DAC_READ_SEARCH];
/// What destroys a socket.
const OF_REAPING: Capability = Capability::CAP_NET_ADMIN;
/// What the recording's thread needs where its folder is another user's.
pub const OF_RECORDING: [Capability; 1] = [Capability::CAP_DAC_OVERRIDE];

/// What the census' thread keeps.
#[must_use]
pub fn of_census(reaps: bool) -> Vec<Capability> {
    OF_CENSUS.into_iter().chain(reaps.then_some(OF_REAPING)).collect()
}

/// What is in force. Where something could not be, the sidecar goes on and says so.
#[derive(Debug, Default)]
pub struct Sandbox {
    is_on: bool,
    has_filter: bool,
    problems: Vec<String>,
}

impl Sandbox {
    /// Nothing is given up.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Takes the first step. It must be called while there is no other thread: only those that this one starts inherit
    /// it.
    #[must_use]
    pub fn enter() -> Self {
        let mut sandbox = Self { is_on: true, ..Self::default() };
        sandbox.problems.extend(capabilities::give_up_inheritance().err());
        if let Err(error) = nix::sys::prctl::set_no_new_privs() {
            sandbox.problems.push(format!("no_new_privs cannot be set: {error}"));
        }
        match system_calls::confine_from_the_start() {
            Ok(()) => sandbox.has_filter = true,
            Err(error) => sandbox.problems.push(error.to_string()),
        }
        sandbox
    }

    /// Whether the kernel takes the filter, tried on a thread that ends.
    ///
    /// # Errors
    /// Why it does not.
    pub fn probe() -> Result<(), String> {
        std::thread::spawn(|| system_calls::confine_from_the_start().map_err(|error| error.to_string()))
            .join()
            .unwrap_or_else(|_| Err("the thread that tried it panicked".to_owned()))
    }

    /// What each thread of the runtime does first.
    pub fn on_thread_start(&self) -> impl Fn() + Send + Sync + 'static {
        let is_on = self.is_on;
        move || {
            if is_on && let Err(error) = capabilities::give_up_all_but(&[]) {
                warn!("a thread of the runtime keeps its capabilities: {error}");
            }
        }
    }

    /// Calls `start` on a thread with none but these capabilities; threads that it starts have no others either.
    pub fn start_with<T: Send>(&self, keep: &[Capability], start: impl FnOnce() -> T + Send) -> T {
        if !self.is_on {
            return start();
        }
        std::thread::scope(|scope| {
            let started = scope.spawn(|| {
                if let Err(error) = capabilities::give_up_all_but(keep) {
                    warn!("a thread keeps its capabilities: {error}");
                }
                start()
            });
            started.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Takes the last step, on the thread that drives, and says in the log what is in force. `can_sample` says whether
    /// everything that the source does again and again works with the capabilities of that moment.
    pub fn settle(&self, uses_programs: bool, can_sample: impl FnMut() -> bool) {
        if !self.is_on {
            info!("the sandbox is off (security.sandbox): every capability is kept");
            return;
        }
        let mut problems = self.problems.clone();
        let kept = match least(uses_programs, can_sample).map(capabilities::give_up_all_but) {
            Some(Ok(kept)) => capabilities::names(&kept),
            refused => {
                problems.push(match refused {
                    Some(Err(error)) => format!("capabilities cannot be given up: {error}"),
                    _ => "sampling does not work with fewer capabilities".to_owned(),
                });
                problems.extend(capabilities::use_all().err().map(|error| error.to_string()));
                "all".to_owned()
            }
        };
        if self.has_filter
            && let Err(error) = system_calls::confine_bpf(uses_programs)
        {
            problems.push(error.to_string());
        }
        for problem in &problems {
            warn!("the sandbox is not complete: {problem}");
        }
        info!(capabilities = kept, seccomp = self.has_filter, "the sandbox is in force");
    }
}

/// Capabilities for sampling, fewest first. New interfaces are attached to with `CAP_NET_ADMIN`. Whether bpf(2) on what is
/// open already asks for `CAP_BPF`, or for `CAP_SYS_ADMIN` where that stands for it, depends on the kernel and on
/// `kernel.unprivileged_bpf_disabled`.
const FOR_PROGRAMS: [&[Capability]; 4] = [
    &[Capability::CAP_NET_ADMIN],
    &[Capability::CAP_NET_ADMIN, Capability::CAP_BPF],
    &[Capability::CAP_NET_ADMIN, Capability::CAP_BPF, Capability::CAP_PERFMON],
    &[Capability::CAP_NET_ADMIN, Capability::CAP_SYS_ADMIN],
];

/// The fewest capabilities with which sampling works; `None` if it works with none of [`FOR_PROGRAMS`].
fn least(uses_programs: bool, mut can_sample: impl FnMut() -> bool) -> Option<&'static [Capability]> {
    if !uses_programs {
        return Some(&[]);
    }
    FOR_PROGRAMS.into_iter().find(|keep| capabilities::use_only(keep).is_ok() && can_sample())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn works_with(capability: Capability) -> impl FnMut() -> bool {
        move || caps::has_cap(None, caps::CapSet::Effective, capability).unwrap()
    }

    #[test]
    fn the_fewest_capabilities_are_found_by_trying() {
        let has = |capability| caps::has_cap(None, caps::CapSet::Permitted, capability).unwrap();
        // On a thread of its own: what is tried lowers the thread's effective set.
        std::thread::spawn(move || {
            for (needed, place) in [
                (Capability::CAP_NET_ADMIN, 0),
                (Capability::CAP_BPF, 1),
                (Capability::CAP_PERFMON, 2),
                (Capability::CAP_SYS_ADMIN, 3),
            ] {
                let expected = has(needed).then_some(FOR_PROGRAMS[place]);
                assert_eq!(least(true, works_with(needed)), expected, "{needed}");
            }
            assert_eq!(least(true, works_with(Capability::CAP_SYS_TIME)), None);
            capabilities::use_all().unwrap();
            assert_eq!(
                caps::read(None, caps::CapSet::Effective).unwrap(),
                caps::read(None, caps::CapSet::Permitted).unwrap()
            );
        })
        .join()
        .unwrap();
    }

    #[test]
    fn this_kernel_takes_the_filter() {
        assert_eq!(Sandbox::probe(), Ok(()));
    }

    #[test]
    fn what_is_started_with_few_capabilities_has_no_others() {
        let of_thread = || caps::read(None, caps::CapSet::Permitted).unwrap();
        let before = of_thread();
        let sandbox = Sandbox { is_on: true, ..Sandbox::default() };
        let of_child = sandbox.start_with(&[], move || std::thread::spawn(of_thread).join().unwrap());
        assert!(of_child.is_empty(), "{of_child:?}");
        assert_eq!(of_thread(), before);
        assert_eq!(Sandbox::off().start_with(&[], of_thread), before);
    }
}
