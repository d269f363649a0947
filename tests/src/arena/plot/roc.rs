//! What a threshold buys: for each, how many outages of which length it kills through, and how soon it kills the dead.

use anyhow::Result;
use plotters::chart::ChartBuilder;
use plotters::element::{Circle, PathElement, Polygon, Text};
use plotters::prelude::{BLACK, Color as _, IntoFont as _};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{RGBColor, ShapeStyle, TextStyle};

use super::labels::{Rect, along, place};
use super::{Area, BLUE, FONT, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, drawing, short, svg};

/// Everything that the plot shows.
#[derive(Clone, Debug)]
pub struct Roc {
    /// One line for each length of an outage.
    pub lines: Vec<RocLine>,
    /// Policies that are marked: their name and how long they take to kill a peer that is gone, in seconds.
    pub marks: Vec<(String, f64)>,
    /// What was swept, and how many runs there are.
    pub subtitle: String,
}

/// Outages of one length under each threshold.
#[derive(Clone, Debug)]
pub struct RocLine {
    /// `outage of 2 s`.
    pub name: String,
    /// Seconds to the kill of a peer that is gone, and the share of these outages that are killed through, in per cent; in
    /// the order of the threshold.
    pub points: Vec<(f64, f64)>,
}

const COLOURS: [RGBColor; 6] = [BLUE, ORANGE, GREEN, PURPLE, VERMILION, INK];
const LABEL_PX: i32 = 14;

/// The plot, as an SVG document.
///
/// # Errors
/// If it cannot be drawn.
pub fn roc(roc: &Roc) -> Result<String> {
    let longest = roc
        .lines
        .iter()
        .flat_map(|line| line.points.iter().map(|point| point.0))
        .chain(roc.marks.iter().map(|mark| mark.1))
        .fold(1.0_f64, f64::max);
    svg((1_100, 640), |root| {
        let title = TextStyle::from((FONT, 23).into_font()).color(&INK);
        root.draw(&Text::new(
            "How long to wait: outages killed through against time to kill the dead",
            (24, 16),
            title,
        ))
        .map_err(drawing)?;
        let small = TextStyle::from((FONT, 14).into_font()).color(&GREY);
        root.draw(&Text::new(roc.subtitle.clone(), (24, 46), small)).map_err(drawing)?;
        let area = root.margin(84, 0, 12, 0);
        let until_s = longest * 1.04;
        let mut chart = ChartBuilder::on(&area)
            .margin_right(40)
            .margin_bottom(6)
            .x_label_area_size(56)
            .y_label_area_size(88)
            .build_cartesian_2d(0.0..until_s, -4.0..104.0)
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .x_desc("time from the moment the peer was gone to the kill, median of rows 20 to 22 (s)")
            .y_desc("connections killed though the path healed (% of runs)")
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| {
                if (0.0..=100.0).contains(value) { format!("{value:.0}") } else { String::new() }
            })
            .x_labels(12)
            .axis_desc_style((FONT, 15))
            .label_style((FONT, 14))
            .light_line_style(BLACK.mix(0.04))
            .bold_line_style(BLACK.mix(0.12))
            .draw()
            .map_err(drawing)?;
        for (name, at_s) in &roc.marks {
            let style = ShapeStyle { color: INK.mix(0.6), filled: false, stroke_width: 2 };
            let dashes = (0..36).map(|dash| {
                let from = f64::from(dash) * 3.0 - 4.0;
                PathElement::new(vec![(*at_s, from), (*at_s, from + 1.6)], style)
            });
            chart.draw_series(dashes).map_err(drawing)?;
            let (x, y) = chart.backend_coord(&(*at_s, 104.0));
            let font = (FONT, 14).into_font().style(plotters::style::FontStyle::Bold);
            let style = TextStyle::from(font).color(&INK).pos(Pos::new(HPos::Center, VPos::Bottom));
            root.draw(&Text::new(format!("{name}: {} s", short(*at_s)), (x, y - 3), style))
                .map_err(drawing)?;
        }
        let mut ends = Vec::new();
        for (index, line) in roc.lines.iter().enumerate() {
            let colour = COLOURS.get(index % COLOURS.len()).copied().unwrap_or(INK);
            let style = ShapeStyle { color: colour.to_rgba(), filled: false, stroke_width: 2 };
            chart.draw_series([PathElement::new(line.points.clone(), style)]).map_err(drawing)?;
            for point in &line.points {
                marker(root, index, chart.backend_coord(point), colour)?;
            }
            // Named where it leaves the top: there the lines are apart.
            let bend = line.points.iter().rposition(|point| point.1 > 50.0).unwrap_or(0);
            if let Some(point) = line.points.get(bend) {
                ends.push((chart.backend_coord(point), line.name.clone(), colour));
            }
        }
        let (left, upper) = chart.backend_coord(&(0.0, 104.0));
        let (right, lower) = chart.backend_coord(&(until_s, -4.0));
        let bounds = Rect { left, top: upper, width: right - left, height: lower - upper };
        let mut taken: Vec<Rect> = Vec::new();
        for line in &roc.lines {
            for pair in line.points.windows(2) {
                if let [from, to] = pair {
                    taken.extend(along(chart.backend_coord(from), chart.backend_coord(to)));
                }
            }
        }
        for (_, at_s) in &roc.marks {
            let (x, _) = chart.backend_coord(&(*at_s, 0.0));
            taken.push(Rect { left: x - 2, top: upper, width: 4, height: lower - upper });
        }
        let points: Vec<((i32, i32), String)> =
            ends.iter().map(|(point, name, _)| (*point, name.clone())).collect();
        for (((point, name), (.., colour)), rect) in
            points.iter().zip(&ends).zip(place(&points, LABEL_PX, bounds, &taken))
        {
            let end = rect.nearest(*point);
            if (end.0 - point.0).abs().max((end.1 - point.1).abs()) > 12 {
                let leader = ShapeStyle { color: GREY.mix(0.6), filled: false, stroke_width: 1 };
                root.draw(&PathElement::new(vec![*point, end], leader)).map_err(drawing)?;
            }
            let style = TextStyle::from((FONT, LABEL_PX).into_font())
                .color(colour)
                .pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(name.clone(), (rect.left + 3, rect.top + rect.height / 2), style))
                .map_err(drawing)?;
        }
        Ok(())
    })
}

/// A shape for each line, for whoever sees no colours.
fn marker(root: &Area<'_>, index: usize, (x, y): (i32, i32), colour: RGBColor) -> Result<()> {
    let thick = colour.stroke_width(2);
    match index % 5 {
        0 => root.draw(&Circle::new((x, y), 4, colour.filled())),
        1 => root.draw(&Polygon::new(vec![(x, y - 6), (x + 5, y + 4), (x - 5, y + 4)], colour.filled())),
        2 => root.draw(&Polygon::new(
            vec![(x - 4, y - 4), (x + 4, y - 4), (x + 4, y + 4), (x - 4, y + 4)],
            colour.filled(),
        )),
        3 => root.draw(&Circle::new((x, y), 4, thick)),
        _ => root.draw(&PathElement::new(
            vec![(x - 4, y - 4), (x + 4, y + 4), (x, y), (x - 4, y + 4), (x + 4, y - 4)],
            thick,
        )),
    }
    .map_err(drawing)
}
