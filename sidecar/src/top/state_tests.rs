//! Keys and answers in, state and questions out.

use std::time::Duration;

use ackbeat_liveness::Verdict;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::client::{Answer, EventUpdate};
use super::query::{Query, SortKey};
use super::samples;
use super::state::{Link, Pane, Reaction, State};
use crate::api::types::{Connection, Event};

/// A state as after the first answer.
pub(super) fn answered(total: usize, connections: Vec<Connection>) -> State {
    let mut state = State::new("http://127.0.0.1:9465".to_owned(), Query::default());
    state.on_event(EventUpdate::Connected);
    feed(&mut state, total, connections);
    state
}

/// Another answer to what the state asks.
pub(super) fn feed(state: &mut State, total: usize, connections: Vec<Connection>) {
    let request = state.request();
    let pinned = request.pinned.map(|pinned| {
        let found = connections.iter().find(|connection| connection.connection == pinned.connection);
        (pinned.connection, found.cloned())
    });
    let answer = Answer {
        query: request.query,
        status: samples::status(),
        connections: samples::answer(total, connections),
        pinned,
    };
    state.on_answer(Ok(answer), Duration::from_secs(1));
}

pub(super) fn press(state: &mut State, code: KeyCode) -> Reaction {
    state.on_key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// Presses the keys of a text.
pub(super) fn type_text(state: &mut State, text: &str) {
    for character in text.chars() {
        press(state, KeyCode::Char(character));
    }
}

fn chosen(state: &State) -> u64 {
    state.rows.get(state.chosen).map(|row| row.connection).expect("a row is chosen")
}

#[test]
fn q_escape_and_control_c_quit() {
    let mut state = answered(23, samples::connections());
    assert_eq!(press(&mut state, KeyCode::Char('q')), Reaction::Quit);
    assert_eq!(press(&mut state, KeyCode::Esc), Reaction::Quit);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.on_key(control_c), Reaction::Quit);
    // From a pane, Escape goes back first; Ctrl-C quits from everywhere, even while a filter is typed.
    press(&mut state, KeyCode::Enter);
    assert_eq!((press(&mut state, KeyCode::Esc), &state.pane), (Reaction::Ask, &Pane::Table));
    type_text(&mut state, "/q");
    assert_eq!(state.query.text.0, "q");
    assert_eq!(state.on_key(control_c), Reaction::Quit);
    let released = KeyEvent { kind: KeyEventKind::Release, ..control_c };
    assert_eq!(state.on_key(released), Reaction::None);
}

#[test]
fn the_choice_follows_its_connection_through_the_order() {
    let mut state = answered(23, samples::connections());
    assert_eq!(chosen(&state), samples::congested().connection, "the longest queue comes first");
    press(&mut state, KeyCode::Down);
    let second = chosen(&state);
    assert_eq!(press(&mut state, KeyCode::Char('r')), Reaction::Ask);
    assert_eq!(chosen(&state), second);
    // It leaves: the choice stays where it was.
    let index = state.chosen;
    let rest = samples::connections().into_iter().filter(|row| row.connection != second).collect();
    feed(&mut state, 22, rest);
    assert_eq!(state.chosen, index);
    press(&mut state, KeyCode::Char('G'));
    assert_eq!(state.chosen, 21);
    press(&mut state, KeyCode::Down);
    assert_eq!(state.chosen, 21);
    press(&mut state, KeyCode::Char('g'));
    press(&mut state, KeyCode::Up);
    assert_eq!(state.chosen, 0);
    state.page = 5;
    press(&mut state, KeyCode::PageDown);
    assert_eq!(state.chosen, 5);
    press(&mut state, KeyCode::PageUp);
    assert_eq!(state.chosen, 0);
    feed(&mut state, 0, Vec::new());
    assert_eq!((press(&mut state, KeyCode::Enter), &state.pane), (Reaction::None, &Pane::Table));
}

#[test]
fn sorting_is_asked_for_and_shown_at_once() {
    let mut state = answered(23, samples::connections());
    for key in SortKey::ALL {
        state.query.sort.key = if key == SortKey::Age { SortKey::Verdict } else { SortKey::Age };
        assert_eq!(press(&mut state, KeyCode::Char(key.letter())), Reaction::Ask);
        assert_eq!((state.query.sort.key, state.query.sort.descending), (key, true));
        press(&mut state, KeyCode::Char(key.letter()));
        assert!(!state.query.sort.descending, "the same key again reverses");
    }
    press(&mut state, KeyCode::Char('V'));
    assert_eq!(state.rows.first().map(|row| row.verdict), Some(Verdict::Unknown));
    press(&mut state, KeyCode::Char('>'));
    assert_eq!(state.query.sort.key, SortKey::PongAge);
    assert!(state.request().query.path_and_query().contains("sort=-last_pong_age_ms"));
    press(&mut state, KeyCode::Char('<'));
    press(&mut state, KeyCode::Char('<'));
    assert_eq!(state.query.sort.key, SortKey::Age, "around the end");
    // An answer to the question before is too late.
    let late = Answer {
        query: Query::default(),
        status: samples::status(),
        connections: samples::answer(1, vec![samples::silent()]),
        pinned: None,
    };
    state.on_answer(Ok(late), Duration::from_secs(2));
    assert_eq!(state.rows.len(), 23);
}

#[test]
fn filters_follow_each_key_and_the_server_is_asked() {
    let mut state = answered(23, samples::connections());
    type_text(&mut state, "/mux");
    assert_eq!(state.typing.as_deref(), Some(""));
    assert_eq!(state.rows.len(), 21);
    assert_eq!(press(&mut state, KeyCode::Enter), Reaction::Ask);
    assert_eq!((state.typing.as_ref(), state.query.text.0.as_str()), (None, "mux"));
    // Escape takes back what was typed since.
    type_text(&mut state, "/x");
    assert_eq!(state.query.text.0, "muxx");
    assert!(state.rows.is_empty());
    press(&mut state, KeyCode::Backspace);
    press(&mut state, KeyCode::Backspace);
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.query.text.0, "mux");
    // What an older filter took away comes with the next answer.
    feed(&mut state, 23, samples::connections());
    assert_eq!(state.rows.len(), 21);
    type_text(&mut state, "/");
    state.on_key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
    press(&mut state, KeyCode::Enter);
    type_text(&mut state, "4");
    feed(&mut state, 23, samples::connections());
    assert_eq!(state.query.verdicts, [Verdict::Silent]);
    assert_eq!(state.rows.iter().map(|row| row.verdict).collect::<Vec<_>>(), [Verdict::Silent]);
    type_text(&mut state, "24");
    assert_eq!(state.query.verdicts, [Verdict::Congested]);
    type_text(&mut state, "089");
    assert!(state.query.verdicts.is_empty());
    type_text(&mut state, &format!("/{}", "x".repeat(500)));
    assert_eq!(state.query.text.0.len(), super::query::TEXT_MAX);
}

#[test]
fn a_detail_stays_with_its_connection_until_that_is_gone_and_after() {
    let mut state = answered(23, samples::connections());
    assert_eq!(press(&mut state, KeyCode::Enter), Reaction::Ask);
    let pinned = state.request().pinned.expect("it is asked for by name");
    assert_eq!(pinned.peer, samples::congested().peer);
    let mut later = samples::congested();
    later.verdict = Verdict::Alive;
    feed(&mut state, 23, vec![later, samples::silent()]);
    let detail = |state: &State| match &state.pane {
        Pane::Detail(detail) => detail.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(detail(&state).connection.verdict, Verdict::Alive);
    // The same addresses, another connection.
    let request = state.request();
    let other = Connection { connection: 1, ..samples::congested() };
    let answer = Answer {
        query: request.query,
        status: samples::status(),
        connections: samples::answer(1, vec![samples::silent()]),
        pinned: Some((pinned.connection, Some(other))),
    };
    state.on_answer(Ok(answer), Duration::from_secs(2));
    assert!(detail(&state).is_gone);
    assert_eq!(detail(&state).connection.connection, pinned.connection);
    assert_eq!(state.request().pinned, None, "nobody knows it any more");
    assert!(state.on_event(EventUpdate::Event(Box::new(samples::closed()))), "its end is shown");
    press(&mut state, KeyCode::Down);
    assert_eq!(detail(&state).connection.connection, samples::silent().connection);
    assert!(!detail(&state).is_gone);
}

#[test]
fn a_pause_holds_the_picture_and_asks_nothing() {
    let mut state = answered(23, samples::connections());
    assert_eq!(press(&mut state, KeyCode::Char('p')), Reaction::Ask);
    assert!(state.request().is_paused);
    feed(&mut state, 1, vec![samples::silent()]);
    assert_eq!(state.rows.len(), 23);
    press(&mut state, KeyCode::Char('p'));
    feed(&mut state, 1, vec![samples::silent()]);
    assert_eq!(state.rows.len(), 1);
}

#[test]
fn an_api_that_is_away_leaves_what_is_known_and_since_when() {
    let mut state = answered(23, samples::connections());
    for seconds in [5, 6] {
        state.on_answer(Err("no connection".to_owned()), Duration::from_secs(seconds));
    }
    // Since the answer that is on the screen.
    let since = Duration::from_secs(1);
    assert_eq!(state.link, Link::Away { since, reason: "no connection".to_owned() });
    assert_eq!(state.rows.len(), 23);
    state.on_event(EventUpdate::Away("closed".to_owned()));
    state.on_event(EventUpdate::Event(Box::new(Event::Lagged { events_dropped: 7 })));
    assert_eq!((state.events_away.as_deref(), state.events_missed), (Some("closed"), 7));
    feed(&mut state, 23, samples::connections());
    assert_eq!(state.link, Link::Live);
}
