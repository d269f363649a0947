//! Values of ours as lines of YAML.

use serde_json::Value;

use super::node::Resolved;

/// A value in block style, without a line break at the end.
pub(super) fn value(value: &Resolved) -> Option<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false, folded_wrap_chars: usize::MAX };
    let mut text = String::new();
    serde_saphyr::to_fmt_writer_with_options(&mut text, value, options).ok()?;
    text.truncate(text.trim_end_matches('\n').len());
    Some(text)
}

/// An entry of a block mapping.
pub(super) fn entry(key: &str, value: &Value) -> Option<String> {
    self::value(&Resolved::Mapping(vec![(key.to_owned(), Resolved::ordered(value))]))
}

/// An item of a block sequence.
pub(super) fn item(value: &Value) -> Option<String> {
    self::value(&Resolved::Sequence(vec![Resolved::ordered(value)]))
}

/// A value on one line, for flow collections.
pub(super) fn json(value: &Value) -> Option<String> {
    serde_json::to_string(&Resolved::ordered(value)).ok()
}

/// A key of a flow mapping.
pub(super) fn json_key(key: &str) -> Option<String> {
    serde_json::to_string(key).ok()
}
