//! The mux host on Node.js with the npm package `ws`: the library whose heartbeat pattern is at issue.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::libraries::Heartbeat;
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
    Heartbeat::WsCounting.start(namespace, address)
}

/// The same in this process's namespace, with a watchdog of another interval, which counts to `missed_max` (`None`: it
/// closes nothing).
///
/// # Errors
/// As [`start`].
pub fn start_counting(address: IpAddr, interval: Duration, missed_max: Option<u32>) -> Result<Host> {
    let mut command = Command::new("node");
    command
        .current_dir(tools::node_directory()?)
        .arg(tools::source("node/mux-host.mjs"))
        .arg(address.to_string())
        .arg(interval.as_millis().to_string())
        .arg(missed_max.map_or_else(|| "Infinity".to_owned(), |count| count.to_string()));
    Host::from_process(Process::spawn("mux-host.mjs", None, command)?, address)
}
