//! Capabilities of single threads (capabilities(7): every set belongs to a thread).

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};

/// The names, sorted and separated by commas, or `none`.
#[must_use]
pub fn names(set: &CapsHashSet) -> String {
    if set.is_empty() {
        return "none".to_owned();
    }
    let mut names: Vec<String> = set.iter().map(ToString::to_string).collect();
    names.sort_unstable();
    names.join(",")
}

/// Those of `keep` that this thread has and uses.
fn held(keep: &[Capability]) -> Result<CapsHashSet, CapsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    Ok(keep.iter().copied().filter(|capability| permitted.contains(capability)).collect())
}

/// Uses only those of `keep` that this thread has; the others can be had back.
pub(super) fn use_only(keep: &[Capability]) -> Result<(), CapsError> {
    caps::set(None, CapSet::Effective, &held(keep)?)
}

/// Uses all that this thread has.
pub(super) fn use_all() -> Result<(), CapsError> {
    caps::set(None, CapSet::Effective, &caps::read(None, CapSet::Permitted)?)
}

/// Gives up everything but those of `keep` that this thread has, for good, and says what is left.
pub(super) fn give_up_all_but(keep: &[Capability]) -> Result<CapsHashSet, CapsError> {
    let kept = held(keep)?;
    // In this order: what is effective must be permitted.
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    caps::clear(None, CapSet::Inheritable)?;
    Ok(kept)
}

/// Leaves nothing that a program could get that this process executed: the inheritable, the ambient and the bounding set.
///
/// # Errors
/// What is left all the same, and why.
pub(super) fn give_up_inheritance() -> Result<(), String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: CapsError| format!("the {what} set cannot be emptied: {error}")
    };
    caps::clear(None, CapSet::Ambient).map_err(failed("ambient"))?;
    caps::clear(None, CapSet::Inheritable).map_err(failed("inheritable"))?;
    let effective = caps::read(None, CapSet::Effective).map_err(failed("effective"))?;
    // prctl(2): only CAP_SETPCAP may take from it. A container has it rarely, and its bounding set is small then.
    if !effective.contains(&Capability::CAP_SETPCAP) {
        return Ok(());
    }
    for capability in caps::runtime::thread_all_supported() {
        caps::drop(None, CapSet::Bounding, capability).map_err(failed("bounding"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gives_up_its_own_and_nobody_elses() {
        let before = caps::read(None, CapSet::Permitted).unwrap();
        let kept = std::thread::spawn(|| {
            let kept = give_up_all_but(&[Capability::CAP_NET_ADMIN]).unwrap();
            assert_eq!(caps::read(None, CapSet::Effective).unwrap(), kept);
            assert_eq!(caps::read(None, CapSet::Permitted).unwrap(), kept);
            assert!(caps::read(None, CapSet::Inheritable).unwrap().is_empty());
            kept
        })
        .join()
        .unwrap();
        assert!(kept.iter().all(|capability| *capability == Capability::CAP_NET_ADMIN), "{kept:?}");
        assert_eq!(caps::read(None, CapSet::Permitted).unwrap(), before);
    }

    #[test]
    fn names_are_sorted() {
        let set = [Capability::CAP_PERFMON, Capability::CAP_BPF].into_iter().collect();
        assert_eq!(names(&set), "CAP_BPF,CAP_PERFMON");
        assert_eq!(names(&CapsHashSet::new()), "none");
    }
}
