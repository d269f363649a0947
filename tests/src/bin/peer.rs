//! A client of the mux host as a process of its own; see `ackbeat_tests::peer`.
#![expect(clippy::print_stdout, reason = "its output is how the test knows what it saw")]

use std::io::BufRead;
use std::time::Duration;

use ackbeat_tests::client::{Client, ClientOptions, Seen};
use ackbeat_tests::peer::Line;
use anyhow::{Context, Result};
use clap::Parser;

/// A client of the mux host as a process of its own.
#[derive(Parser)]
struct Arguments {
    /// How it behaves, as JSON.
    options: String,
}

/// A client that saw nothing for this long is asked again; the wait has no other end.
const PATIENCE: Duration = Duration::from_secs(3_600);

fn print(line: &Line) -> Result<()> {
    println!("{}", serde_json::to_string(line).context("writing a line as JSON failed")?);
    Ok(())
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let options: ClientOptions =
        serde_json::from_str(&arguments.options).context("the options are not those of a client")?;
    let client = Client::connect(None, options)?;
    print(&Line::Connected { port: client.port() })?;
    let events = client.events.clone();
    let printer = std::thread::spawn(move || -> Result<()> {
        let mut next = 0;
        loop {
            let new = events.wait_for("an event", PATIENCE, |events| {
                events.get(next..).filter(|new| !new.is_empty()).map(<[_]>::to_vec)
            });
            for event in new.unwrap_or_default() {
                next += 1;
                let over = matches!(event.what, Seen::Ended { .. });
                print(&Line::Event(event))?;
                if over {
                    // The main thread may be reading commands for a client that is no more.
                    std::process::exit(0);
                }
            }
        }
    });
    for line in std::io::stdin().lock().lines() {
        let line = line.context("reading a command failed")?;
        client.command(serde_json::from_str(&line).with_context(|| format!("{line} is no command"))?);
    }
    // Whoever gave the commands is gone. What the client still has to say comes out with its end, if it has one.
    drop(client);
    drop(printer);
    Ok(())
}
