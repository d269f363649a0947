//! The API: a real server over TCP and a Unix socket, a real driver and engine, and a made source.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod answers;
mod bounds;
mod description;
mod listening;
mod reports;
mod scene;
mod streams;
mod wrong_input;
