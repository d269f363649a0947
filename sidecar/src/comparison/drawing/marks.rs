//! The rows above the charts: kills, verdicts and truth.

use ackbeat_liveness::{Timestamp, Verdict, VerdictChange};

use super::super::Timeline;

/// A vertical line with its words.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KillMark {
    /// Seconds since the connection opened.
    pub(super) at_s: f64,
    pub(super) text: String,
    /// The host's own close, not one that would have been.
    pub(super) is_real: bool,
}

/// A coloured part of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Band<T> {
    pub(super) from_s: f64,
    pub(super) until_s: f64,
    pub(super) what: T,
}

/// Seconds since the connection opened; before that it is negative.
pub(super) fn seconds(timeline: &Timeline, at: Timestamp) -> f64 {
    let (at, zero) = (at.as_ns(), timeline.began_at.as_ns());
    let ns = at.abs_diff(zero);
    #[expect(clippy::cast_precision_loss, reason = "a drawing has no nanoseconds")]
    let seconds = ns as f64 / 1e9;
    if at >= zero { seconds } else { -seconds }
}

/// Every kill that would have been and the host's own close, in the order of time.
pub(super) fn kills(timeline: &Timeline) -> Vec<KillMark> {
    let mut marks: Vec<KillMark> = timeline
        .compared
        .outcomes
        .iter()
        .filter_map(|outcome| {
            let at_s = seconds(timeline, outcome.kill.as_ref()?.at);
            Some(KillMark {
                at_s,
                text: format!("{} {at_s:.1} s", shortened(&outcome.name, 26)),
                is_real: false,
            })
        })
        .collect();
    if let Some(at) = timeline.compared.host_closed_at() {
        let at_s = seconds(timeline, at);
        marks.push(KillMark { at_s, text: format!("the host closed it {at_s:.1} s"), is_real: true });
    }
    marks.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    marks
}

/// The verdicts of one policy as parts of a row, up to the close.
pub(super) fn verdicts(timeline: &Timeline, changes: &[VerdictChange]) -> Vec<Band<Verdict>> {
    let record = timeline.compared.closed.as_ref();
    let end = record
        .map_or(timeline.until, |record| if record.still_open { timeline.until } else { record.closed_at });
    let first = changes.first().map_or_else(
        || record.map_or(Verdict::Unknown, |record| record.assessed.verdict),
        |change| change.from,
    );
    let mut bands = Vec::new();
    let (mut from, mut verdict) = (timeline.began_at, first);
    for change in changes.iter().filter(|change| change.at <= end) {
        if change.to != verdict {
            bands.push((from, change.at, verdict));
            (from, verdict) = (change.at, change.to);
        }
    }
    bands.push((from, end, verdict));
    bands
        .into_iter()
        .filter(|(from, until, verdict)| from < until && *verdict != Verdict::Closed)
        .map(|(from, until, what)| Band {
            from_s: seconds(timeline, from),
            until_s: seconds(timeline, until),
            what,
        })
        .collect()
}

/// At most this many characters.
pub(super) fn shortened(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// Puts labels into rows so that none lies over another, and no line runs through one: a line begins at the left end of
/// its label and runs down through all rows below it. `spans` are the labels' ends, in the order of their left ones.
/// Gives a row for each.
pub(super) fn rows(spans: &[(f64, f64)]) -> Vec<usize> {
    let mut taken_until: Vec<f64> = Vec::new();
    spans
        .iter()
        .map(|(left, right)| {
            // Below the lowest label that reaches this far.
            let row = taken_until.iter().rposition(|until| left <= until).map_or(0, |lowest| lowest + 1);
            if row == taken_until.len() {
                taken_until.push(*right);
            } else if let Some(until) = taken_until.get_mut(row) {
                *until = *right;
            }
            row
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::rows;

    #[test]
    fn labels_lie_side_by_side_or_below_each_other() {
        // The last one finds room beside the second only: in the first row its line would run through that.
        assert_eq!(rows(&[(0.0, 50.0), (10.0, 90.0), (55.0, 80.0), (100.0, 120.0)]), [0, 1, 2, 0]);
        assert!(rows(&[]).is_empty());
    }
}
