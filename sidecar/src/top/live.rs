//! The live view's loop: keys, answers, events and signals in, pictures out.

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::Event;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::client::{follow, poll};
use super::palette::Palette;
use super::state::{Reaction, State};
use super::terminal::{Keys, Screen, restore_mode};
use super::{Options, address::ApiAddress};
use super::{TopError, view};

/// From one picture to the next at least: a slow link has to carry them.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);
/// From one picture to the next at most: ages go on while nothing comes.
const REDRAW_AT_LATEST: Duration = Duration::from_secs(1);
/// Answers that wait at most.
const ANSWERS_WAITING: usize = 2;
/// Events that wait at most. Beyond them the server counts what is missed.
const EVENTS_WAITING: usize = 1_024;
/// From a signal to the end at most, whether the terminal takes the last words or not.
const END_DEADLINE: Duration = Duration::from_secs(2);

/// Shows the live view until it is quit, by key or by signal.
///
/// # Errors
/// [`TopError::Terminal`]; an API that does not answer is shown and tried again.
pub(super) async fn run(options: Options, palette: Palette) -> Result<(), TopError> {
    let terminal = |step| move |cause: io::Error| TopError::Terminal { step, cause };
    // Handlers first: a signal must never find the terminal taken over and nobody to give it back.
    let mut stop = stop_signals().map_err(terminal("installing a signal handler"))?;
    let mut state = State::new(options.api.to_string(), options.query);
    let mut feeds = Feeds::start(options.api, options.interval, &state);

    let mut screen = Screen::open().map_err(terminal("taking over the terminal"))?;
    let mut keys = Keys::read().map_err(terminal("starting the reader of keys"))?;
    let started = Instant::now();
    let mut drawn: Option<Instant> = None;
    let mut is_stale = true;
    loop {
        let since = drawn.map_or(REDRAW_AT_LATEST, |at| at.elapsed());
        if since >= REDRAW_AT_LATEST || is_stale && since >= REDRAW_INTERVAL {
            let now = started.elapsed();
            screen
                .draw(|frame| view::draw(&mut state, palette, now, frame))
                .map_err(terminal("drawing the screen"))?;
            drawn = Some(Instant::now());
            is_stale = false;
            continue;
        }
        let pause = if is_stale { REDRAW_INTERVAL } else { REDRAW_AT_LATEST }.saturating_sub(since);
        tokio::select! {
            biased;
            _ = stop.recv() => return Ok(()),
            event = keys.next() => {
                let event = event.unwrap_or_else(|| Err(ended()));
                match event.map_err(terminal("reading a key"))? {
                    Event::Key(key) => match state.on_key(key) {
                        Reaction::None => {}
                        Reaction::Redraw => is_stale = true,
                        Reaction::Ask => {
                            is_stale = true;
                            feeds.requests.send_replace(state.request());
                        }
                        Reaction::Quit => return Ok(()),
                    },
                    Event::Resize(..) => is_stale = true,
                    _ => {}
                }
            }
            answer = feeds.answers.recv() => {
                let answer = answer.ok_or_else(ended).map_err(terminal("asking the API"))?;
                is_stale |= state.on_answer(answer, started.elapsed());
            }
            event = feeds.events.recv() => {
                let event = event.ok_or_else(ended).map_err(terminal("following the events"))?;
                is_stale |= state.on_event(event);
            }
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// A task or thread that has panicked: the panic's hook has given the terminal back, and nothing may be drawn any more.
fn ended() -> io::Error {
    io::Error::other("its task ended")
}

/// What comes from the API, on tasks that end with this.
struct Feeds {
    requests: watch::Sender<super::client::Request>,
    answers: mpsc::Receiver<Result<super::client::Answer, String>>,
    events: mpsc::Receiver<super::client::EventUpdate>,
}

impl Feeds {
    fn start(api: ApiAddress, interval: Duration, state: &State) -> Self {
        let (requests, asked) = watch::channel(state.request());
        let (answer, answers) = mpsc::channel(ANSWERS_WAITING);
        let (event, events) = mpsc::channel(EVENTS_WAITING);
        tokio::spawn(poll(api.clone(), interval, asked, answer));
        tokio::spawn(follow(api, event));
        Self { requests, answers, events }
    }
}

/// One message for each SIGTERM, SIGINT or SIGHUP.
fn stop_signals() -> io::Result<mpsc::Receiver<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hang_up.recv() => {}
        }
        // It fails only if the loop is over already.
        let _ = sender.try_send(());
        // A terminal that takes nothing any more, as at the end of a dead link, holds the loop in a write.
        tokio::time::sleep(END_DEADLINE).await;
        restore_mode();
        std::process::exit(0);
    });
    Ok(receiver)
}
