//! Where the pods are in each kind.

use serde_json::Value;

use crate::annotations::names;
use crate::facts::{Facts, Owner};
use crate::outcome::Report;
use crate::pod;
use crate::settings::Settings;

/// Kinds that hold pods, and where: API group, kind, path to the pod or pod template.
const KINDS: [(&str, &str, &[&str]); 9] = [
    ("", "Pod", &[]),
    ("", "ReplicationController", &["spec", "template"]),
    ("", "PodTemplate", &["template"]),
    ("apps", "Deployment", &["spec", "template"]),
    ("apps", "ReplicaSet", &["spec", "template"]),
    ("apps", "StatefulSet", &["spec", "template"]),
    ("apps", "DaemonSet", &["spec", "template"]),
    ("batch", "Job", &["spec", "template"]),
    ("batch", "CronJob", &["spec", "jobTemplate", "spec", "template"]),
];

fn path_of(manifest: &Value) -> Option<(&'static str, &'static [&'static str])> {
    let kind = manifest.get("kind")?.as_str()?;
    let api_version = manifest.get("apiVersion")?.as_str()?;
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    KINDS
        .iter()
        // Before 1.16 Deployments and their kin were in `extensions`.
        .find(|(of, name, _)| *name == kind && (*of == group || *of == "apps" && group == "extensions"))
        .map(|(_, name, path)| (*name, *path))
}

/// Whether a manifest holds a pod or a pod template: a Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob,
/// ReplicationController or PodTemplate. The items of a `List` are manifests of their own.
#[must_use]
pub fn is_pod_bearing(manifest: &Value) -> bool {
    path_of(manifest).is_some()
}

/// Injects the sidecar into the pod or the pod template of a manifest; `None` where it holds neither. The patch is one of the
/// whole manifest.
///
/// ```
/// use ackbeat_injection::{Facts, Outcome, Settings, inject};
///
/// let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "app"}]}});
/// let facts = Facts { is_wanted: true, ..Facts::default() };
/// let settings = Settings { image: "ackbeat:1".to_owned(), ..Settings::default() };
/// let report = inject(&pod, &facts, &settings);
/// assert!(matches!(report.map(|report| report.outcome), Some(Outcome::Injected { .. })));
/// ```
#[must_use]
pub fn inject(manifest: &Value, facts: &Facts, settings: &Settings) -> Option<Report> {
    let (kind, path) = path_of(manifest)?;
    let Some(template) = at(manifest, path) else {
        return Some(pod::inject(&Value::Null, path, &[], facts, settings));
    };
    let owner = manifest.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    let owners: Vec<Owner> = owner
        .filter(|_| !["Pod", "PodTemplate"].contains(&kind))
        .map(|name| Owner { kind: kind.to_owned(), name: name.to_owned() })
        .into_iter()
        .collect();
    let mut report = pod::inject(template, path, &owners, facts, settings);
    if !path.is_empty() {
        report.warnings.extend(misplaced_annotations(manifest, path));
    }
    Some(report)
}

/// Takes an injected sidecar out of the pod or the pod template of a manifest; `None` where it holds neither.
#[must_use]
pub fn uninject(manifest: &Value) -> Option<Report> {
    let (_, path) = path_of(manifest)?;
    Some(pod::uninject(at(manifest, path).unwrap_or(&Value::Null), path))
}

fn at<'a>(manifest: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(manifest, |value, key| value.get(*key))
}

/// Annotations of ours on the workload itself, which its pods do not inherit.
fn misplaced_annotations(manifest: &Value, path: &[&str]) -> Vec<String> {
    let annotations =
        manifest.get("metadata").and_then(|metadata| metadata.get("annotations")).and_then(Value::as_object);
    annotations
        .into_iter()
        .flatten()
        .filter(|(name, _)| names::ALL.contains(&name.as_str()))
        .map(|(name, _)| {
            format!(
                "annotation {name} has no effect here; its place is {}.metadata.annotations",
                path.join(".")
            )
        })
        .collect()
}
