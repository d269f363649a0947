//! The mux host on Node.js with the npm package `ws`: the library whose heartbeat pattern is at issue.

use std::net::IpAddr;

use anyhow::Result;

use crate::libraries::Heartbeat;
use crate::mux::Host;
use crate::namespace::Namespace;

/// Starts `node/mux-host.mjs` in `namespace` (or in this process's own). Its watchdog, asks and events are those of
/// [`crate::mux`].
///
/// # Errors
/// If Node.js or `ws` is missing, or it does not listen.
pub fn start(namespace: Option<&Namespace>, address: IpAddr) -> Result<Host> {
    Heartbeat::WsCounting.start(namespace, address)
}
