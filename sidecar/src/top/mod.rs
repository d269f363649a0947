//! `ackbeat top`: a live view of the API in a terminal.
//!
//! `client` asks the API and follows its events, `state` is what is known and chosen, `view` makes a picture of it,
//! `terminal` shows it, and `live` turns between them. `state` and `view` are pure: tests feed them keys and answers and
//! look at the picture.

pub mod address;
mod client;
mod columns;
mod history;
mod live;
mod once;
mod palette;
pub mod query;
#[cfg(test)]
mod samples;
mod state;
#[cfg(test)]
mod state_tests;
pub mod terminal;
mod text;
mod view;

use std::ffi::OsStr;
use std::io;
use std::time::Duration;

use address::ApiAddress;
use client::{Client, ClientError, Request};
use palette::Palette;
use query::Query;

/// What to show, and of whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the API is.
    pub api: ApiAddress,
    /// From one question to the next.
    pub interval: Duration,
    /// Which connections, in which order.
    pub query: Query,
    /// Whether colours may be used.
    pub has_colour: bool,
}

/// Why nothing can be shown.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The API does not answer.
    #[error(
        "asking the API at {address} failed: {cause}; is `ackbeat run` running in this network namespace, and does its \
         setting {setting} name this address? If it listens elsewhere, say so with --api"
    )]
    Unanswered {
        /// Where it was asked.
        address: ApiAddress,
        /// The setting that says where it listens.
        setting: &'static str,
        /// What went wrong.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The terminal refused.
    #[error("{step} failed: {cause}; `ackbeat top --once` needs no terminal")]
    Terminal {
        /// The step, as a noun phrase.
        step: &'static str,
        /// Why.
        cause: io::Error,
    },
}

/// How to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// On the whole screen, until it is quit.
    Live,
    /// One plain table.
    Plain,
    /// One plain table, because the terminal can do no more (`TERM=dumb`).
    PlainForTerminal,
}

impl Form {
    /// What this process's terminal allows.
    #[must_use]
    pub fn of_terminal() -> Self {
        match std::env::var_os("TERM") {
            _ if !terminal::is_interactive() => Self::Plain,
            Some(term) if term == "dumb" => Self::PlainForTerminal,
            _ => Self::Live,
        }
    }
}

/// Whether the environment allows colours: `NO_COLOR` that is not empty forbids them (<https://no-color.org>).
#[must_use]
pub fn colour_allowed(no_color: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty)
}

/// Shows the live view until it is quit.
///
/// # Errors
/// [`TopError::Terminal`].
pub async fn live(options: Options) -> Result<(), TopError> {
    let palette = Palette { has_colour: options.has_colour };
    live::run(options, palette).await
}

/// Asks once and gives the table as text.
///
/// # Errors
/// [`TopError::Unanswered`].
pub async fn once(options: &Options) -> Result<String, TopError> {
    let request = Request { query: options.query.clone(), pinned: None, is_paused: false };
    let answer = Client::new(options.api.clone()).ask(&request).await;
    let answer = answer.map_err(|cause: ClientError| TopError::Unanswered {
        address: options.api.clone(),
        setting: options.api.setting(),
        cause: Box::new(cause),
    })?;
    Ok(once::render(answer, &options.query))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_no_color_is_none() {
        assert!(colour_allowed(None) && colour_allowed(Some(OsStr::new(""))));
        assert!(!colour_allowed(Some(OsStr::new("1"))) && !colour_allowed(Some(OsStr::new("false"))));
    }
}
