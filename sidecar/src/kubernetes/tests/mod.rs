//! Against an API server that is played.

mod events;
mod server;
