//! Every rendered manifest against the API server's schemas.

use std::collections::BTreeSet;

use ackbeat_chart_tests::helm::Helm;
use ackbeat_chart_tests::repository;
use ackbeat_chart_tests::schemas::{Rendered, VERSIONS, validate};
use anyhow::{Result, ensure};
use serde_json::json;

use crate::example::Example;
use crate::matrix::{chart, files, render_of};

/// Kinds of operators: their schemas are not the API server's.
const CUSTOM: [&str; 4] = [
    "cert-manager.io/v1 Certificate",
    "cert-manager.io/v1 Issuer",
    "monitoring.coreos.com/v1 PodMonitor",
    "monitoring.coreos.com/v1 PrometheusRule",
];

/// Versions between which the charts render nothing else: matchConditions come with 1.28, native sidecars with 1.29.
const SPANS: [(&str, &str); 3] = [("1.25", "1.27"), ("1.28", "1.28"), ("1.29", "1.37")];

fn minor(version: &str) -> u32 {
    version.split_once('.').and_then(|(_, minor)| minor.parse().ok()).unwrap_or_default()
}

#[test]
fn the_charts_render_nothing_else_within_a_span() -> Result<()> {
    let helm = Helm::new(4)?;
    let example = Example::new(&helm)?;
    let everything = repository("tests/charts/values/everything.yaml")?;
    for (first, last) in SPANS {
        let render = |version: &'static str| -> Result<_> {
            let mut render = render_of(&everything);
            render.kube_version = Some(version);
            Ok((helm.template(&chart()?, &render)?, example.template(&helm, version, vec![])?))
        };
        let expected = render(first)?;
        for version in VERSIONS {
            if (minor(first)..=minor(last)).contains(&minor(version)) {
                ensure!(render(version)? == expected, "{version} is not as {first}");
            }
        }
    }
    Ok(())
}

#[test]
fn every_manifest_is_valid_from_1_25_to_1_37() -> Result<()> {
    let helm = Helm::new(4)?;
    let example = Example::new(&helm)?;
    let mut sets = Vec::new();
    for (first, last) in SPANS {
        let mut renders = Vec::new();
        for (name, file) in files()? {
            let mut render = render_of(&file);
            render.kube_version = Some(last);
            renders.push((name, helm.template(&chart()?, &render)?));
        }
        for set in
            [vec![], vec!["ackbeat-sidecar.mode=sock-diag"], vec!["ackbeat-sidecar.config.policy=fast"]]
        {
            renders.push((format!("example {set:?}"), example.template(&helm, last, set)?));
        }
        for version in VERSIONS {
            if (minor(first)..=minor(last)).contains(&minor(version)) {
                sets.extend(renders.iter().map(|(name, documents)| Rendered {
                    version: version.to_owned(),
                    name: format!("{version}, {name}"),
                    documents: documents.clone(),
                }));
            }
        }
    }
    ensure!(sets.len() == VERSIONS.len() * (files()?.len() + 3), "{} sets", sets.len());
    let mut validated = 0;
    for (set, verdict) in sets.iter().zip(validate(&sets)?) {
        ensure!(verdict.refused.is_empty(), "{}: {:#?}", set.name, verdict.refused);
        let unknown: BTreeSet<&str> = verdict.without_schema.iter().map(String::as_str).collect();
        ensure!(unknown.iter().all(|kind| CUSTOM.contains(kind)), "{}: {unknown:?}", set.name);
        ensure!(verdict.validated + verdict.without_schema.len() == set.documents.len(), "{}", set.name);
        validated += verdict.validated;
    }
    println!("{validated} manifests, {} versions", VERSIONS.len());
    Ok(())
}

#[test]
fn a_misspelt_key_of_a_manifest_would_be_found() -> Result<()> {
    let document = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "typo"},
        "spec": {"containers": [{"name": "a", "image": "b", "securityContext": {"readOnlyRootFileSystem": true}}]}
    });
    let sets: Vec<Rendered> = VERSIONS
        .iter()
        .map(|version| Rendered {
            version: (*version).to_owned(),
            name: "typo".to_owned(),
            documents: vec![document.clone()],
        })
        .collect();
    for verdict in validate(&sets)? {
        ensure!(verdict.refused.len() == 1, "{verdict:?}");
        ensure!(verdict.refused[0].path == "spec.containers.0.securityContext", "{verdict:?}");
    }
    Ok(())
}
