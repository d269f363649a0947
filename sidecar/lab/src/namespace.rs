//! Network namespaces: made under unique names, entered by threads, removed on drop.

use std::fs::File;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use crate::error::{Context as _, LabError, Result};
use nix::sched::{CloneFlags, setns};

use crate::command::run;

/// Where iproute2 keeps named network namespaces.
const NAMESPACE_DIRECTORY: &str = "/run/netns";
/// First part of every name that is given here.
const PREFIX: &str = "ackbeat";

/// A network namespace. Dropping it removes it.
pub struct Namespace {
    name: String,
    file: File,
}

/// Start time of a process that runs, in clock ticks since boot (field 22 of `/proc/<pid>/stat`): tells a process from a later
/// one with the same id.
fn start_time_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and parentheses; it ends at the last one.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // A process that has ended has its id until its parent asks, which a container's first process may never do.
    let is_over = matches!(fields.next()?, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| !is_over)
}

/// The process that made the namespace `name`, if the name is one of ours.
fn maker(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.split('-');
    if parts.next()? != PREFIX {
        return None;
    }
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Removes namespaces of processes that were killed, and ends what still runs in them. Those of running processes stay.
pub fn remove_leftovers() {
    let Ok(entries) = std::fs::read_dir(NAMESPACE_DIRECTORY) else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        if let Some((pid, started)) = maker(&name)
            && start_time_ticks(pid) != Some(started)
        {
            remove(&name);
        }
    }
}

/// Ends the processes in a namespace and removes it. Best effort: what fails here is found by the next run.
fn remove(name: &str) {
    if let Ok(pids) = run(None, "ip", &["netns", "pids", name]) {
        for pid in pids.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            // This process's own threads may still be in it; they leave by ending.
            if u32::try_from(pid).ok() != Some(std::process::id()) {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL);
            }
        }
    }
    let _ = run(None, "ip", &["netns", "delete", name]);
}

impl Namespace {
    /// Makes a namespace with its loopback up.
    ///
    /// # Errors
    /// If this user may not, or iproute2 is missing.
    pub fn create(label: &str) -> Result<Self> {
        static LEFTOVERS: Once = Once::new();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !nix::unistd::geteuid().is_root() {
            return Err(LabError::new("network namespaces need root (CAP_SYS_ADMIN and CAP_NET_ADMIN)"));
        }
        LEFTOVERS.call_once(remove_leftovers);
        let pid = std::process::id();
        let started = start_time_ticks(pid).context("reading this process's start time failed")?;
        let name = format!("{PREFIX}-{pid}-{started}-{}-{label}", NUMBER.fetch_add(1, Ordering::Relaxed));
        run(None, "ip", &["netns", "add", &name])?;
        let opened = File::open(Path::new(NAMESPACE_DIRECTORY).join(&name));
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                remove(&name);
                return Err(error).context("opening a new network namespace failed");
            }
        };
        let namespace = Self { name, file };
        run(Some(&namespace), "ip", &["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Inode number, which is how the kernel names it.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn inode(&self) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(self.file.metadata().context("reading a namespace's inode failed")?.ino())
    }

    /// [`Namespace::run`], or without a namespace `work` where this thread is.
    ///
    /// # Errors
    /// As [`Namespace::run`].
    pub fn run_in<T: Send>(namespace: Option<&Self>, work: impl FnOnce() -> T + Send) -> Result<T> {
        match namespace {
            Some(namespace) => namespace.run(work),
            None => Ok(work()),
        }
    }

    /// Runs `work` on a thread that is in this namespace, and waits for it. Sockets and processes that it makes stay
    /// in the namespace.
    ///
    /// # Errors
    /// If the namespace cannot be entered or `work` panicked.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("in-namespace".into()).spawn_scoped(scope, || {
                setns(&self.file, CloneFlags::CLONE_NEWNET).context("entering a network namespace failed")?;
                Ok(work())
            });
            thread
                .context("starting a thread failed")?
                .join()
                .map_err(|_panic| LabError::new(format!("the work in {} panicked", self.name)))?
        })
    }

    /// Starts a thread that lives in this namespace. Its name is what the kernel calls the task that closes. The
    /// thread gives `None` only if it could not enter, which is an error here already.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the thread cannot be started.
    pub fn spawn<T: Send + 'static>(
        &self,
        thread_name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Option<T>>> {
        let file = self.file.try_clone().context("duplicating a namespace's descriptor failed")?;
        let (entered, has_entered) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name(thread_name.to_owned()).spawn(move || {
            let outcome = setns(&file, CloneFlags::CLONE_NEWNET);
            // The other end waits for exactly this message.
            let _ = entered.send(outcome);
            outcome.is_ok().then(work)
        });
        let thread = thread.with_context(|| format!("starting thread {thread_name} failed"))?;
        has_entered
            .recv()
            .context("a thread ended before it entered its namespace")?
            .context("entering a network namespace failed")?;
        Ok(thread)
    }

    /// Sets a network sysctl of this namespace; `key` as in `ipv4/tcp_retries2`.
    ///
    /// # Errors
    /// If the kernel has no such key or refuses the value.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{key}");
        self.run(|| std::fs::write(&path, value))?.with_context(|| format!("setting {path} failed"))
    }
}

/// Starts a thread called `thread_name` in `namespace`, or in this process's own.
///
/// # Errors
/// As [`Namespace::spawn`].
pub fn spawn_thread(
    namespace: Option<&Namespace>,
    thread_name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<Option<()>>> {
    let work = move || {
        work();
    };
    match namespace {
        Some(namespace) => namespace.spawn(thread_name, work),
        None => std::thread::Builder::new()
            .name(thread_name.to_owned())
            .spawn(move || {
                work();
                Some(())
            })
            .with_context(|| format!("starting thread {thread_name} failed")),
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_no_maker_any_more() {
        assert!(start_time_ticks(std::process::id()).is_some());
        let mut child = std::process::Command::new("true").spawn().expect("true is there");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while start_time_ticks(child.id()).is_some() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(Path::new(&format!("/proc/{}", child.id())).exists(), "nobody has asked for it yet");
        assert_eq!(start_time_ticks(child.id()), None);
        child.wait().expect("it was started");
    }
}
