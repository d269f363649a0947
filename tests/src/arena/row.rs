//! One scenario of the arena.

use anyhow::Result;

use super::stage::{Stage, StageOptions};

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its number.
    pub number: u8,
    /// What happens, in a few words for a table.
    pub title: &'static str,
    /// What is true, in a word.
    pub truth: &'static str,
    /// What a right verdict is, for people.
    pub expected: &'static str,
    /// The verdicts that may be given from the subject's beginning to its end; any if empty.
    pub allowed: &'static [&'static str],
    /// The verdicts of which one must be given after the subject is hung or gone; none is asked for if empty.
    pub wanted: &'static [&'static str],
    /// Its variants; one at least.
    pub variants: &'static [Variant],
    /// How the stage is set up.
    pub options: fn(&Variant) -> StageOptions,
    /// Plays it. Everything random comes from [`Stage::random`].
    pub play: fn(&mut Stage) -> Result<()>,
    /// About how long a stage lasts, in seconds: for the progress and the order of the runs.
    pub about_s: u32,
    /// Subjects of a stage, and so runs.
    pub subjects: u32,
    /// How much of the machine a stage takes: 1 sleeps most of its time, 4 keeps a core busy.
    pub weight: u32,
    /// Whether a short set plays it, and with which variant ("" is the first).
    pub quick: Option<&'static str>,
}

/// A variant of a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variant {
    /// Its name, for tables and paths; empty where the row has one only.
    pub name: &'static str,
    /// The figure that makes it, in the row's own unit.
    pub value: f64,
}

/// For rows without variants.
pub const ONLY: &[Variant] = &[Variant { name: "", value: 0.0 }];

impl Row {
    /// The variant of that name.
    #[must_use]
    pub fn variant(&self, name: &str) -> Option<&'static Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// Whether a run costs over half a minute: then ten runs must do, else thirty. The subjects of a stage share its
    /// time.
    #[must_use]
    pub const fn is_long(&self) -> bool {
        self.about_s > 30 * self.subjects
    }

    /// Runs that a full set has for each variant.
    #[must_use]
    pub const fn runs(&self) -> u32 {
        if self.is_long() { 10 } else { 30 }
    }
}
