//! Why something of the box cannot be had.

use std::error::Error;

/// Something of the box cannot be had; the message names the step.
#[derive(Debug, thiserror::Error)]
#[error("{what}{}", cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}")))]
pub struct LabError {
    what: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

/// What can fail here.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

impl LabError {
    /// It failed for no other reason than this.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), cause: None }
    }
}

/// Says which step failed.
pub(crate) trait Context<T> {
    /// The step, as a sentence.
    fn context(self, what: &str) -> Result<T>;
    /// The same, made only where it is needed.
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: &str) -> Result<T> {
        self.with_context(|| what.to_owned())
    }

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| LabError { what: what(), cause: Some(cause.into()) })
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, what: &str) -> Result<T> {
        self.ok_or_else(|| LabError::new(what))
    }

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.ok_or_else(|| LabError::new(what()))
    }
}
