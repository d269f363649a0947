//! Hosts whose heartbeat is that of a library in use, each a process of its own that says what the library did.
//!
//! Their sources are in `node` and `python`; they answer the asks of [`crate::mux`] and print its events. Only
//! the library decides; nothing there counts, waits or kills on its behalf, but for the two recipes around `ws`, which are
//! no part of that library.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::mux::Host;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::tools;

/// A library's heartbeat, with its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heartbeat {
    /// The npm package `ws` with the counting watchdog of the mux host: its interval is [`crate::mux::WATCHDOG_INTERVAL`].
    WsCounting,
    /// The npm package `ws` with the heartbeat that its README recommends.
    WsReadme {
        /// From one tick to the next.
        interval: Duration,
    },
    /// The npm package `engine.io`, which is below socket.io.
    EngineIo {
        /// `pingInterval`.
        ping_interval: Duration,
        /// `pingTimeout`.
        ping_timeout: Duration,
    },
    /// The Python package `aiohttp`.
    Aiohttp {
        /// `heartbeat`.
        heartbeat: Duration,
    },
    /// The Python package `websockets`.
    PythonWebsockets {
        /// `ping_interval`.
        ping_interval: Duration,
        /// `ping_timeout`.
        ping_timeout: Duration,
    },
}

impl Heartbeat {
    /// Starts a host with it in `namespace` (or in this process's own).
    ///
    /// # Errors
    /// If the interpreter or the library is missing, or it does not listen.
    pub fn start(self, namespace: Option<&Namespace>, address: IpAddr) -> Result<Host> {
        let milliseconds = |duration: Duration| duration.as_millis().to_string();
        let seconds = |duration: Duration| duration.as_secs_f64().to_string();
        let (program, arguments) = match self {
            Self::WsCounting => ("mux-host.mjs", Vec::new()),
            Self::WsReadme { interval } => ("ws-readme-host.mjs", vec![milliseconds(interval)]),
            Self::EngineIo { ping_interval, ping_timeout } => {
                ("engine-io-host.mjs", vec![milliseconds(ping_interval), milliseconds(ping_timeout)])
            }
            Self::Aiohttp { heartbeat } => ("aiohttp-host.py", vec![seconds(heartbeat)]),
            Self::PythonWebsockets { ping_interval, ping_timeout } => {
                ("websockets-host.py", vec![seconds(ping_interval), seconds(ping_timeout)])
            }
        };
        let mut command = match self {
            Self::WsCounting | Self::WsReadme { .. } | Self::EngineIo { .. } => {
                let mut command = Command::new("node");
                command.current_dir(tools::node_directory()?).arg(tools::source(&format!("node/{program}")));
                command
            }
            Self::Aiohttp { .. } | Self::PythonWebsockets { .. } => {
                let mut command = Command::new(tools::python()?);
                // Compiled files would be left beside the sources.
                command.env("PYTHONDONTWRITEBYTECODE", "1").arg(tools::source(&format!("python/{program}")));
                command
            }
        };
        command.arg(address.to_string()).args(arguments);
        Host::from_process(Process::spawn(program, namespace, command)?, address)
    }

    /// The library and the version that is installed, as its package says.
    ///
    /// # Errors
    /// If it is not installed.
    pub fn library(self) -> Result<String> {
        match self {
            Self::WsCounting | Self::WsReadme { .. } => tools::npm_version("ws"),
            Self::EngineIo { .. } => tools::npm_version("engine.io"),
            Self::Aiohttp { .. } => tools::python_version("aiohttp"),
            Self::PythonWebsockets { .. } => tools::python_version("websockets"),
        }
    }
}
