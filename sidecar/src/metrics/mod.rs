//! Metrics: how many closes, of what kind, and how things stand now; over OTLP and as a page for Prometheus.
//!
//! | module | what |
//! |---|---|
//! | [`table`] | the one table of instruments |
//! | [`reference`] | the page `METRICS.md`, written from it |
//! | `instruments` | who records what as it happens |
//! | `observed` | what is read when somebody collects |
//! | `sweep` | the pass over the engine's connections, once a second |
//! | `process` | what the sidecar itself costs |
//! | `exemplars` | the trace of the latest close of each series |
//! | [`pipeline`] | the meter provider and its readers |
//! | [`page`] | the page, in its two forms |
//! | [`server`] | the listener that serves it |
//!
//! Recording never waits for a collector or a scrape: it is a few additions under a lock that nobody holds for longer
//! than a copy takes.

mod exemplars;
mod instruments;
mod observed;
pub mod page;
pub mod pipeline;
mod process;
pub mod reference;
pub mod server;
mod sweep;
pub mod table;

pub use instruments::{Feed, Metrics};
pub use observed::Sources;
pub use pipeline::MetricsPipeline;

#[cfg(test)]
mod tests;
