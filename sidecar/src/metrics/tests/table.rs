//! Table and page.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::reference::render;
use super::super::table::{INSTRUMENTS, Kind};

#[test]
fn the_page_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("METRICS.md");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, render()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page == render(), "METRICS.md is stale: UPDATE_REFERENCE=1 cargo test -p ackbeat metrics");
}

#[test]
fn names_are_unique_and_by_the_conventions() {
    let names: BTreeSet<_> = INSTRUMENTS.iter().map(|instrument| instrument.name).collect();
    assert_eq!(names.len(), INSTRUMENTS.len());
    for instrument in INSTRUMENTS {
        let name = instrument.name;
        assert!(
            name.split('.').all(|part| part.starts_with(|letter: char| letter.is_ascii_lowercase())
                && part.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')),
            "{name}"
        );
        // Neither the unit nor Prometheus's suffixes belong into the name.
        for suffix in ["total", "bytes", "seconds", "ratio", "count", "sum", "bucket", "info"] {
            assert!(!name.ends_with(suffix), "{name}");
        }
        let unit = instrument.unit;
        assert!(
            ["By", "s", "1"].contains(&unit) || unit.starts_with('{') && unit.ends_with('}'),
            "{name}: {unit}"
        );
        // One line, nothing that a text format would have to escape.
        assert!(!instrument.meaning.contains(['\n', '\\', '"']), "{name}");
    }
}

#[test]
fn bounds_grow_and_labels_are_few() {
    for instrument in INSTRUMENTS {
        if let Kind::Histogram(boundaries) = instrument.kind {
            assert!(boundaries.is_sorted_by(|one, next| one < next), "{}", instrument.name);
        }
        let mut keys = BTreeSet::new();
        for attribute in instrument.attributes {
            assert!(keys.insert(attribute.key), "{}: {} stands twice", instrument.name, attribute.key);
            let values = (attribute.values)();
            let different: BTreeSet<_> = values.iter().collect();
            assert_eq!(different.len(), values.len(), "{}", instrument.name);
            if attribute.is_local_port() {
                assert!(attribute.values_max() <= 65, "{}", instrument.name);
                continue;
            }
            for word in ["address", "port", "peer", "path", "pid"] {
                assert!(!attribute.key.split(['.', '_']).any(|part| part == word), "{}", attribute.key);
            }
        }
        assert!(instrument.series_max() <= 5_000, "{}: {}", instrument.name, instrument.series_max());
    }
}
