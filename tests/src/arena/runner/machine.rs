//! Where and when a set was run.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::arena::report::{Build, Machine};

/// Processors that this process may use.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// This machine.
#[must_use]
pub fn this_machine() -> Machine {
    let uname = nix::sys::utsname::uname();
    let word = |word: &std::ffi::OsStr| word.to_string_lossy().into_owned();
    Machine {
        cpus: cpus(),
        kernel: uname.as_ref().map_or_else(|_| "unknown".to_owned(), |name| word(name.release())),
        architecture: std::env::consts::ARCH.to_owned(),
    }
}

/// What was built: the version, and the commit if git knows one.
#[must_use]
pub fn this_build() -> Build {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR")]).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let is_changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit.map(|commit| if is_changed { format!("{commit}, changed") } else { commit }),
    }
}

/// Today, UTC, as `2026-01-31`.
#[must_use]
pub fn today() -> String {
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
    fn days_are_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(20_787), "2026-11-30");
    }
}
