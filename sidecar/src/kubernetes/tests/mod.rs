//! Against an API server that is played.

mod events;
mod own_pod;
mod peers;
mod server;
