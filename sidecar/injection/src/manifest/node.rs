//! A YAML document as a tree that knows where in the text its nodes are.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle, StructureStyle};
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::ManifestError;
use super::scalar;

/// Nodes that one document may have once its aliases are written out: a few lines can name each other so that billions come out.
const NODES_MAX: usize = 1_000_000;

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// Number of its anchor; 0 for none.
    anchor: usize,
    /// Where its text begins, in bytes.
    pub(super) start: usize,
    /// Where it ends, without what follows on the line and without blank lines.
    pub(super) end: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Scalar { text: String, value: Value },
    Sequence { items: Vec<Node>, is_flow: bool },
    Mapping { entries: Vec<(Node, Node)>, is_flow: bool },
    Alias(usize),
}

/// A document and where it is.
#[derive(Debug)]
pub(super) struct Document {
    /// `None` where nothing is in it.
    pub(super) root: Option<Node>,
    /// Where it begins: at its `---`, or at its first node.
    pub(super) start: usize,
    /// Line of its first node or of its `---`, from 1.
    pub(super) line: usize,
}

/// A collection that is not yet at its end.
enum Open {
    Sequence { items: Vec<Node>, is_flow: bool, anchor: usize, start: usize },
    Mapping { entries: Vec<(Node, Node)>, key: Option<Node>, is_flow: bool, anchor: usize, start: usize },
}

/// The documents of a text.
pub(super) fn parse(text: &str) -> Result<Vec<Document>, ManifestError> {
    let mut documents: Vec<Document> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| ManifestError::Syntax(error.to_string()))?;
        let range = span.byte_range().unwrap_or_default();
        let done = match event {
            Event::DocumentStart(..) => {
                documents.push(Document { root: None, start: range.start, line: span.start.line() });
                continue;
            }
            Event::Scalar(content, style, anchor, tag) => {
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let slice = text.get(range.clone()).unwrap_or_default();
                let end = if is_block { range.start + slice.trim_end().len() } else { range.end };
                let is_plain = style == ScalarStyle::Plain;
                // What was left out is given as `~`.
                let content = if is_plain && slice.is_empty() { "" } else { &*content };
                let value = scalar::resolve(content, is_plain, tag.as_deref());
                Node {
                    kind: Kind::Scalar { text: content.to_owned(), value },
                    anchor,
                    start: range.start,
                    end,
                }
            }
            Event::Alias(anchor) => {
                Node { kind: Kind::Alias(anchor), anchor: 0, start: range.start, end: range.end }
            }
            Event::SequenceStart(style, anchor, _) => {
                let is_flow = style == StructureStyle::Flow;
                open.push(Open::Sequence { items: Vec::new(), is_flow, anchor, start: range.start });
                continue;
            }
            Event::MappingStart(style, anchor, _) => {
                let is_flow = style == StructureStyle::Flow;
                open.push(Open::Mapping {
                    entries: Vec::new(),
                    key: None,
                    is_flow,
                    anchor,
                    start: range.start,
                });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(open) => close(open, range.end),
                None => continue,
            },
            _ => continue,
        };
        match open.last_mut() {
            Some(Open::Sequence { items, .. }) => items.push(done),
            Some(Open::Mapping { entries, key, .. }) => match key.take() {
                Some(key) => entries.push((key, done)),
                None => *key = Some(done),
            },
            None => {
                if let Some(document) = documents.last_mut() {
                    document.root = Some(done);
                }
            }
        }
    }
    Ok(documents)
}

fn close(open: Open, end: usize) -> Node {
    match open {
        Open::Sequence { items, is_flow, anchor, start } => {
            let end = if is_flow { end } else { items.last().map_or(start, |item| item.end) };
            Node { kind: Kind::Sequence { items, is_flow }, anchor, start, end }
        }
        Open::Mapping { entries, is_flow, anchor, start, .. } => {
            // A value that was left out is said to be at its key's end.
            let end = if is_flow { end } else { entries.last().map_or(start, |(_, value)| value.end) };
            Node { kind: Kind::Mapping { entries, is_flow }, anchor, start, end }
        }
    }
}

impl Node {
    /// The text of a scalar, as a key.
    pub(super) fn as_key(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The document with its aliases and merge keys written out, and its values as Kubernetes reads them.
    pub(super) fn resolved(&self) -> Result<Resolved, ManifestError> {
        let mut resolver = Resolver { anchors: HashMap::new(), nodes: 0 };
        resolver.resolve(self)
    }
}

/// A value whose objects keep their order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Resolved {
    Scalar(Value),
    Sequence(Vec<Resolved>),
    Mapping(Vec<(String, Resolved)>),
}

struct Resolver {
    anchors: HashMap<usize, Resolved>,
    nodes: usize,
}

impl Resolver {
    fn count(&mut self, nodes: usize) -> Result<(), ManifestError> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX { Err(ManifestError::TooLarge { nodes_max: NODES_MAX }) } else { Ok(()) }
    }

    fn resolve(&mut self, node: &Node) -> Result<Resolved, ManifestError> {
        self.count(1)?;
        let resolved = match &node.kind {
            Kind::Scalar { value, .. } => Resolved::Scalar(value.clone()),
            Kind::Sequence { items, .. } => {
                Resolved::Sequence(items.iter().map(|item| self.resolve(item)).collect::<Result<_, _>>()?)
            }
            Kind::Mapping { entries, .. } => self.resolve_mapping(entries)?,
            Kind::Alias(anchor) => {
                let resolved = self.anchors.get(anchor).cloned();
                // An anchor that holds an alias of itself has no end.
                let resolved = resolved
                    .ok_or_else(|| ManifestError::Syntax("an alias within its own anchor".to_owned()))?;
                self.count(resolved.nodes())?;
                return Ok(resolved);
            }
        };
        if node.anchor != 0 {
            self.anchors.insert(node.anchor, resolved.clone());
        }
        Ok(resolved)
    }

    fn resolve_mapping(&mut self, entries: &[(Node, Node)]) -> Result<Resolved, ManifestError> {
        let mut mapping: Vec<(String, Resolved)> = Vec::with_capacity(entries.len());
        let mut merged: Vec<(String, Resolved)> = Vec::new();
        let mut seen = HashSet::new();
        for (key, value) in entries {
            let key = match self.resolve(key)? {
                Resolved::Scalar(Value::String(key)) => key,
                Resolved::Scalar(other) => key.as_key().map_or_else(|| other.to_string(), str::to_owned),
                _ => return Err(ManifestError::Syntax("a key that is no text".to_owned())),
            };
            let value = self.resolve(value)?;
            if key == "<<" {
                match value {
                    Resolved::Mapping(entries) => merged.extend(entries),
                    Resolved::Sequence(mappings) => {
                        for mapping in mappings {
                            if let Resolved::Mapping(entries) = mapping {
                                merged.extend(entries);
                            }
                        }
                    }
                    Resolved::Scalar(_) => {
                        return Err(ManifestError::Syntax(
                            "a merge key whose value is no mapping".to_owned(),
                        ));
                    }
                }
                continue;
            }
            if !seen.insert(key.clone()) {
                return Err(ManifestError::DuplicateKey { key });
            }
            mapping.push((key, value));
        }
        for (key, value) in merged {
            if seen.insert(key.clone()) {
                mapping.push((key, value));
            }
        }
        Ok(Resolved::Mapping(mapping))
    }
}

impl Resolved {
    fn nodes(&self) -> usize {
        match self {
            Self::Scalar(_) => 1,
            Self::Sequence(items) => 1 + items.iter().map(Self::nodes).sum::<usize>(),
            Self::Mapping(entries) => 1 + entries.iter().map(|(_, value)| value.nodes()).sum::<usize>(),
        }
    }

    /// As a value, without the order.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::Sequence(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Self::Mapping(entries) => {
                let map: Map<String, Value> =
                    entries.iter().map(|(key, value)| (key.clone(), value.to_value())).collect();
                Value::Object(map)
            }
        }
    }

    /// `value` in the order of this one; what is new comes behind.
    pub(super) fn reordered(&self, value: &Value) -> Self {
        match (self, value) {
            (Self::Mapping(entries), Value::Object(map)) => {
                let there = entries
                    .iter()
                    .filter_map(|(key, before)| Some((key.clone(), before.reordered(map.get(key)?))));
                let is_new = |key: &str| !entries.iter().any(|(there, _)| there == key);
                let new = map
                    .iter()
                    .filter(|(key, _)| is_new(key))
                    .map(|(key, value)| (key.clone(), Self::ordered(value)));
                Self::Mapping(there.chain(new).collect())
            }
            (Self::Sequence(items), Value::Array(values)) => Self::Sequence(
                values
                    .iter()
                    .enumerate()
                    .map(|(index, value)| {
                        items.get(index).map_or_else(|| Self::ordered(value), |item| item.reordered(value))
                    })
                    .collect(),
            ),
            (_, value) => Self::ordered(value),
        }
    }

    /// A value of ours in the order in which people write containers.
    pub(super) fn ordered(value: &Value) -> Self {
        match value {
            Value::Object(map) => {
                let rank = |key: &str| {
                    ["name", "image", "args", "value"].iter().position(|first| *first == key).unwrap_or(9)
                };
                let mut entries: Vec<(String, Self)> =
                    map.iter().map(|(key, value)| (key.clone(), Self::ordered(value))).collect();
                entries.sort_by_key(|(key, _)| rank(key));
                Self::Mapping(entries)
            }
            Value::Array(values) => Self::Sequence(values.iter().map(Self::ordered).collect()),
            scalar => Self::Scalar(scalar.clone()),
        }
    }
}

impl Serialize for Resolved {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Scalar(value) => value.serialize(serializer),
            Self::Sequence(items) => {
                let mut sequence = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    sequence.serialize_element(item)?;
                }
                sequence.end()
            }
            Self::Mapping(entries) => {
                let mut mapping = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    mapping.serialize_entry(key, value)?;
                }
                mapping.end()
            }
        }
    }
}
