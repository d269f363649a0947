//! The collectors are away for a minute while connections end, and come back.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::http_get;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::metrics_page::MetricsPage;
use ackbeat_tests::mux::{Ask, Host, HostOptions};
use ackbeat_tests::namespace::Namespace;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::otlp_receiver::OtlpPorts;
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use anyhow::{Context, Result, ensure};

use super::SPAN_DEADLINE;
use super::receivers::{Kind, Series, resource_of};

/// How long the collectors are away.
const OUTAGE: Duration = Duration::from_secs(60);
/// Between two connections that end meanwhile.
const BETWEEN_ENDS: Duration = Duration::from_millis(250);
/// Queue of the sidecar that has too little room for the outage.
const NARROW_QUEUE_SPANS: u64 = 64;
/// The drain, the flush, and a busy machine: far less than one export's timeout for each batch would take.
const STOP_DEADLINE: Duration = Duration::from_secs(15);

/// A sidecar and its own collector.
struct Pair {
    kind: Kind,
    ports: OtlpPorts,
    page: SocketAddr,
    sidecar: Sidecar,
    instance: &'static str,
}

impl Pair {
    fn start(
        namespace: &Namespace,
        host: &Host,
        kind: Kind,
        protocol: &str,
        instance: &'static str,
        queue_spans: u64,
    ) -> Result<Self> {
        let ports = OtlpPorts::free(namespace)?;
        let page = SocketAddr::from((Ipv4Addr::LOCALHOST, http_get::free_port(namespace)?));
        let options = SidecarOptions::port(host.address().port())
            .variable("OTEL_TRACES_EXPORTER", "otlp")
            .variable("OTEL_EXPORTER_OTLP_ENDPOINT", ports.endpoint(protocol))
            .variable("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            // Several sidecars share this loopback.
            .variable("ACKBEAT_API_LISTEN", "off")
            .variable("OTEL_EXPORTER_PROMETHEUS_PORT", page.port().to_string())
            .variable("OTEL_RESOURCE_ATTRIBUTES", resource_of(instance))
            .variable("OTEL_METRIC_EXPORT_INTERVAL", "3000")
            .variable("OTEL_BSP_MAX_QUEUE_SIZE", queue_spans.to_string())
            .variable("OTEL_BSP_SCHEDULE_DELAY", "200");
        Ok(Self { kind, ports, page, sidecar: Sidecar::start(namespace, &options)?, instance })
    }

    fn totals(&self, namespace: &Namespace) -> Result<Totals> {
        let page = MetricsPage::read(namespace, self.page)?;
        let spans = |outcome| page.count("ackbeat_export_spans_total", Some(("outcome", outcome)));
        Ok(Totals {
            exported: spans("exported")?,
            failed: spans("failed")?,
            dropped: spans("dropped")?,
            waiting: page.count("ackbeat_export_waiting", None)?,
        })
    }
}

/// What the sidecar says became of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Totals {
    exported: u64,
    failed: u64,
    dropped: u64,
    waiting: u64,
}

impl Totals {
    const fn ended(&self) -> u64 {
        self.exported + self.failed + self.dropped + self.waiting
    }
}

/// Ends of connections so far.
#[derive(Debug, Default)]
struct Ends {
    /// By the host: a root span and a child.
    by_host: u64,
    /// By the peer: a root span.
    by_peer: u64,
}

impl Ends {
    const fn spans(&self) -> u64 {
        2 * self.by_host + self.by_peer
    }

    /// One more, by the host and by the peer in turn.
    fn add(&mut self, network: &Network, host: &Host) -> Result<()> {
        let client = Client::connect(Some(&network.client), ClientOptions::new(host.address()))?;
        if self.by_host <= self.by_peer {
            client.ask(&Ask::Leave { code: 4001, reason: "server_restart".into() });
            self.by_host += 1;
        } else {
            client.close(1000, "");
            self.by_peer += 1;
        }
        client.wait_for_end(SPAN_DEADLINE).map(drop)
    }
}

#[test]
fn an_outage_of_a_minute_costs_only_what_found_no_room() -> Result<()> {
    let network = Network::create()?;
    let namespace = &network.host;
    let host = Host::start(Some(namespace), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let wide = Pair::start(namespace, &host, Kind::Rotel, "grpc", "wide", 8192)?;
    let narrow = Pair::start(namespace, &host, Kind::Otelite, "http/protobuf", "narrow", NARROW_QUEUE_SPANS)?;
    let pairs = [&wide, &narrow];
    let mut ends = Ends::default();

    // Before.
    {
        let receivers = pairs.map(|pair| pair.kind.start(namespace, pair.ports));
        ends.add(&network, &host)?;
        for (pair, receiver) in pairs.iter().zip(&receivers) {
            let receiver = receiver.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
            wait_until("the first spans", SPAN_DEADLINE, || {
                Ok(receiver.spans_of(pair.instance)?.len() as u64 == ends.spans())
            })?;
        }
    }

    // Meanwhile: the sidecars see every end when it happens, and count the spans.
    let before = ends.spans();
    let away = Instant::now();
    while away.elapsed() < OUTAGE {
        ends.add(&network, &host)?;
        std::thread::sleep(BETWEEN_ENDS);
    }
    for pair in pairs {
        wait_until("a log line of every close by the host", SPAN_DEADLINE, || {
            let lines = pair.sidecar.log().iter().filter(|line| line.contains("this side closed")).count();
            Ok(lines as u64 == ends.by_host)
        })?;
        wait_until("every span in the counts", SPAN_DEADLINE, || {
            Ok(pair.totals(namespace)?.ended() == ends.spans())
        })?;
        let totals = pair.totals(namespace)?;
        ensure!(totals.exported == before && totals.failed == 0, "{}: {totals:?}", pair.instance);
    }
    ensure!(wide.totals(namespace)?.dropped == 0, "{:?}", wide.totals(namespace)?);
    let crowded = narrow.totals(namespace)?;
    ensure!(crowded.waiting == NARROW_QUEUE_SPANS && crowded.dropped > 0, "{crowded:?}");

    // After: what waited arrives, and so does what comes now.
    let receivers = [wide.kind.start(namespace, wide.ports)?, narrow.kind.start(namespace, narrow.ports)?];
    for pair in pairs {
        wait_until("what waited", SPAN_DEADLINE, || Ok(pair.totals(namespace)?.waiting == 0))?;
    }
    let kept = ends.spans();
    ends.add(&network, &host)?;
    for (pair, receiver) in pairs.iter().zip(&receivers) {
        wait_until("every span in the counts", SPAN_DEADLINE, || {
            let totals = pair.totals(namespace)?;
            Ok(totals.ended() == ends.spans() && totals.waiting == 0)
        })?;
        let totals = pair.totals(namespace)?;
        ensure!(
            totals.failed == 0 && totals.dropped == if pair.instance == "wide" { 0 } else { crowded.dropped },
            "{}: {totals:?}",
            pair.instance
        );
        wait_until("the spans of the outage and after", SPAN_DEADLINE, || {
            Ok(receiver.spans_of(pair.instance)?.len() as u64 == totals.exported - before)
        })?;
        // The totals that could not be pushed meanwhile are pushed now.
        #[expect(clippy::cast_precision_loss, reason = "a small count")]
        let wanted = (ends.by_host + ends.by_peer) as f64;
        let mut closes = Series::new();
        let arrived = wait_until("the totals of the metrics", SPAN_DEADLINE, || {
            closes =
                receiver.metrics_of(pair.instance)?.remove("ackbeat.connection.closes").unwrap_or_default();
            Ok((closes.values().sum::<f64>() - wanted).abs() < 0.5)
        });
        arrived.with_context(|| format!("{}: {closes:?}, and {wanted} in all", pair.instance))?;
    }
    ensure!(kept + 2 >= ends.spans(), "the last end was one");

    // Away for good: the stop does not wait for them.
    drop(receivers);
    ends.add(&network, &host)?;
    for pair in [wide, narrow] {
        wait_until("the last spans in the counts", SPAN_DEADLINE, || {
            Ok(pair.totals(namespace)?.ended() == ends.spans())
        })?;
        let began = Instant::now();
        let (_, log) = pair.sidecar.stop_with_log()?;
        ensure!(began.elapsed() < STOP_DEADLINE, "{}: the stop took {:?}", pair.instance, began.elapsed());
        let said = log.iter().find(|line| line.contains("not every span reached its destination"));
        let said = said.context("nobody said that spans were lost")?;
        let failed = ends.spans() - kept;
        ensure!(!said.contains("failed=0") && failed > 0, "{said}");
    }
    Ok(())
}
