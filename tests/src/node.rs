//! The mux host on Node.js with the npm package `ws`: the library whose heartbeat pattern is at issue.

use std::net::IpAddr;
use std::process::Command;

use anyhow::Result;

use crate::mux::Host;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::tools;

/// Starts `node/mux-host.mjs` in `namespace` (or in this process's own). Its watchdog, asks and events are those of
/// [`crate::mux`].
///
/// # Errors
/// If Node.js or `ws` is missing, or it does not listen.
pub fn start(namespace: Option<&Namespace>, address: IpAddr) -> Result<Host> {
    let mut command = Command::new("node");
    command.arg(tools::node_mux_host()).arg(address.to_string()).current_dir(tools::node_directory()?);
    Host::from_process(Process::spawn("node mux host", namespace, command)?, address)
}
