//! The arena's runner: plays each scenario with real sockets and keeps what was recorded beside what was true.
//!
//! ```text
//! row (scenario) ──► stage (namespaces, host, peers, faults, `ackbeat run --record`) ──► recording.jsonl
//!                                                                                  └──► truth.json (written here,
//!                                                                                       never by ackbeat)
//! ```
//!
//! A row is played once for each variant and seed. A stage may have several subjects: each of them is one run. The
//! host's watchdog closes nothing, so that every detector judges all that follows.

pub mod cannot_run;
pub mod corpus;
pub mod judge;
pub mod plot;
pub mod report;
pub mod row;
pub mod rows;
pub mod runner;
pub mod stage;
pub mod truth;

pub use cannot_run::CannotRun;
pub use row::{Row, Variant};
pub use rows::ROWS;
pub use stage::{PathKind, Played, Stage, StageOptions};
pub use truth::{State, Subject, Truth};
