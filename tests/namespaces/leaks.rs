//! Report D, with a real proxy that leaks: the leak is named before the quota is full, nothing is destroyed unless that was
//! asked for, and where it was the service never refuses.
//!
//! Every check of the path asserts on payload that went through proxy and relay and came back: a first fix in the report
//! passed a check that never reached the changed path.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use ackbeat::api::leaks::{Leaks, Reaping};
use ackbeat_tests::api::ApiClient;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::{Process, run};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::{sockets, spans::Span, tools};
use anyhow::{Context, Result, bail, ensure};

use crate::quota_relay::QuotaRelay;

const DEADLINE: Duration = Duration::from_secs(60);
/// The limit of the report's relay.
const LIMIT: u64 = 64;
/// How far apart users come.
const PACE: Duration = Duration::from_millis(120);
/// Users that are there at once: each outlives a census.
const AT_ONCE: usize = 8;

/// A pod with a leaking proxy, and beyond its network a relay and users.
struct Scene {
    proxy: Process,
    entrance: SocketAddr,
    relay: QuotaRelay,
    network: Network,
    users: VecDeque<User>,
    came: u64,
}

/// A user: a connection to the proxy, over which payload was echoed.
struct User {
    lines: BufReader<TcpStream>,
}

impl User {
    /// Sends payload; gives whether the relay sent it back, or refused.
    fn echo(&mut self, payload: &str) -> Result<bool> {
        self.lines.get_mut().write_all(format!("{payload}\n").as_bytes()).context("writing failed")?;
        let mut answer = String::new();
        self.lines.read_line(&mut answer).context("reading an answer failed")?;
        match answer.trim_end().split_once(' ') {
            Some(("200", echoed)) if echoed == payload => Ok(true),
            Some(("503", _)) => Ok(false),
            _ => bail!("{payload:?} was answered with {answer:?}"),
        }
    }
}

impl Scene {
    fn start() -> Result<Self> {
        let network = Network::create()?;
        let relay = QuotaRelay::start(&network.client, network.client_address(IpVersion::V4), LIMIT)?;
        let mut command = Command::new("node");
        command
            .arg(tools::source("node/leaky-proxy.mjs"))
            .arg(network.host_address(IpVersion::V4).to_string())
            .arg(relay.address.ip().to_string())
            .arg(relay.address.port().to_string());
        let proxy = Process::spawn("leaky-proxy.mjs", Some(&network.host), command)?;
        let port = proxy.stdout.wait_for("the proxy's port", DEADLINE, |lines| {
            lines.iter().find_map(|line| line.strip_prefix("listening ")?.parse().ok())
        })?;
        let entrance = SocketAddr::new(network.host_address(IpVersion::V4), port);
        Ok(Self { proxy, entrance, relay, network, users: VecDeque::new(), came: 0 })
    }

    fn sidecar(&self, mode: &str, reap: &[(&str, &str)]) -> Result<Sidecar> {
        let mut options = SidecarOptions::port(self.entrance.port()).argument("--mode", mode);
        for (name, value) in [
            ("CENSUS_INTERVAL_MS", "250"),
            ("IDLE_AFTER_MS", "2000"),
            ("FLAT_AFTER_MS", "2000"),
            ("ORPHAN_AFTER_MS", "1000"),
            ("CLOSE_WAIT_AFTER_MS", "2000"),
        ]
        .iter()
        .chain(reap)
        {
            options = options.variable(&format!("ACKBEAT_LEAKS_{name}"), *value);
        }
        Sidecar::start(&self.network.host, &options)
    }

    /// A user comes and echoes something that nobody else sends.
    fn come(&mut self) -> Result<Option<User>> {
        self.came += 1;
        let stream = self.network.client.run(|| sockets::connect(self.entrance))??;
        let mut user = User { lines: BufReader::new(stream) };
        Ok(user.echo(&format!("payload-of-user-{}", self.came))?.then_some(user))
    }

    /// Users come, and the first of those that are there leave. Gives whether all were served; it ends with the first that
    /// was not.
    fn users(&mut self, count: usize) -> Result<bool> {
        for _ in 0..count {
            let Some(user) = self.come()? else { return Ok(false) };
            self.users.push_back(user);
            if self.users.len() > AT_ONCE {
                self.users.pop_front();
            }
            std::thread::sleep(PACE);
        }
        Ok(true)
    }

    /// Connections of the proxy to the relay in this state, as `ss` counts them.
    fn upstream(&self, state: &str) -> Result<usize> {
        let port = self.relay.address.port().to_string();
        let listed = run(Some(&self.network.host), "ss", &["-Htn", "state", state, "dport", "=", &port])?;
        Ok(listed.lines().count())
    }
}

fn suspected<'a>(spans: &'a [Span], sign: &str, side: &str) -> Option<&'a Span> {
    spans.iter().find(|span| {
        span.name == "leak_suspected"
            && span.text("ackbeat.leak.sign") == Some(sign)
            && span.text("ackbeat.leak.side") == Some(side)
    })
}

fn reaped(spans: &[Span], outcome: &str) -> usize {
    let of = |span: &&Span| span.text("ackbeat.leak.reap_outcome") == Some(outcome);
    spans.iter().filter(|span| span.name == "leak_reap").filter(of).count()
}

#[test]
fn a_leak_is_named_before_the_quota_is_full_and_nothing_is_destroyed_unasked() -> Result<()> {
    let mut scene = Scene::start()?;
    let sidecar = scene.sidecar("ebpf", &[])?;
    let mut named_at = None;
    while scene.users(1)? {
        ensure!(scene.came <= 2 * LIMIT, "the relay has no limit");
        if named_at.is_none() && suspected(&sidecar.spans()?, "orphans", "remote").is_some() {
            named_at = Some(scene.relay.counts.streams());
        }
    }
    // The service refuses from now on, although the relay answers at once.
    ensure!(
        scene.relay.counts.streams() == LIMIT && scene.relay.counts.denied() == 1,
        "{:?}",
        scene.relay.counts
    );
    let named_at = named_at.context("the leak was not named before the quota was full")?;
    println!("named at {named_at} of {LIMIT} streams");
    ensure!(named_at < LIMIT, "named at {named_at}");
    let first = suspected(&sidecar.spans()?, "orphans", "remote").cloned().context("it was named")?;
    ensure!(first.number("network.peer.port") == Some(i64::from(scene.relay.address.port())), "{first:#?}");
    ensure!(first.number("process.pid") == Some(i64::from(scene.proxy.pid())), "{first:#?}");
    ensure!(first.text("ackbeat.leak.certainty") == Some("likely"), "{first:#?}");

    // The count stands, and its number is named.
    scene.users.clear();
    let flat = sidecar
        .wait_for("the flat count", DEADLINE, |spans| suspected(spans, "flat_count", "remote").cloned())?;
    ensure!(flat.number("ackbeat.leak.likely_quota") == Some(64), "{flat:#?}");
    let line =
        sidecar.log().into_iter().find(|line| line.contains("exactly 64 for")).context("no such line")?;
    println!("{line}");
    // The second fault: the relay closed what it refused, and the proxy did not.
    sidecar.wait_for("the socket in CLOSE_WAIT", DEADLINE, |spans| {
        suspected(spans, "close_wait", "remote").cloned()
    })?;
    let api = ApiClient::of(&scene.network.host)?;
    let leaks: Leaks = api.read("/v1/leaks")?;
    let port = leaks.ports.iter().find(|port| port.address == scene.relay.address.to_string());
    let port = port.context("the relay's port is not told")?;
    ensure!((port.established, port.idle, port.close_wait) == (64, 64, 1), "{port:#?}");
    ensure!(port.orphans >= 32 && leaks.pairs.len() >= 32, "{port:#?}");
    ensure!(
        leaks.owners.iter().any(|owner| owner.pid == scene.proxy.pid() && owner.fd_count > 64),
        "{leaks:#?}"
    );

    sidecar.stop()?;

    // All that reaping needs but for the word: the quota is full, everything is idle, and nothing is destroyed, whoever asks.
    let quota = format!("remote:{}=64", scene.relay.address.port());
    let ripe = [("REAP_QUOTA", quota.as_str()), ("REAP_MIN_AGE_MS", "1000"), ("REAP_MIN_IDLE_MS", "1000")];
    let sidecar = scene.sidecar("ebpf", &ripe)?;
    let api = ApiClient::of(&scene.network.host)?;
    let (status, body) = api.post("/v1/reap", r#"{"mode":"on"}"#)?;
    ensure!(status == 409, "{status}: {body}");
    let censuses = |sidecar: &Sidecar| -> Result<String> {
        ensure!(reaped(&sidecar.spans()?, "destroyed") == 0, "something was destroyed");
        Ok(api
            .get("/metrics")?
            .1
            .lines()
            .find(|line| line.starts_with("ackbeat_censuses_total"))
            .unwrap_or_default()
            .to_owned())
    };
    let before = censuses(&sidecar)?;
    wait_until("some more censuses", DEADLINE, || {
        let digits = |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
        Ok(digits(&censuses(&sidecar)?) > digits(&before).map(|count| count + 16))
    })?;
    ensure!(
        scene.upstream("established")? == 64 && scene.relay.counts.reset() == 0,
        "{:?}",
        scene.relay.counts
    );
    let spans = sidecar.stop()?;
    ensure!(!spans.iter().any(|span| span.name == "leak_reap"), "with reaping off there is no such span");

    // A dry run tells, and destroys nothing.
    let [quota, age, idle] = ripe;
    let dry = scene.sidecar("sock-diag", &[("REAP", "dry-run"), quota, age, idle])?;
    dry.wait_for("two rounds of a dry run", DEADLINE, |spans| {
        (reaped(spans, "dry_run") >= 16).then_some(())
    })?;
    let spans = dry.stop()?;
    ensure!(
        reaped(&spans, "destroyed") == 0 && scene.relay.counts.reset() == 0,
        "a dry run destroyed something"
    );
    ensure!(scene.upstream("established")? == 64);
    ensure!(scene.come()?.is_none(), "and the service still refuses");
    Ok(())
}

#[test]
fn with_reaping_on_the_service_never_refuses_until_it_is_switched_off() -> Result<()> {
    let mut scene = Scene::start()?;
    // Below the relay's limit, by more than what comes between two censuses.
    let quota = format!("remote:{}=40", scene.relay.address.port());
    let sidecar = scene.sidecar(
        "sock-diag",
        &[("REAP", "on"), ("REAP_QUOTA", &quota), ("REAP_MIN_AGE_MS", "1500"), ("REAP_MIN_IDLE_MS", "1200")],
    )?;
    // One user stays, and has something to say now and then.
    let mut steady = scene.come()?.context("the first user was refused")?;
    for round in 0..28 {
        ensure!(scene.users(4)?, "user {} was refused: {:?}", scene.came, scene.relay.counts);
        ensure!(steady.echo(&format!("steady-{round}"))?, "the user that stays was refused");
    }
    let counts = &scene.relay.counts;
    println!("{} users, at most {} streams, {} destroyed", scene.came, counts.peak(), counts.reset());
    ensure!(scene.came > LIMIT && counts.denied() == 0 && counts.peak() < LIMIT, "{counts:?}");
    ensure!(counts.bytes_echoed() > 100 * "payload-of-user-1".len() as u64, "{counts:?}");
    let destroyed =
        sidecar.wait_for("a span for each socket that the relay saw reset", DEADLINE, |spans| {
            let spans = reaped(spans, "destroyed") as u64;
            (spans >= 48 && spans == counts.reset()).then_some(spans)
        })?;
    let api = ApiClient::of(&scene.network.host)?;
    let leaks: Leaks = api.read("/v1/leaks")?;
    ensure!(leaks.reaping.outcomes["destroyed"] >= destroyed, "{:?}", leaks.reaping);
    ensure!(leaks.reaping.outcomes["failed"] == 0, "{:?}", leaks.reaping);

    // The kill switch: from now on nothing is destroyed, and the service refuses again.
    let (status, body) = api.post("/v1/reap", r#"{"mode":"off"}"#)?;
    ensure!(status == 200, "{status}: {body}");
    let now: Reaping = serde_json::from_str(&body)?;
    let before = now.outcomes["destroyed"];
    while scene.users(1)? {
        ensure!(scene.came <= 4 * LIMIT, "something is destroyed although it was switched off");
    }
    let api = ApiClient::of(&scene.network.host)?;
    let after: Leaks = api.read("/v1/leaks")?;
    ensure!(
        after.reaping.outcomes["destroyed"] <= before + 1,
        "one may have been under way: {:?}",
        after.reaping
    );
    ensure!(after.reaping.outcomes["switched_off"] > 0, "{:?}", after.reaping);
    ensure!(steady.echo("steady-to-the-end")?, "the user that stays was refused");
    let (status, body) = api.post("/v1/reap", r#"{"mode":"on"}"#)?;
    ensure!(status == 409, "{status}: {body}");
    sidecar.stop()?;
    Ok(())
}
