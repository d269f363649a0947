//! Pictures of the screen, as text and with their styles.

use std::time::Duration;

use ackbeat_liveness::Verdict;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Color;

use super::super::client::EventUpdate;
use super::super::palette::Palette;
use super::super::query::Query;
use super::super::samples;
use super::super::state::State;
use super::super::state_tests::{answered, feed, press, type_text};
use super::draw;
use crate::api::types::Connection;

const COLOUR: Palette = Palette { has_colour: true };
const PLAIN: Palette = Palette { has_colour: false };

fn picture(state: &mut State, palette: Palette, columns: u16, lines: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).expect("a terminal in memory");
    terminal.draw(|frame| draw(state, palette, Duration::from_secs(13), frame)).expect("it draws");
    terminal.backend().buffer().clone()
}

/// The characters, line by line, without trailing blanks.
fn text(state: &mut State, columns: u16, lines: u16) -> String {
    let buffer = picture(state, PLAIN, columns, lines);
    let rows = buffer.content.chunks(usize::from(columns));
    rows.map(|row| {
        let mut line = String::new();
        let mut covered = 0;
        for cell in row {
            // The cells that a wide character covers hold a blank of no meaning.
            if covered == 0 {
                line.push_str(cell.symbol());
                covered = super::width(cell.symbol()).saturating_sub(1);
            } else {
                covered -= 1;
            }
        }
        format!("{}\n", line.trim_end())
    })
    .collect()
}

#[test]
fn a_closed_connection_is_not_to_be_closed_again() {
    let closed = Connection { verdict: Verdict::Closed, suggested_close: None, ..samples::silent() };
    let mut state = answered(1, vec![closed.clone()]);
    assert!(text(&mut state, 80, 24).contains(">closed  "), "{}", text(&mut state, 80, 24));
    press(&mut state, KeyCode::Enter);
    assert!(text(&mut state, 80, 24).contains("closed: a kill was justified\n"));
    feed(&mut state, 1, vec![Connection { kill_justified: false, ..closed }]);
    assert!(text(&mut state, 80, 24).contains("closed: no kill was justified\n"));
}

/// A pod under load, watched for some answers.
fn busy() -> State {
    let mut state = answered(10_000, samples::connections());
    for bytes in [0, 40_000, 900_000, 1_700_000, 2_100_000, 2_612_000] {
        let mut connections = samples::connections();
        for connection in &mut connections {
            if connection.verdict == Verdict::Congested {
                connection.tcp.send_queue_bytes = Some(bytes);
            }
        }
        feed(&mut state, 10_000, connections);
    }
    state.on_event(EventUpdate::Event(Box::new(samples::changed())));
    state.on_event(EventUpdate::Event(Box::new(samples::closed())));
    state
}

#[test]
fn the_table_in_80_columns() {
    insta::assert_snapshot!(text(&mut busy(), 80, 24));
}

#[test]
fn the_table_in_120_columns() {
    let mut state = busy();
    press(&mut state, KeyCode::Char('>'));
    press(&mut state, KeyCode::Down);
    insta::assert_snapshot!(text(&mut state, 120, 40));
}

#[test]
fn the_table_in_40_columns() {
    insta::assert_snapshot!(text(&mut busy(), 40, 10));
}

#[test]
fn the_table_filtered() {
    let mut state = busy();
    type_text(&mut state, "24/10.87.2");
    let typing = text(&mut state, 80, 12);
    press(&mut state, KeyCode::Enter);
    feed(&mut state, 10_000, samples::connections());
    insta::assert_snapshot!(format!("{typing}----\n{}", text(&mut state, 80, 12)));
}

#[test]
fn the_detail_in_80_columns() {
    let mut state = busy();
    press(&mut state, KeyCode::Enter);
    insta::assert_snapshot!(text(&mut state, 80, 24));
}

#[test]
fn the_detail_of_a_hostile_path_beside_the_table() {
    let mut state = busy();
    type_text(&mut state, "4");
    feed(&mut state, 10_000, vec![samples::silent()]);
    press(&mut state, KeyCode::Enter);
    insta::assert_snapshot!(text(&mut state, 120, 40));
}

#[test]
fn the_detail_of_an_unknown_connection_that_is_gone_in_40_columns() {
    let mut state = busy();
    type_text(&mut state, "6");
    feed(&mut state, 10_000, vec![samples::unknown()]);
    press(&mut state, KeyCode::Enter);
    feed(&mut state, 0, Vec::new());
    let first = text(&mut state, 40, 24);
    for _ in 0..20 {
        press(&mut state, KeyCode::PageDown);
    }
    insta::assert_snapshot!(format!("{first}----\n{}", text(&mut state, 40, 24)));
}

#[test]
fn the_help() {
    let mut state = busy();
    press(&mut state, KeyCode::Char('?'));
    insta::assert_snapshot!(text(&mut state, 80, 24));
}

#[test]
fn nothing_to_show() {
    let mut state = answered(0, Vec::new());
    let empty = text(&mut state, 80, 12);
    let mut state = busy();
    type_text(&mut state, "/nowhere");
    press(&mut state, KeyCode::Enter);
    insta::assert_snapshot!(format!("{empty}----\n{}", text(&mut state, 80, 12)));
}

#[test]
fn the_api_away_at_the_start_and_later() {
    let refused = || Err("no connection: Connection refused (os error 111)".to_owned());
    let mut state = State::new("http://127.0.0.1:9465".to_owned(), Query::default());
    let waiting = text(&mut state, 80, 8);
    state.on_answer(refused(), Duration::from_secs(1));
    let start = text(&mut state, 80, 10);
    let mut state = busy();
    state.on_answer(refused(), Duration::from_secs(4));
    insta::assert_snapshot!(format!("{waiting}----\n{start}----\n{}", text(&mut state, 80, 12)));
}

#[test]
fn without_colour_the_same_is_said_in_words() {
    let mut state = busy();
    let (colour, plain) = (picture(&mut state, COLOUR, 80, 24), picture(&mut state, PLAIN, 80, 24));
    let symbols =
        |buffer: &Buffer| buffer.content.iter().map(|cell| cell.symbol().to_owned()).collect::<Vec<_>>();
    assert_eq!(symbols(&colour), symbols(&plain));
    assert!(plain.content.iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset)));
    assert!(colour.content.iter().any(|cell| cell.fg == Color::Yellow));
    let text = text(&mut state, 80, 24);
    assert!(["congested", "silent!", "alive", "unknown"].iter().all(|word| text.contains(word)), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_size_and_any_keys_and_any_path_draw(
        columns in 0_u16..150,
        lines in 0_u16..60,
        keys in "[a-zA-Z0-9/<>? ]{0,12}",
        path in ".{0,40}",
    ) {
        let mut connections = samples::connections();
        for connection in &mut connections {
            connection.path = Some(path.clone());
        }
        let mut state = answered(10_000, connections);
        for key in [KeyCode::Enter, KeyCode::PageDown, KeyCode::Esc] {
            press(&mut state, key);
            for key in keys.chars() {
                press(&mut state, KeyCode::Char(key));
                for cell in &picture(&mut state, COLOUR, columns, lines).content {
                    prop_assert!(!cell.symbol().chars().any(char::is_control), "{:?}", cell.symbol());
                }
            }
        }
    }
}
