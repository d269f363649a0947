//! Where labels go so that none lies on another label or on a point.

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rect {
    pub(super) left: i32,
    pub(super) top: i32,
    pub(super) width: i32,
    pub(super) height: i32,
}

impl Rect {
    fn overlaps(&self, other: &Self) -> bool {
        self.left < other.left + other.width
            && other.left < self.left + self.width
            && self.top < other.top + other.height
            && other.top < self.top + self.height
    }

    fn is_within(&self, bounds: &Self) -> bool {
        self.left >= bounds.left
            && self.top >= bounds.top
            && self.left + self.width <= bounds.left + bounds.width
            && self.top + self.height <= bounds.top + bounds.height
    }

    /// The point of its border that is nearest to a point outside.
    pub(super) fn nearest(&self, (x, y): (i32, i32)) -> (i32, i32) {
        (x.clamp(self.left, self.left + self.width), y.clamp(self.top, self.top + self.height))
    }
}

/// Room that a text takes, with a little air. The width is that of a wide font: a viewer may have another than we.
pub(super) fn size(text: &str, font_px: i32) -> (i32, i32) {
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX / 100);
    let letters = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    (count(letters) * font_px * 62 / 100 + 6, count(text.lines().count()) * line_height(font_px) + 1)
}

/// From one line of a label to the next.
pub(super) const fn line_height(font_px: i32) -> i32 {
    font_px + 4
}

/// Small rectangles along a line that no label should lie on.
pub(super) fn along(from: (i32, i32), to: (i32, i32)) -> Vec<Rect> {
    let steps = ((to.0 - from.0).abs().max((to.1 - from.1).abs()) / 6).max(1);
    (0..=steps)
        .map(|step| Rect {
            left: from.0 + (to.0 - from.0) * step / steps - 2,
            top: from.1 + (to.1 - from.1) * step / steps - 2,
            width: 4,
            height: 4,
        })
        .collect()
}

/// Space between a point and a label beside it.
const GAP: i32 = 8;

/// Places a label for each point, in their order.
pub(super) fn place(
    points: &[((i32, i32), String)],
    font_px: i32,
    bounds: Rect,
    taken: &[Rect],
) -> Vec<Rect> {
    let mut occupied: Vec<Rect> = taken.to_vec();
    occupied.extend(points.iter().map(|((x, y), _)| Rect { left: x - 6, top: y - 6, width: 12, height: 12 }));
    let mut placed = Vec::new();
    for (point, text) in points {
        let rect = find(*point, size(text, font_px), bounds, &occupied);
        occupied.push(rect);
        placed.push(rect);
    }
    placed
}

/// The nearest place that is free; right of the point if none is.
fn find((x, y): (i32, i32), (width, height): (i32, i32), bounds: Rect, occupied: &[Rect]) -> Rect {
    for distance in 0..26 {
        let (dx, dy) = (GAP + distance * 4, distance * 9);
        let beside = [
            (x + dx, y - height / 2 - dy),
            (x + dx, y - height / 2 + dy),
            (x - dx - width, y - height / 2 - dy),
            (x - dx - width, y - height / 2 + dy),
            (x - width / 2, y - GAP - height - dy),
            (x - width / 2, y + GAP + dy),
        ];
        for (left, top) in beside {
            let rect = Rect { left, top, width, height };
            if rect.is_within(&bounds) && !occupied.iter().any(|other| rect.overlaps(other)) {
                return rect;
            }
        }
    }
    Rect { left: x + GAP, top: y - height / 2, width, height }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_points_that_lie_together_do_not_overlap() {
        let points: Vec<((i32, i32), String)> = (0..12)
            .map(|number| ((300 + number % 3, 200 + number / 3), format!("detector-{number}")))
            .collect();
        let bounds = Rect { left: 0, top: 0, width: 900, height: 600 };
        let placed = place(&points, 13, bounds, &[]);
        for (index, rect) in placed.iter().enumerate() {
            assert!(rect.is_within(&bounds));
            for other in placed.iter().skip(index + 1) {
                assert!(!rect.overlaps(other), "{rect:?} {other:?}");
            }
        }
    }
}
