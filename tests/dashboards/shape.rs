//! What must hold for the dashboard's file whatever the data.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::dashboard::{label_variables, load, panels};

/// What is allowed to name a data source: the variable, and Grafana's own for annotations.
const SOURCES: [&str; 2] = ["${datasource}", "-- Grafana --"];

fn sources<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("datasource"));
            map.values().for_each(|inner| sources(inner, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| sources(inner, found)),
        _ => {}
    }
}

#[test]
fn no_data_source_is_fixed() -> Result<()> {
    let dashboard = load()?;
    let mut found = Vec::new();
    sources(&dashboard, &mut found);
    ensure!(!found.is_empty(), "no data source at all");
    for source in found {
        let uid = source["uid"].as_str().with_context(|| format!("a data source without uid: {source}"))?;
        ensure!(SOURCES.contains(&uid), "{source}");
    }
    Ok(())
}

#[test]
fn every_panel_says_what_it_answers_and_in_which_unit() -> Result<()> {
    let dashboard = load()?;
    let (mut ids, mut titles) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().context("a panel without a title")?;
        ensure!(ids.insert(panel["id"].as_u64()) && titles.insert(title), "{title} is there twice");
        let description = panel["description"].as_str().unwrap_or_default();
        ensure!(description.len() > 30, "{title} does not say what it answers");
        let defaults = &panel["fieldConfig"]["defaults"];
        ensure!(defaults["unit"].is_string(), "{title} has no unit");
        ensure!(
            defaults["thresholds"]["steps"][0]["value"].is_null(),
            "{title} has no thresholds from below"
        );
        let targets = panel["targets"].as_array().context("a panel without queries")?;
        let mut references = BTreeSet::new();
        for target in targets {
            let expression = target["expr"].as_str().with_context(|| format!("{title}: no expression"))?;
            ensure!(references.insert(target["refId"].as_str()), "{title}: a refId is there twice");
            ensure!(
                target["instant"].as_bool() != target["range"].as_bool(),
                "{title}: an instant or a range"
            );
            // A table has columns, everything else a legend.
            ensure!(
                panel["type"] == "table"
                    || target["legendFormat"].as_str().is_some_and(|text| text.len() > 1),
                "{title} has no legend"
            );
            for variable in label_variables(&dashboard) {
                let name = variable["name"].as_str().context("a variable has a name")?;
                ensure!(expression.contains(&format!("=~\"${name}\"")), "{title} does not heed ${name}");
            }
        }
    }
    Ok(())
}

#[test]
fn panels_lie_beside_each_other() -> Result<()> {
    let dashboard = load()?;
    let all = dashboard["panels"].as_array().context("no panels")?;
    let place = |panel: &Value| {
        let of = |key: &str| panel["gridPos"][key].as_u64().unwrap_or(u64::MAX);
        (of("x"), of("y"), of("w"), of("h"))
    };
    for (number, panel) in all.iter().enumerate() {
        let (x, y, width, height) = place(panel);
        // Grafana's grid is 24 columns wide.
        ensure!(x + width <= 24, "{} is too wide", panel["title"]);
        for other in all.iter().skip(number + 1) {
            let (other_x, other_y, other_width, other_height) = place(other);
            let apart = x + width <= other_x
                || other_x + other_width <= x
                || y + height <= other_y
                || other_y + other_height <= y;
            ensure!(apart, "{} lies on {}", panel["title"], other["title"]);
        }
    }
    Ok(())
}

#[test]
fn the_questions_come_in_the_order_in_which_they_are_asked() -> Result<()> {
    let dashboard = load()?;
    let rows: Vec<&str> = dashboard["panels"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|panel| panel["type"] == "row")
        .filter_map(|row| row["title"].as_str())
        .collect();
    ensure!(
        rows == [
            "Are we killing live peers?",
            "Who is congested now?",
            "How long do Pings wait in our own queue?",
            "Is ackbeat itself healthy?"
        ],
        "{rows:?}"
    );
    Ok(())
}
