//! Collectors that hang, refuse, fail for a while or are somebody else: closes are seen, spans are counted, and the stop waits for
//! nobody.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::http_get::free_port;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::metrics_page::MetricsPage;
use ackbeat_tests::mux::{Ask, Host, HostOptions};
use ackbeat_tests::namespace::Namespace;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use anyhow::{Context, Result, ensure};
use rustls::pki_types::PrivatePkcs8KeyDer;

use super::{DEADLINE, count};

/// The drain, the flush, and a busy machine.
const STOP_DEADLINE: Duration = Duration::from_secs(20);
/// A close by the host makes two spans.
const SPANS: u64 = 2;

/// What a collector does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collector {
    /// Takes what is sent and never answers.
    Hangs,
    /// HTTP 500: not to be tried again (OTLP specification, "Failures").
    Fails,
    /// HTTP 503: to be tried again.
    IsBusy,
    /// TLS with a certificate that nobody vouches for.
    IsUnknown,
}

impl Collector {
    const ALL: [Self; 4] = [Self::Hangs, Self::Fails, Self::IsBusy, Self::IsUnknown];

    /// What became of spans, by the words of the page; those that wait are nobody's.
    const fn outcome(self) -> Option<&'static str> {
        match self {
            Self::Fails => Some("failed"),
            Self::Hangs | Self::IsBusy | Self::IsUnknown => None,
        }
    }

    fn serve(self, mut stream: TcpStream, tls: &Arc<rustls::ServerConfig>) -> Result<()> {
        match self {
            Self::Hangs => drop(stream.read_to_end(&mut Vec::new())),
            Self::Fails => answer(&mut stream, "500 Internal Server Error")?,
            Self::IsBusy => answer(&mut stream, "503 Service Unavailable")?,
            Self::IsUnknown => {
                let mut connection = rustls::ServerConnection::new(Arc::clone(tls))?;
                connection.complete_io(&mut stream)?;
            }
        }
        Ok(())
    }
}

/// Answers whatever comes, and closes.
fn answer(stream: &mut TcpStream, status: &str) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut text = Vec::new();
    let mut part = [0; 65_536];
    // To the end of the head and of what comes with it; a short pause means that it was all.
    while let Ok(read) = stream.read(&mut part)
        && read > 0
    {
        text.extend_from_slice(&part[..read]);
        let head = text.windows(4).position(|window| window == b"\r\n\r\n");
        let length = head.and_then(|end| {
            let head = String::from_utf8_lossy(&text[..end]).to_lowercase();
            head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok())
        });
        if let (Some(end), Some(length)) = (head, length)
            && text.len() >= end + 4 + length
        {
            break;
        }
    }
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
    Ok(())
}

/// A certificate for the collector's address, signed by itself.
fn tls() -> Result<Arc<rustls::ServerConfig>> {
    let made = rcgen::generate_simple_self_signed([Ipv4Addr::LOCALHOST.to_string()])?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.into()], key)?;
    Ok(Arc::new(config))
}

/// A sidecar and its collector.
struct Case {
    collector: Collector,
    sidecar: Sidecar,
    page: SocketAddr,
}

impl Case {
    fn start(collector: Collector, namespace: &Namespace, watched: u16) -> Result<Self> {
        let listener = namespace.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))??;
        let address = listener.local_addr().context("reading a listener's address failed")?;
        let tls = tls()?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let tls = Arc::clone(&tls);
                std::thread::spawn(move || collector.serve(stream, &tls));
            }
        });
        let scheme = if collector == Collector::IsUnknown { "https" } else { "http" };
        let page = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(namespace)?));
        let options = SidecarOptions::port(watched)
            .variable("OTEL_TRACES_EXPORTER", "otlp")
            .variable("OTEL_METRICS_EXPORTER", "prometheus")
            .variable("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{scheme}://{address}"))
            .variable("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
            .variable("OTEL_EXPORTER_OTLP_TIMEOUT", "2000")
            .variable("OTEL_BSP_SCHEDULE_DELAY", "100")
            .variable("OTEL_EXPORTER_PROMETHEUS_PORT", page.port().to_string())
            // Several sidecars share this loopback.
            .variable("ACKBEAT_API_LISTEN", "off");
        Ok(Self { collector, sidecar: Sidecar::start(namespace, &options)?, page })
    }

    /// Spans that were delivered, failed, dropped, and that wait.
    fn totals(&self, namespace: &Namespace) -> Result<[u64; 4]> {
        let page = MetricsPage::read(namespace, self.page)?;
        let of = |outcome| page.count("ackbeat_export_spans_total", Some(("outcome", outcome)));
        Ok([of("exported")?, of("failed")?, of("dropped")?, page.count("ackbeat_export_waiting", None)?])
    }
}

#[test]
fn a_collector_that_misbehaves_costs_counted_spans_and_nothing_else() -> Result<()> {
    let network = Network::create()?;
    let namespace = &network.host;
    let host = Host::start(Some(namespace), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let cases = Collector::ALL
        .into_iter()
        .map(|collector| Case::start(collector, namespace, host.address().port()))
        .collect::<Result<Vec<_>>>()?;
    let client = Client::connect(Some(&network.client), ClientOptions::new(host.address()))?;
    host.wait_for_pongs(client.port(), 1, DEADLINE)?;
    client.ask(&Ask::Leave { code: 1000, reason: String::new() });
    client.wait_for_end(DEADLINE)?;
    for case in &cases {
        let told =
            |log: &[String]| count(log, &["this side closed", "kind=\"graceful\"", "verdict=\"alive\""]);
        wait_until("the line of the close", DEADLINE, || Ok(told(&case.sidecar.log()) == 1))
            .with_context(|| format!("{:?}: {:#?}", case.collector, case.sidecar.log()))?;
        let (mut totals, wanted) = ([0; 4], case.collector.outcome());
        let settled = wait_until("what became of its spans", DEADLINE, || {
            totals = case.totals(namespace)?;
            Ok(match wanted {
                Some(_) => totals == [0, SPANS, 0, 0],
                None => totals == [0, 0, 0, SPANS],
            })
        });
        settled.with_context(|| format!("{:?}: {totals:?}: {:#?}", case.collector, case.sidecar.log()))?;
        let said = if wanted.is_some() { "the collector refuses spans" } else { "they wait for it" };
        wait_until("the reason", DEADLINE, || Ok(count(&case.sidecar.log(), &[said]) == 1))
            .with_context(|| format!("{:?}: {:#?}", case.collector, case.sidecar.log()))?;
    }
    for case in cases {
        let began = Instant::now();
        let (_, log) = case.sidecar.stop_with_log()?;
        ensure!(began.elapsed() < STOP_DEADLINE, "{:?}: the stop took {:?}", case.collector, began.elapsed());
        ensure!(
            count(&log, &["not every span reached its destination", "exported=0", "dropped=0"]) == 1,
            "{:?}: {log:#?}",
            case.collector
        );
    }
    Ok(())
}
