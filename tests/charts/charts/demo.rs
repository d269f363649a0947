//! The demo's scripts do what the demo is for: the host closes a client that reads, because it reads slowly.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use ackbeat_chart_tests::{repository, tool};
use anyhow::{Context, Result, bail};

const PATIENCE: Duration = Duration::from_secs(60);

/// A script of the demo, ended with the test.
struct Script {
    child: Child,
    lines: Receiver<String>,
}

impl Script {
    fn start(name: &str, arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(tool("helm/python/bin/python3")?)
            .arg(repository(&format!("charts/ackbeat/demo/{name}.py"))?)
            .args(arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{name}.py does not start"))?;
        let output = child.stdout.take().context("its output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// The next line that has this in it; the lines before it are returned too.
    fn wait_for(&self, part: &str) -> Result<Vec<String>> {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else { bail!("no `{part}` among {seen:#?}") };
            let found = line.contains(part);
            seen.push(line);
            if found {
                return Ok(seen);
            }
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_host_closes_who_reads_slowly_and_keeps_who_reads_fast() -> Result<()> {
    let interval = ["--ping-interval-ms", "1500", "--burst-bytes", "16777216"];
    let mut arguments = vec!["--address", "127.0.0.1", "--port", "0"];
    arguments.extend(interval);
    let host = Script::start("host", &arguments)?;
    let started = host.wait_for("listening on port ")?;
    let port = started.last().and_then(|line| line.rsplit(' ').next()).context("a port")?.to_owned();
    let fast = Script::start("client", &["--port", &port, "--read-bytes-per-second", "1073741824"])?;
    fast.wait_for("answered a Ping")?;
    let slow = Script::start("client", &["--port", &port, "--read-bytes-per-second", "500000"])?;
    slow.wait_for("connected")?;
    let said = host.wait_for("two Pongs missed, closing; ")?;
    let killed = said.last().context("the last line")?;
    let waiting: u64 = killed
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .with_context(|| format!("how much waited: {killed}"))?;
    anyhow::ensure!(waiting > 1_000_000, "{killed}");
    // The fast one is still there.
    fast.wait_for("answered a Ping")?;
    Ok(())
}
