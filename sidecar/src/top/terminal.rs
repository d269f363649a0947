//! The terminal: taken over at the start, given back on every way out.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal::is_raw_mode_enabled;
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;

/// How long the reader of keys waits until it looks whether it should end.
const KEY_WAIT: Duration = Duration::from_millis(200);
/// Keys that wait at most. Beyond them the terminal itself holds what is typed.
const KEYS_WAITING: usize = 64;

/// Whether somebody looks and types: both ends are a terminal.
pub(super) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Raw mode and the alternate screen. Dropping it gives the terminal back, as a panic does (the hook of
/// [`ratatui::try_init`]).
pub struct Screen {
    terminal: Option<DefaultTerminal>,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// If it refuses; it is as before then.
    pub fn open() -> io::Result<Self> {
        // First, so that half an opening is taken back.
        let mut screen = Self { terminal: None };
        screen.terminal = Some(ratatui::try_init()?);
        Ok(screen)
    }

    /// Shows one picture; only what changed is written.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        match &mut self.terminal {
            Some(terminal) => terminal.draw(picture).map(drop),
            None => Ok(()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After a panic its hook has done it. A second time would put the cursor back onto the panic's message.
        if is_raw_mode_enabled().unwrap_or(true) {
            // What cannot be restored has nobody who looks at it.
            let _ = ratatui::try_restore();
        }
        // Shows the cursor again.
        self.terminal = None;
    }
}

/// Gives back what needs no writing: for a terminal that takes nothing any more.
pub(super) fn restore_mode() {
    let _ = ratatui::crossterm::terminal::disable_raw_mode();
}

/// Reads keys and changes of size on a thread of its own.
pub(super) struct Keys {
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    events: mpsc::Receiver<io::Result<Event>>,
}

impl Keys {
    /// Starts to read.
    ///
    /// # Errors
    /// If there is no thread.
    pub(super) fn read() -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, events) = mpsc::channel(KEYS_WAITING);
        let stopped = Arc::clone(&stop);
        let reader = std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || read_until(&stopped, &sender))?;
        Ok(Self { stop, reader: Some(reader), events })
    }

    /// The next one; `None` if no more come.
    pub(super) async fn next(&mut self) -> Option<io::Result<Event>> {
        self.events.recv().await
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A reader that waits for room ends now; one that waits for a key ends soon.
        self.events.close();
        if let Some(reader) = self.reader.take() {
            // It has panicked; the hook has said so.
            let _ = reader.join();
        }
    }
}

fn read_until(stopped: &AtomicBool, sender: &mpsc::Sender<io::Result<Event>>) {
    while !stopped.load(Ordering::Relaxed) {
        let event = match event::poll(KEY_WAIT) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let is_over = event.is_err();
        if sender.blocking_send(event).is_err() || is_over {
            return;
        }
    }
}
