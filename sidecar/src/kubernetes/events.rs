//! Events about the own pod: what `kubectl describe pod` shows at its end.
//!
//! Whoever has something to tell puts it into a bounded queue and goes on. A task takes it from there, gathers what belongs
//! together ([`super::aggregation`]), and publishes. A server that is away is tried again, with growing pauses; a ServiceAccount
//! that may not publish is told once, and asked again after a long while.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ackbeat_liveness::CloseRecord;
use governor::clock::DefaultClock;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use opentelemetry::trace::SpanContext;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::{info, warn};

use super::OwnPod;
use super::aggregation::{Aggregation, Batch, Rate};
use super::connection::Connection;
use super::counters::{EventOutcome, KubernetesCounters};
use super::peers::PeerName;
use super::reason::{self, Reason};

/// Happenings that wait to be told. What finds no room is counted, and its number is told all the same.
pub(super) const WAITING_MAX: usize = 1_024;
/// Who reports, as an Event says it (a qualified name).
const CONTROLLER: &str = "ackbeat.dev/sidecar";
/// Longest name of a reporting instance, in bytes (`ReportingInstanceLengthLimit` of the API server).
const INSTANCE_MAX_BYTES: usize = 128;

/// How attempts are spaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) rate: Rate,
    /// For so long an answer is waited for.
    pub(super) deadline: Duration,
    /// The first pause after a failure; each further one is twice as long …
    pub(super) pause: Duration,
    /// … up to this.
    pub(super) pause_max: Duration,
    /// After a 403 nothing is asked for so long: rights come with a change of the cluster, not by themselves.
    pub(super) refused: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            rate: Rate::default(),
            deadline: Duration::from_secs(10),
            pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(60),
            refused: Duration::from_secs(300),
        }
    }
}

/// Who tells. A clone tells the same task; nothing in it waits.
#[derive(Clone, Debug)]
pub struct Events {
    waiting: mpsc::Sender<Happening>,
    shared: Arc<SharedCounts>,
}

#[derive(Debug)]
struct Happening {
    reason: Reason,
    text: String,
}

#[derive(Debug)]
struct SharedCounts {
    counters: Arc<KubernetesCounters>,
    /// Happenings that found no room and whose number no Event has told yet, by reason.
    unqueued: [AtomicU64; Reason::ALL.len()],
}

/// The task that publishes.
#[derive(Debug)]
pub struct Publishing {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Publishing {
    /// Publishes what waits, one attempt each, and ends; at the latest after `deadline`, whatever the API server does.
    pub async fn finish(self, deadline: Duration) {
        let Self { stop, mut task } = self;
        // It may be gone already.
        let _ = stop.send(());
        if tokio::time::timeout(deadline, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Events {
    /// Begins, about this pod.
    pub(super) fn start(
        connection: Connection,
        pod: &OwnPod,
        counters: Arc<KubernetesCounters>,
        pace: Pace,
    ) -> (Self, Publishing) {
        counters.events_are_on();
        let (waiting, happenings) = mpsc::channel(WAITING_MAX);
        let shared = Arc::new(SharedCounts { counters, unqueued: Default::default() });
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run(connection, pod.clone(), Arc::clone(&shared), pace, happenings, stopped));
        (Self { waiting, shared }, Publishing { stop, task })
    }

    /// The host killed a peer that was there; `span` tells of it, and `peer` is who it is to Kubernetes.
    pub fn false_kill(&self, record: &CloseRecord, span: &SpanContext, peer: Option<&PeerName>) {
        self.tell(Reason::FalseKill, reason::killed(record, peer, span.trace_id()));
    }

    /// A leak is suspected.
    pub fn leak_suspected(&self, sentence: String) {
        self.tell(Reason::LeakSuspected, sentence);
    }

    /// Less is seen than was asked for.
    pub fn degraded(&self, sentence: String) {
        self.tell(Reason::DegradedMode, sentence);
    }

    /// The configuration was read anew, and has this mistake.
    pub fn configuration_refused(&self, mistake: &str) {
        let text = format!("the configuration has a mistake, and the old one stays in force: {mistake}");
        self.tell(Reason::ConfigurationRefused, text);
    }

    fn tell(&self, reason: Reason, text: String) {
        if self.waiting.try_send(Happening { reason, text }).is_err() {
            self.shared.counters.event(EventOutcome::Dropped);
            if let Some(count) = self.shared.unqueued.get(reason as usize) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

async fn run(
    connection: Connection,
    pod: OwnPod,
    shared: Arc<SharedCounts>,
    pace: Pace,
    mut happenings: mpsc::Receiver<Happening>,
    mut stopped: oneshot::Receiver<()>,
) {
    let client = tokio::select! {
        // Where there is a way, what waits is told even if the end has come.
        biased;
        client = connection => client,
        _ = &mut stopped => return,
    };
    let clock = DefaultClock::default();
    let mut publisher = Publisher {
        client,
        about: pod.reference(),
        reporter: reporter(&pod),
        aggregation: Aggregation::new(pace.rate, clock),
        shared,
        pace,
        pause: Duration::ZERO,
        refused_until: None,
        told: Told::Nothing,
    };
    loop {
        let wait = publisher.aggregation.wait();
        tokio::select! {
            biased;
            _ = &mut stopped => break,
            happening = happenings.recv() => match happening {
                Some(happening) => publisher.take(happening),
                None => break,
            },
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
        publisher.publish_what_is_due().await;
    }
    while let Ok(happening) = happenings.try_recv() {
        publisher.take(happening);
    }
    publisher.publish_the_rest().await;
}

/// Who reports: this pod.
fn reporter(pod: &OwnPod) -> Reporter {
    let mut instance = pod.name.clone();
    instance.truncate(INSTANCE_MAX_BYTES);
    Reporter { controller: CONTROLLER.to_owned(), instance: Some(instance) }
}

/// What the log was told last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Refused,
    Failed,
}

struct Publisher {
    client: Client,
    about: ObjectReference,
    reporter: Reporter,
    aggregation: Aggregation<DefaultClock>,
    shared: Arc<SharedCounts>,
    pace: Pace,
    /// The pause after the last failure; 0 after a success.
    pause: Duration,
    refused_until: Option<Instant>,
    told: Told,
}

type Due = Batch<<DefaultClock as governor::clock::Clock>::Instant>;

impl Publisher {
    fn take(&mut self, happening: Happening) {
        self.aggregation.add(happening.reason, happening.text, 1);
    }

    async fn publish_what_is_due(&mut self) {
        while let Some(batch) = self.aggregation.take_due() {
            if let Some(batch) = self.publish(batch).await {
                self.pause = (self.pause * 2).clamp(self.pace.pause, self.pace.pause_max);
                self.aggregation.put_back(batch, self.pause);
            } else {
                self.pause = Duration::ZERO;
            }
        }
    }

    async fn publish_the_rest(&mut self) {
        while let Some(batch) = self.aggregation.take_any() {
            self.publish(batch).await;
        }
    }

    /// Publishes; gives back what is worth another attempt.
    async fn publish(&mut self, mut batch: Due) -> Option<Due> {
        if let Some(count) = self.shared.unqueued.get(batch.reason as usize) {
            batch.count = batch.count.saturating_add(count.swap(0, Ordering::Relaxed));
        }
        if self.refused_until.is_some_and(|until| Instant::now() < until) {
            self.shared.counters.event(EventOutcome::Refused);
            return None;
        }
        let event = Event {
            type_: EventType::Warning,
            reason: batch.reason.as_str().to_owned(),
            note: Some(batch.reason.note(&batch.latest, batch.count, self.aggregation.age(batch.since))),
            action: batch.reason.action().to_owned(),
            secondary: None,
        };
        // One for each Event: a recorder counts what has the same reason in a series and keeps the note of the first, and the API
        // server lets nobody change a note. Each of these says something else.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        let published = tokio::time::timeout(self.pace.deadline, recorder.publish(&event, &self.about)).await;
        let problem = match published {
            Ok(Ok(())) => {
                self.shared.counters.event(EventOutcome::Published);
                self.refused_until = None;
                if std::mem::replace(&mut self.told, Told::Nothing) != Told::Nothing {
                    info!(target: "ackbeat::kubernetes", "Events are published again");
                }
                return None;
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                self.shared.counters.event(EventOutcome::Refused);
                self.refused_until = Some(Instant::now() + self.pace.refused);
                if std::mem::replace(&mut self.told, Told::Refused) != Told::Refused {
                    info!(
                        target: "ackbeat::kubernetes",
                        "no Events about this pod: {}; grant its ServiceAccount create of events.k8s.io/events (the chart's \
                         sidecarEvents.namespaces), or set kubernetes.events to off",
                        status.message
                    );
                }
                return None;
            }
            Ok(Err(kube::Error::Api(status))) if is_final(status.code) => {
                self.shared.counters.event(EventOutcome::Failed);
                warn!(target: "ackbeat::kubernetes", reason = batch.reason.as_str(), "the API server does not take an Event: {status}");
                return None;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", self.pace.deadline.as_secs()),
        };
        self.shared.counters.event(EventOutcome::Failed);
        if std::mem::replace(&mut self.told, Told::Failed) != Told::Failed {
            warn!(target: "ackbeat::kubernetes", "an Event could not be published; it is tried again: {problem}");
        }
        Some(batch)
    }
}

/// Whether the answer would be the same again: the request is wrong. Not 401 (a token is replaced), 408 and 429.
const fn is_final(status: u16) -> bool {
    matches!(status, 400..=499) && !matches!(status, 401 | 408 | 429)
}
