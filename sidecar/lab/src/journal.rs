//! A list that one side appends to and the other side waits on.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{LabError, Result};

/// An append-only list, shared between threads, with waiting for a condition.
///
/// It grows with what a test makes happen and is dropped with it, so it has no bound of its own.
pub struct Journal<T> {
    shared: Arc<(Mutex<Vec<T>>, Condvar)>,
}

impl<T> Clone for Journal<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Default for Journal<T> {
    fn default() -> Self {
        Self { shared: Arc::new((Mutex::new(Vec::new()), Condvar::new())) }
    }
}

impl<T> Journal<T> {
    fn entries(&self) -> MutexGuard<'_, Vec<T>> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an entry and wakes whoever waits.
    pub fn push(&self, entry: T) {
        self.entries().push(entry);
        self.shared.1.notify_all();
    }

    /// Looks at all entries so far.
    pub fn read<R>(&self, look: impl FnOnce(&[T]) -> R) -> R {
        look(&self.entries())
    }

    /// Waits until `pick` finds what it looks for among all entries so far.
    ///
    /// # Errors
    /// Names `what` if it did not come within `deadline`.
    pub fn wait_for<R>(
        &self,
        what: &str,
        deadline: Duration,
        mut pick: impl FnMut(&[T]) -> Option<R>,
    ) -> Result<R> {
        let until = Instant::now() + deadline;
        let mut entries = self.entries();
        loop {
            if let Some(found) = pick(&entries) {
                return Ok(found);
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                let came = entries.len();
                return Err(LabError::new(format!(
                    "{what} did not come within {deadline:?} ({came} entries came)"
                )));
            };
            entries = self.shared.1.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<T: Clone> Journal<T> {
    /// All entries so far.
    #[must_use]
    pub fn all(&self) -> Vec<T> {
        self.entries().clone()
    }
}
