//! Draws a timeline as SVG, for people.
//!
//! From top to bottom: who would have killed it and when, what was true and what each policy thought, then three charts over the
//! same seconds: where the stream was and where the Pings in it, what was queued, and what was retransmitted.

mod charts;
mod header;
mod marks;
mod palette;
mod series;

use plotters::prelude::{IntoDrawingArea as _, SVGBackend, WHITE};

use super::Timeline;

/// Width in pixels.
const WIDTH: u32 = 1_340;
/// Room at the left, for names and axes.
const LEFT: u32 = 156;
/// Room at the right, for legends.
const RIGHT: u32 = 230;

/// A timeline could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("drawing the timeline failed: {0}")]
pub struct DrawError(String);

impl DrawError {
    fn from_display(error: impl core::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Seconds on the horizontal axis, and where they lie.
#[derive(Clone, Copy, Debug)]
struct Axis {
    from_s: f64,
    until_s: f64,
}

impl Axis {
    fn of(timeline: &Timeline) -> Self {
        let until_s = marks::seconds(timeline, timeline.until).max(0.001);
        // A little room, so that what happens at the very end is seen.
        Self { from_s: 0.0, until_s: until_s * 1.02 }
    }

    /// The pixel of a moment, kept within the charts.
    #[expect(clippy::cast_possible_truncation, reason = "clamped to the width of the drawing")]
    fn pixel(&self, at_s: f64) -> i32 {
        let share = ((at_s - self.from_s) / (self.until_s - self.from_s)).clamp(0.0, 1.0);
        (f64::from(LEFT) + share * f64::from(WIDTH - LEFT - RIGHT)).round() as i32
    }
}

/// The timeline as an SVG document.
pub(super) fn svg(timeline: &Timeline) -> Result<String, DrawError> {
    let axis = Axis::of(timeline);
    let head = header::Header::new(timeline, axis);
    let height = head.height() + charts::HEIGHT;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE).map_err(DrawError::from_display)?;
        let (top, bottom) = root.split_vertically(head.height());
        charts::draw(&bottom, timeline, axis)?;
        head.draw(&top)?;
        head.draw_lines(&root, head.height() + charts::PLOTS_HEIGHT)?;
        root.present().map_err(DrawError::from_display)?;
    }
    Ok(text)
}
