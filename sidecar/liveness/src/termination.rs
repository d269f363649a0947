//! Who was told to stop: this pod, or single processes in it.
//!
//! A close of a process that was told to stop is planned: nobody took the peer for dead.

use alloc::collections::VecDeque;

use crate::{Process, Timestamp};

/// Processes that are remembered; of more the oldest is forgotten.
const PROCESSES_MAX: usize = 256;
/// For so long a process that was told to stop is taken to be stopping, in milliseconds. A handler may take SIGTERM for
/// something else and the process may live on, and process ids come round again. Grace periods are below it: 30 s in
/// Kubernetes unless a pod asks for more.
const TERMINATION_MAX_MS: u64 = 600_000;

/// A connection that opened later than this after its process was told to stop, in milliseconds, is none that the stop ends: a
/// process that stops accepts no more, so this one goes on, whatever it was told.
const ACCEPTING_MS: u64 = 5_000;

/// Who was told to stop, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terminations {
    everything_at: Option<Timestamp>,
    processes: VecDeque<(u32, Timestamp)>,
}

impl Terminations {
    /// This process, or everything, was told to stop.
    pub(crate) fn on_told(&mut self, process: Option<u32>, at: Timestamp) {
        let Some(pid) = process else {
            self.everything_at = self.everything_at.max(Some(at));
            return;
        };
        self.processes.retain(|(known, told)| *known != pid && at.ms_since(*told) <= TERMINATION_MAX_MS);
        if self.processes.len() == PROCESSES_MAX {
            self.processes.pop_front();
        }
        self.processes.push_back((pid, at));
    }

    /// Whether a close at `at` belongs to a stop. Of a process that is told by an ancestor's stop too: a shell or a
    /// supervisor that was told ends its children in its own way. Where the process is not known, only a stop of everything
    /// says so. `opened_at` is when the connection opened.
    pub(crate) fn is_stopping(&self, process: Option<&Process>, opened_at: Timestamp, at: Timestamp) -> bool {
        let covers = |told: Timestamp| told <= at && at.ms_since(told) <= TERMINATION_MAX_MS;
        self.everything_at.is_some_and(covers)
            || process.is_some_and(|process| {
                self.processes.iter().any(|(pid, told)| {
                    let is_meant = process.exiting || opened_at <= told.plus_ms(ACCEPTING_MS);
                    covers(*told) && is_meant && (*pid == process.pid || process.ancestors.contains(pid))
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::{PROCESSES_MAX, TERMINATION_MAX_MS, Terminations};
    use crate::{Process, Timestamp};

    fn process(pid: u32, ancestors: &[u32]) -> Process {
        Process { pid, command: String::new(), exiting: false, ancestors: ancestors.to_vec() }
    }

    #[test]
    fn only_who_was_told_is_stopping_and_its_children() {
        let at = Timestamp::from_ms;
        let mut told = Terminations::default();
        told.on_told(Some(7), at(1_000));
        assert!(told.is_stopping(Some(&process(7, &[])), Timestamp::default(), at(1_000)));
        assert!(told.is_stopping(Some(&process(9, &[8, 7, 1])), Timestamp::default(), at(2_000)));
        assert!(!told.is_stopping(Some(&process(8, &[1])), Timestamp::default(), at(2_000)));
        assert!(
            !told.is_stopping(Some(&process(7, &[])), Timestamp::default(), at(999)),
            "it closed before it was told"
        );
        assert!(!told.is_stopping(None, Timestamp::default(), at(2_000)));
        assert!(!told.is_stopping(
            Some(&process(7, &[])),
            Timestamp::default(),
            at(1_001 + TERMINATION_MAX_MS)
        ));
        // It was told, and went on accepting.
        assert!(!told.is_stopping(Some(&process(7, &[])), at(6_001), at(7_000)));
        assert!(told.is_stopping(Some(&process(7, &[])), at(6_000), at(7_000)));
        let gone = Process { exiting: true, ..process(7, &[]) };
        assert!(told.is_stopping(Some(&gone), at(6_001), at(7_000)), "it stops after all");
        told.on_told(None, at(3_000));
        assert!(told.is_stopping(None, Timestamp::default(), at(3_000)));
        assert!(told.is_stopping(Some(&process(8, &[])), Timestamp::default(), at(4_000)));
    }

    #[test]
    fn a_crowd_that_is_told_is_remembered_up_to_a_bound() {
        let mut told = Terminations::default();
        let pids: Vec<u32> = (1..=300).collect();
        for pid in &pids {
            told.on_told(Some(*pid), Timestamp::from_ms(u64::from(*pid)));
            told.on_told(Some(*pid), Timestamp::from_ms(u64::from(*pid)));
        }
        assert_eq!(told.processes.len(), PROCESSES_MAX);
        assert!(told.is_stopping(Some(&process(300, &[])), Timestamp::default(), Timestamp::from_ms(400)));
        assert!(!told.is_stopping(Some(&process(1, &[])), Timestamp::default(), Timestamp::from_ms(400)));
    }
}
