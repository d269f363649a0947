//! Everything above the charts.

use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoFont as _, PathElement, Rectangle, SVGBackend, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, RGBColor, TextStyle};

use super::super::{Outcome, Timeline};
use super::marks::{Band, KillMark, kills, rows, seconds, shortened, verdicts};
use super::{Axis, DrawError, LEFT, palette};

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const TITLE_HEIGHT: u32 = 62;
const LABEL_HEIGHT: u32 = 17;
const BAND_HEIGHT: u32 = 22;
const LEGEND_HEIGHT: u32 = 26;
/// Width of a character of the labels, in pixels; no font is at hand that could be asked.
const CHARACTER: f64 = 6.3;
/// Characters in a line that is as wide as the drawing.
const LINE_MAX: usize = 190;

/// A row of coloured bands.
struct Row {
    name: String,
    bands: Vec<Band<(&'static str, RGBColor)>>,
    /// Parts in which a kill is justified.
    justified: Vec<(f64, f64)>,
}

struct Label {
    mark: KillMark,
    row: u32,
    /// Left end of its words.
    left: i32,
}

/// What is drawn above the charts, laid out.
pub(super) struct Header {
    axis: Axis,
    title: String,
    lines: Vec<String>,
    labels: Vec<Label>,
    label_rows: u32,
    rows: Vec<Row>,
    legend: Vec<(&'static str, RGBColor)>,
}

pub(super) fn style(size: u32, color: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&color)
}

impl Header {
    pub(super) fn new(timeline: &Timeline, axis: Axis) -> Self {
        let compared = &timeline.compared;
        let end = compared.closed.as_ref().map_or_else(String::new, |record| {
            if record.still_open {
                ", open at the end of the recording".to_owned()
            } else {
                format!(", closed by {} ({})", record.initiator, record.kind)
            }
        });
        let title =
            format!("Connection of {} to port {}{end}", compared.peer(), compared.endpoints.local_port);
        let (labels, label_rows) = labels(timeline, axis);
        let rows = band_rows(timeline);
        let mut legend: Vec<(&'static str, RGBColor)> = Vec::new();
        for entry in rows.iter().flat_map(|row| &row.bands).map(|band| band.what) {
            if !legend.contains(&entry) {
                legend.push(entry);
            }
        }
        Self { axis, title, lines: idle(&compared.outcomes), labels, label_rows, rows, legend }
    }

    pub(super) fn height(&self) -> u32 {
        TITLE_HEIGHT
            + 16 * count(self.lines.len())
            + self.label_rows * LABEL_HEIGHT
            + 8
            + count(self.rows.len()) * BAND_HEIGHT
            + LEGEND_HEIGHT
    }

    fn labels_top(&self) -> u32 {
        TITLE_HEIGHT + 16 * count(self.lines.len())
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let text = |words: &str, at: (i32, i32), style: TextStyle<'static>| {
            area.draw(&Text::new(words.to_owned(), at, style)).map_err(DrawError::from_display)
        };
        text(&self.title, (16, 14), style(20, palette::TEXT))?;
        text(
            "Dashed lines: who would have killed the connection, and when. Solid line: the host's own close.",
            (16, 40),
            style(13, palette::TEXT),
        )?;
        for (index, line) in self.lines.iter().enumerate() {
            text(line, (16, pixel(TITLE_HEIGHT + 16 * count(index)) - 4), style(12, palette::TEXT))?;
        }
        for label in &self.labels {
            let color = if label.mark.is_real { palette::BLACK } else { palette::VERMILLION };
            let at = (label.left, pixel(self.labels_top() + label.row * LABEL_HEIGHT) + 2);
            text(&label.mark.text, at, style(12, color))?;
        }
        let mut top = self.labels_top() + self.label_rows * LABEL_HEIGHT + 8;
        for row in &self.rows {
            self.draw_row(area, row, pixel(top))?;
            top += BAND_HEIGHT;
        }
        self.draw_legend(area, pixel(top) + 6)
    }

    fn draw_row(&self, area: &Area<'_>, row: &Row, top: i32) -> Result<(), DrawError> {
        let bottom = top + pixel(BAND_HEIGHT) - 4;
        let middle = i32::midpoint(top, bottom);
        // The thresholds of a long name stand below it.
        let lines: Vec<(String, i32, u32)> = match row.name.split_once(':') {
            None => vec![(shortened(&row.name, 22), middle, 12)],
            Some((name, rest)) => {
                vec![(format!("{name}:"), middle - 5, 10), (shortened(rest, 27), middle + 6, 10)]
            }
        };
        for (words, y, size) in lines {
            let to_the_left = Pos::new(HPos::Right, VPos::Center);
            let name = Text::new(words, (pixel(LEFT) - 8, y), style(size, palette::TEXT).pos(to_the_left));
            area.draw(&name).map_err(DrawError::from_display)?;
        }
        for band in &row.bands {
            let (word, color) = band.what;
            let (left, right) = (self.axis.pixel(band.from_s), self.axis.pixel(band.until_s));
            area.draw(&Rectangle::new(
                [(left, top), (right.max(left + 1), bottom)],
                color.mix(0.75).filled(),
            ))
            .map_err(DrawError::from_display)?;
            if f64::from(right - left) > width(word) + 8.0 {
                let centre = Pos::new(HPos::Center, VPos::Center);
                let word = Text::new(
                    word,
                    (i32::midpoint(left, right), middle),
                    style(12, palette::BLACK).pos(centre),
                );
                area.draw(&word).map_err(DrawError::from_display)?;
            }
        }
        for (from_s, until_s) in &row.justified {
            let (left, right) = (self.axis.pixel(*from_s), self.axis.pixel(*until_s));
            let bar = [(left, bottom - 4), (right.max(left + 2), bottom)];
            area.draw(&Rectangle::new(bar, palette::BLACK.filled())).map_err(DrawError::from_display)?;
        }
        Ok(())
    }

    fn draw_legend(&self, area: &Area<'_>, top: i32) -> Result<(), DrawError> {
        let mut left = pixel(LEFT);
        let justified = self.rows.iter().any(|row| !row.justified.is_empty());
        let bar = justified.then_some(("a kill is justified", palette::BLACK));
        for (word, color) in self.legend.iter().copied().chain(bar) {
            let height = if color == palette::BLACK { 4 } else { 10 };
            let square = [(left, top + 12 - height), (left + 14, top + 12)];
            area.draw(&Rectangle::new(square, color.mix(0.75).filled())).map_err(DrawError::from_display)?;
            area.draw(&Text::new(word, (left + 19, top), style(12, palette::TEXT)))
                .map_err(DrawError::from_display)?;
            #[expect(clippy::cast_possible_truncation, reason = "the width of a word")]
            let advance = width(word) as i32 + 38;
            left += advance;
        }
        Ok(())
    }

    /// The kills' lines, from their labels down through the charts.
    pub(super) fn draw_lines(&self, root: &Area<'_>, bottom: u32) -> Result<(), DrawError> {
        for label in &self.labels {
            let x = self.axis.pixel(label.mark.at_s);
            let top = pixel(self.labels_top() + label.row * LABEL_HEIGHT) + 2;
            if label.mark.is_real {
                let line = PathElement::new([(x, top), (x, pixel(bottom))], palette::BLACK.stroke_width(2));
                root.draw(&line).map_err(DrawError::from_display)?;
                continue;
            }
            let mut from = top;
            while from < pixel(bottom) {
                let until = (from + 6).min(pixel(bottom));
                let dash = PathElement::new([(x, from), (x, until)], palette::VERMILLION.stroke_width(1));
                root.draw(&dash).map_err(DrawError::from_display)?;
                from += 10;
            }
        }
        Ok(())
    }
}

/// Labels of the kills in rows, and how many rows there are.
fn labels(timeline: &Timeline, axis: Axis) -> (Vec<Label>, u32) {
    let marks = kills(timeline);
    // At the right of its line; what comes last has the room above the legends.
    let left = |mark: &KillMark| axis.pixel(mark.at_s) + 4;
    let spans: Vec<(f64, f64)> = marks
        .iter()
        .map(|mark| {
            let left = f64::from(left(mark));
            (left - 5.0, left + width(&mark.text))
        })
        .collect();
    let rows = rows(&spans);
    let row_count = rows.iter().max().map_or(0, |row| row + 1);
    let labels = marks
        .into_iter()
        .zip(rows)
        .map(|(mark, row)| Label { left: left(&mark), mark, row: count(row) })
        .collect();
    (labels, count(row_count))
}

fn band_rows(timeline: &Timeline) -> Vec<Row> {
    let mut rows = Vec::new();
    if !timeline.truth.is_empty() {
        let bands = timeline.truth.iter().map(|band| Band {
            from_s: seconds(timeline, band.from),
            until_s: seconds(timeline, band.until.unwrap_or(timeline.until)),
            what: (band.truth.as_str(), palette::of_truth(band.truth)),
        });
        rows.push(Row { name: "what was true".to_owned(), bands: bands.collect(), justified: Vec::new() });
    }
    for outcome in timeline.compared.outcomes.iter().filter(|outcome| outcome.is_policy) {
        let bands = verdicts(timeline, &outcome.verdicts).into_iter().map(|band| Band {
            from_s: band.from_s,
            until_s: band.until_s,
            what: (band.what.as_str(), palette::of_verdict(band.what)),
        });
        let justified = outcome.justified.iter().map(|interval| {
            let until = interval.until.unwrap_or(timeline.until);
            (seconds(timeline, interval.from), seconds(timeline, until))
        });
        rows.push(Row { name: outcome.name.clone(), bands: bands.collect(), justified: justified.collect() });
    }
    rows
}

/// Who would not have killed, and who could not judge, in lines.
fn idle(outcomes: &[Outcome]) -> Vec<String> {
    let names = |wanted: &dyn Fn(&Outcome) -> bool| {
        let names = outcomes.iter().filter(|outcome| wanted(outcome)).map(|outcome| outcome.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let kept = names(&|outcome| outcome.kill.is_none() && outcome.not_judged.is_none());
    let blind = names(&|outcome| outcome.not_judged.is_some());
    [("Would not have killed it: ", kept), ("Could not judge it: ", blind)]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .flat_map(|(words, names)| wrapped(&format!("{words}{names}")))
        .collect()
}

/// A list in lines that fit.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for item in text.split_inclusive(", ") {
        match lines.last_mut() {
            Some(line) if line.chars().count() + item.chars().count() <= LINE_MAX => line.push_str(item),
            _ => lines.push(item.to_owned()),
        }
    }
    lines
}

fn width(text: &str) -> f64 {
    f64::from(count(text.chars().count())) * CHARACTER
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

pub(super) fn pixel(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
