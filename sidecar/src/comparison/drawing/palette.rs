//! Colours that colour-blind people can tell apart (Okabe and Ito, 2008).

use ackbeat_liveness::Verdict;
use plotters::style::RGBColor;

use super::super::Truth;

pub(super) const BLACK: RGBColor = RGBColor(0, 0, 0);
pub(super) const ORANGE: RGBColor = RGBColor(230, 159, 0);
pub(super) const SKY_BLUE: RGBColor = RGBColor(86, 180, 233);
pub(super) const GREEN: RGBColor = RGBColor(0, 158, 115);
pub(super) const YELLOW: RGBColor = RGBColor(240, 228, 66);
pub(super) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(super) const VERMILLION: RGBColor = RGBColor(213, 94, 0);
pub(super) const PURPLE: RGBColor = RGBColor(204, 121, 167);
pub(super) const GREY: RGBColor = RGBColor(190, 190, 190);
pub(super) const TEXT: RGBColor = RGBColor(40, 40, 40);
pub(super) const GRID: RGBColor = RGBColor(225, 225, 225);

pub(super) const fn of_verdict(verdict: Verdict) -> RGBColor {
    match verdict {
        Verdict::Alive => GREEN,
        Verdict::Congested => SKY_BLUE,
        Verdict::Stalled => YELLOW,
        Verdict::Silent => PURPLE,
        Verdict::Unreachable => VERMILLION,
        Verdict::Unknown => GREY,
        Verdict::Closed => RGBColor(120, 120, 120),
    }
}

pub(super) const fn of_truth(truth: Truth) -> RGBColor {
    match truth {
        Truth::Alive => GREEN,
        Truth::Hung => PURPLE,
        Truth::Gone => VERMILLION,
        Truth::Outage => ORANGE,
    }
}
