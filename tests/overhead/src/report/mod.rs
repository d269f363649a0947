//! What was measured, as a list of figures: kept as JSON, shown as a table, and held against what was published.

pub(crate) mod guard;
pub(crate) mod markdown;
pub(crate) mod result;
