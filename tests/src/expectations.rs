//! What a span must say, checked as a whole: a failure names every attribute that is not as it must be.

use std::ops::RangeInclusive;

use anyhow::{Result, bail};

use crate::spans::Span;

/// Expectations of one span.
#[must_use]
pub struct Expectations<'a> {
    span: &'a Span,
    failures: Vec<String>,
}

impl<'a> Expectations<'a> {
    /// Of this span.
    pub const fn of(span: &'a Span) -> Self {
        Self { span, failures: Vec::new() }
    }

    fn expect(mut self, holds: bool, key: &str, wanted: &str) -> Self {
        if !holds {
            let found =
                self.span.attributes.get(key).map_or_else(|| "nothing".to_owned(), ToString::to_string);
            self.failures.push(format!("{key} is {found}, not {wanted}"));
        }
        self
    }

    /// The attribute is one of these words.
    pub fn text(self, key: &str, words: &[&str]) -> Self {
        let holds = self.span.text(key).is_some_and(|word| words.contains(&word));
        self.expect(holds, key, &words.join(" or "))
    }

    /// The attribute is a number in this range.
    pub fn number(self, key: &str, range: RangeInclusive<i64>) -> Self {
        let holds = self.span.number(key).is_some_and(|number| range.contains(&number));
        self.expect(holds, key, &format!("in {range:?}"))
    }

    /// The attribute is this boolean.
    pub fn flag(self, key: &str, flag: bool) -> Self {
        let holds = self.span.flag(key) == Some(flag);
        self.expect(holds, key, &flag.to_string())
    }

    /// The span has no such attribute.
    pub fn absent(self, key: &str) -> Self {
        let holds = !self.span.attributes.contains_key(key);
        self.expect(holds, key, "absent")
    }

    /// The span's status is, or is not, `Error`.
    pub fn error(mut self, error: bool) -> Self {
        if self.span.is_error() != error {
            self.failures.push(format!("the status is {}", self.span.status));
        }
        self
    }

    /// No event tells of another verdict, and the last verdict is this one.
    pub fn only_verdict(mut self, verdict: &str) -> Self {
        let verdicts = self.span.event_verdicts();
        if verdicts.iter().any(|found| found != verdict && found != "closed") {
            self.failures.push(format!("the verdicts were {verdicts:?}, not only {verdict}"));
        }
        self.text("ackbeat.verdict", &[verdict])
    }

    /// Checks all of them.
    ///
    /// # Errors
    /// Names every expectation that does not hold.
    pub fn check(self, whose: &str) -> Result<()> {
        if self.failures.is_empty() {
            return Ok(());
        }
        bail!("the span `{}` of {whose}: {}", self.span.name, self.failures.join("; "));
    }
}
