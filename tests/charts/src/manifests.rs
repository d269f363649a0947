//! Rendered manifests: from text, found by kind, and the pods inside them.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The documents of a multi-document YAML text; empty ones are left out.
///
/// # Errors
/// The text is not YAML, a key is there twice, or a document has no `apiVersion`, `kind` or name.
pub fn parse(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| anyhow::anyhow!("what was rendered: {error}"))?;
    let documents: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).collect();
    for document in &documents {
        for key in ["/apiVersion", "/kind", "/metadata/name"] {
            ensure!(
                document.pointer(key).is_some_and(Value::is_string),
                "a manifest without {key}: {document}"
            );
        }
    }
    Ok(documents)
}

/// `Kind/name`.
#[must_use]
pub fn title(document: &Value) -> String {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}", text("/kind"), text("/metadata/name"))
}

/// The only manifest of this kind whose name ends so.
///
/// # Errors
/// There is none, or more than one; the message lists what there is.
pub fn find<'a>(documents: &'a [Value], kind: &str, name_ends: &str) -> Result<&'a Value> {
    let mut found = documents.iter().filter(|document| {
        document["kind"] == kind
            && document["metadata"]["name"].as_str().is_some_and(|name| name.ends_with(name_ends))
    });
    let titles = || documents.iter().map(title).collect::<Vec<_>>().join(", ");
    let first = found.next().with_context(|| format!("no {kind} *{name_ends} among {}", titles()))?;
    ensure!(found.next().is_none(), "more than one {kind} *{name_ends} among {}", titles());
    Ok(first)
}

/// Whether a manifest of this kind is there.
#[must_use]
pub fn has(documents: &[Value], kind: &str) -> bool {
    documents.iter().any(|document| document["kind"] == kind)
}

/// The pod specification inside a manifest, if it has one.
#[must_use]
pub fn pod_spec(document: &Value) -> Option<&Value> {
    match document["kind"].as_str()? {
        "Pod" => document.get("spec"),
        "CronJob" => document.pointer("/spec/jobTemplate/spec/template/spec"),
        _ => document.pointer("/spec/template/spec"),
    }
}
