//! The three charts.

use ackbeat_liveness::{Direction, FrameKind};
use plotters::element::{Circle, Cross, EmptyElement, PathElement, TriangleMarker};
use plotters::prelude::{ChartBuilder, IntoFont as _, LabelAreaPosition, Text};
use plotters::style::{Color as _, RGBColor, ShapeStyle};

use super::super::{Mark, Point, Timeline};
use super::header::{Area, pixel, style};
use super::marks::seconds;
use super::series::{Pieces, Unit, highest, pieces, unit};
use super::{Axis, DrawError, LEFT, RIGHT, WIDTH, palette};

const STREAM_HEIGHT: u32 = 300;
const QUEUES_HEIGHT: u32 = 250;
const COUNTS_HEIGHT: u32 = 170;
/// Below the last chart: numbers and name of the axis of time.
const TIME_HEIGHT: u32 = 44;
/// Above each chart: its name.
const NAME_HEIGHT: u32 = 34;
/// Height of all three.
pub(super) const HEIGHT: u32 = STREAM_HEIGHT + QUEUES_HEIGHT + COUNTS_HEIGHT;
/// Height down to the axis of time.
pub(super) const PLOTS_HEIGHT: u32 = HEIGHT - TIME_HEIGHT;

/// A line of a chart.
struct Line {
    name: &'static str,
    color: RGBColor,
    width: u32,
    pieces: Pieces,
}

/// What a legend shows beside words.
enum Sample {
    Line(u32),
    Dot,
    Triangle,
    Cross,
    Thin,
}

struct Chart {
    name: String,
    lowest: f64,
    highest: f64,
    is_last: bool,
    decimals: usize,
}

pub(super) fn draw(area: &Area<'_>, timeline: &Timeline, axis: Axis) -> Result<(), DrawError> {
    let (stream, rest) = area.split_vertically(STREAM_HEIGHT);
    let (queues, counts) = rest.split_vertically(QUEUES_HEIGHT);
    draw_stream(&stream, timeline, axis)?;
    draw_queues(&queues, timeline, axis)?;
    draw_counts(&counts, timeline, axis)
}

/// Where the stream was: a Ping stands at its own place in it, so the data before it are the distance to the line of
/// what was acknowledged.
fn draw_stream(area: &Area<'_>, timeline: &Timeline, axis: Axis) -> Result<(), DrawError> {
    let position = |value: fn(&Point) -> Option<i64>| pieces(timeline, move |point| value(point).map(float));
    let mut lines = vec![
        Line {
            name: "written (write_seq)",
            color: palette::ORANGE,
            width: 4,
            pieces: position(|point| point.written_bytes),
        },
        Line {
            name: "sent (snd_nxt)",
            color: palette::SKY_BLUE,
            width: 2,
            pieces: position(|point| point.sent_bytes),
        },
        Line {
            name: "acknowledged (snd_una)",
            color: palette::BLUE,
            width: 3,
            pieces: position(|point| point.acked_bytes),
        },
    ];
    let placed: Vec<(&Mark, f64)> =
        timeline.marks.iter().filter_map(|mark| Some((mark, float(mark.position_bytes?)))).collect();
    let values = || {
        lines
            .iter()
            .flat_map(|line| line.pieces.iter().flatten().map(|(_, value)| *value))
            .chain(placed.iter().map(|(_, at)| *at))
    };
    let (low, high) = (values().fold(0.0, f64::min), values().fold(1.0, f64::max));
    let unit = unit(high - low);
    scale(&mut lines, unit);
    let chart = Chart {
        name: format!("Position in the stream to the peer, {} since the first reading", unit.name),
        lowest: low / unit.bytes,
        highest: high / unit.bytes,
        is_last: false,
        decimals: decimals((high - low) / unit.bytes),
    };
    let placed: Vec<(&Mark, f64)> = placed.into_iter().map(|(mark, at)| (mark, at / unit.bytes)).collect();
    let waits: Pieces = placed
        .iter()
        .filter(|(mark, _)| is_ping(mark))
        .filter_map(|(mark, y)| {
            let until = seconds(timeline, mark.acked_at?);
            Some(vec![(seconds(timeline, mark.at), *y), (until, *y)])
        })
        .collect();
    plot(area, axis, &chart, &lines, |charts| {
        for wait in &waits {
            charts.line(wait, palette::BLACK.stroke_width(1))?;
        }
        for (mark, y) in &placed {
            let at = (seconds(timeline, mark.at), *y);
            match mark.kind {
                FrameKind::Ping => charts.dot(at, palette::VERMILLION)?,
                FrameKind::Pong => charts.triangle(at, palette::GREEN)?,
                FrameKind::Close => charts.cross(at, palette::BLACK)?,
            }
        }
        Ok(())
    })?;
    let has = |kind| placed.iter().any(|(mark, _)| mark.kind == kind);
    let mut legend = legend_of(&lines);
    if has(FrameKind::Ping) {
        legend.push(("Ping, at its place in the stream", palette::VERMILLION, Sample::Dot));
    }
    if !waits.is_empty() {
        legend.push(("its way until acknowledged", palette::BLACK, Sample::Thin));
    }
    if has(FrameKind::Pong) {
        legend.push(("Pong, at its Ping's place", palette::GREEN, Sample::Triangle));
    }
    if has(FrameKind::Close) {
        legend.push(("Close frame", palette::BLACK, Sample::Cross));
    }
    draw_legend(area, &legend)
}

fn draw_queues(area: &Area<'_>, timeline: &Timeline, axis: Axis) -> Result<(), DrawError> {
    let bytes = |value: fn(&Point) -> Option<u32>| pieces(timeline, move |point| value(point).map(f64::from));
    let in_flight = |point: &Point| point.send_queue_bytes?.checked_sub(point.unsent_bytes?);
    let mut lines = vec![
        Line {
            name: "send queue",
            color: palette::BLUE,
            width: 5,
            pieces: bytes(|point| point.send_queue_bytes),
        },
        Line {
            name: "of it, not sent",
            color: palette::ORANGE,
            width: 3,
            pieces: bytes(|point| point.unsent_bytes),
        },
        Line { name: "of it, in flight", color: palette::SKY_BLUE, width: 2, pieces: bytes(in_flight) },
        Line {
            name: "the peer's window (snd_wnd)",
            color: palette::GREEN,
            width: 2,
            pieces: bytes(|point| point.snd_wnd_bytes),
        },
        Line {
            name: "received, unread by the host",
            color: palette::PURPLE,
            width: 1,
            pieces: bytes(|point| point.unread_bytes),
        },
    ];
    let high = highest(&lines.iter().map(|line| &line.pieces).collect::<Vec<_>>()).max(1.0);
    let unit = unit(high);
    scale(&mut lines, unit);
    let chart = Chart {
        name: format!("Queues and the peer's window, {}", unit.name),
        lowest: 0.0,
        highest: high / unit.bytes,
        is_last: false,
        decimals: decimals(high / unit.bytes),
    };
    plot(area, axis, &chart, &lines, |_| Ok(()))?;
    draw_legend(area, &legend_of(&lines))
}

fn draw_counts(area: &Area<'_>, timeline: &Timeline, axis: Axis) -> Result<(), DrawError> {
    let count = |value: fn(&Point) -> Option<u8>| pieces(timeline, move |point| value(point).map(f64::from));
    // The total since the connection was made says more about the path than about now: what it rose by is shown.
    let first = timeline.points.iter().find_map(|point| point.total_retransmits);
    let retransmitted = pieces(timeline, |point| {
        Some(f64::from(point.total_retransmits?.saturating_sub(first.unwrap_or_default())))
    });
    let lines = vec![
        Line { name: "segments retransmitted", color: palette::PURPLE, width: 7, pieces: retransmitted },
        Line {
            name: "back-off (exponent)",
            color: palette::ORANGE,
            width: 5,
            pieces: count(|point| point.backoff),
        },
        Line {
            name: "unanswered retransmissions",
            color: palette::VERMILLION,
            width: 3,
            pieces: count(|point| point.retransmits),
        },
        Line {
            name: "unanswered window probes",
            color: palette::BLUE,
            width: 2,
            pieces: count(|point| point.probes_out),
        },
    ];
    let chart = Chart {
        name: "Retransmissions and probes, count".to_owned(),
        lowest: 0.0,
        highest: highest(&lines.iter().map(|line| &line.pieces).collect::<Vec<_>>()).max(4.0),
        is_last: true,
        decimals: 0,
    };
    plot(area, axis, &chart, &lines, |_| Ok(()))?;
    draw_legend(area, &legend_of(&lines))
}

/// Draws marks into a chart.
trait Marks {
    fn line(&mut self, points: &[(f64, f64)], style: ShapeStyle) -> Result<(), DrawError>;
    fn dot(&mut self, at: (f64, f64), color: RGBColor) -> Result<(), DrawError>;
    fn triangle(&mut self, at: (f64, f64), color: RGBColor) -> Result<(), DrawError>;
    fn cross(&mut self, at: (f64, f64), color: RGBColor) -> Result<(), DrawError>;
}

fn plot(
    area: &Area<'_>,
    axis: Axis,
    chart: &Chart,
    lines: &[Line],
    more: impl FnOnce(&mut dyn Marks) -> Result<(), DrawError>,
) -> Result<(), DrawError> {
    let time_height = if chart.is_last { TIME_HEIGHT } else { 0 };
    let room = (chart.highest - chart.lowest) * 0.06;
    let mut context = ChartBuilder::on(area)
        .margin_top(NAME_HEIGHT)
        .margin_right(RIGHT)
        .set_label_area_size(LabelAreaPosition::Left, LEFT)
        .set_label_area_size(LabelAreaPosition::Bottom, time_height)
        .build_cartesian_2d(
            axis.from_s..axis.until_s,
            (chart.lowest - if chart.lowest < 0.0 { room } else { 0.0 })..(chart.highest + room),
        )
        .map_err(DrawError::from_display)?;
    let decimals = chart.decimals;
    let time_decimals = decimals_of_time(axis);
    context
        .configure_mesh()
        .x_desc(if chart.is_last { "seconds since the connection opened" } else { "" })
        .x_labels(12)
        .y_labels(6)
        .x_label_formatter(&|value| format!("{value:.time_decimals$}"))
        .y_label_formatter(&|value| format!("{value:.decimals$}"))
        .label_style(style(12, palette::TEXT))
        .axis_desc_style(style(13, palette::TEXT))
        .bold_line_style(palette::GRID)
        .light_line_style(plotters::style::TRANSPARENT)
        .axis_style(palette::GREY)
        .draw()
        .map_err(DrawError::from_display)?;
    for line in lines {
        for piece in &line.pieces {
            let style = line.color.stroke_width(line.width);
            // One reading alone is no line, but it was read.
            if let [only] = piece.as_slice() {
                context
                    .draw_series([Circle::new(*only, 2, line.color.filled())])
                    .map_err(DrawError::from_display)?;
            }
            context.draw_series([PathElement::new(piece.clone(), style)]).map_err(DrawError::from_display)?;
        }
    }
    more(&mut Drawn(&mut context))?;
    area.draw(&Text::new(chart.name.clone(), (pixel(LEFT), 12), ("sans-serif", 14).into_font()))
        .map_err(DrawError::from_display)
}

type Context<'a, 'b> = plotters::chart::ChartContext<
    'a,
    plotters::prelude::SVGBackend<'b>,
    plotters::prelude::Cartesian2d<
        plotters::coord::types::RangedCoordf64,
        plotters::coord::types::RangedCoordf64,
    >,
>;

struct Drawn<'a, 'b, 'c>(&'a mut Context<'b, 'c>);

impl Marks for Drawn<'_, '_, '_> {
    fn line(&mut self, points: &[(f64, f64)], style: ShapeStyle) -> Result<(), DrawError> {
        self.0
            .draw_series([PathElement::new(points.to_vec(), style)])
            .map(|_| ())
            .map_err(DrawError::from_display)
    }

    fn dot(&mut self, at: (f64, f64), color: RGBColor) -> Result<(), DrawError> {
        self.0.draw_series([Circle::new(at, 4, color.filled())]).map(|_| ()).map_err(DrawError::from_display)
    }

    fn triangle(&mut self, at: (f64, f64), color: RGBColor) -> Result<(), DrawError> {
        self.0
            .draw_series([TriangleMarker::new(at, 5, color.filled())])
            .map(|_| ())
            .map_err(DrawError::from_display)
    }

    fn cross(&mut self, at: (f64, f64), color: RGBColor) -> Result<(), DrawError> {
        self.0
            .draw_series([Cross::new(at, 5, color.stroke_width(2))])
            .map(|_| ())
            .map_err(DrawError::from_display)
    }
}

fn legend_of(lines: &[Line]) -> Vec<(&'static str, RGBColor, Sample)> {
    lines
        .iter()
        .filter(|line| !line.pieces.is_empty())
        .map(|line| (line.name, line.color, Sample::Line(line.width)))
        .collect()
}

fn draw_legend(area: &Area<'_>, entries: &[(&'static str, RGBColor, Sample)]) -> Result<(), DrawError> {
    let left = pixel(WIDTH - RIGHT) + 14;
    let mut top = pixel(NAME_HEIGHT) + 4;
    for (name, color, sample) in entries {
        let middle = (left + 10, top + 7);
        let at = EmptyElement::at(middle);
        let drawn = match sample {
            Sample::Line(width) => {
                area.draw(&(at + PathElement::new([(-10, 0), (10, 0)], color.stroke_width(*width))))
            }
            Sample::Thin => area.draw(&(at + PathElement::new([(-10, 0), (10, 0)], color.stroke_width(1)))),
            Sample::Dot => area.draw(&(at + Circle::new((0, 0), 4, color.filled()))),
            Sample::Triangle => area.draw(&(at + TriangleMarker::new((0, 0), 5, color.filled()))),
            Sample::Cross => area.draw(&(at + Cross::new((0, 0), 5, color.stroke_width(2)))),
        };
        drawn.map_err(DrawError::from_display)?;
        area.draw(&Text::new(*name, (left + 26, top), style(12, palette::TEXT)))
            .map_err(DrawError::from_display)?;
        top += 19;
    }
    Ok(())
}

fn scale(lines: &mut [Line], unit: Unit) {
    for value in lines.iter_mut().flat_map(|line| line.pieces.iter_mut().flatten()) {
        value.1 /= unit.bytes;
    }
}

fn is_ping(mark: &Mark) -> bool {
    (mark.direction, mark.kind) == (Direction::Egress, FrameKind::Ping)
}

/// Digits that an axis of this length needs.
fn decimals(length: f64) -> usize {
    if length < 0.5 {
        2
    } else if length < 8.0 {
        1
    } else {
        0
    }
}

fn decimals_of_time(axis: Axis) -> usize {
    decimals(axis.until_s - axis.from_s)
}

#[expect(clippy::cast_precision_loss, reason = "a drawing has no single bytes of a petabyte")]
const fn float(bytes: i64) -> f64 {
    bytes as f64
}
