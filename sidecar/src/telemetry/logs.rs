//! Log lines, on standard error. A reader that does not read costs lines, which are counted, and never the driver.

use std::io;

use opentelemetry_sdk::trace::SdkTracer;
use tracing::Subscriber;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::own_spans;
use crate::config::{LogFormat, LogLevel, LogSettings};

/// Lines that wait for standard error at most.
const LINES_MAX: usize = 8_192;

/// The log's writer. Dropping it writes what waits.
pub struct Logs {
    settings: LogSettings,
    directives: String,
    warnings: Vec<String>,
    writer: NonBlocking,
    _guard: WorkerGuard,
}

impl Logs {
    /// Starts the writing thread.
    #[must_use]
    pub fn start(settings: LogSettings, lookup: impl Fn(&str) -> Option<String>) -> Self {
        let (writer, guard) =
            NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES_MAX).finish(io::stderr());
        let (directives, warnings) = directives(settings.level, lookup);
        Self { settings, directives, warnings, writer, _guard: guard }
    }

    /// What collects log lines, and ackbeat's own spans if there is a tracer for them.
    pub fn subscriber(&self, own_spans_to: Option<SdkTracer>) -> impl Subscriber + Send + Sync + 'static {
        let own_spans = own_spans_to.map(own_spans::layer);
        Registry::default().with(self.lines().with_filter(EnvFilter::new(&self.directives))).with(own_spans)
    }

    fn lines<S>(&self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let layer = tracing_subscriber::fmt::layer().with_writer(self.writer.clone()).with_ansi(false);
        match self.settings.format {
            LogFormat::Text => layer.boxed(),
            LogFormat::Json => layer.json().flatten_event(true).boxed(),
        }
    }

    /// What was ignored on the way here, and why.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Counts lines that found no room.
    #[must_use]
    pub fn lost_lines(&self) -> ErrorCounter {
        self.writer.error_counter()
    }
}

/// The filter: the setting, else `RUST_LOG`, else `OTEL_LOG_LEVEL`, else `info`.
fn directives(level: Option<LogLevel>, lookup: impl Fn(&str) -> Option<String>) -> (String, Vec<String>) {
    let mut warnings = Vec::new();
    let lookup = |name: &str| lookup(name).filter(|value| !value.is_empty());
    if let Some(level) = level {
        return (quiet(level.as_str()), warnings);
    }
    if let Some(text) = lookup("RUST_LOG") {
        match EnvFilter::builder().parse(&text) {
            Ok(_) => return (text, warnings),
            Err(error) => warnings.push(format!("RUST_LOG={text:?} is ignored: {error}")),
        }
    }
    if let Some(text) = lookup("OTEL_LOG_LEVEL") {
        let word = text.to_ascii_lowercase();
        match word.as_str() {
            "off" | "error" | "warn" | "info" | "debug" | "trace" => return (quiet(&word), warnings),
            _ => warnings.push(format!("OTEL_LOG_LEVEL={text:?} is ignored: it is no level")),
        }
    }
    (quiet("info"), warnings)
}

/// The level for ackbeat; what it is built on does not go below `info`. `RUST_LOG` can say otherwise.
fn quiet(level: &str) -> String {
    match level {
        "debug" | "trace" => {
            let ceiling = [
                "h2",
                "hyper",
                "hyper_util",
                "rustls",
                "reqwest",
                "tonic",
                "tower",
                "aya",
                "opentelemetry",
                "opentelemetry_sdk",
                "opentelemetry_otlp",
                "opentelemetry-otlp",
            ];
            ceiling.iter().fold(level.to_owned(), |all, name| format!("{all},{name}=info"))
        }
        _ => level.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)], level: Option<LogLevel>) -> (String, usize) {
        let (directives, warnings) = directives(level, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        });
        (directives, warnings.len())
    }

    #[test]
    fn the_setting_beats_rust_log_beats_otel_log_level() {
        let variables = [("RUST_LOG", "ackbeat=trace"), ("OTEL_LOG_LEVEL", "error")];
        assert_eq!(of(&variables, Some(LogLevel::Warn)), ("warn".to_owned(), 0));
        assert_eq!(of(&variables, None), ("ackbeat=trace".to_owned(), 0));
        assert_eq!(of(&variables[1..], None), ("error".to_owned(), 0));
        assert_eq!(of(&[], None), ("info".to_owned(), 0));
    }

    #[test]
    fn bad_levels_are_warned_about_and_ignored() {
        assert_eq!(of(&[("RUST_LOG", "a=b=c"), ("OTEL_LOG_LEVEL", "loud")], None), ("info".to_owned(), 2));
    }

    #[test]
    fn the_debug_filter_is_a_filter() {
        assert!(EnvFilter::builder().parse(quiet("debug")).is_ok());
    }
}
