//! The charts and the injector agree: it takes the configuration that the chart writes, and the library's container is its own.

use std::collections::{BTreeMap, BTreeSet};

use ackbeat_chart_tests::helm::Helm;
use ackbeat_chart_tests::manifests;
use ackbeat_injection::{Facts, ImagePullPolicy, Mode, Outcome, ServerVersion, Settings, inject};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::example::{Example, pod};
use crate::matrix::renders;

/// The settings in a rendered ConfigMap, as `ackbeat webhook` reads them.
fn settings_of(documents: &[Value]) -> Result<Settings> {
    let map = manifests::find(documents, "ConfigMap", "-injector")?;
    let text = map["data"]["injector.yaml"].as_str().context("the injector's file")?;
    serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("{error}"))
}

#[test]
fn the_injector_takes_every_configuration_that_the_chart_writes() -> Result<()> {
    for (name, documents) in renders()? {
        let settings = settings_of(documents).with_context(|| name.clone())?;
        settings.check().with_context(|| name.clone())?;
        if name == "defaults" {
            let expected = Settings {
                image: "ghcr.io/ackbeat/ackbeat:0.1.0".to_owned(),
                image_pull_policy: Some(ImagePullPolicy::IfNotPresent),
                ..Settings::default()
            };
            ensure!(settings == expected, "the chart's defaults are not the injector's: {settings:#?}");
        }
        if name == "everything" {
            let expected = BTreeMap::from([
                ("close.final_codes".to_owned(), json!("1008,4000")),
                ("leaks.idle_after_ms".to_owned(), json!("30000000")),
                ("leaks.reap".to_owned(), json!("dry-run")),
                ("probe.window".to_owned(), json!("true")),
            ]);
            ensure!(settings.settings == expected, "{:?}", settings.settings);
            ensure!(settings.mode == Mode::Ebpf && settings.ports == [8080, 9090], "{settings:?}");
        }
    }
    Ok(())
}

/// A container without the attributes of its resource, and those.
fn apart(mut container: Value) -> Result<(Value, BTreeSet<String>)> {
    let variables = container["env"].as_array_mut().context("variables")?;
    let place = variables
        .iter()
        .position(|variable| variable["name"] == "OTEL_RESOURCE_ATTRIBUTES")
        .context("OTEL_RESOURCE_ATTRIBUTES")?;
    let attributes = variables.remove(place)["value"].as_str().context("a value")?.to_owned();
    Ok((container, attributes.split(',').map(str::to_owned).collect()))
}

fn container_of(spec: &Value) -> Result<Value> {
    ["initContainers", "containers"]
        .iter()
        .flat_map(|list| spec[*list].as_array().into_iter().flatten())
        .find(|container| container["name"] == "ackbeat")
        .cloned()
        .with_context(|| format!("no sidecar in {spec:#}"))
}

#[test]
fn the_container_of_the_library_is_the_one_that_is_injected() -> Result<()> {
    let helm = Helm::new(4)?;
    let example = Example::new(&helm)?;
    let plain = example.template(&helm, "1.37", vec!["ackbeat-sidecar.enabled=false"])?;
    let plain = manifests::find(&plain, "Deployment", "shop")?;
    let base = Settings {
        image: "ghcr.io/ackbeat/ackbeat:0.1.0".to_owned(),
        image_pull_policy: Some(ImagePullPolicy::IfNotPresent),
        ports: vec![8080],
        ..Settings::default()
    };
    let collector = "http://otel-collector.observability:4317";
    /// The API server, the library's values, and the same for the injector.
    type Case<'a> = (&'a str, Vec<&'a str>, &'a dyn Fn(&mut Settings));
    let cases: [Case<'_>; 4] = [
        ("1.37", vec![], &|settings| settings.otlp.endpoint = collector.to_owned()),
        ("1.28", vec!["ackbeat-sidecar.mode=sock-diag"], &|settings| {
            settings.mode = Mode::SockDiag;
            settings.otlp.endpoint = collector.to_owned();
        }),
        (
            "1.29",
            vec!["ackbeat-sidecar.mode=ebpf", "ackbeat-sidecar.otlp.endpoint=http://$(NODE_IP):4317"],
            &|settings| {
                settings.mode = Mode::Ebpf;
                settings.otlp.endpoint = "http://$(NODE_IP):4317".to_owned();
            },
        ),
        (
            "1.37",
            vec![
                "ackbeat-sidecar.metricsPort=0",
                "ackbeat-sidecar.extraCapabilities={SYS_ADMIN}",
                "ackbeat-sidecar.settings.leaks\\.reap=dry-run",
                "ackbeat-sidecar.settings.leaks\\.idle_after_ms=30000000",
                "ackbeat-sidecar.otlp.endpoint=",
            ],
            &|settings| {
                settings.metrics_port = 0;
                settings.extra_capabilities = vec!["SYS_ADMIN".to_owned()];
                settings.settings = BTreeMap::from([
                    ("leaks.reap".to_owned(), json!("dry-run")),
                    ("leaks.idle_after_ms".to_owned(), json!(30_000_000)),
                ]);
            },
        ),
    ];
    for (version, mut set, change) in cases {
        let mut settings = base.clone();
        change(&mut settings);
        let facts = Facts { server: ServerVersion::from_text(version), is_wanted: true, ..Facts::default() };
        let mut injected = plain.clone();
        match inject(plain, &facts, &settings).context("a Deployment has a pod")?.outcome {
            Outcome::Injected { patch, .. } => json_patch::patch(&mut injected, &patch)?,
            other => bail!("{other:?}"),
        }
        set.push("ackbeat-sidecar.serviceName=shop");
        let rendered = example.template(&helm, version, set.clone())?;
        let (by_library, of_library) = apart(container_of(pod(&rendered)?)?)?;
        let (by_injector, of_injector) = apart(container_of(&injected["spec"]["template"]["spec"])?)?;
        ensure!(by_library == by_injector, "{version} {set:?}\n{by_library:#}\n{by_injector:#}");
        // A chart knows its application's version, and not which of the containers is meant.
        let more: Vec<&String> = of_library.difference(&of_injector).collect();
        ensure!(more == ["service.version=4.2"], "{more:?}");
        let fewer: Vec<&str> =
            of_injector.difference(&of_library).filter_map(|pair| Some(pair.split_once('=')?.0)).collect();
        ensure!(fewer == ["k8s.container.name", "service.instance.id"], "{fewer:?}");
        // What is included needs no injector any more.
        let again = manifests::find(&rendered, "Deployment", "shop")?;
        let outcome = inject(again, &facts, &settings).context("a Deployment has a pod")?.outcome;
        ensure!(outcome.patch().is_none(), "{outcome:?}");
    }
    Ok(())
}
