//! Plots for people: what they show is in their titles and axes, and no two labels lie on each other.

mod labels;
mod pareto;
mod roc;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea as _};
use plotters::prelude::SVGBackend;
use plotters::style::{RGBColor, WHITE};

pub use pareto::{Contender, pareto};
pub use roc::{Roc, RocLine, roc};

/// Colours that people with any kind of colour vision tell apart (Okabe and Ito, *Color Universal Design*).
pub(crate) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(crate) const VERMILION: RGBColor = RGBColor(213, 94, 0);
pub(crate) const GREEN: RGBColor = RGBColor(0, 158, 115);
pub(crate) const PURPLE: RGBColor = RGBColor(204, 121, 167);
pub(crate) const ORANGE: RGBColor = RGBColor(230, 159, 0);
pub(crate) const GREY: RGBColor = RGBColor(110, 110, 110);
pub(crate) const INK: RGBColor = RGBColor(30, 30, 30);

pub(crate) const FONT: &str = "sans-serif";

pub(crate) fn drawing<E: std::fmt::Display>(error: E) -> anyhow::Error {
    anyhow!("drawing failed: {error}")
}

/// A decimal without what is not needed: `2`, `3.5`.
pub(crate) fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws into a string and hands it back.
pub(crate) fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        draw(&root)?;
        root.present().map_err(drawing)?;
    }
    Ok(text)
}
