//! Runs cases, and tells which one failed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use allocation_counter::measure;
use fastrand::Rng;

use crate::Target;

/// A case that takes longer has no end. Far more than any case needs on a loaded machine.
pub const CASE_LIMIT: Duration = Duration::from_secs(60);
/// Cases between two looks at the clock.
const CASES_PER_LOOK: u64 = 64;

/// What a run of one target came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Cases that were run.
    pub cases: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time that was spent.
    pub spent: Duration,
    /// The most that a case held of the allocator's memory at a time, in bytes.
    pub memory_max_bytes: u64,
}

/// A case that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the case.
    pub case: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What did not hold.
    pub message: String,
}

/// The bytes of a case.
#[must_use]
pub fn bytes_of(target: &Target, seed: u64, case: u64) -> Vec<u8> {
    // Odd multipliers keep cases of neighbouring numbers and seeds apart.
    let mut rng =
        Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ case.wrapping_mul(0xd1b5_4a32_d192_ed03));
    (target.generate)(&mut rng)
}

/// Runs one case, and gives the most memory that it held at a time.
///
/// # Errors
/// What did not hold.
pub fn run_case(target: &Target, bytes: &[u8]) -> Result<u64, String> {
    let mut result = Ok(Ok(()));
    let taken = measure(|| result = catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))));
    match result {
        Ok(outcome) => outcome?,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            return Err(format!("panic: {}", text.unwrap_or("without a message")));
        }
    }
    let limit = (target.memory_limit_bytes)(bytes.len());
    if taken.bytes_max > limit {
        return Err(format!(
            "{} bytes of input held {} bytes of memory, more than {limit}",
            bytes.len(),
            taken.bytes_max
        ));
    }
    Ok(taken.bytes_max)
}

/// Runs cases of a target for a time, or until one fails.
///
/// # Errors
/// The first [`Failure`].
pub fn run_for(
    target: &Target,
    seed: u64,
    time: Duration,
    stuck: impl Fn(u64) + Send + 'static,
) -> Result<Tally, Box<Failure>> {
    let began = Instant::now();
    let running = Watchdog::new(stuck);
    let mut tally = Tally::default();
    while tally.cases == 0 || began.elapsed() < time {
        for case in tally.cases..tally.cases + CASES_PER_LOOK {
            running.case.store(case, Ordering::Relaxed);
            let bytes = bytes_of(target, seed, case);
            match run_case(target, &bytes) {
                Ok(memory) => tally.memory_max_bytes = tally.memory_max_bytes.max(memory),
                Err(message) => return Err(Box::new(Failure { seed, case, bytes, message })),
            }
            tally.bytes += bytes.len() as u64;
        }
        tally.cases += CASES_PER_LOOK;
    }
    tally.spent = began.elapsed();
    Ok(tally)
}

/// Notices a case that has no end.
struct Watchdog {
    case: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watchdog {
    fn new(stuck: impl Fn(u64) + Send + 'static) -> Self {
        let (case, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (watched, end) = (Arc::clone(&case), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            let (mut seen, mut since) = (u64::MAX, Instant::now());
            while !end.load(Ordering::Relaxed) {
                let now = watched.load(Ordering::Relaxed);
                if now != seen {
                    (seen, since) = (now, Instant::now());
                } else if since.elapsed() > CASE_LIMIT {
                    stuck(now);
                    return;
                }
                std::thread::park_timeout(Duration::from_millis(200));
            }
        });
        Self { case, is_over, thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A watchdog that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;

    /// Some seconds of what `cargo xtask fuzz` does for longer.
    #[test]
    fn every_target_survives_some_cases() {
        for target in TARGETS {
            let tally = run_for(target, 1, Duration::from_millis(700), |case| {
                eprintln!("case {case} has no end");
                std::process::abort();
            });
            match tally {
                Ok(tally) => println!("{}: {tally:?}", target.name),
                Err(failure) => panic!("{}, case {}: {}", target.name, failure.case, failure.message),
            }
        }
    }

    #[test]
    fn a_case_can_be_made_again() {
        for target in TARGETS {
            assert_eq!(bytes_of(target, 7, 11), bytes_of(target, 7, 11));
            assert!((0..50).any(|case| bytes_of(target, 7, case) != bytes_of(target, 8, case)));
        }
    }

    #[test]
    fn what_fails_is_told() {
        let target = Target {
            name: "hungry",
            about: "",
            generate: |_| vec![1],
            run: |bytes| match bytes {
                [1] => {
                    drop(vec![0_u8; 10_000]);
                    Ok(())
                }
                [2] => panic!("two"),
                _ => Err("three".to_owned()),
            },
            memory_limit_bytes: |_| 1_000,
        };
        assert!(run_case(&target, &[1]).is_err_and(|message| message.contains("10000 bytes of memory")));
        assert_eq!(run_case(&target, &[2]), Err("panic: two".to_owned()));
        assert_eq!(run_case(&target, &[3]), Err("three".to_owned()));
        let failure = run_for(&target, 5, Duration::from_secs(1), |_| {}).unwrap_err();
        assert_eq!((failure.seed, failure.case, failure.bytes), (5, 0, vec![1]));
    }
}
