//! `ackbeat top`

use std::io::{self, Write as _};

use super::{CommandError, runtime, written};
use crate::cli::TopArguments;
use crate::top::query::Query;
use crate::top::{self, Form, Options};

/// What a terminal is told that shows one table only.
const DUMB_TERMINAL: &str = "ackbeat: TERM=dumb has no screen to draw on: this is the table of --once; `watch ackbeat top --once` repeats it";

/// Shows connections: live, or as one table with `--once` and where there is no terminal.
///
/// # Errors
/// [`CommandError::Top`] if the API does not answer a single question, or the terminal refuses.
pub fn execute(arguments: &TopArguments) -> Result<(), CommandError> {
    let options = options(arguments);
    let form = if arguments.once { Form::Plain } else { Form::of_terminal() };
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        if form == Form::Live {
            return top::live(options).await.map_err(CommandError::from);
        }
        let table = top::once(&options).await?;
        written(io::stdout().lock().write_all(table.as_bytes()))?;
        if form == Form::PlainForTerminal {
            // The table is there; a hint that nobody can read is no failure.
            let _ = writeln!(io::stderr().lock(), "{DUMB_TERMINAL}");
        }
        Ok(())
    });
    // A question that is still open is left to the exit of the process.
    runtime.shutdown_background();
    result
}

fn options(arguments: &TopArguments) -> Options {
    Options {
        api: arguments.api.clone(),
        interval: arguments.interval,
        query: Query::new(arguments.sort, arguments.verdict.clone(), arguments.limit),
        has_colour: !arguments.no_color && top::colour_allowed(std::env::var_os("NO_COLOR").as_deref()),
    }
}
