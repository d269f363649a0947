//! The webhook against an API server that is played, and against time.

mod admission;
mod authorities;
mod cluster;
mod secret;
