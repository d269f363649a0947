//! The values: their schema, their comments and the tables of the READMEs.

use std::collections::BTreeSet;
use std::env;
use std::fs;

use ackbeat_chart_tests::helm::{Helm, Render};
use ackbeat_chart_tests::repository;
use ackbeat_chart_tests::values_table::{markdown, rows, with_table};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::matrix::chart;

const CHARTS: [&str; 2] = ["charts/ackbeat", "charts/ackbeat-sidecar"];

#[test]
fn the_table_of_each_readme_is_that_of_the_comments() -> Result<()> {
    for name in CHARTS {
        let folder = repository(name)?;
        let table = markdown(&rows(&fs::read_to_string(folder.join("values.yaml"))?)?);
        let file = folder.join("README.md");
        let readme = fs::read_to_string(&file)?;
        let wanted = with_table(&readme, &table)?;
        if env::var_os("UPDATE_REFERENCE").is_some() {
            fs::write(&file, &wanted)?;
        } else {
            ensure!(
                readme == wanted,
                "the table of {name}/README.md is old: `UPDATE_REFERENCE=1 cargo test -p ackbeat-chart-tests values`"
            );
        }
    }
    Ok(())
}

/// Keys of an object of the schema that are values themselves, and those below them.
fn keys_of_schema(schema: &Value, path: &str, keys: &mut BTreeSet<String>) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if inner["properties"].is_object() {
            keys_of_schema(inner, &path, keys);
        }
        keys.insert(path);
    }
}

fn keys_of_values(values: &Value, path: &str, keys: &mut BTreeSet<String>) {
    for (key, inner) in values.as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        keys_of_values(inner, &path, keys);
        keys.insert(path);
    }
}

#[test]
fn the_schema_knows_every_value_and_no_other() -> Result<()> {
    for name in CHARTS {
        let folder = repository(name)?;
        let schema: Value = serde_json::from_str(&fs::read_to_string(folder.join("values.schema.json"))?)?;
        let text = fs::read_to_string(folder.join("values.yaml"))?;
        let values: Value = serde_saphyr::from_str(&text).map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut in_schema = BTreeSet::new();
        keys_of_schema(&schema, "", &mut in_schema);
        let mut in_values = BTreeSet::new();
        keys_of_values(&values, "", &mut in_values);
        for row in rows(&text)? {
            ensure!(in_schema.contains(&row.key), "{name}: the schema does not know {}", row.key);
        }
        // `global` is Helm's own. Maps that are free inside have keys which the schema cannot list, and some that are empty.
        for key in &in_schema {
            let is_inside = |parent: &str| key.starts_with(&format!("{parent}."));
            let described = rows(&text)?.iter().any(|row| row.key == *key || is_inside(&row.key));
            ensure!(
                key == "global" || described || in_values.contains(key),
                "{name}: no value {key} in values.yaml"
            );
        }
    }
    Ok(())
}

#[test]
fn a_misspelt_key_is_refused_by_name() -> Result<()> {
    let [three, four] = Helm::both()?;
    let cases = [
        (
            "otlp.endpiont=http://collector:4317",
            "- otlp: Additional property endpiont is not allowed",
            "- at '/otlp': additional properties 'endpiont' not allowed",
        ),
        (
            "sidecars.mode=ebpf",
            "- (root): Additional property sidecars is not allowed",
            "- at '': additional properties 'sidecars' not allowed",
        ),
        (
            "sidecar.mode=bpf",
            "sidecar.mode must be one of the following: \"auto\", \"ebpf\", \"sock-diag\"",
            "- at '/sidecar/mode': value must be one of 'auto', 'ebpf', 'sock-diag'",
        ),
        ("webhook.timeoutSeconds=30", "Must be less than or equal to 5", "maximum: got 30, want 5"),
        (
            "webhook.excludedNamespaces={shop}",
            "At least one of the items must match",
            "no items match contains schema",
        ),
        ("sidecar.seccompProfile.type=Localhost", "localhostProfile", "localhostProfile"),
    ];
    for (pair, of_three, of_four) in cases {
        for (helm, said) in [(&three, of_three), (&four, of_four)] {
            let answer = helm.try_template(&chart()?, &Render { set: vec![pair], ..Render::default() })?;
            ensure!(!answer.success, "{helm} takes {pair}");
            ensure!(answer.stderr.contains(said), "{helm}, {pair}: {}", answer.stderr);
        }
    }
    // What Helm adds for charts above this one.
    let answer =
        three.try_template(&chart()?, &Render { set: vec!["global.region=eu"], ..Render::default() })?;
    ensure!(answer.success, "{}", answer.stderr);
    Ok(())
}

#[test]
fn both_charts_have_the_version_of_the_sidecar() -> Result<()> {
    let manifest = fs::read_to_string(repository("Cargo.toml")?)?;
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
        .context("the workspace has a version")?;
    for name in CHARTS {
        let text = fs::read_to_string(repository(name)?.join("Chart.yaml"))?;
        let chart: Value = serde_saphyr::from_str(&text).map_err(|error| anyhow::anyhow!("{error}"))?;
        ensure!(chart["appVersion"] == version && chart["version"] == version, "{name}: {version}");
    }
    Ok(())
}
