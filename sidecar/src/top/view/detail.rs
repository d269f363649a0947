//! One connection in full: the evidence ladder, the heartbeat, the socket, and what happened to it.

use ackbeat_liveness::{EvidenceScope, Role, Rung, Verdict};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::super::columns::{verdict, words};
use super::super::palette::Palette;
use super::super::state::{Detail, Pane, State};
use super::super::text::{
    UNKNOWN, age, grouped, harmless, head, interval, known, padded, round_trip, time_of_day,
};
use crate::api::types::{ClosedEvent, Connection, Event};

/// Columns of the left half, where both halves fit.
const LEFT: usize = 42;
/// Columns from which both halves fit.
const BOTH: usize = 78;
/// Events of the connection that are shown at most.
const EVENTS_SHOWN: usize = 50;

/// A line, piece by piece.
type Parts = Vec<(String, Style)>;

/// Draws the detail; lines that are scrolled over are left out.
pub(super) fn draw(state: &mut State, palette: Palette, area: Rect, frame: &mut Frame<'_>) {
    let Pane::Detail(detail) = &state.pane else { return };
    let lines = lines(detail, state, palette, usize::from(area.width));
    let end = lines.len().saturating_sub(usize::from(area.height));
    let scrolled = detail.scrolled.min(end);
    let shown: Vec<Line<'static>> = lines.into_iter().skip(scrolled).collect();
    if let Pane::Detail(detail) = &mut state.pane {
        detail.scrolled = scrolled;
    }
    frame.render_widget(Paragraph::new(shown), area);
}

fn lines(detail: &Detail, state: &State, palette: Palette, columns: usize) -> Vec<Line<'static>> {
    let connection = &detail.connection;
    let mut lines: Vec<Parts> = vec![title(detail, palette, columns)];
    lines.extend(identity(connection, palette));
    let left = [evidence(connection, palette), heartbeat(connection, palette)].concat();
    let right = tcp(connection, state, palette);
    if columns >= BOTH {
        let rows = left.len().max(right.len());
        let (mut left, mut right) = (left.into_iter(), right.into_iter());
        for _ in 0..rows {
            let left = left.next().unwrap_or_default();
            let used: usize = left.iter().map(|(text, _)| super::width(text)).sum();
            let blank = (" ".repeat(LEFT.saturating_sub(used)), Style::new());
            lines.push(left.into_iter().chain([blank]).chain(right.next().unwrap_or_default()).collect());
        }
    } else {
        lines.extend(left);
        lines.extend(right);
    }
    lines.extend(events(connection, state, palette));
    lines.into_iter().map(|parts| super::line(parts, columns)).collect()
}

fn title(detail: &Detail, palette: Palette, columns: usize) -> Parts {
    let state = if detail.is_gone { "  (not watched any more; as last seen)" } else { "" };
    let text = format!(" {}{state}", harmless(&detail.connection.peer));
    vec![(padded(&text, columns, false), palette.reversed())]
}

fn identity(connection: &Connection, palette: Palette) -> Vec<Parts> {
    let plain = Style::new();
    let role = match connection.role {
        Role::Server => "accepted at",
        Role::Client => "dialled from",
    };
    let age_is = if connection.preexisting { "found" } else { "established" };
    let kind = if connection.is_websocket { "WebSocket" } else { "TCP" };
    let path = connection.path.as_deref().map_or_else(String::new, |path| format!(" {}", harmless(path)));
    let kill = match (&connection.suggested_close, connection.kill_justified) {
        (_, true) if connection.verdict == Verdict::Closed => "a kill was justified".to_owned(),
        (_, false) if connection.verdict == Verdict::Closed => "no kill was justified".to_owned(),
        (Some(close), true) => {
            format!("a kill is justified: close with {} {}", close.code, harmless(&close.reason))
        }
        (None, true) => "a kill is justified".to_owned(),
        (_, false) => "no kill is justified".to_owned(),
    };
    vec![
        vec![(
            format!(
                "{kind}{path}, {role} {}, {age_is} {} ago",
                harmless(&connection.local),
                age(connection.age_ms)
            ),
            plain,
        )],
        vec![
            (verdict(connection), palette.verdict(connection.verdict, connection.kill_justified)),
            (format!(": {kill}"), plain),
        ],
    ]
}

/// A named value, indented.
fn value(name: &str, value: String) -> Parts {
    vec![(format!("  {name:<13} "), Style::new()), (value, Style::new())]
}

fn section(title: &str, palette: Palette) -> Parts {
    vec![(title.to_owned(), palette.title())]
}

/// The ladder, strongest rung first.
fn evidence(connection: &Connection, palette: Palette) -> Vec<Parts> {
    let reach = match connection.scope {
        EvidenceScope::Peer => "of the peer",
        EvidenceScope::NextHop => "of the next hop only, below inbound",
    };
    let ages = connection.evidence;
    let mut lines = vec![section(&head(&format!("evidence {reach}"), LEFT - 1), palette)];
    for (rung, age_ms) in [
        (Rung::Pong, ages.pong_age_ms),
        (Rung::Inbound, ages.inbound_age_ms),
        (Rung::Drain, ages.drain_age_ms),
        (Rung::Ack, ages.ack_age_ms),
        (Rung::Hop, ages.hop_age_ms),
    ] {
        let stands = rung == connection.rung;
        let style = if stands { palette.title() } else { Style::new() };
        let mark = if stands { ">" } else { " " };
        let note = if stands { "  the verdict stands here" } else { "" };
        lines.push(vec![(format!("{mark} {rung:<7} {:>6}{note}", known(age_ms, age)), style)]);
    }
    if connection.rung == Rung::None {
        lines.push(vec![("> none            the verdict stands here".to_owned(), palette.title())]);
    }
    lines
}

fn heartbeat(connection: &Connection, palette: Palette) -> Vec<Parts> {
    let heartbeat = &connection.heartbeat;
    let profile = heartbeat.profile.map_or("", |profile| profile.as_str());
    let inferred = if heartbeat.inferred { " (inferred)" } else { "" };
    vec![
        section(&format!("heartbeat, source {} {profile}", heartbeat.source), palette),
        value("interval", known(heartbeat.interval_ms, interval)),
        value("missed", known(heartbeat.missed, |missed| missed.to_string())),
        value("last Ping", known(heartbeat.last_ping_age_ms, |ms| format!("{} ago", age(ms)))),
        value("last Pong", known(heartbeat.last_pong_age_ms, |ms| format!("{} ago", age(ms)))),
        value("Ping", format!("{}{inferred}", words(heartbeat.ping_location.as_str()))),
        value("bytes before", known(heartbeat.ping_bytes_ahead, grouped)),
    ]
}

fn tcp(connection: &Connection, state: &State, palette: Palette) -> Vec<Parts> {
    let tcp = &connection.tcp;
    let count = |bytes: Option<u32>| known(bytes, |bytes| grouped(bytes.into()));
    let read = tcp.read_age_ms.map_or_else(|| "never read".to_owned(), |ms| format!("read {} ago", age(ms)));
    let timeout = match (tcp.rto_ms, tcp.backoff) {
        (Some(rto_ms), Some(backoff)) if backoff > 0 => {
            format!("{}, backoff {backoff}", interval(rto_ms.into()))
        }
        (rto_ms, _) => known(rto_ms, |ms| interval(ms.into())),
    };
    let mut lines = vec![
        section(&format!("socket, {read}"), palette),
        value("state", tcp.state.map_or_else(|| UNKNOWN.to_owned(), |state| words(&state_word(state)))),
        value("send queue", count(tcp.send_queue_bytes)),
        value("unsent", count(tcp.unsent_bytes)),
        value("unread", count(tcp.unread_bytes)),
        value("peer's window", count(tcp.snd_wnd_bytes)),
        value("RTT", known(tcp.srtt_us, round_trip)),
        value("RTO", timeout),
        value("retransmits", known(tcp.retransmits, |count| count.to_string())),
        value("acknowledged", known(tcp.bytes_acked, grouped)),
        value("received", known(tcp.bytes_received, grouped)),
    ];
    let past = state.histories.sparkline(connection.connection, 20);
    lines.push(vec![
        (format!("  {:<13} ", "queue so far"), Style::new()),
        (past.trim_start().to_owned(), palette.sparkline()),
    ]);
    lines
}

/// The state as the API writes it.
fn state_word(state: ackbeat_liveness::TcpState) -> String {
    serde_json::to_value(state)
        .ok()
        .and_then(|word| word.as_str().map(str::to_owned))
        .unwrap_or_else(|| UNKNOWN.to_owned())
}

fn events(connection: &Connection, state: &State, palette: Palette) -> Vec<Parts> {
    let mut title = "events, latest first (UTC)".to_owned();
    if let Some(reason) = &state.events_away {
        title = format!("events: none come, retrying: {}", harmless(reason));
    } else if state.events.left_out() {
        title.push_str("; older ones were let go");
    }
    let mut lines = vec![section(&title, palette)];
    lines.extend(state.events.of(connection.connection).take(EVENTS_SHOWN).flat_map(|event| match event {
        Event::VerdictChanged { at_unix_ms, from, to, rung, kill_justified, .. } => {
            vec![changed(*at_unix_ms, *from, *to, *rung, *kill_justified, palette)]
        }
        Event::Closed(closed) => self::closed(closed, palette),
        Event::Lagged { .. } => Vec::new(),
    }));
    if lines.len() == 1 {
        lines.push(vec![("  none since the start of this view".to_owned(), Style::new())]);
    }
    lines
}

fn changed(
    at_unix_ms: u64,
    from: Verdict,
    to: Verdict,
    rung: Rung,
    justified: bool,
    palette: Palette,
) -> Parts {
    let kill = match (from == to, justified) {
        (_, true) => ", a kill is justified",
        (true, false) => ", no kill is justified any more",
        (false, false) => "",
    };
    vec![
        (format!("  {} {from} -> ", time_of_day(at_unix_ms)), Style::new()),
        (to.to_string(), palette.verdict(to, justified)),
        (format!(" on {rung}{kill}"), Style::new()),
    ]
}

fn closed(closed: &ClosedEvent, palette: Palette) -> Vec<Parts> {
    let plain = Style::new();
    let method =
        closed.method.map_or_else(String::new, |method| format!(" by {}", method.as_str().to_uppercase()));
    let mut lines = vec![vec![
        (format!("  {} closed by {}: ", time_of_day(closed.at_unix_ms), closed.initiator), plain),
        (words(closed.kind.as_str()), palette.title()),
        (format!("{method}, {} on {}", closed.verdict, closed.rung), plain),
    ]];
    if let Some(code) = closed.ws_code {
        let reason =
            closed.ws_reason.as_deref().map_or_else(String::new, |reason| format!(" {}", harmless(reason)));
        lines.push(vec![(format!("           Close frame {}: {code}{reason}", closed.ws_frame), plain)]);
    }
    if let Some(assessment) = closed.assessment {
        let style = if closed.false_kill { palette.alarm() } else { palette.title() };
        let after = closed
            .postmortem
            .map_or_else(String::new, |seen| format!(", afterwards {}", words(seen.as_str())));
        lines.push(vec![
            ("           ".to_owned(), plain),
            (words(assessment.as_str()), style),
            (after, plain),
        ]);
    }
    lines.push(vec![(format!("           trace {}", harmless(&closed.trace_id)), palette.faint())]);
    lines
}
