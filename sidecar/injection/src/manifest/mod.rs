//! Manifests as text: YAML or JSON in, the same text with the sidecar in (or taken out of) it.
//!
//! What changes is decided by [`inject`](crate::inject) and [`uninject`](crate::uninject); this module applies their patch to
//! the text. Each operation is done in the text where it can be, so comments, order, quotes and every field that nobody here
//! knows stay byte for byte; the result is read again and compared. Where that fails, the document is written anew, in its
//! order but without its comments, and [`Object::is_rewritten`] says so.

mod edit;
mod node;
mod render;
mod scalar;

use json_patch::jsonptr::{PointerBuf, Token};
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::Value;

use crate::facts::Facts;
use crate::outcome::Report;
use crate::settings::Settings;
use node::{Document, Resolved};

/// Lists in lists beyond this are nobody's manifests.
const LISTS_MAX: usize = 8;

/// A text that is no manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is no YAML.
    #[error("no YAML: {0}")]
    Syntax(String),
    /// A key is there twice, and who reads it takes one or the other.
    #[error("no YAML: the key `{key}` is there twice in one mapping; remove one")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// Its aliases make it larger than any manifest.
    #[error("a document of more than {nodes_max} values; are there aliases of aliases?")]
    TooLarge {
        /// The limit.
        nodes_max: usize,
    },
    /// The result cannot be written.
    #[error("the result cannot be written: {0}")]
    Render(String),
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub enum Verb<'a> {
    /// Put the sidecar in.
    Inject {
        /// What is known of the pods' surroundings.
        facts: &'a Facts,
        /// What the operator chose.
        settings: &'a Settings,
    },
    /// Take it out.
    Uninject,
}

/// How the result looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As it came; JSON becomes YAML.
    Yaml,
    /// One JSON object a document.
    Json,
}

/// What came of one object of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Line of its document, from 1.
    pub line: usize,
    /// `Deployment`, …
    pub kind: String,
    /// Its name; empty where it has none.
    pub name: String,
    /// The result.
    pub report: Report,
    /// Whether its document was written anew, without comments.
    pub is_rewritten: bool,
}

/// A text and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Transformed {
    /// The text.
    pub text: String,
    /// Every object in it that holds pods.
    pub objects: Vec<Object>,
}

/// Does it to every object of a text. A document without pods stays as it is.
///
/// # Errors
/// The text cannot be read as YAML.
pub fn transform(text: &str, verb: Verb<'_>, format: Format) -> Result<Transformed, ManifestError> {
    let documents = node::parse(text)?;
    let mut transformed = Transformed { text: String::with_capacity(text.len() * 2), objects: Vec::new() };
    let starts: Vec<usize> =
        documents.iter().skip(1).map(|document| document.start).chain([text.len()]).collect();
    let mut start = 0;
    for (document, end) in documents.iter().zip(starts) {
        let chunk = text.get(start..end).unwrap_or_default();
        start = end;
        one(chunk, document, verb, format, &mut transformed)?;
    }
    if documents.is_empty() && format == Format::Yaml {
        transformed.text.push_str(text);
    }
    Ok(transformed)
}

fn one(
    chunk: &str,
    document: &Document,
    verb: Verb<'_>,
    format: Format,
    transformed: &mut Transformed,
) -> Result<(), ManifestError> {
    let before = document.root.as_ref().map(node::Node::resolved).transpose()?;
    let Some(before) = before.filter(|root| *root != Resolved::Scalar(Value::Null)) else {
        if format == Format::Yaml {
            transformed.text.push_str(chunk);
        }
        return Ok(());
    };
    let value = before.to_value();
    let mut operations = Vec::new();
    let first = transformed.objects.len();
    objects(&value, &mut Vec::new(), verb, document.line, &mut operations, &mut transformed.objects);
    if operations.is_empty() && format == Format::Yaml {
        transformed.text.push_str(chunk);
        return Ok(());
    }
    let mut after = value;
    json_patch::patch(&mut after, &operations).map_err(|error| ManifestError::Render(error.to_string()))?;
    if format == Format::Json {
        let text = serde_json::to_string_pretty(&before.reordered(&after))
            .map_err(|error| ManifestError::Render(error.to_string()))?;
        transformed.text.push_str(&text);
        transformed.text.push('\n');
        return Ok(());
    }
    // JSON has no comments to keep, and one line more in it would be no JSON that anybody wants to read.
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(chunk).is_ok();
    let edited = if is_json { None } else { edited(chunk, &folded(operations), &after) };
    if let Some(text) = edited {
        transformed.text.push_str(&text);
        return Ok(());
    }
    if !is_json {
        for object in transformed.objects.iter_mut().skip(first) {
            object.is_rewritten = true;
        }
    }
    if !transformed.text.is_empty() || chunk.starts_with("---") {
        transformed.text.push_str("---\n");
    }
    let text = render::value(&before.reordered(&after))
        .ok_or_else(|| ManifestError::Render("a value has no form in YAML".to_owned()))?;
    transformed.text.push_str(&text);
    transformed.text.push('\n');
    Ok(())
}

/// Every object with pods of a manifest, those in lists too, and what changes in the whole.
fn objects(
    manifest: &Value,
    base: &mut Vec<String>,
    verb: Verb<'_>,
    line: usize,
    operations: &mut Vec<PatchOperation>,
    objects_of_text: &mut Vec<Object>,
) {
    let kind = manifest.get("kind").and_then(Value::as_str).unwrap_or_default();
    if kind.ends_with("List") && base.len() < 2 * LISTS_MAX {
        let items = manifest.get("items").and_then(Value::as_array);
        for (index, item) in items.into_iter().flatten().enumerate() {
            base.extend(["items".to_owned(), index.to_string()]);
            objects(item, base, verb, line, operations, objects_of_text);
            base.truncate(base.len() - 2);
        }
        return;
    }
    let report = match verb {
        Verb::Inject { facts, settings } => crate::inject(manifest, facts, settings),
        Verb::Uninject => crate::uninject(manifest),
    };
    let Some(report) = report else { return };
    if let Some(patch) = report.outcome.patch() {
        operations.extend(patch.iter().map(|operation| below(base, operation)));
    }
    let name = manifest.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    objects_of_text.push(Object {
        line,
        kind: kind.to_owned(),
        name: name.unwrap_or_default().to_owned(),
        report,
        is_rewritten: false,
    });
}

fn below(base: &[String], operation: &PatchOperation) -> PatchOperation {
    let tokens = base.iter().map(|token| Token::new(token.as_str()));
    let path = PointerBuf::from_tokens(tokens.chain(operation.path().tokens()));
    let mut operation = operation.clone();
    match &mut operation {
        PatchOperation::Add(AddOperation { path: there, .. })
        | PatchOperation::Replace(ReplaceOperation { path: there, .. })
        | PatchOperation::Remove(RemoveOperation { path: there }) => *there = path,
        _ => {}
    }
    operation
}

/// The operations with what is added to a new place put into it: `annotations` with one annotation, in place of `{}` and one more.
fn folded(operations: Vec<PatchOperation>) -> Vec<PatchOperation> {
    let mut folded: Vec<PatchOperation> = Vec::with_capacity(operations.len());
    for operation in operations {
        let PatchOperation::Add(add) = &operation else {
            folded.push(operation);
            continue;
        };
        let home = folded.iter_mut().rev().find_map(|earlier| {
            let (PatchOperation::Add(AddOperation { path, value })
            | PatchOperation::Replace(ReplaceOperation { path, value })) = earlier
            else {
                return None;
            };
            let relative = add.path.strip_prefix(&*path).filter(|relative| !relative.is_root())?;
            // `-` is another element each time.
            (!path.as_str().ends_with("/-")).then(|| (value, relative.to_buf()))
        });
        let is_home = home.is_some_and(|(value, path)| {
            let relative = PatchOperation::Add(AddOperation { path, value: add.value.clone() });
            json_patch::patch(value, &[relative]).is_ok()
        });
        if !is_home {
            folded.push(operation);
        }
    }
    folded
}

/// The document with all operations done in its text; `None` where that does not come to `wanted`.
fn edited(chunk: &str, operations: &[PatchOperation], wanted: &Value) -> Option<String> {
    let mut text = chunk.to_owned();
    for operation in operations {
        let documents = node::parse(&text).ok()?;
        let [Document { root: Some(root), .. }] = documents.as_slice() else { return None };
        text = edit::apply(&text, root, operation)?;
    }
    let documents = node::parse(&text).ok()?;
    let [Document { root: Some(root), .. }] = documents.as_slice() else { return None };
    (root.resolved().ok().as_ref().map(Resolved::to_value).as_ref() == Some(wanted)).then_some(text)
}
