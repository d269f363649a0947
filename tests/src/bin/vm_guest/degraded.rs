//! Which signals each kernel is known to lack: what the sidecar says of itself must be exactly that.

use anyhow::{Context, Result, ensure};

use super::Readiness;

/// The oldest kernel that was seen to lack nothing.
const FULL_SINCE: (u32, u32) = (6, 1);
/// Linux 5.12 has the atomic instructions of the kernel programs that leave a result (`BPF_FETCH`). Before, every program that counts
/// is refused, and the mode is `sock-diag`.
const PROGRAMS_SINCE: (u32, u32) = (5, 12);

/// Compares what the sidecar says of itself with what is documented for this kernel. Between the two versions above nothing is
/// documented, because no kernel was at hand: what it lacks is told, and is no failure.
///
/// # Errors
/// If they differ.
pub(super) fn check(release: &str, found: &Readiness) -> Result<String> {
    let version = version(release).with_context(|| format!("{release} is no kernel's release"))?;
    let lacks = if found.missing_signals.is_empty() {
        "none".to_owned()
    } else {
        format!("without {}", found.missing_signals.join(", "))
    };
    if version >= FULL_SINCE {
        ensure!(found.mode == "ebpf", "the mode is {}, and this kernel can do more", found.mode);
        ensure!(found.missing_signals.is_empty(), "{lacks}, and this kernel has them");
    } else if version < PROGRAMS_SINCE {
        ensure!(found.mode == "sock_diag", "the mode is {}, and this kernel cannot do that", found.mode);
        // All that the mode lacks on any kernel, which the README tells: no list for a table.
        return Ok("as sock-diag".to_owned());
    }
    Ok(lacks)
}

/// `6.1.0-57-cloud-amd64` is 6.1.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(mode: &str, missing: &[&str]) -> Readiness {
        let missing_signals = missing.iter().map(|signal| (*signal).to_owned()).collect();
        Readiness { mode: mode.to_owned(), missing_signals }
    }

    #[test]
    fn a_kernel_that_can_do_more_must_do_more() {
        assert_eq!(check("6.1.0-57-cloud-amd64", &found("ebpf", &[])).unwrap(), "none");
        assert!(check("6.12.117+deb12-cloud-amd64", &found("ebpf", &["heartbeats"])).is_err());
        assert!(check("6.12.117+deb12-cloud-amd64", &found("sock_diag", &[])).is_err());
        assert_eq!(check("5.15.0-1-amd64", &found("ebpf", &["heartbeats"])).unwrap(), "without heartbeats");
    }

    #[test]
    fn a_kernel_without_the_programs_must_say_so() {
        assert_eq!(check("5.10.0-46-amd64", &found("sock_diag", &["resets"])).unwrap(), "as sock-diag");
        assert!(check("5.10.0-46-amd64", &found("ebpf", &[])).is_err());
    }

    #[test]
    fn a_release_begins_with_two_numbers() {
        assert_eq!(version("6.18.5"), Some((6, 18)));
        assert_eq!(version("next"), None);
    }
}
