//! Tests that share one thing that takes long to make. They print what libtest prints, so that whoever reads its lines reads these.

#![expect(clippy::print_stdout, reason = "this is the output of a test program")]

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, anyhow};

/// A test by name.
pub(crate) type Test<S> = (&'static str, fn(&mut S) -> Result<()>);

/// Tests that share `S`, in the order in which they run.
pub(crate) struct Group<'a, S> {
    pub(crate) name: &'static str,
    pub(crate) tests: &'a [Test<S>],
}

/// Which tests are asked for, in the words of libtest.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    filters: Vec<String>,
    is_exact: bool,
    is_list: bool,
}

impl Chosen {
    pub(crate) fn from_arguments(arguments: impl Iterator<Item = String>) -> Self {
        let mut chosen = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--exact" => chosen.is_exact = true,
                "--list" => chosen.is_list = true,
                // How many threads, what is captured: one, and nothing.
                other if other.starts_with('-') => {}
                filter => chosen.filters.push(filter.to_owned()),
            }
        }
        chosen
    }

    fn wants(&self, name: &str) -> bool {
        self.filters.is_empty()
            || self
                .filters
                .iter()
                .any(|filter| if self.is_exact { filter == name } else { name.contains(filter) })
    }
}

/// Makes what the tests share, runs those that are asked for, and prints how each ended. Without `S` all of them have failed.
pub(crate) fn run<S>(chosen: &Chosen, group: &Group<'_, S>, make: fn() -> Result<S>) -> ExitCode {
    let named = group.tests.iter().map(|(name, test)| (format!("{}::{name}", group.name), test));
    let wanted: Vec<_> = named.filter(|(name, _)| chosen.wants(name)).collect();
    if chosen.is_list {
        for (name, _) in &wanted {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", wanted.len());
    let started = Instant::now();
    let mut shared = None;
    let mut failures = Vec::new();
    for (name, test) in &wanted {
        let began = Instant::now();
        let shared = shared.get_or_insert_with(|| make().map_err(|error| format!("{error:#}")));
        let result = match shared {
            Ok(shared) => test(shared),
            Err(error) => Err(anyhow!("what all tests need could not be made: {error}")),
        };
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {word}");
        println!("    {:.1} s", began.elapsed().as_secs_f64());
        if let Err(error) = result {
            // The backtrace of an error names nothing but this program.
            println!("{error:#}");
            failures.push(name.as_str());
        }
    }
    drop(shared);
    if !failures.is_empty() {
        println!("\nfailures:");
        for name in &failures {
            println!("    {name}");
        }
    }
    println!(
        "\ntest result: {}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        if failures.is_empty() { "ok" } else { "FAILED" },
        wanted.len() - failures.len(),
        failures.len(),
        group.tests.len() - wanted.len(),
        started.elapsed().as_secs_f64()
    );
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
