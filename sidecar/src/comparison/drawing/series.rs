//! Readings as lines.

use super::super::{Point, Timeline};
use super::marks::seconds;

/// A line with breaks where a reading was unavailable: seconds, and a value in the unit of its chart.
pub(super) type Pieces = Vec<Vec<(f64, f64)>>;

/// Points that a line is drawn from at most; more could not be told apart.
const COLUMNS: usize = 1_500;

/// A unit of bytes that suits a largest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    pub(super) bytes: f64,
}

pub(super) fn unit(max_bytes: f64) -> Unit {
    if max_bytes >= 1e6 {
        Unit { name: "MB", bytes: 1e6 }
    } else if max_bytes >= 1e3 {
        Unit { name: "kB", bytes: 1e3 }
    } else {
        Unit { name: "bytes", bytes: 1.0 }
    }
}

/// One value of each reading as a line.
pub(super) fn pieces(timeline: &Timeline, value: impl Fn(&Point) -> Option<f64>) -> Pieces {
    let mut pieces: Pieces = vec![Vec::new()];
    for point in &timeline.points {
        match (value(point), pieces.last_mut()) {
            (Some(value), Some(piece)) => piece.push((seconds(timeline, point.at), value)),
            (None, Some(piece)) if !piece.is_empty() => pieces.push(Vec::new()),
            _ => {}
        }
    }
    pieces.into_iter().filter(|piece| !piece.is_empty()).map(thinned).collect()
}

/// The same line from fewer points: of each column its first, lowest, highest and last.
fn thinned(piece: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if piece.len() <= COLUMNS {
        return piece;
    }
    let size = piece.len().div_ceil(COLUMNS / 4);
    let mut kept = Vec::new();
    for column in piece.chunks(size) {
        let by_value = |one: &&(f64, f64), other: &&(f64, f64)| one.1.total_cmp(&other.1);
        let mut corners: Vec<(f64, f64)> =
            [column.first(), column.iter().min_by(by_value), column.iter().max_by(by_value), column.last()]
                .into_iter()
                .flatten()
                .copied()
                .collect();
        corners.sort_by(|one, other| one.0.total_cmp(&other.0));
        corners.dedup();
        kept.extend(corners);
    }
    kept
}

/// The largest value of several lines.
pub(super) fn highest(lines: &[&Pieces]) -> f64 {
    lines.iter().flat_map(|line| line.iter().flatten()).map(|(_, value)| *value).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, thinned};

    #[test]
    fn a_long_line_keeps_its_extremes() {
        let mut line: Vec<(f64, f64)> = (0..100_000).map(|index| (f64::from(index), 1.0)).collect();
        line[4_711].1 = 9.0;
        line[81_500].1 = -3.0;
        let thin = thinned(line.clone());
        assert!(thin.len() <= COLUMNS + 4, "{}", thin.len());
        assert!(thin.contains(&(4_711.0, 9.0)) && thin.contains(&(81_500.0, -3.0)));
        assert_eq!((thin.first(), thin.last()), (line.first(), line.last()));
        assert!(thin.is_sorted_by(|one, other| one.0 <= other.0));
    }
}
