//! The state of the live view. Pure: no terminal, no socket, no clock; time comes in as the span since the start.

use std::time::Duration;

use ackbeat_liveness::Verdict;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::client::{Answer, EventUpdate, Pinned, Request};
use super::history::{EventLog, Histories};
use super::query::{Query, Sort, SortKey, TEXT_MAX};
use crate::api::types::{Connection, Event, Status};

/// Verdicts that the keys 1 to 7 choose. A closed connection is listed while its post-mortem runs.
pub(super) const VERDICTS: &[Verdict] = Verdict::ALL;

/// Whether the API answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// The first answer is still to come.
    Connecting,
    /// The last request was answered.
    Live,
    /// The last request failed; it is tried again.
    Away {
        /// Since when: the last answer, where one is on the screen.
        since: Duration,
        /// What went wrong.
        reason: String,
    },
}

/// What covers the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pane {
    /// Nothing.
    Table,
    /// The keys.
    Help,
    /// One connection.
    Detail(Box<Detail>),
}

/// The connection whose detail is shown. It stays when the connection leaves the table, and when it is gone.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Detail {
    /// As last seen.
    pub(super) connection: Connection,
    /// The server knows it no more.
    pub(super) is_gone: bool,
    /// Lines that are scrolled over.
    pub(super) scrolled: usize,
}

/// What a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Nothing changed.
    None,
    /// The screen is to be drawn anew.
    Redraw,
    /// The server is to be asked anew, at once.
    Ask,
    /// The end.
    Quit,
}

/// All of it.
#[derive(Debug)]
pub(super) struct State {
    /// The API's address, as it was given.
    pub(super) address: String,
    pub(super) link: Link,
    /// Why no events come, if none do.
    pub(super) events_away: Option<String>,
    pub(super) status: Option<Status>,
    pub(super) query: Query,
    /// Connections that are watched, and those of them that the server's filter let through.
    pub(super) total: usize,
    pub(super) matched: usize,
    /// Of them, those that were sent and that the filter here let through.
    pub(super) rows: Vec<Connection>,
    /// How many were sent.
    pub(super) received: usize,
    pub(super) answered_at: Option<Duration>,
    pub(super) histories: Histories,
    pub(super) events: EventLog,
    /// Events that this program was too slow for, as the server says.
    pub(super) events_missed: u64,
    /// Index of the row that is chosen, and its connection: the choice follows it through the order.
    pub(super) chosen: usize,
    chosen_connection: Option<u64>,
    pub(super) pane: Pane,
    /// The filter's text while it is typed, with what it was before.
    pub(super) typing: Option<String>,
    pub(super) is_paused: bool,
    /// Rows that fit onto the screen, for Page Up and Page Down; the view says.
    pub(super) page: usize,
}

impl State {
    /// Before the first answer.
    pub(super) fn new(address: String, query: Query) -> Self {
        Self {
            address,
            link: Link::Connecting,
            events_away: Some("connecting".to_owned()),
            status: None,
            query,
            total: 0,
            matched: 0,
            rows: Vec::new(),
            received: 0,
            answered_at: None,
            histories: Histories::default(),
            events: EventLog::default(),
            events_missed: 0,
            chosen: 0,
            chosen_connection: None,
            pane: Pane::Table,
            typing: None,
            is_paused: false,
            page: 10,
        }
    }

    /// What the server is to be asked next.
    pub(super) fn request(&self) -> Request {
        let pinned = match &self.pane {
            Pane::Detail(detail) if !detail.is_gone => Some(Pinned {
                connection: detail.connection.connection,
                peer: detail.connection.peer.clone(),
                local: detail.connection.local.clone(),
            }),
            _ => None,
        };
        Request { query: self.query.clone(), pinned, is_paused: self.is_paused }
    }

    /// The server answered, or it did not. Returns whether something is to be drawn.
    pub(super) fn on_answer(&mut self, answer: Result<Answer, String>, now: Duration) -> bool {
        let answer = match answer {
            Ok(answer) => answer,
            Err(reason) => {
                let since = match self.link {
                    Link::Away { since, .. } => since,
                    // What is on the screen is as old as this, and no answer may have come for a whole timeout.
                    Link::Live if !self.is_paused => self.answered_at.unwrap_or(now),
                    Link::Connecting | Link::Live => now,
                };
                self.link = Link::Away { since, reason };
                return true;
            }
        };
        self.link = Link::Live;
        // Asked before the pause, or before the query was changed: too late for the screen.
        if self.is_paused || answer.query != self.query {
            return true;
        }
        let Answer { status, connections, pinned, .. } = answer;
        self.answered_at = Some(now);
        self.status = Some(status);
        (self.total, self.matched) = (connections.total, connections.matched);
        self.received = connections.connections.len();
        self.rows = connections.connections;
        let detail = match &mut self.pane {
            Pane::Detail(detail) => Some(detail),
            _ => None,
        };
        if let Some((detail, (connection, now_known))) = detail.zip(pinned)
            && detail.connection.connection == connection
        {
            match now_known {
                Some(known) if known.connection == connection => detail.connection = known,
                // Its addresses may be another connection's by now.
                _ => detail.is_gone = true,
            }
        }
        let shown = match &self.pane {
            Pane::Detail(detail) if !detail.is_gone => Some(&detail.connection),
            _ => None,
        };
        self.histories.take(self.rows.iter().chain(shown));
        self.order();
        true
    }

    /// News of the event stream. Returns whether something is to be drawn.
    pub(super) fn on_event(&mut self, update: EventUpdate) -> bool {
        match update {
            EventUpdate::Connected => self.events_away = None,
            EventUpdate::Away(reason) => self.events_away = Some(reason),
            EventUpdate::Event(event) => match *event {
                Event::Lagged { events_dropped } => {
                    self.events_missed = self.events_missed.saturating_add(events_dropped);
                }
                event => {
                    self.events.take(event);
                    return matches!(self.pane, Pane::Detail(_));
                }
            },
        }
        true
    }

    /// Filters and sorts what is there, and finds the chosen row again.
    fn order(&mut self) {
        let query = &self.query;
        self.rows.retain(|connection| query.admits(connection));
        query.sort.apply(&mut self.rows);
        if let Some(wanted) = self.chosen_connection
            && let Some(index) = self.rows.iter().position(|row| row.connection == wanted)
        {
            self.chosen = index;
        }
        self.choose(self.chosen);
    }

    fn choose(&mut self, index: usize) {
        self.chosen = index.min(self.rows.len().saturating_sub(1));
        self.chosen_connection = self.rows.get(self.chosen).map(|row| row.connection);
    }

    /// A key was pressed.
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Reaction {
        if key.kind == KeyEventKind::Release {
            return Reaction::None;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        // Ctrl-C quits from everywhere. In raw mode it is a key and no signal.
        if control && key.code == KeyCode::Char('c') {
            return Reaction::Quit;
        }
        if self.typing.is_some() {
            return self.on_filter_key(key.code, control);
        }
        if control {
            return Reaction::None;
        }
        match key.code {
            KeyCode::Char('q') => Reaction::Quit,
            KeyCode::Esc if self.pane == Pane::Table => Reaction::Quit,
            KeyCode::Esc | KeyCode::Backspace => self.back(),
            KeyCode::Char('?') => {
                self.pane = if self.pane == Pane::Help { Pane::Table } else { Pane::Help };
                Reaction::Redraw
            }
            KeyCode::Char('p') => {
                self.is_paused = !self.is_paused;
                Reaction::Ask
            }
            _ if self.pane == Pane::Help => self.back(),
            KeyCode::Enter => self.toggle_detail(),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.page_by(1),
            KeyCode::PageUp => self.page_by(-1),
            KeyCode::Home | KeyCode::Char('g') => self.move_to(0),
            KeyCode::End | KeyCode::Char('G') => self.move_to(usize::MAX),
            KeyCode::Char('/') => {
                self.typing = Some(self.query.text.0.clone());
                Reaction::Redraw
            }
            KeyCode::Char('<') => self.sort_beside(SortKey::ALL.len() - 1),
            KeyCode::Char('>') => self.sort_beside(1),
            KeyCode::Char('r') => {
                let Sort { key, descending } = self.query.sort;
                self.sort_by(Sort { key, descending: !descending })
            }
            KeyCode::Char('0') => self.ask(|query| query.verdicts.clear()),
            KeyCode::Char(letter) => self.on_letter(letter),
            _ => Reaction::None,
        }
    }

    fn on_letter(&mut self, letter: char) -> Reaction {
        if let Some(verdict) =
            letter.to_digit(10).and_then(|digit| VERDICTS.get(usize::try_from(digit).ok()?.checked_sub(1)?))
        {
            return self.ask(|query| query.toggle(*verdict));
        }
        let Some(key) = SortKey::ALL.into_iter().find(|key| key.letter() == letter) else {
            return Reaction::None;
        };
        let Sort { key: now, descending } = self.query.sort;
        self.sort_by(Sort { key, descending: key != now || !descending })
    }

    /// Changes the query; what is there already is shown as asked for until the server answers.
    fn ask(&mut self, change: impl FnOnce(&mut Query)) -> Reaction {
        change(&mut self.query);
        self.order();
        Reaction::Ask
    }

    fn sort_by(&mut self, sort: Sort) -> Reaction {
        self.ask(|query| query.sort = sort)
    }

    /// The sort key `steps` columns to the right, around the end.
    fn sort_beside(&mut self, steps: usize) -> Reaction {
        let now = SortKey::ALL.iter().position(|key| *key == self.query.sort.key).unwrap_or_default();
        let next = SortKey::ALL.get((now + steps) % SortKey::ALL.len()).copied();
        self.sort_by(Sort { key: next.unwrap_or(self.query.sort.key), descending: true })
    }

    /// Keys while the filter's text is typed. The rows follow each of them; the server is asked at the end.
    fn on_filter_key(&mut self, code: KeyCode, control: bool) -> Reaction {
        let mut text = self.query.text.0.clone();
        match code {
            KeyCode::Enter => {
                self.typing = None;
                return Reaction::Ask;
            }
            KeyCode::Esc => text = self.typing.take().unwrap_or_default(),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char('u') if control => text.clear(),
            KeyCode::Char(character) if !control && text.chars().count() < TEXT_MAX => text.push(character),
            _ => return Reaction::None,
        }
        self.ask(|query| query.text.0 = text)
    }

    fn back(&mut self) -> Reaction {
        self.pane = Pane::Table;
        Reaction::Ask
    }

    fn toggle_detail(&mut self) -> Reaction {
        if matches!(self.pane, Pane::Detail(_)) {
            return self.back();
        }
        self.show_detail()
    }

    fn show_detail(&mut self) -> Reaction {
        let Some(connection) = self.rows.get(self.chosen).cloned() else { return Reaction::None };
        self.pane = Pane::Detail(Box::new(Detail { connection, is_gone: false, scrolled: 0 }));
        Reaction::Ask
    }

    fn move_by(&mut self, rows: isize) -> Reaction {
        self.move_to(self.chosen.saturating_add_signed(rows))
    }

    fn move_to(&mut self, index: usize) -> Reaction {
        self.choose(index);
        if matches!(self.pane, Pane::Detail(_)) { self.show_detail() } else { Reaction::Redraw }
    }

    /// A page of rows, or of the detail.
    fn page_by(&mut self, pages: isize) -> Reaction {
        if let Pane::Detail(detail) = &mut self.pane {
            // The view knows where the end is.
            detail.scrolled = detail.scrolled.saturating_add_signed(pages * 5);
            return Reaction::Redraw;
        }
        self.move_by(pages.saturating_mul(isize::try_from(self.page.max(1)).unwrap_or(isize::MAX)))
    }
}
