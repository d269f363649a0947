//! The result of a run, as it is kept.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::statistics::Spread;

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// With ackbeat by without it, or one thing by another.
    Ratio,
    /// Nanoseconds.
    Nanoseconds,
    /// Percent of one processor.
    PercentOfProcessor,
    /// Bytes.
    Bytes,
    /// A plain number.
    Count,
}

/// What was promised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    /// The median is at least this.
    AtLeast(f64),
    /// The median is at most this.
    AtMost(f64),
    /// The median lies within what differs between two runs without ackbeat.
    Within {
        /// The lowest quotient of two runs without ackbeat.
        low: f64,
        /// The highest.
        high: f64,
    },
}

impl Goal {
    /// Whether a figure keeps it.
    pub(crate) fn is_met(self, spread: &Spread) -> bool {
        match self {
            Self::AtLeast(least) => spread.median >= least,
            Self::AtMost(most) => spread.median <= most,
            Self::Within { low, high } => (low..=high).contains(&spread.median),
        }
    }
}

/// How a figure of another machine is held against a published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Guard {
    /// A share that is left: what is missing to 1 may not grow tenfold.
    Remaining,
    /// A quotient of times: what exceeds 1 may not grow tenfold.
    Excess,
    /// A cost in units of another cost of the same run, or in bytes: it may not grow tenfold.
    Cost,
    /// Not compared: it depends on the machine.
    None,
}

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Name by which a later run finds it.
    pub(crate) id: String,
    /// What it is, for people.
    pub(crate) title: String,
    /// What it is counted in.
    pub(crate) unit: Unit,
    /// The value.
    pub(crate) spread: Spread,
    /// What was promised, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<Goal>,
    /// How it is held against a published one.
    pub(crate) guard: Guard,
}

impl Figure {
    /// A figure of these values; an error names it if there are none.
    ///
    /// # Errors
    /// There is no value.
    pub(crate) fn of(
        id: impl Into<String>,
        title: impl Into<String>,
        unit: Unit,
        values: &[f64],
    ) -> Result<Self> {
        let id = id.into();
        let spread = Spread::of(values).with_context(|| format!("nothing was measured for {id}"))?;
        Ok(Self { id, title: title.into(), unit, spread, goal: None, guard: Guard::None })
    }

    /// A figure of quotients, pair by pair.
    ///
    /// # Errors
    /// There is no pair.
    pub(crate) fn of_ratios(
        id: impl Into<String>,
        title: impl Into<String>,
        of: &[f64],
        to: &[f64],
    ) -> Result<Self> {
        let ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
        Self::of(id, title, Unit::Ratio, &ratios)
    }

    /// The same with a goal.
    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    /// The same with a guard.
    pub(crate) fn guard(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// Whether it keeps its goal, if it has one.
    pub(crate) fn is_met(&self) -> Option<bool> {
        self.goal.map(|goal| goal.is_met(&self.spread))
    }
}

/// The machine of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Processors.
    pub(crate) cpus: usize,
    /// Release of the kernel.
    pub(crate) kernel: String,
    /// Architecture.
    pub(crate) architecture: String,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Day of the run, UTC, as `2026-01-31`.
    pub(crate) date: String,
    /// The command that was typed.
    pub(crate) command: String,
    /// Where it ran.
    pub(crate) machine: Machine,
    /// Version of the workspace, and the commit if git knows one.
    pub(crate) build: String,
    /// Processes that were ready to run beside this one when it began (`/proc/loadavg`, first field).
    pub(crate) load_before: f64,
    /// What was measured.
    pub(crate) figures: Vec<Figure>,
}

impl Outcome {
    /// An outcome without figures, here and now.
    pub(crate) fn here(command: String) -> Self {
        let uname = nix::sys::utsname::uname();
        let kernel =
            uname.map_or_else(|_| "unknown".to_owned(), |name| version(&name.release().to_string_lossy()));
        let machine = Machine {
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            kernel,
            architecture: std::env::consts::ARCH.to_owned(),
        };
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            date: today(),
            command,
            machine,
            build: build(),
            load_before: load.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
            figures: Vec::new(),
        }
    }

    /// One of several that were measured one after the other, on one machine and of one build. A later figure takes the
    /// place of an earlier one of the same name.
    ///
    /// # Errors
    /// There is none, or they differ in what was measured where.
    pub(crate) fn joined(pieces: Vec<Self>) -> Result<Self> {
        let count = pieces.len();
        let mut pieces = pieces.into_iter();
        let mut joined = pieces.next().context("there is no result")?;
        for piece in pieces {
            ensure!(
                piece.machine == joined.machine && piece.build == joined.build,
                "{} on {:?} and {} on {:?} are no pieces of one result",
                joined.build,
                joined.machine,
                piece.build,
                piece.machine
            );
            joined.figures.retain(|figure| piece.figure(&figure.id).is_none());
            joined.figures.extend(piece.figures);
            joined.date = joined.date.max(piece.date);
            joined.load_before = joined.load_before.max(piece.load_before);
        }
        if count > 1 {
            joined.command = format!("cargo xtask bench, in {count} pieces");
        }
        Ok(joined)
    }

    /// Reads a kept one.
    ///
    /// # Errors
    /// The file cannot be read or is no result.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("reading {} failed", path.display()))?;
        serde_json::from_slice(&text)
            .with_context(|| format!("{} is no result of this benchmark", path.display()))
    }

    /// Keeps it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self).context("writing a result as JSON failed")?;
        text.push('\n');
        fs::write(path, text).with_context(|| format!("writing {} failed", path.display()))
    }

    /// One of its figures.
    pub(crate) fn figure(&self, id: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.id == id)
    }
}

/// The version in a kernel's release: what stands behind it names a builder, which is nobody's business.
fn version(release: &str) -> String {
    release.split('-').next().unwrap_or(release).to_owned()
}

/// The version, and the commit if git knows one.
fn build() -> String {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR")]).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let version = env!("CARGO_PKG_VERSION");
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    match git(&["rev-parse", "--short=12", "HEAD"]) {
        Some(commit) if changed => format!("{version} ({commit}, changed)"),
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}

/// Today, UTC.
fn today() -> String {
    date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) / 86_400)
}

/// The date of a day since 1970-01-01 in the Gregorian calendar (Howard Hinnant, `civil_from_days`).
fn date(days: u64) -> String {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_cut_to_its_version() {
        assert_eq!(version("6.18.44-somebody-1"), "6.18.44");
        assert_eq!(version("6.18"), "6.18");
    }

    #[test]
    fn days_are_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(20_787), "2026-11-30");
    }

    #[test]
    fn goals_are_about_the_median() {
        let spread = Spread::of(&[0.97, 0.995, 1.02]).expect("three values");
        assert!(Goal::AtLeast(0.99).is_met(&spread) && !Goal::AtLeast(0.999).is_met(&spread));
        assert!(Goal::AtMost(0.995).is_met(&spread) && !Goal::AtMost(0.99).is_met(&spread));
        assert!(Goal::Within { low: 0.9, high: 1.1 }.is_met(&spread));
        assert!(!Goal::Within { low: 1.0, high: 1.1 }.is_met(&spread));
    }

    #[test]
    fn pieces_of_one_build_are_joined() {
        let piece = |ids: &[&str], value| {
            let mut outcome = Outcome::here("overhead run".to_owned());
            outcome.figures =
                ids.iter().map(|id| Figure::of(*id, *id, Unit::Ratio, &[value]).expect("a value")).collect();
            outcome
        };
        let joined = Outcome::joined(vec![piece(&["a", "b"], 1.0), piece(&["b", "c"], 2.0)]).expect("joined");
        let ids: Vec<&str> = joined.figures.iter().map(|figure| figure.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
        assert_eq!(joined.figure("b").map(|figure| figure.spread.median), Some(2.0));
        assert_eq!(joined.command, "cargo xtask bench, in 2 pieces");
        let mut other = piece(&["d"], 1.0);
        other.build.push_str(" of another day");
        assert!(Outcome::joined(vec![joined, other]).is_err());
        assert!(Outcome::joined(Vec::new()).is_err());
    }

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let mut outcome = Outcome::here("cargo xtask bench".to_owned());
        let figure = Figure::of("a", "b", Unit::Ratio, &[0.5]).expect("a value");
        outcome.figures.push(figure.goal(Goal::Within { low: 0.25, high: 1.0 }).guard(Guard::Remaining));
        let text = serde_json::to_string(&outcome).expect("JSON");
        assert_eq!(serde_json::from_str::<Outcome>(&text).expect("a result"), outcome);
    }
}
