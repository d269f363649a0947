//! Own window probes: a peer that is gone behind its closed window is known in seconds, one that only does not read is
//! neither accused nor harmed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ackbeat::recording::replay::replay;
use ackbeat::recording::{Line, Reader};
use ackbeat_liveness::{ConnectionId, Input, Output, Policy, Verdict};
use ackbeat_tests::client::{Client, ClientOptions, Seen};
use ackbeat_tests::clock::monotonic_ns;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::mux::{Ask, Host, HostAction, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::run;
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::tools;
use anyhow::{Context, Result, bail, ensure};

const DEADLINE: Duration = Duration::from_secs(60);
/// More than send and receive queue hold together.
const MORE_THAN_FITS_BYTES: usize = 16_000_000;
/// Three seconds of silence, a second for the last answer, and a busy machine.
const KNOWN_WITHIN: Duration = Duration::from_secs(8);

/// Two clients over one IP version, both with closed windows.
struct Subjects {
    host: Host,
    cut: Client,
    alive: Client,
}

struct Scene {
    network: Network,
    sidecar: Sidecar,
    subjects: Vec<Subjects>,
    recording: Recording,
}

/// A file that is removed when it is dropped.
struct Recording(PathBuf);

impl Drop for Recording {
    fn drop(&mut self) {
        // What cannot be removed stays in the temporary directory.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Recording {
    /// How many own probes each client was sent so far.
    fn probes(&self) -> Result<BTreeMap<u16, usize>> {
        let mut ports = BTreeMap::new();
        let mut probes = BTreeMap::new();
        read(&self.0, |input| match input {
            Input::Opened(opened) => {
                ports.insert(opened.connection, opened.endpoints.peer_port);
            }
            Input::ProbeSent { connection, .. } => {
                if let Some(port) = ports.get(&connection) {
                    *probes.entry(*port).or_default() += 1;
                }
            }
            _ => {}
        })?;
        Ok(probes)
    }
}

/// Reads what is there; the last line may not be whole yet.
fn read(path: &Path, mut look: impl FnMut(Input)) -> Result<()> {
    let mut reader = Reader::open(path)?;
    while let Some(line) = reader.next_line()? {
        if let Line::Input(input) = line {
            look(*input);
        }
    }
    Ok(())
}

/// What the kernel says of the connection with this client port.
fn statistics(network: &Network, client_port: u16) -> Result<String> {
    let filter = client_port.to_string();
    Ok(network.host.run(|| run(None, "ss", &["-tinHO", "dport", "=", &filter]))??)
}

/// Segments that were retransmitted; `ss` leaves a 0 out.
fn retransmits(statistics: &str) -> Result<u32> {
    let word = statistics.split_whitespace().find_map(|word| word.strip_prefix("retrans:"));
    word.map_or(Ok(0), |word| {
        let total = word.rsplit('/').next().unwrap_or(word);
        total.parse().with_context(|| format!("retrans in {statistics}"))
    })
}

impl Scene {
    /// All clients have their windows closed, and the kernel's own probes have backed off to `backoff`.
    fn set_up(versions: &[IpVersion], own_probes: bool, backoff: u32) -> Result<Self> {
        let network = Network::create()?;
        let mut subjects = Vec::new();
        let mut hosts = Vec::new();
        for version in versions {
            let options = HostOptions::new(network.host_address(*version)).watching_only();
            hosts.push(Host::start(Some(&network.host), options)?);
        }
        let name = format!("ackbeat-window-probe-{own_probes}-{}.jsonl", std::process::id());
        let recording = Recording(std::env::temp_dir().join(name));
        let options = SidecarOptions {
            ports: hosts.iter().map(|host| host.address().port()).collect(),
            ..SidecarOptions::default()
        };
        let options = options
            .argument("--record", &recording.0)
            .variable("ACKBEAT_PROBE_WINDOW", own_probes.to_string())
            .variable("ACKBEAT_LOG_LEVEL", "debug");
        let sidecar = Sidecar::start(&network.host, &options)?;
        for host in hosts {
            let connect = || Client::connect(Some(&network.client), ClientOptions::new(host.address()));
            let (cut, alive) = (connect()?, connect()?);
            for client in [&cut, &alive] {
                host.wait_for_pongs(client.port(), 1, DEADLINE)?;
                client.freeze(true);
                client.ask(&Ask::Bytes { bytes: MORE_THAN_FITS_BYTES });
                host.wait_for("data", client.port(), DEADLINE, |what| {
                    matches!(what, HostAction::Queued { .. })
                })?;
            }
            subjects.push(Subjects { host, cut, alive });
        }
        let scene = Self { network, sidecar, subjects, recording };
        for client in scene.subjects.iter().flat_map(|subjects| [&subjects.cut, &subjects.alive]) {
            wait_until("window probes of the kernel", DEADLINE, || {
                let text = statistics(&scene.network, client.port())?;
                let word = text.split_whitespace().find_map(|word| word.strip_prefix("backoff:"));
                Ok(word.is_some_and(|word| word.parse().is_ok_and(|found: u32| found >= backoff)))
            })?;
        }
        Ok(scene)
    }

    /// Verdicts of the connection with this client, with their times.
    fn verdicts(&self, client_port: u16) -> Result<Vec<(u64, Verdict)>> {
        let mut connection: Option<ConnectionId> = None;
        read(&self.recording.0, |input| {
            if let Input::Opened(opened) = input
                && opened.endpoints.peer_port == client_port
            {
                connection = Some(opened.connection);
            }
        })?;
        let mut verdicts = Vec::new();
        let mut reader = Reader::open(&self.recording.0)?;
        replay(&mut reader, Policy::default_policy(), |output| {
            if let Output::VerdictChanged(change) = output
                && Some(change.connection) == connection
                && !change.is_turn()
            {
                verdicts.push((change.at.as_ns(), change.to));
            }
        })?;
        Ok(verdicts)
    }

    /// When the connection with this client was first called unreachable.
    fn unreachable_at_ns(&self, client_port: u16) -> Result<Option<u64>> {
        let verdicts = self.verdicts(client_port)?;
        Ok(verdicts.into_iter().find(|(_, verdict)| *verdict == Verdict::Unreachable).map(|(at, _)| at))
    }
}

#[test]
fn a_peer_that_is_gone_is_known_and_one_that_does_not_read_goes_on_unharmed() -> Result<()> {
    let scene = Scene::set_up(&[IpVersion::V4, IpVersion::V6], true, 3)?;
    // Until each peer has shown that it answers them.
    wait_until("answered own probes", DEADLINE, || {
        let probes = scene.recording.probes()?;
        let clients = scene.subjects.iter().flat_map(|subjects| [&subjects.cut, &subjects.alive]);
        Ok(clients.into_iter().all(|client| probes.get(&client.port()).is_some_and(|count| *count >= 4)))
    })?;
    let mut cuts = Vec::new();
    let mut before = Vec::new();
    for Subjects { cut, alive, .. } in &scene.subjects {
        before.push(statistics(&scene.network, alive.port())?);
        cuts.push((cut.port(), monotonic_ns()));
        scene.network.cut(cut.port())?;
    }
    for (port, cut_ns) in cuts {
        wait_until("the verdict unreachable", DEADLINE, || Ok(scene.unreachable_at_ns(port)?.is_some()))?;
        let Some(at_ns) = scene.unreachable_at_ns(port)? else { bail!("port {port} is not unreachable") };
        let known = Duration::from_nanos(at_ns.saturating_sub(cut_ns));
        println!("with own probes: unreachable {known:?} after the cut");
        ensure!(known < KNOWN_WITHIN, "known after {known:?}");
    }

    // Ten more probes at least, which nobody must notice.
    let first = scene.recording.probes()?;
    wait_until("more own probes", DEADLINE, || {
        let now = scene.recording.probes()?;
        Ok(scene.subjects.iter().all(|subjects| {
            let port = subjects.alive.port();
            now.get(&port).copied().unwrap_or(0) >= first.get(&port).copied().unwrap_or(0) + 10
        }))
    })?;
    for (Subjects { host, alive, .. }, before) in scene.subjects.iter().zip(&before) {
        let port = alive.port();
        let after = statistics(&scene.network, port)?;
        println!("before: {before}\nafter:  {after}");
        ensure!(retransmits(&after)? == retransmits(before)?, "retransmissions: {before} then {after}");
        let verdicts = scene.verdicts(port)?;
        ensure!(
            verdicts.iter().all(|(_, verdict)| {
                matches!(verdict, Verdict::Alive | Verdict::Congested | Verdict::Stalled)
            }),
            "{verdicts:?}"
        );
        ensure!(verdicts.last().is_some_and(|(_, verdict)| *verdict == Verdict::Stalled), "{verdicts:?}");

        // It reads again, and everything arrives.
        let pongs = |events: &[ackbeat_tests::mux::HostEvent]| {
            events.iter().filter(|event| event.peer_port == port && event.what == HostAction::Pong).count()
        };
        let pongs_before = host.events.read(pongs);
        alive.freeze(false);
        let whole =
            |event: &Seen| matches!(event, Seen::Data { bytes } if *bytes == MORE_THAN_FITS_BYTES as u64);
        alive.wait_for("the whole message", DEADLINE, whole)?;
        host.wait_for_pongs(port, pongs_before + 2, DEADLINE)?;
        let end = statistics(&scene.network, port)?;
        println!("end:    {end}");
        ensure!(end.starts_with("ESTAB"), "{end}");
    }

    // The wire parser saw the probes pass and kept its place.
    let ports: Vec<u16> = scene.subjects.iter().map(|subjects| subjects.alive.port()).collect();
    let mut watched = BTreeMap::new();
    let mut losses = Vec::new();
    read(&scene.recording.0, |input| match input {
        Input::Opened(opened) if ports.contains(&opened.endpoints.peer_port) => {
            watched.insert(opened.connection, opened.endpoints.peer_port);
        }
        Input::Synchronization(lost) if !lost.synchronized && watched.contains_key(&lost.connection) => {
            losses.push(lost);
        }
        _ => {}
    })?;
    ensure!(watched.len() == ports.len() && losses.is_empty(), "{watched:?}: {losses:?}");
    let (_, log) = scene.sidecar.stop_with_log()?;
    let complaints: Vec<&String> =
        log.iter().filter(|line| line.contains("own window probes were")).collect();
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

#[test]
fn without_own_probes_it_is_known_late() -> Result<()> {
    // By now the kernel's probes are 6.4 s apart.
    let scene = Scene::set_up(&[IpVersion::V4], false, 5)?;
    let subjects = scene.subjects.first().context("no subjects")?;
    let port = subjects.cut.port();
    let cut_ns = monotonic_ns();
    scene.network.cut(port)?;
    let began = Instant::now();
    // A lapse of time is what is tested: nothing can be waited for.
    while began.elapsed() < KNOWN_WITHIN + Duration::from_secs(4) {
        std::thread::sleep(Duration::from_millis(500));
        let known_ns = scene.unreachable_at_ns(port)?;
        ensure!(
            known_ns.is_none(),
            "known {:?} after the cut",
            known_ns.map(|at| Duration::from_nanos(at.saturating_sub(cut_ns)))
        );
    }
    ensure!(scene.recording.probes()?.is_empty(), "probes were sent although nobody allowed it");
    Ok(())
}

/// A program that runs `ackbeat` without the right to raw sockets. Dropping it removes it.
struct WithoutRawSockets(PathBuf);

impl WithoutRawSockets {
    fn make() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("ackbeat-without-net-raw-{}", std::process::id()));
        let ackbeat = tools::ackbeat()?;
        let text = format!(
            "#!/bin/sh\nexec setpriv --bounding-set=-net_raw --inh-caps=-net_raw {} \"$@\"\n",
            ackbeat.display()
        );
        std::fs::write(&path, text).context("writing a program failed")?;
        let program = Self(path);
        std::fs::set_permissions(&program.0, std::fs::Permissions::from_mode(0o755))
            .context("making it executable failed")?;
        Ok(program)
    }
}

impl Drop for WithoutRawSockets {
    fn drop(&mut self) {
        // What cannot be removed stays in the temporary directory.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn without_the_capability_it_names_the_fix_and_watches_on() -> Result<()> {
    let network = Network::create()?;
    let program = WithoutRawSockets::make()?;
    let mut check = std::process::Command::new(&program.0);
    check.arg("check").stdin(std::process::Stdio::null());
    let check = network.host.run(move || check.output())?.context("starting ackbeat failed")?;
    let table = String::from_utf8_lossy(&check.stdout).into_owned();
    ensure!(check.status.success(), "it is not needed to start in full: {table}");
    ensure!(table.contains("without  raw socket") && table.contains("CAP_NET_RAW"), "{table}");

    let options = SidecarOptions::port(8080).variable("ACKBEAT_PROBE_WINDOW", "true");
    let sidecar = Sidecar::start_program(&program.0, &network.host, &options)?;
    let (_, log) = sidecar.stop_with_log()?;
    let warning = log.iter().find(|line| line.contains("WARN") && line.contains("probe.window"));
    ensure!(warning.is_some_and(|line| line.contains("CAP_NET_RAW")), "{log:?}");
    Ok(())
}
