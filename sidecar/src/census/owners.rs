//! Who owns a socket: `/proc/PID/fd`, where that is allowed (proc_pid_fd(5): the same user, or `CAP_SYS_PTRACE`).

use std::collections::{BTreeMap, HashMap};

use ackbeat_liveness::leak::Owner;
use procfs::process::{FDTarget, Process, all_processes};

/// Processes that are looked at with one census.
const PROCESSES_MAX: usize = 1_024;
/// File descriptors that are looked at with one census.
const FDS_MAX: usize = 65_536;
/// Processes that a census tells of.
const TOLD_MAX: usize = 16;

/// Which process has which socket open, as of the last look.
#[derive(Debug, Default)]
pub struct Owners {
    by_inode: HashMap<u64, u32>,
    commands: HashMap<u32, (String, u32)>,
}

impl Owners {
    /// Looks at every process that `/proc` shows, up to bounds. What may not be looked at is left out.
    pub fn look(&mut self) {
        self.by_inode.clear();
        self.commands.clear();
        let Ok(processes) = all_processes() else { return };
        let mut room = FDS_MAX;
        for process in processes.flatten().take(PROCESSES_MAX) {
            // A process may end at any step of this.
            let _ = self.look_at(&process, &mut room);
        }
    }

    fn look_at(&mut self, process: &Process, room: &mut usize) -> Option<()> {
        let pid = u32::try_from(process.pid).ok()?;
        let (mut fd_count, mut has_sockets) = (0, false);
        for fd in process.fd().ok()?.flatten() {
            *room = room.checked_sub(1)?;
            fd_count += 1;
            if let FDTarget::Socket(inode) = fd.target {
                has_sockets = true;
                // What a process and its children share belongs to the one that was there first.
                self.by_inode.entry(inode).or_insert(pid);
            }
        }
        if has_sockets {
            self.commands.insert(pid, (process.stat().ok()?.comm, fd_count));
        }
        Some(())
    }

    /// The process that has the socket with this inode open, where it is known.
    #[must_use]
    pub fn of(&self, inode: u32) -> Option<u32> {
        self.by_inode.get(&u64::from(inode)).copied().filter(|_| inode != 0)
    }

    /// The processes that own most of the sockets whose owners these are.
    #[must_use]
    pub fn processes(&self, pids: Vec<u32>) -> Vec<Owner> {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for pid in pids {
            *counts.entry(pid).or_default() += 1;
        }
        let mut pids: Vec<(u32, usize)> = counts.into_iter().collect();
        pids.sort_by_key(|(pid, count)| (std::cmp::Reverse(*count), *pid));
        pids.into_iter()
            .take(TOLD_MAX)
            .filter_map(|(pid, _)| {
                let (command, fd_count) = self.commands.get(&pid)?;
                Some(Owner { pid, command: command.clone(), fd_count: *fd_count })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn the_owner_of_a_socket_is_found_by_its_inode() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        let link = link.to_str().unwrap();
        let inode = link.trim_start_matches("socket:[").trim_end_matches(']').parse().unwrap();
        let mut owners = Owners::default();
        owners.look();
        assert_eq!(owners.of(inode), Some(std::process::id()));
        assert_eq!(owners.of(0), None, "a socket that nobody has open any more has no inode");
        let told = owners.processes(vec![std::process::id()]);
        assert!(told.len() == 1 && told[0].fd_count > 0 && !told[0].command.is_empty(), "{told:?}");
        drop(socket);
        owners.look();
        assert_eq!(owners.of(inode), None);
    }
}
