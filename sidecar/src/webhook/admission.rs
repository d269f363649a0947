//! A review in, an answer out: `admission.k8s.io/v1`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ackbeat_injection::{Facts, Namespace, Outcome, Owner, Settings, Skip, inject, names};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tracing::{debug, warn};

use super::Counters;
use super::events::{Events, Notice};
use super::surroundings::Surroundings;

/// The API server waits at most 5 s; this leaves it time to hear the answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(3);
/// Longest warning that the API server passes on, in bytes.
const WARNING_MAX_BYTES: usize = 256;
/// Namespaces of Kubernetes itself: no pod there waits for us.
const SYSTEM_NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

/// Whoever answers.
pub struct Admissions {
    settings: Settings,
    own_namespace: String,
    surroundings: Surroundings,
    events: Option<Events>,
    counters: Arc<Counters>,
}

/// One review, read as far as it is needed.
#[derive(Debug)]
struct Request<'a> {
    uid: &'a str,
    namespace: &'a str,
    pod: Value,
    is_dry_run: bool,
}

impl Admissions {
    pub(super) const fn new(
        settings: Settings,
        own_namespace: String,
        surroundings: Surroundings,
        events: Option<Events>,
        counters: Arc<Counters>,
    ) -> Self {
        Self { settings, own_namespace, surroundings, events, counters }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.surroundings.is_ready()
    }

    /// Answers a review. The answer is always "allowed".
    pub async fn answer(self: Arc<Self>, review: Value) -> Value {
        let started = Instant::now();
        let uid = review.pointer("/request/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        let this = Arc::clone(&self);
        // A task of its own: should it panic, the API server is answered all the same.
        let deciding = tokio::spawn(async move { this.decide(&review).await });
        let (word, response) = match tokio::time::timeout(ANSWER_DEADLINE, deciding).await {
            Ok(Ok(decision)) => decision,
            Ok(Err(error)) => {
                warn!(%error, "deciding about a pod broke; it is allowed as it is");
                ("failed", allowed(&uid, &["an error in ackbeat: no sidecar".to_owned()], None))
            }
            Err(_) => ("failed", allowed(&uid, &["no decision in time: no sidecar".to_owned()], None)),
        };
        self.counters.admitted(word, started.elapsed());
        response
    }

    async fn decide(&self, review: &Value) -> (&'static str, Value) {
        let Some(request) = Request::read(review) else {
            let uid = review.pointer("/request/uid").and_then(Value::as_str).unwrap_or_default();
            return ("failed", allowed(uid, &["this is no review of a new pod".to_owned()], None));
        };
        if SYSTEM_NAMESPACES.contains(&request.namespace) || request.namespace == self.own_namespace {
            return ("not_wanted", allowed(request.uid, &[], None));
        }
        let namespace = self.surroundings.namespace(request.namespace).await;
        if namespace.is_none() && asks_for_itself(&request.pod) {
            // Without the namespace nobody knows what PodSecurity forbids there, and a pod that it refuses is lost.
            let warning = format!("namespace {} is not known: no sidecar", request.namespace);
            return ("failed", allowed(request.uid, &[warning], None));
        }
        let further_owners = match job_of(&request.pod) {
            Some(job) => self.surroundings.cron_job_of(request.namespace, job).await.into_iter().collect(),
            None => Vec::new(),
        };
        let (outcome, response) =
            decide(&request, namespace, further_owners, &self.surroundings.facts(), &self.settings);
        if let Outcome::Skipped(skip) = &outcome {
            self.counters.skipped(skip.word());
        }
        self.tell(&request, &outcome, &response);
        (outcome.word(), response)
    }

    /// Publishes what came of it, unless this is only tried.
    fn tell(&self, request: &Request<'_>, outcome: &Outcome, response: &Value) {
        if request.is_dry_run {
            return;
        }
        debug!(namespace = request.namespace, outcome = outcome.word(), "a pod");
        let Some(events) = &self.events else { return };
        let warnings: Vec<&str> = response
            .pointer("/response/warnings")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if let Some(notice) = Notice::of(&request.pod, request.namespace, outcome, &warnings) {
            events.publish(notice);
        }
    }
}

/// Decides about one pod: the whole of it, without IO.
fn decide(
    request: &Request<'_>,
    namespace: Option<Namespace>,
    further_owners: Vec<Owner>,
    facts: &Facts,
    settings: &Settings,
) -> (Outcome, Value) {
    let facts = Facts { namespace, further_owners, ..facts.clone() };
    let Some(report) = inject(&request.pod, &facts, settings) else {
        let skip = Skip::Malformed { at: "kind".to_owned(), expected: "Pod" };
        return (Outcome::Skipped(skip), allowed(request.uid, &[], None));
    };
    let mut warnings = Vec::new();
    if let Outcome::Skipped(skip) = &report.outcome {
        warnings.push(format!("no sidecar: {skip}"));
    }
    warnings.extend(report.warnings);
    let patch = report.outcome.patch().and_then(|patch| serde_json::to_vec(patch).ok());
    (report.outcome, allowed(request.uid, &warnings, patch.as_deref()))
}

impl<'a> Request<'a> {
    fn read(review: &'a Value) -> Option<Self> {
        let request = review.get("request")?;
        let text = |key: &str| request.get(key).and_then(Value::as_str);
        if text("operation") != Some("CREATE") || request.pointer("/kind/kind")?.as_str() != Some("Pod") {
            return None;
        }
        let mut pod = request.get("object")?.clone();
        // Objects in reviews name their kind; the patch must not depend on it.
        let map: &mut Map<String, Value> = pod.as_object_mut()?;
        map.insert("apiVersion".to_owned(), json!("v1"));
        map.insert("kind".to_owned(), json!("Pod"));
        Some(Self {
            uid: text("uid")?,
            namespace: text("namespace").unwrap_or_default(),
            pod,
            is_dry_run: request.get("dryRun").and_then(Value::as_bool).unwrap_or(false),
        })
    }
}

fn asks_for_itself(pod: &Value) -> bool {
    pod.get("metadata")
        .and_then(|metadata| metadata.get("annotations"))
        .and_then(|annotations| annotations.get(names::INJECT))
        .is_some_and(|word| word == "enabled")
}

/// The Job that made a pod.
fn job_of(pod: &Value) -> Option<&str> {
    let owners = pod.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))?;
    (owner.get("kind")?.as_str()? == "Job").then(|| owner.get("name")?.as_str()).flatten()
}

/// An answer.
fn allowed(uid: &str, warnings: &[String], patch: Option<&[u8]>) -> Value {
    let mut response = json!({"uid": uid, "allowed": true});
    if let Some(patch) = patch {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(STANDARD.encode(patch));
    }
    if !warnings.is_empty() {
        let warnings: Vec<String> =
            warnings.iter().map(|warning| shortened(&format!("ackbeat: {warning}"))).collect();
        response["warnings"] = json!(warnings);
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn shortened(text: &str) -> String {
    if text.len() <= WARNING_MAX_BYTES {
        return text.to_owned();
    }
    let mut end = WARNING_MAX_BYTES - '…'.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", text.get(..end).unwrap_or_default())
}
