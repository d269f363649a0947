//! `ackbeat run`

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use ackbeat_liveness::leak::{ReapMode, ReapWanted};
use ackbeat_liveness::{Engine, Input};
use ackbeat_storms::Settings as StormSettings;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{CommandError, runtime_whose_threads_begin_with};
use crate::api::listen::Listeners;
use crate::api::server::Serving;
use crate::api::{About, Api, REPORTS_MAX, events, router};
use crate::census::CensusTaker;
use crate::census::control::ReapControl;
use crate::census::reaper::Reaper;
use crate::check::Findings;
use crate::cli::RunArguments;
use crate::config::{Environment, ModeChoice, Settings, Sources};
use crate::connections::Connections;
use crate::driver::clock::{Clock as _, MonotonicClock};
use crate::driver::{Driver, Report};
use crate::kubernetes::{self, Kubernetes, KubernetesCounters, Publishing};
use crate::listening::{self, Listener, Standing, Standings};
use crate::memory;
use crate::metrics::{self, Feed, Metrics, MetricsPipeline};
use crate::probe::RawSocketProber;
use crate::recording::{FORMAT, Header, Recorder};
use crate::reload::{self, RULES_MAX, ReloadState, Rules, Watch};
use crate::sandbox::{self, Sandbox};
use crate::source::ebpf::error::missing_capabilities;
use crate::source::ebpf::{EbpfOptions, EbpfSource};
use crate::source::sock_diag::{self, SockDiagSource};
use crate::source::{Mode, Source};
use crate::telemetry::Telemetry;
use crate::telemetry::environment::{MetricsPlan, Plan};
use crate::telemetry::logs::Logs;
use crate::telemetry::own_spans;
use crate::telemetry::pipeline::{self, Pipeline, PipelineError};
use crate::telemetry::wall_clock::unix_ns;

/// Beyond the flush's own deadline: an exporter that hangs in a system call must not hold the exit.
const FLUSH_GRACE: Duration = Duration::from_millis(500);

/// Watches until SIGTERM or SIGINT.
///
/// # Errors
/// [`CommandError`], whose exit code tells what kind it is.
pub fn execute(arguments: &RunArguments) -> Result<(), CommandError> {
    let sources = Sources::new(arguments.layer(), arguments.config.as_deref(), Environment::of_process());
    let layer = sources.layer()?;
    let settings = Settings::resolve(layer.clone())?;
    let reloads = Arc::new(ReloadState::new(settings.policy_name));
    // Before the first thread: all others inherit it.
    let sandbox = if settings.security.sandbox { Sandbox::enter() } else { Sandbox::off() };
    let runtime = runtime_whose_threads_begin_with(sandbox.on_thread_start())?;
    let watch = Watch::new(sources, layer, Arc::clone(&reloads));
    let result = runtime.block_on(run(settings, watch, reloads, &sandbox));
    // Whatever hangs in an exporter is left to the exit of the process.
    runtime.shutdown_background();
    result
}

async fn run(
    settings: Settings,
    watch: Watch,
    reloads: Arc<ReloadState>,
    sandbox: &Sandbox,
) -> Result<(), CommandError> {
    let logs = sandbox.start_with(&[], || {
        Logs::start(settings.log, |name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    });
    let (plan, metrics_plan) = (Plan::of_process(), MetricsPlan::of_process());
    // The SDK's own words about its variables are said while it is built: they need a subscriber by then.
    let early = logs.subscriber(None);
    let runtime = Handle::current();
    let pipelines = sandbox.start_with(&[], || {
        let _entered = runtime.enter();
        tracing::subscriber::with_default(early, || Pipelines::start(&plan, &metrics_plan, &logs))
    })?;
    let own_spans_to = settings.export.own_spans.then(|| pipelines.spans.tracer());
    // Fails only if a subscriber is set already, in a process that embeds this.
    let _ = tracing::subscriber::set_global_default(logs.subscriber(own_spans_to));
    // A variable that counts for both signals is read twice, and told once.
    let of_metrics = metrics_plan.warnings.iter().filter(|warning| !plan.warnings.contains(*warning));
    for warning in plan.warnings.iter().chain(of_metrics).chain(logs.warnings()) {
        warn!("{warning}");
    }

    // Before the source: it leaves out what ackbeat itself listens on.
    let listeners = Listeners::bind(&settings.api);
    let page_at = settings.metrics.page_at(metrics_plan.prometheus);
    serve_metrics(page_at, &pipelines.metrics, listeners.standings()).await;
    pipelines.metrics.metrics().reloads_are(Arc::clone(&reloads));
    let counters = Arc::new(KubernetesCounters::default());
    let mut kubernetes = Kubernetes::start(&settings.kubernetes, &counters);
    pipelines.metrics.metrics().kubernetes_is(counters);
    let publishing = kubernetes.publishing.take();
    let context = Context { settings: &settings, pipelines: &pipelines, sandbox, kubernetes: &kubernetes };
    let watch = watch.with_events(kubernetes.events.clone());
    let result = start_source(&context, listeners, (watch, reloads)).await;
    flush(pipelines, publishing, settings.shutdown.flush).await;
    let lost_lines = logs.lost_lines().dropped_lines();
    if lost_lines > 0 {
        warn!(lost_lines, "log lines were lost: standard error was not read");
    }
    result
}

/// What the whole run has in common.
struct Context<'a> {
    settings: &'a Settings,
    pipelines: &'a Pipelines,
    sandbox: &'a Sandbox,
    kubernetes: &'a Kubernetes,
}

/// What leaves the sidecar.
struct Pipelines {
    spans: Pipeline,
    metrics: MetricsPipeline,
}

impl Pipelines {
    fn start(plan: &Plan, metrics_plan: &MetricsPlan, logs: &Logs) -> Result<Self, PipelineError> {
        let spans = Pipeline::start(plan, pipeline::resource())?;
        let lost_lines = logs.lost_lines();
        let sources = metrics::Sources {
            spans: spans.counts(),
            lost_log_lines: Box::new(move || lost_lines.dropped_lines() as u64),
        };
        let metrics = MetricsPipeline::start(metrics_plan, pipeline::resource(), sources)?;
        Ok(Self { spans, metrics })
    }
}

/// Begins to serve the page of metrics, where one is wanted, and tells where. Without it the sidecar goes on, and an address that
/// somebody else has is tried again.
async fn serve_metrics(address: Option<SocketAddr>, metrics: &MetricsPipeline, standings: Arc<Standings>) {
    let (Some(address), Some(page)) = (address, metrics.page()) else { return };
    let error = match metrics::server::start(address, page.clone()).await {
        Ok(address) => {
            standings.listens_at(Listener::Metrics, address.port());
            info!("metrics for Prometheus: http://{address}{}", metrics::server::PATH);
            return;
        }
        Err(error) => error,
    };
    let standing = Standing::after(&error.cause);
    standings.set(Listener::Metrics, standing);
    if standing != Standing::Busy {
        warn!("no page of metrics: {error}");
        return;
    }
    warn!("no page of metrics: {error}; it is tried again, at least twice a minute");
    tokio::spawn(async move {
        let bind = || metrics::server::bind(address);
        let listener = listening::try_again(Listener::Metrics, address, bind).await;
        standings.listens_at(Listener::Metrics, address.port());
        info!("metrics for Prometheus by now: http://{address}{}", metrics::server::PATH);
        metrics::server::serve(listener, page).await;
    });
}

/// Chooses the source by trying, and drives it.
async fn start_source(
    context: &Context<'_>,
    listeners: Listeners,
    (watch, reloads): (Watch, Arc<ReloadState>),
) -> Result<(), CommandError> {
    let settings = context.settings;
    // Handlers first: a signal that comes during the start must end it in order too, and a SIGHUP must not end it.
    let stop = stop_signals()?;
    let (rules, next_rules) = mpsc::channel(RULES_MAX);
    reload::watch(watch, rules)
        .map_err(|cause| CommandError::System { step: "installing a signal handler", cause })?;
    // What it will listen on once it can becomes its own then.
    let listening = listeners.standings();
    let surroundings = Surroundings { listeners, stop, next_rules, reloads };
    if settings.mode != ModeChoice::SockDiag {
        match start_ebpf(settings, Arc::clone(&listening))? {
            Ok(source) => {
                memory::give_back();
                let signals = source.missing_signals();
                if let Some(events) = context.kubernetes.events.as_ref().filter(|_| !signals.is_empty()) {
                    events.degraded(kubernetes::degraded::without_signals(signals));
                }
                let missing = signals.iter().map(|missing| missing.signal.to_owned()).collect();
                return drive(context, source, missing, surroundings).await;
            }
            Err(reason) => {
                info!("mode {} goes on with sock-diag", settings.mode.as_str());
                if let Some(events) = &context.kubernetes.events {
                    events.degraded(kubernetes::degraded::without_ebpf(settings.mode, &reason));
                }
            }
        }
    }
    if !settings.heartbeats.is_off() {
        warn!(
            "heartbeat.profiles is set, but mode sock-diag sees no frames: no heartbeats are read; use mode ebpf"
        );
    }
    for (signal, meaning) in sock_diag::MISSING_SIGNALS {
        warn!(signal, "unavailable in mode sock-diag: {meaning}");
    }
    let source = SockDiagSource::open(settings.ports.clone())
        .map_err(|error| CommandError::Missing(format!("{error}\n{}", Findings::gather().explain())))?
        .without(listening);
    let missing = sock_diag::MISSING_SIGNALS.iter().map(|(signal, _)| (*signal).to_owned()).collect();
    drive(context, source, missing, surroundings).await
}

/// What a sidecar has around it, whatever its source is.
struct Surroundings {
    listeners: Listeners,
    stop: mpsc::Receiver<()>,
    /// Rules of a configuration that was read anew.
    next_rules: mpsc::Receiver<Rules>,
    reloads: Arc<ReloadState>,
}

/// Starts the eBPF source. Gives the reason if it cannot be had and the mode allows the other one.
fn start_ebpf(
    settings: &Settings,
    listening: Arc<Standings>,
) -> Result<Result<EbpfSource, String>, CommandError> {
    let span = tracing::info_span!(target: own_spans::TARGET, "ackbeat.start", mode = settings.mode.as_str());
    let _entered = span.enter();
    // A capability that is missing is a mistake of the deployment: watching less than was asked for would hide it.
    let missing = missing_capabilities();
    if !missing.is_empty() {
        let explanation = Findings::gather().explain();
        if settings.mode == ModeChoice::BestEffort {
            let missing = missing.join(", ");
            warn!(missing, "the kernel programs may not be loaded: {explanation}");
            return Ok(Err(format!("the container lacks {missing}")));
        }
        return Err(CommandError::Missing(explanation));
    }
    let options = EbpfOptions {
        listening,
        heartbeats: settings.heartbeats.clone(),
        unattached: unattached_for_tests(),
        ..EbpfOptions::new(settings.ports.clone())
    };
    match EbpfSource::load(&options) {
        Ok(source) => {
            for signal in source.missing_signals() {
                warn!(signal = signal.signal, fix = signal.fix, "unavailable: {}", signal.reason);
            }
            Ok(Ok(source))
        }
        Err(error) => {
            let findings = Findings::gather();
            if settings.mode == ModeChoice::Auto && findings.allow_fallback() {
                warn!(%error, "the kernel programs cannot run here");
                return Ok(Err(error.to_string()));
            }
            if settings.mode == ModeChoice::BestEffort {
                warn!(%error, "the kernel programs cannot run here: {}", findings.explain());
                return Ok(Err(error.to_string()));
            }
            Err(CommandError::Missing(format!("{error}\n\n{}", findings.explain())))
        }
    }
}

/// Programs that a test wants to be blind. An optimised build has no such thing.
fn unattached_for_tests() -> Vec<String> {
    if !cfg!(debug_assertions) {
        return Vec::new();
    }
    let names = std::env::var("ACKBEAT_TEST_UNATTACHED").unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

async fn drive<S: Source>(
    context: &Context<'_>,
    mut source: S,
    missing_signals: Vec<String>,
    surroundings: Surroundings,
) -> Result<(), CommandError> {
    let Surroundings { listeners, stop, next_rules, reloads } = surroundings;
    let Context { settings, pipelines, sandbox, kubernetes } = *context;
    let mode = source.mode();
    let recorder = sandbox.start_with(&sandbox::OF_RECORDING, || begin_recording(settings, mode))?;
    let (publisher, events) = events::channel();
    let Pipelines { spans, metrics } = pipelines;
    metrics.metrics().source_is(source.mode(), recorder.is_some());
    let mut telemetry = Telemetry::new(spans.tracer(), source.mode(), spans.counts())
        .with_publisher(publisher)
        .with_metrics(Feed::new(metrics.metrics()))
        .with_events(kubernetes.events.clone())
        .with_peers(kubernetes.peers.clone());
    let mut engine = Engine::new(settings.policy.clone());
    engine.set_deployment(settings.deployment.clone());
    let prober = open_prober(settings, source.mode());
    engine.set_window_probes(settings.window_probes.filter(|_| prober.is_some()));
    engine.set_leak_settings(settings.leaks.clone());
    // In mode sock-diag nobody sees a connection open: what is found counts as an arrival.
    let storms = StormSettings { found: source.mode() == Mode::SockDiag, ..StormSettings::default() };
    let connections = Arc::new(Connections::new(engine).with_storms(storms));
    let (report, reports) = mpsc::channel(REPORTS_MAX);
    kubernetes.watch_own_pod(report.clone());
    let control = Arc::new(ReapControl::new(settings.leaks.reap));
    if let Some(reaper) =
        take_censuses(context, source.mode(), listeners.standings(), report.clone(), &control)
    {
        telemetry = telemetry.with_reaper(reaper, Arc::clone(&control));
    }
    let about = About { mode: source.mode(), policy: settings.policy_name.as_str(), missing_signals };
    let mut api = Api::new(about, Arc::clone(&connections), spans.counts(), events, report)
        .with_reaping(Arc::clone(&control))
        .with_reloads(reloads)
        .with_standings(listeners.standings());
    if let Some(page) = metrics.page() {
        api = api.with_metrics(Arc::new(page));
    }
    let serving = serve(listeners, api, &metrics.metrics());
    // Everything that needs more is open by now.
    sandbox.settle(source.mode() == Mode::Ebpf, || source.can_sample());
    let mut driver =
        Driver::new(source, connections, MonotonicClock, telemetry, recorder, settings.shutdown.drain);
    if let Some(prober) = prober {
        driver = driver.with_prober(Box::new(prober));
    }
    let ended = driver.with_reports(reports).with_rules(next_rules).run(stop).await;
    drop(serving);
    let Report { source, closed, cut_short, probes } = ended?;
    let probes_sent = settings.window_probes.map(|_| probes.sent);
    info!(
        closed,
        cut_short,
        probes_sent,
        records_sent = source.records_sent,
        records_seen = source.records_seen,
        records_dropped = source.records_dropped,
        records_rejected = source.records_rejected,
        text_frames_seen = source.text_frames_seen,
        text_frames_refused = source.text_frames_refused,
        sampler_passes = source.sampler_passes,
        "stopped"
    );
    Ok(())
}

/// Begins to take censuses of all sockets, where they are on and this kernel lets it. Gives who destroys sockets.
fn take_censuses(
    context: &Context<'_>,
    mode: Mode,
    listening: Arc<Standings>,
    report: mpsc::Sender<Vec<Input>>,
    control: &Arc<ReapControl>,
) -> Option<SyncSender<ReapWanted>> {
    let Context { settings, pipelines, sandbox, .. } = *context;
    let leaks = &settings.leaks;
    if leaks.census_interval_ms == 0 {
        return None;
    }
    let is_denied = leaks.reap == ReapMode::On && missing_capabilities().contains(&"CAP_NET_ADMIN");
    if is_denied {
        warn!(
            "leaks.reap is on, but CAP_NET_ADMIN is missing: nothing can be destroyed, and what would be is counted as failed"
        );
    }
    let metrics = pipelines.metrics.metrics();
    metrics.reaps_are(Arc::clone(control));
    let reaper = Reaper::new(Arc::clone(control), pipelines.spans.tracer(), mode).denied_as_told(is_denied);
    let interval = Duration::from_millis(leaks.census_interval_ms);
    let keep = sandbox::of_census(leaks.reap == ReapMode::On);
    match sandbox.start_with(&keep, || CensusTaker::start(interval, listening, report, metrics, reaper)) {
        Ok(wanted) => Some(wanted),
        Err(error) => {
            warn!("{error}");
            None
        }
    }
}

/// Serves the API beside the driver, on the runtime's own threads; `None` where nothing is listened on.
fn serve(listeners: Listeners, api: Api, metrics: &Metrics) -> Option<Serving> {
    if listeners.is_empty() && !listeners.is_busy() {
        return None;
    }
    let counters = api.counters();
    metrics.api_is(Arc::clone(&counters));
    if !listeners.is_empty() {
        listeners.tell();
    }
    Some(Serving::start(listeners, &router(Arc::new(api)), &counters))
}

/// The sender of own window probes, if they are on and can be sent.
fn open_prober(settings: &Settings, mode: Mode) -> Option<RawSocketProber> {
    settings.window_probes?;
    if mode == Mode::SockDiag {
        warn!(
            "probe.window is on, but mode sock-diag knows no sequence numbers: no own window probes are sent; use mode ebpf"
        );
        return None;
    }
    match RawSocketProber::open() {
        Ok(prober) => Some(prober),
        Err(error) => {
            warn!(fix = error.fix, "probe.window is on, but no own window probes are sent: {}", error.cause);
            None
        }
    }
}

fn begin_recording(settings: &Settings, mode: Mode) -> Result<Option<Recorder>, CommandError> {
    let Some(file) = &settings.recording.file else { return Ok(None) };
    let header = Header {
        ackbeat_recording: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: mode.as_str().to_owned(),
        policy: settings.policy_name.as_str().to_owned(),
        thresholds: settings.policy.clone(),
        leaks: settings.leaks.clone(),
        deployment: settings.deployment.clone(),
        ticks: true,
        began_at: MonotonicClock.now(),
        began_unix_ns: unix_ns(std::time::SystemTime::now()),
        segment: None,
    };
    Ok(Some(Recorder::begin(file, settings.recording.max_bytes, &header)?))
}

/// Gives one message for each SIGTERM or SIGINT.
fn stop_signals() -> Result<mpsc::Receiver<()>, CommandError> {
    let handler = |kind| {
        signal(kind).map_err(|cause| CommandError::System { step: "installing a signal handler", cause })
    };
    let (mut terminate, mut interrupt) =
        (handler(SignalKind::terminate())?, handler(SignalKind::interrupt())?);
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if sender.send(()).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// Exports the last spans and the last totals, on threads that may block, and publishes the last Events, all within one deadline.
async fn flush(pipelines: Pipelines, publishing: Option<Publishing>, deadline: Duration) {
    let Pipelines { spans, metrics } = pipelines;
    let counts = spans.counts();
    let spans = tokio::task::spawn_blocking(move || spans.shut_down(deadline));
    let metrics = tokio::task::spawn_blocking(move || metrics.shut_down(deadline));
    let bound = deadline + FLUSH_GRACE;
    let events = async {
        if let Some(publishing) = publishing {
            publishing.finish(deadline).await;
        }
    };
    let (spans, metrics, ()) =
        tokio::join!(tokio::time::timeout(bound, spans), tokio::time::timeout(bound, metrics), events);
    let totals = counts.totals();
    if !matches!(spans, Ok(Ok(true))) || totals.failed > 0 || totals.dropped > 0 {
        warn!(
            exported = totals.exported,
            failed = totals.failed,
            dropped = totals.dropped,
            unsent = totals.waiting,
            "not every span reached its destination"
        );
    }
    if !matches!(metrics, Ok(Ok(true))) {
        warn!("the last totals of the metrics did not reach their destination");
    }
}
