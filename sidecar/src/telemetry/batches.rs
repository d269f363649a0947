//! The exporting thread of one exporter, behind a bounded queue ([`super::span_queue`]).
//!
//! OpenTelemetry's own batch processor stands behind a channel: what is in it cannot be given up for something more
//! important. This one keeps its rules (`OTEL_BSP_SCHEDULE_DELAY`, `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`, one export at a time, on
//! a thread of its own) and gives up the oldest detail first.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use parking_lot::{Condvar, Mutex};
use tracing::warn;

use super::outage::{Outage, Stopping, will_pass};
use super::pipeline::{PipelineError, SpanCounts};
use super::span_queue::{Rank, SpanQueue, Waiting};
use super::spans::CLOSE_NAMES;

/// How long a flush that somebody asks for may take.
const FLUSH_DEADLINE: Duration = Duration::from_secs(5);

/// How spans are gathered.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchOptions {
    /// Spans that wait or are being exported, at most.
    pub(super) max_queue_size: usize,
    /// Spans of one export at most. No more than half of the queue: what is being exported makes room for nobody.
    pub(super) max_export_batch_size: usize,
    /// How long the first span of a batch waits for others.
    pub(super) schedule_delay: Duration,
}

/// Queues spans and exports them. Ending a span never waits.
#[derive(Debug)]
pub(super) struct BatchProcessor {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    max_export_batch_size: usize,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    counts: Arc<SpanCounts>,
    stopping: Arc<Stopping>,
}

#[derive(Debug)]
struct State {
    queue: SpanQueue<SpanData>,
    /// For the exporter, before its next export.
    resource: Option<Resource>,
    /// Everything that waits is to be exported now.
    is_flushing: bool,
    /// And then nothing more comes.
    is_ending: bool,
    /// The thread has ended, or will not begin anything any more.
    is_over: bool,
}

impl BatchProcessor {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`PipelineError`] if the system has no thread for it.
    pub(super) fn start<E: SpanExporter + 'static>(
        exporter: E,
        options: BatchOptions,
        counts: Arc<SpanCounts>,
        stopping: Arc<Stopping>,
    ) -> Result<Self, PipelineError> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                queue: SpanQueue::new(options.max_queue_size),
                resource: None,
                is_flushing: false,
                is_ending: false,
                is_over: false,
            }),
            changed: Condvar::new(),
            counts,
            stopping,
        });
        let options = BatchOptions {
            max_export_batch_size: options
                .max_export_batch_size
                .min(options.max_queue_size.div_ceil(2))
                .max(1),
            ..options
        };
        let thread = std::thread::Builder::new()
            .name("ackbeat-spans".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.run(exporter, options)
            })
            .map_err(|error| PipelineError {
                step: "starting the thread that exports spans",
                cause: error.to_string(),
            })?;
        let max_export_batch_size = options.max_export_batch_size;
        Ok(Self { shared, thread: Mutex::new(Some(thread)), max_export_batch_size })
    }

    /// Waits until the queue is empty and nothing is in flight, or the thread has ended.
    fn wait(&self, timeout: Duration, is_met: impl Fn(&mut State) -> bool) -> OTelSdkResult {
        let mut state = self.shared.state.lock();
        let waited = self.shared.changed.wait_while_for(&mut state, |state| !is_met(state), timeout);
        if waited.timed_out() { Err(OTelSdkError::Timeout(timeout)) } else { Ok(()) }
    }
}

impl SpanProcessor for BatchProcessor {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        let counts = &self.shared.counts;
        counts.end();
        let rank = if CLOSE_NAMES.contains(&span.name.as_ref()) { Rank::HostClose } else { Rank::Detail };
        let mut state = self.shared.state.lock();
        if state.is_over {
            counts.refuse();
            return;
        }
        counts.wait();
        if state.queue.push(rank, span).is_some() {
            counts.give_up();
        }
        let waiting = state.queue.len();
        drop(state);
        // The thread waits for the first span, and then for a full batch.
        if waiting == 1 || waiting == self.max_export_batch_size {
            self.shared.changed.notify_all();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.shared.state.lock().is_flushing = true;
        self.shared.changed.notify_all();
        self.wait(FLUSH_DEADLINE, |state| !state.is_flushing || state.is_over)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.shared.state.lock().is_ending = true;
        self.shared.changed.notify_all();
        self.wait(timeout, |state| state.is_over)?;
        if let Some(thread) = self.thread.lock().take() {
            // A panic of it was told on standard error.
            let _ = thread.join();
        }
        Ok(())
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.shared.state.lock().resource = Some(resource.clone());
    }
}

impl Shared {
    fn run<E: SpanExporter>(&self, mut exporter: E, options: BatchOptions) {
        // An exporter whose own work is traced would have something to export for ever.
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let mut outage = Outage::default();
        let mut is_given_up = false;
        let mut is_refused = false;
        let mut due = 0;
        while let Some((batch, resource)) = self.next_batch(options, &mut due) {
            if let Some(resource) = resource {
                exporter.set_resource(&resource);
            }
            let count = batch.len();
            if is_given_up {
                self.finish(count, SpanCounts::fail);
                continue;
            }
            // Read before the try: one that begins after the end was asked for is the last.
            let is_last_try = self.stopping.is_set();
            let spans = batch.iter().map(|waiting| waiting.span.clone()).collect();
            match block_on(exporter.export(spans)) {
                Ok(()) => {
                    outage.is_over();
                    is_refused = false;
                    self.finish(count, SpanCounts::export);
                }
                Err(error) if will_pass(&error) && !is_last_try => {
                    let pause = outage.goes_on(&error);
                    self.give_back(batch);
                    due = count;
                    self.stopping.wait(pause);
                }
                Err(error) => {
                    is_given_up = will_pass(&error);
                    // The number of lost spans is told every second; the reason once.
                    if !std::mem::replace(&mut is_refused, true) {
                        warn!(target: "ackbeat::export", %error, "the collector refuses spans");
                    }
                    self.finish(count, SpanCounts::fail);
                }
            }
        }
        // Nothing is left that could be lost.
        let _ = exporter.shutdown();
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Waits for the next batch; `None` at the end. `due` spans are to go before anything is waited for.
    fn next_batch(
        &self,
        options: BatchOptions,
        due: &mut usize,
    ) -> Option<(Vec<Waiting<SpanData>>, Option<Resource>)> {
        let mut state = self.state.lock();
        loop {
            if *due > 0 {
                let batch = state.queue.take(options.max_export_batch_size.min(*due));
                *due = if batch.is_empty() { 0 } else { *due - batch.len() };
                if !batch.is_empty() {
                    return Some((batch, state.resource.take()));
                }
            }
            if state.queue.len() == 0 {
                if state.is_ending {
                    return None;
                }
                if std::mem::take(&mut state.is_flushing) {
                    self.changed.notify_all();
                }
                self.changed.wait_while(&mut state, |state| {
                    state.queue.len() == 0 && !state.is_ending && !state.is_flushing
                });
            }
            let until = Instant::now() + options.schedule_delay;
            let _ = self.changed.wait_while_until(
                &mut state,
                |state| {
                    state.queue.len() < options.max_export_batch_size
                        && !state.is_ending
                        && !state.is_flushing
                },
                until,
            );
            *due = state.queue.len();
        }
    }

    /// A batch is done with.
    fn finish(&self, count: usize, outcome: fn(&SpanCounts, usize)) {
        let mut state = self.state.lock();
        state.queue.done(count);
        outcome(&self.counts, count);
    }

    fn give_back(&self, batch: Vec<Waiting<SpanData>>) {
        self.state.lock().queue.give_back(batch);
    }
}
