//! The wire parser: WebSocket control frames, read off the wire at their exact positions.

pub(crate) mod state;
