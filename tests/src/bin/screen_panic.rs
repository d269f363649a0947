//! Takes the terminal over as `ackbeat top` does, and panics while it is drawn on.
#![expect(clippy::panic, reason = "what a panic leaves behind is the question")]

use ackbeat::top::terminal::Screen;
use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let mut screen = Screen::open().context("taking over the terminal failed")?;
    screen.draw(|_frame| panic!("in the middle of a picture")).context("drawing failed")
}
