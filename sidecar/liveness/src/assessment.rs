//! What to think of a close that the host started and that was not graceful.

use crate::{Assessment, Postmortem, Verdict};

/// The table of assessments.
///
/// `is_evidence_complete` is false where records were lost, or where Close frames may have passed unseen: then the
/// close may have been polite, and nobody is accused.
///
/// An ACK after the close proves the next hop, not the application behind it. So `answered` alone never turns a
/// kill that was justified, or a silent peer's, into a false one; it does so only for a peer that was called
/// unreachable.
///
/// `is_peer_overdue` says that the peer is one that asks, and that it had not done so for two intervals, nor anything
/// else. It owes nothing on the wire, so until it is called silent it is called alive; that proves nothing for it. Its
/// kill is false if its application shows itself afterwards, and justified if not even its kernel does.
pub(crate) fn assess(
    verdict: Verdict,
    kill_justified: bool,
    postmortem: Postmortem,
    is_evidence_complete: bool,
    is_peer_overdue: bool,
) -> Assessment {
    if !is_evidence_complete {
        return Assessment::Unknown;
    }
    match (verdict, postmortem) {
        _ if kill_justified => Assessment::Justified,
        (Verdict::Unreachable, Postmortem::NoAnswer) => Assessment::Justified,
        (_, Postmortem::AppProgress) => Assessment::FalseKill,
        (Verdict::Alive | Verdict::Silent, Postmortem::NoAnswer) if is_peer_overdue => Assessment::Justified,
        (Verdict::Alive, _) if is_peer_overdue => Assessment::Premature,
        (Verdict::Alive | Verdict::Congested, _) => Assessment::FalseKill,
        (Verdict::Unreachable, Postmortem::Answered) => Assessment::FalseKill,
        (Verdict::Stalled | Verdict::Silent, _) => Assessment::Premature,
        (Verdict::Unreachable | Verdict::Unknown | Verdict::Closed, _) => Assessment::Unknown,
    }
}
