//! How long a detector takes to kill a peer that is gone, against how often it kills one that is not.

use anyhow::Result;
use plotters::chart::ChartBuilder;
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::{BLACK, Color as _, IntoFont as _, IntoLogRange as _, WHITE};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{RGBColor, ShapeStyle, TextStyle};

use super::labels::{Rect, place};
use super::{BLUE, FONT, GREY, INK, VERMILION, drawing, short, svg};
use crate::arena::judge::statistics::{Durations, Rate};

/// One point.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Its label.
    pub name: String,
    /// How often it killed a peer that was there.
    pub false_kills: Rate,
    /// How long it took to kill one that was gone.
    pub detection: Durations,
    /// One of ackbeat's policies: drawn so that it is found at once.
    pub is_ours: bool,
}

const WIDTH: u32 = 1_100;
const HEIGHT: u32 = 720;
const LABEL_PX: i32 = 14;

/// The plot, as an SVG document. Contenders whose median is beyond the runs' time stand in a band at the right.
///
/// # Errors
/// If it cannot be drawn.
pub fn pareto(contenders: &[Contender], subtitle: &str) -> Result<String> {
    let times = contenders.iter().flat_map(|one| [one.detection.p50_ms, one.detection.p99_ms]).flatten();
    let (mut shortest, mut longest) = (f64::MAX, 0.0_f64);
    for ms in times {
        shortest = shortest.min(ms / 1_000.0);
        longest = longest.max(ms / 1_000.0);
    }
    if longest <= 0.0 {
        (shortest, longest) = (1.0, 10.0);
    }
    let (from_s, until_s) = ((shortest * 0.7).max(0.05), longest * 1.5);
    // A last column for those that did not kill in the time that the runs have.
    let has_never = contenders.iter().any(|one| one.detection.p50_ms.is_none());
    let never_s = until_s * 1.35;
    let end_s = if has_never { until_s * 1.9 } else { until_s };
    let highest = contenders.iter().map(|one| one.false_kills.upper_95 * 100.0).fold(1.0_f64, f64::max);
    let top = (highest * 1.08).min(104.0);
    svg((WIDTH, HEIGHT), |root| {
        let title = TextStyle::from((FONT, 23).into_font()).color(&INK);
        root.draw(&Text::new("Finding the dead against killing the living", (24, 16), title))
            .map_err(drawing)?;
        let small = TextStyle::from((FONT, 14).into_font()).color(&GREY);
        root.draw(&Text::new(subtitle.to_owned(), (24, 46), small.clone())).map_err(drawing)?;
        let area = root.margin(72, 0, 0, 0);
        let mut chart = ChartBuilder::on(&area)
            .margin_right(28)
            .margin_bottom(6)
            .x_label_area_size(58)
            .y_label_area_size(76)
            .build_cartesian_2d((from_s..end_s).log_scale(), -top * 0.045..top)
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .x_desc("time from the moment the peer was gone to the kill: median, and bar to the 99th percentile (s, logarithmic)")
            .y_desc("kills of a peer that was there (% of runs, bar: 95 % interval)")
            .x_label_formatter(&|value| if *value > until_s { String::new() } else { short(*value) })
            .y_label_formatter(&|value| if *value < 0.0 { String::new() } else { format!("{value:.0}") })
            .axis_desc_style((FONT, 15))
            .label_style((FONT, 14))
            .light_line_style(BLACK.mix(0.04))
            .bold_line_style(BLACK.mix(0.12))
            .draw()
            .map_err(drawing)?;
        if has_never {
            let band = Rectangle::new([(until_s, -top * 0.045), (end_s, top)], GREY.mix(0.10).filled());
            chart.draw_series([band]).map_err(drawing)?;
        }
        let place_of = |one: &Contender| {
            let x = one.detection.p50_ms.map_or(never_s, |ms| ms / 1_000.0);
            (x, one.false_kills.share().unwrap_or(0.0) * 100.0)
        };
        // The front: nobody is both faster and more careful.
        let mut front: Vec<(f64, f64)> = Vec::new();
        let mut sorted: Vec<(f64, f64)> =
            contenders.iter().filter(|one| one.detection.p50_ms.is_some()).map(place_of).collect();
        sorted.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.total_cmp(&right.1)));
        for point in sorted {
            match front.last() {
                Some(last) if point.1 >= last.1 => {}
                Some(last) => {
                    front.push((point.0, last.1));
                    front.push(point);
                }
                None => front.push(point),
            }
        }
        if let Some(first) = front.first().copied() {
            front.insert(0, (first.0, top));
        }
        if let Some(last) = front.last().copied() {
            front.push((until_s, last.1));
        }
        let front_style = ShapeStyle { color: VERMILION.mix(0.55), filled: false, stroke_width: 2 };
        chart.draw_series([PathElement::new(front, front_style)]).map_err(drawing)?;

        let colour = |one: &Contender| -> RGBColor { if one.is_ours { VERMILION } else { BLUE } };
        for one in contenders {
            let (x, y) = place_of(one);
            let thin = ShapeStyle { color: colour(one).mix(0.45), filled: false, stroke_width: 1 };
            let (low, high) = (one.false_kills.lower_95 * 100.0, one.false_kills.upper_95 * 100.0);
            chart.draw_series([PathElement::new(vec![(x, low), (x, high)], thin)]).map_err(drawing)?;
            if one.detection.p50_ms.is_some() {
                let end = one.detection.p99_ms.map_or(until_s, |ms| ms / 1_000.0);
                chart.draw_series([PathElement::new(vec![(x, y), (end, y)], thin)]).map_err(drawing)?;
                if one.detection.p99_ms.is_none() {
                    let (px, py) = chart.backend_coord(&(until_s, y));
                    let arrow = vec![(px - 8, py - 4), (px, py), (px - 8, py + 4)];
                    root.draw(&PathElement::new(arrow, thin)).map_err(drawing)?;
                }
            }
        }
        let (left, upper) = chart.backend_coord(&(from_s, top));
        let (right, lower) = chart.backend_coord(&(end_s, -top * 0.045));
        let bounds =
            Rect { left: left + 2, top: upper + 2, width: right - left - 4, height: lower - upper - 4 };
        // Ours first: they get the best places.
        let mut order: Vec<&Contender> = contenders.iter().collect();
        order.sort_by_key(|one| !one.is_ours);
        let points: Vec<((i32, i32), String)> =
            order.iter().map(|one| (chart.backend_coord(&place_of(one)), one.name.clone())).collect();
        let mut taken = Vec::new();
        if has_never {
            let (band_left, _) = chart.backend_coord(&(until_s, top));
            let text = "not in the runs' time";
            let style =
                TextStyle::from((FONT, 13).into_font()).color(&GREY).pos(Pos::new(HPos::Center, VPos::Top));
            let (width, height) = super::labels::size(text, 13);
            let middle = i32::midpoint(band_left, right);
            root.draw(&Text::new(text, (middle, upper + 6), style)).map_err(drawing)?;
            taken.push(Rect { left: middle - width / 2, top: upper + 4, width, height });
        }
        let labels = place(&points, LABEL_PX, bounds, &taken);
        for ((one, (point, text)), rect) in order.iter().zip(&points).zip(labels) {
            let colour = colour(one);
            let end = rect.nearest(*point);
            if (end.0 - point.0).abs().max((end.1 - point.1).abs()) > 12 {
                let leader = ShapeStyle { color: GREY.mix(0.5), filled: false, stroke_width: 1 };
                root.draw(&PathElement::new(vec![*point, end], leader)).map_err(drawing)?;
            }
            if one.is_ours {
                let (x, y) = *point;
                let diamond = vec![(x, y - 8), (x + 8, y), (x, y + 8), (x - 8, y)];
                root.draw(&Polygon::new(diamond, colour.filled())).map_err(drawing)?;
            } else {
                root.draw(&Circle::new(*point, 5, WHITE.filled())).map_err(drawing)?;
                root.draw(&Circle::new(*point, 5, colour.stroke_width(2))).map_err(drawing)?;
            }
            let font = (FONT, LABEL_PX).into_font();
            let font = if one.is_ours { font.style(plotters::style::FontStyle::Bold) } else { font };
            let style = TextStyle::from(font)
                .color(if one.is_ours { &VERMILION } else { &INK })
                .pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(text.clone(), (rect.left + 3, rect.top + rect.height / 2), style))
                .map_err(drawing)?;
        }
        let legend = "◆ ackbeat's policies    ○ other detectors    line: nobody is both faster and more careful    down and left is better";
        let style = small.pos(Pos::new(HPos::Right, VPos::Top));
        let edge = i32::try_from(WIDTH).unwrap_or(i32::MAX) - 28;
        root.draw(&Text::new(legend, (edge, 46 + 18), style)).map_err(drawing)?;
        Ok(())
    })
}
