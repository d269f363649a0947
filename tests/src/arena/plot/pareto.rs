//! How long a detector takes to kill a peer that is gone, against how often it kills one that is not.

use anyhow::Result;
use plotters::chart::ChartBuilder;
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::{BLACK, Color as _, IntoFont as _, IntoLogRange as _, WHITE};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{RGBColor, ShapeStyle, TextStyle};

use super::labels::{Rect, along, line_height, place};
use super::{Area, BLUE, FONT, GREY, INK, VERMILION, drawing, short, svg};
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
/// Points that are nearer to each other share a label.
const NEAR_PX: i32 = 7;

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
        let legend = "diamond: ackbeat's policies · circle: other detectors · line: nobody is both faster and more careful · down \
                      and left is better";
        root.draw(&Text::new(legend, (24, 66), small)).map_err(drawing)?;
        let area = root.margin(94, 0, 12, 0);
        let mut chart = ChartBuilder::on(&area)
            .margin_right(28)
            .margin_bottom(6)
            .x_label_area_size(58)
            .y_label_area_size(88)
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
        let mut taken: Vec<Rect> = Vec::new();
        for pair in front.windows(2) {
            if let [from, to] = pair {
                taken.extend(along(chart.backend_coord(from), chart.backend_coord(to)));
            }
        }
        chart.draw_series([PathElement::new(front, front_style)]).map_err(drawing)?;

        let colour = |one: &Contender| -> RGBColor { if one.is_ours { VERMILION } else { BLUE } };
        for one in contenders {
            let (x, y) = place_of(one);
            let thin = ShapeStyle { color: colour(one).mix(0.45), filled: false, stroke_width: 1 };
            let (low, high) = (one.false_kills.lower_95 * 100.0, one.false_kills.upper_95 * 100.0);
            taken.extend(along(chart.backend_coord(&(x, low)), chart.backend_coord(&(x, high))));
            chart.draw_series([PathElement::new(vec![(x, low), (x, high)], thin)]).map_err(drawing)?;
            if one.detection.p50_ms.is_some() {
                let end = one.detection.p99_ms.map_or(until_s, |ms| ms / 1_000.0);
                taken.extend(along(chart.backend_coord(&(x, y)), chart.backend_coord(&(end, y))));
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
        for one in contenders {
            mark(root, chart.backend_coord(&place_of(one)), one.is_ours)?;
        }
        // Ours first: they get the best places.
        let mut groups: Vec<((i32, i32), Vec<&Contender>)> = Vec::new();
        let mut order: Vec<&Contender> = contenders.iter().collect();
        order.sort_by_key(|one| !one.is_ours);
        for one in order {
            let (x, y) = chart.backend_coord(&place_of(one));
            let near = groups.iter_mut().find(|((other_x, other_y), members)| {
                (x - other_x).abs() < NEAR_PX
                    && (y - other_y).abs() < NEAR_PX
                    && members.iter().all(|member| member.is_ours == one.is_ours)
            });
            match near {
                Some((_, members)) => members.push(one),
                None => groups.push(((x, y), vec![one])),
            }
        }
        let points: Vec<((i32, i32), String)> = groups
            .iter()
            .map(|(point, members)| {
                (*point, members.iter().map(|one| label(&one.name)).collect::<Vec<_>>().join("\n"))
            })
            .collect();
        let labels = place(&points, LABEL_PX, bounds, &taken);
        for (((_, members), (point, text)), rect) in groups.iter().zip(&points).zip(labels) {
            let is_ours = members.iter().any(|one| one.is_ours);
            let end = rect.nearest(*point);
            if (end.0 - point.0).abs().max((end.1 - point.1).abs()) > 12 {
                let leader = ShapeStyle { color: GREY.mix(0.5), filled: false, stroke_width: 1 };
                root.draw(&PathElement::new(vec![*point, end], leader)).map_err(drawing)?;
            }
            let font = (FONT, LABEL_PX).into_font();
            let font = if is_ours { font.style(plotters::style::FontStyle::Bold) } else { font };
            let style = TextStyle::from(font)
                .color(if is_ours { &VERMILION } else { &INK })
                .pos(Pos::new(HPos::Left, VPos::Center));
            let mut middle = rect.top + line_height(LABEL_PX) / 2;
            for line in text.lines() {
                root.draw(&Text::new(line.to_owned(), (rect.left + 3, middle), style.clone()))
                    .map_err(drawing)?;
                middle += line_height(LABEL_PX);
            }
        }
        Ok(())
    })
}

/// A diamond for ours, a circle for the others.
fn mark(root: &Area<'_>, (x, y): (i32, i32), is_ours: bool) -> Result<()> {
    if is_ours {
        let diamond = vec![(x, y - 8), (x + 8, y), (x, y + 8), (x - 8, y)];
        return root.draw(&Polygon::new(diamond, VERMILION.filled())).map_err(drawing);
    }
    root.draw(&Circle::new((x, y), 5, WHITE.filled())).map_err(drawing)?;
    root.draw(&Circle::new((x, y), 5, BLUE.stroke_width(2))).map_err(drawing)
}

/// A contestant's name as people read it: `user-timeout 30 s` for `user-timeout:timeout_ms=30000`.
fn label(name: &str) -> String {
    let Some((detector, parameters)) = name.split_once(':') else { return name.to_owned() };
    let readable: Vec<String> = parameters
        .split(',')
        .map(|parameter| {
            let value = parameter.split_once("_ms=").and_then(|(_, value)| value.parse::<f64>().ok());
            value.map_or_else(|| parameter.to_owned(), |ms| format!("{} s", short(ms / 1_000.0)))
        })
        .collect();
    format!("{detector} {}", readable.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_readable() {
        assert_eq!(label("user-timeout:timeout_ms=30000"), "user-timeout 30 s");
        assert_eq!(label("ws-2"), "ws-2");
        assert_eq!(label("phi:threshold=12"), "phi threshold=12");
    }
}
