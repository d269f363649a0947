//! The API of the real sidecar beside real sockets: whoever asks before it kills keeps the slow and lets the dead go.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ackbeat::api::types::{Connections, HeartbeatReceipt};
use ackbeat_liveness::{HeartbeatSource, Verdict};
use ackbeat_tests::api::ApiClient;
use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::{sockets, story};
use anyhow::{Context, Result, ensure};
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};

use crate::scene::{pair, watching};

const DEADLINE: Duration = Duration::from_secs(60);
/// `unreachable_after_ms` of the default policy.
const UNREACHABLE_AFTER_MS: u64 = 10_000;

/// Story A's cast beside a host that only watches: what a watchdog that asks would be told.
#[test]
fn the_slow_reader_is_kept_and_the_client_that_is_gone_may_be_killed() -> Result<()> {
    let network = Network::create()?;
    let address = network.host_address(IpVersion::V4);
    let host = Host::start(Some(&network.host), HostOptions::new(address).watching_only())?;
    let sidecar = Sidecar::start(&network.host, &watching(host.address().port()))?;
    let api = ApiClient::of(&network.host)?;
    let at = |client: &Client| SocketAddr::new(network.client_address(IpVersion::V4), client.port());

    let connect = || Client::connect(Some(&network.client), ClientOptions::new(host.address()));
    let (healthy, cut) = (connect()?, connect()?);
    host.wait_for_pongs(healthy.port(), story::LEARNING_PONGS, DEADLINE)?;
    host.wait_for_pongs(cut.port(), story::LEARNING_PONGS, DEADLINE)?;
    story::wait_between_ticks(&host, healthy.port())?;
    let slow = story::burst(&network, &host, story::slow_reader(&host))?;
    network.cut(cut.port())?;
    let cut_at = Instant::now();

    // Until the one that is gone may be killed, the one that is slow never may.
    let mut seen = Vec::new();
    let mut gone = None;
    wait_until("a justified kill of the client that is gone", DEADLINE, || {
        let verdict = api.verdict(at(&slow))?;
        ensure!(!verdict.kill_justified, "a slow reader may be killed: {verdict:#?}");
        seen.push(verdict.verdict);
        gone = Some(api.verdict(at(&cut))?).filter(|verdict| verdict.kill_justified);
        Ok(gone.is_some())
    })?;
    let gone = gone.context("a kill is justified")?;
    ensure!(gone.verdict == Verdict::Unreachable, "{gone:#?}");
    let close = gone.suggested_close.context("a kill that is justified has a close")?;
    ensure!((close.code, close.reason.as_str()) == (1_011, "heartbeat timeout"));
    // Not before the policy's time, which runs from the last that was heard of it.
    ensure!(
        gone.evidence.hop_age_ms.is_some_and(|age_ms| age_ms >= UNREACHABLE_AFTER_MS),
        "{:?}",
        gone.evidence
    );
    ensure!(cut_at.elapsed() >= Duration::from_millis(UNREACHABLE_AFTER_MS / 2));
    ensure!(
        seen.contains(&Verdict::Congested)
            && seen
                .iter()
                .all(|verdict| { matches!(verdict, Verdict::Alive | Verdict::Congested | Verdict::Stalled) }),
        "{seen:?}"
    );
    let behind = api.verdict(at(&slow))?;
    ensure!(behind.verdict == Verdict::Congested && behind.suggested_close.is_none(), "{behind:#?}");
    ensure!(behind.tcp.send_queue_bytes.is_some_and(|bytes| bytes > 100_000), "{:?}", behind.tcp);
    ensure!(api.verdict(at(&healthy))?.verdict == Verdict::Alive);

    let justified: Connections = api.read("/v1/connections?kill_justified=true")?;
    ensure!(
        (justified.total, justified.matched) == (3, 1)
            && justified.connections.iter().all(|connection| connection.peer == at(&cut).to_string()),
        "{justified:#?}"
    );
    let longest: Connections = api.read("/v1/connections?sort=-send_queue_bytes&limit=1")?;
    ensure!(
        longest.connections.iter().all(|connection| connection.peer == at(&slow).to_string()),
        "{longest:#?}"
    );
    sidecar.stop()?;
    Ok(())
}

/// What asks is not watched: neither questions nor readers of events nor whoever scrapes.
#[test]
fn connections_to_ackbeat_itself_are_not_watched() -> Result<()> {
    let network = Network::create()?;
    for mode in ["ebpf", "sock-diag"] {
        let (listener, address) =
            network.host.run(|| sockets::listen(network.host_address(IpVersion::V4)))??;
        // Every listening port is watched, and the API's would be one of them.
        let sidecar = Sidecar::start(&network.host, &SidecarOptions::default().argument("--mode", mode))?;
        let api = ApiClient::of(&network.host)?;
        let held = network.host.run(|| sockets::connect("127.0.0.1:9465".parse()?))??;
        let watched = pair(&network, &listener, address)?;
        let all = || api.read::<Connections>("/v1/connections");
        wait_until("the host's connection", DEADLINE, || Ok(all()?.total > 0))?;
        // What came after the questions is found by a later look, in the mode that looks once a second.
        let later = pair(&network, &listener, address)?;
        wait_until("the host's second connection", DEADLINE, || Ok(all()?.total > 1))?;
        let all = all()?;
        let locals: Vec<_> = all.connections.iter().map(|connection| connection.local.as_str()).collect();
        ensure!(locals == [address.to_string(), address.to_string()], "mode {mode}: {all:#?}");
        drop((held, watched, later));
        sidecar.stop()?;
    }
    Ok(())
}

/// A heartbeat that only its two ends can read: text inside TLS, once a second.
#[test]
fn heartbeats_inside_tls_are_reported_by_the_host() -> Result<()> {
    let network = Network::create()?;
    let (listener, address) = network.host.run(|| sockets::listen(network.host_address(IpVersion::V4)))??;
    let options = watching(address.port()).argument("--policy", "fast");
    let sidecar = Sidecar::start(&network.host, &options)?;
    let api = ApiClient::of(&network.host)?;
    let pair = pair(&network, &listener, address)?;
    let peer = pair.client.local_addr()?;

    let (server, client) = tls()?;
    let answers = Arc::new(AtomicBool::new(true));
    let answering = Arc::clone(&answers);
    let client_side = std::thread::spawn(move || -> Result<()> {
        let name = ServerName::try_from("localhost")?;
        let mut stream =
            rustls::StreamOwned::new(rustls::ClientConnection::new(Arc::new(client), name)?, pair.client);
        let mut text = [0; 4];
        // Until the host closes.
        while stream.read_exact(&mut text).is_ok() {
            if answering.load(Ordering::Relaxed) {
                stream.write_all(b"pong")?;
            }
        }
        Ok(())
    });
    let mut host = rustls::StreamOwned::new(rustls::ServerConnection::new(Arc::new(server))?, pair.host);
    for number in 0..6 {
        ping(&api, &mut host, peer, number)?;
        let mut text = [0; 4];
        host.read_exact(&mut text).context("reading an answer failed")?;
        report(&api, peer, "pong", number)?;
        // The host's own interval, which is learned: nothing is waited for.
        std::thread::sleep(Duration::from_secs(1));
    }
    let known = api.wait_for_verdict("a reported Pong", peer, DEADLINE, |connection| {
        connection.heartbeat.last_pong_age_ms.is_some()
    })?;
    ensure!(known.heartbeat.source == HeartbeatSource::Application, "{known:#?}");
    ensure!(known.verdict == Verdict::Alive && !known.kill_justified, "{known:#?}");

    // Its application hangs, and its kernel goes on acknowledging: without the reports nobody could tell.
    answers.store(false, Ordering::Relaxed);
    ping(&api, &mut host, peer, 6)?;
    let hung =
        api.wait_for_verdict("a justified kill", peer, DEADLINE, |connection| connection.kill_justified)?;
    ensure!(hung.verdict == Verdict::Silent, "{hung:#?}");
    drop(host);
    client_side.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
    sidecar.stop()?;
    Ok(())
}

type Tls = rustls::StreamOwned<rustls::ServerConnection, TcpStream>;

fn ping(api: &ApiClient<'_>, host: &mut Tls, peer: SocketAddr, number: u32) -> Result<()> {
    host.write_all(b"ping").context("writing a heartbeat failed")?;
    report(api, peer, "ping", number)
}

/// The host reports what it saw.
fn report(api: &ApiClient<'_>, peer: SocketAddr, kind: &str, number: u32) -> Result<()> {
    let body = format!(r#"{{"heartbeats":[{{"peer":"{peer}","kind":"{kind}","id":"{number}"}}]}}"#);
    // The connection was opened a moment ago: the sidecar may not have heard of it yet.
    wait_until("a report that is taken", DEADLINE, || {
        let (status, answer) = api.post("/v1/heartbeats", &body)?;
        ensure!(status == 202, "{status}: {answer}");
        let receipt: HeartbeatReceipt = serde_json::from_str(&answer)?;
        Ok(receipt.accepted == 1)
    })
}

/// Both ends of TLS with a certificate of their own.
fn tls() -> Result<(rustls::ServerConfig, rustls::ClientConfig)> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let certificate = made.cert.der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate)?;
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((server, client))
}
