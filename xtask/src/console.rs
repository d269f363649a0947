//! The only place of this package that writes to the terminal.
//!
//! Progress goes to stderr, results (the table of `cargo xtask test`, its closing line) to stdout.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its user here")]

/// Prints one line of a result to stdout.
pub(crate) fn result(line: &str) {
    println!("{line}");
}

/// Prints one line of progress to stderr.
pub(crate) fn progress(line: &str) {
    eprintln!("xtask: {line}");
}
