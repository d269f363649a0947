//! One change to the text of a document: lines are put in, replaced or taken out, and every other byte stays.
//!
//! What cannot be done this way (an alias in the path, a key beside a dash) is refused; the document is rewritten then.

use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::Value;

use super::node::{Kind, Node, Resolved};
use super::render;

/// The text after one operation; `None` where it cannot be done in the text.
pub(super) fn apply(text: &str, root: &Node, operation: &PatchOperation) -> Option<String> {
    let tokens: Vec<String> = operation.path().tokens().map(|token| token.decoded().into_owned()).collect();
    let (last, parents) = tokens.split_last()?;
    match operation {
        PatchOperation::Add(AddOperation { value, .. }) => add(text, root, parents, last, value),
        PatchOperation::Replace(ReplaceOperation { value, .. }) => {
            let path = Path::to(root, &tokens)?;
            replace(text, &path, value)
        }
        PatchOperation::Remove(RemoveOperation { .. }) => remove(text, root, parents, last),
        _ => None,
    }
}

/// A node and what it is in.
struct Path<'a> {
    node: &'a Node,
    /// Its key, and whether its mapping is a flow mapping; `None` for items and the root.
    key: Option<(&'a Node, bool)>,
    is_item: bool,
}

impl<'a> Path<'a> {
    fn to(root: &'a Node, tokens: &[String]) -> Option<Self> {
        let mut path = Self { node: root, key: None, is_item: false };
        for token in tokens {
            path = match &path.node.kind {
                Kind::Mapping { entries, is_flow } => {
                    let (key, value) = entries.iter().find(|(key, _)| key.as_key() == Some(token))?;
                    Self { node: value, key: Some((key, *is_flow)), is_item: false }
                }
                Kind::Sequence { items, .. } => {
                    Self { node: items.get(token.parse::<usize>().ok()?)?, key: None, is_item: true }
                }
                Kind::Scalar { .. } | Kind::Alias(_) => return None,
            };
        }
        Some(path)
    }
}

fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1)
}

/// The end of the line, at its line break or at the end of the text.
fn line_end(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let end = rest.find('\n').unwrap_or(rest.len());
    at + rest.get(..end).map_or(end, |line| line.trim_end_matches('\r').len())
}

/// The byte after the line break.
fn next_line(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    rest.find('\n').map_or(text.len(), |newline| at + newline + 1)
}

fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// The column of what begins at `at`, if only spaces and dashes stand before it.
fn column(text: &str, at: usize) -> Option<usize> {
    let before = text.get(line_start(text, at)..at)?;
    before.bytes().all(|byte| byte == b' ' || byte == b'-').then_some(before.len())
}

fn splice(text: &str, start: usize, end: usize, new: &str) -> Option<String> {
    Some([text.get(..start)?, new, text.get(end..)?].concat())
}

/// Lines with an indentation before each.
fn indented(lines: &str, indentation: usize, newline: &str) -> String {
    let spaces = " ".repeat(indentation);
    let lines: Vec<String> = lines
        .lines()
        .map(|line| if line.is_empty() { String::new() } else { format!("{spaces}{line}") })
        .collect();
    lines.join(newline)
}

/// Puts lines below the line on which `at` is.
fn insert_below(text: &str, at: usize, lines: &str) -> Option<String> {
    let end = line_end(text, at);
    splice(text, end, end, &format!("{}{lines}", newline(text)))
}

fn add(text: &str, root: &Node, parents: &[String], last: &str, value: &Value) -> Option<String> {
    let path = Path::to(root, parents)?;
    match &path.node.kind {
        Kind::Mapping { entries, is_flow: false } => {
            let (first, _) = entries.first()?;
            let (_, end) = entries.last()?;
            let lines = render::entry(last, value)?;
            insert_below(
                text,
                end_of(text, end)?,
                &indented(&lines, column(text, first.start)?, newline(text)),
            )
        }
        Kind::Sequence { items, is_flow: false } if last == "-" => {
            let lines = indented(&render::item(value)?, dash(text, items.first()?)?, newline(text));
            insert_below(text, end_of(text, items.last()?)?, &lines)
        }
        Kind::Mapping { entries, is_flow: true } => {
            if entries.is_empty() && path.key.is_some_and(|(_, is_flow)| !is_flow) {
                let map = serde_json::Map::from_iter([(last.to_owned(), value.clone())]);
                return replace(text, &path, &Value::Object(map));
            }
            let at = entries.last().map_or(path.node.end.checked_sub(1)?, |(_, value)| value.end);
            let comma = if entries.is_empty() { "" } else { ", " };
            splice(text, at, at, &format!("{comma}{}: {}", render::json_key(last)?, render::json(value)?))
        }
        Kind::Sequence { items, is_flow: true } if last == "-" => {
            if items.is_empty() && path.key.is_some_and(|(_, is_flow)| !is_flow) {
                return replace(text, &path, &Value::Array(vec![value.clone()]));
            }
            let at = items.last().map_or(path.node.end.checked_sub(1)?, |item| item.end);
            let comma = if items.is_empty() { "" } else { ", " };
            splice(text, at, at, &format!("{comma}{}", render::json(value)?))
        }
        _ => None,
    }
}

/// Where a value ends; one that was left out ends at its key's colon.
fn end_of(text: &str, node: &Node) -> Option<usize> {
    if node.start < node.end { Some(node.end) } else { colon(text, node.end).or(Some(node.end)) }
}

/// The byte after the colon that follows a key.
fn colon(text: &str, key_end: usize) -> Option<usize> {
    let rest = text.get(key_end..)?;
    let spaces = rest.len() - rest.trim_start_matches(' ').len();
    rest.get(spaces..)?.starts_with(':').then_some(key_end + spaces + 1)
}

/// The column of the dash before an item.
fn dash(text: &str, item: &Node) -> Option<usize> {
    let before = text.get(..item.start)?.trim_end_matches([' ', '\n', '\r']);
    before.ends_with('-').then(|| column(text, before.len() - 1)).flatten()
}

fn replace(text: &str, path: &Path<'_>, value: &Value) -> Option<String> {
    let node = path.node;
    if path.is_item {
        let indentation = column(text, node.start)?;
        let lines = indented(&render::value(&Resolved::ordered(value))?, indentation, newline(text));
        return splice(text, node.start, end_of(text, node)?, lines.get(indentation..)?);
    }
    let (key, is_flow) = path.key?;
    if is_flow {
        return splice(text, node.start, node.end, &render::json(value)?);
    }
    let after_colon = colon(text, key.end)?;
    let is_block =
        matches!(node.kind, Kind::Mapping { is_flow: false, .. } | Kind::Sequence { is_flow: false, .. });
    let name = text.get(key.start..key.end)?;
    let lines = render::entry("key", value)?.replacen("key", name, 1);
    let (first, below) = lines.split_once('\n').unwrap_or((lines.as_str(), ""));
    let inline = first.get(name.len() + 1..)?;
    // A comment behind the key or behind what is replaced stays where it is.
    let text = if is_block {
        let rest = next_line(text, end_of(text, node)?);
        // A text without a line break at its end has none afterwards.
        let is_end = rest == text.len() && !text.ends_with('\n');
        let from = if is_end { line_end(text, after_colon) } else { next_line(text, after_colon) };
        splice(text, from.min(rest), rest, "")?
    } else {
        splice(text, after_colon, end_of(text, node)?.max(after_colon), inline)?
    };
    let text = if is_block { splice(&text, after_colon, after_colon, inline)? } else { text };
    if below.is_empty() {
        return Some(text);
    }
    insert_below(&text, after_colon, &indented(below, column(&text, key.start)?, newline(&text)))
}

fn remove(text: &str, root: &Node, parents: &[String], last: &str) -> Option<String> {
    let parent = Path::to(root, parents)?;
    match &parent.node.kind {
        Kind::Mapping { entries, is_flow } => {
            let index = entries.iter().position(|(key, _)| key.as_key() == Some(last))?;
            let (key, value) = entries.get(index)?;
            if entries.len() == 1 {
                return replace(text, &parent, &Value::Object(serde_json::Map::new()));
            }
            if *is_flow {
                let before =
                    index.checked_sub(1).and_then(|index| entries.get(index)).map(|(_, value)| value.end);
                let after = entries.get(index + 1).map(|(key, _)| key.start);
                return cut(text, before, (key.start, value.end), after);
            }
            remove_lines(text, key.start, end_of(text, value)?)
        }
        Kind::Sequence { items, is_flow } => {
            let index: usize = last.parse().ok()?;
            let item = items.get(index)?;
            if items.len() == 1 {
                return replace(text, &parent, &Value::Array(Vec::new()));
            }
            if *is_flow {
                let before = index.checked_sub(1).and_then(|index| items.get(index)).map(|item| item.end);
                return cut(
                    text,
                    before,
                    (item.start, item.end),
                    items.get(index + 1).map(|item| item.start),
                );
            }
            let before = text.get(..item.start)?.trim_end_matches([' ', '\n', '\r']);
            before.ends_with('-').then(|| remove_lines(text, before.len() - 1, end_of(text, item)?)).flatten()
        }
        Kind::Scalar { .. } | Kind::Alias(_) => None,
    }
}

/// Takes one of several out of a flow collection, with one comma.
fn cut(text: &str, before: Option<usize>, own: (usize, usize), after: Option<usize>) -> Option<String> {
    match (before, after) {
        (Some(before), _) => splice(text, before, own.1, ""),
        (None, Some(after)) => splice(text, own.0, after, ""),
        (None, None) => None,
    }
}

/// Takes out whole lines; refused where something else stands on the first one.
fn remove_lines(text: &str, start: usize, end: usize) -> Option<String> {
    let first = line_start(text, start);
    if !text.get(first..start)?.bytes().all(|byte| byte == b' ') {
        return None;
    }
    let after = next_line(text, end);
    // The last line of a text without a line break at its end takes the one before it along.
    let first = if after == text.len() && !text.ends_with('\n') {
        text.get(..first)?.trim_end_matches(['\r', '\n']).len()
    } else {
        first
    };
    splice(text, first, after, "")
}
