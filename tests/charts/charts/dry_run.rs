//! `helm install --dry-run=client`: nothing is written to the cluster, and the notes tell the next command.

use ackbeat_chart_tests::api_server::ApiServer;
use ackbeat_chart_tests::helm::{Helm, NAMESPACE, RELEASE};
use anyhow::{Context, Result, ensure};

use crate::example::Example;
use crate::matrix::{chart, files};

fn dry_run(helm: &Helm, server: &ApiServer, chart: &str, more: &[&str]) -> Result<String> {
    let mut arguments = vec![
        "install",
        RELEASE,
        chart,
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--dry-run=client",
        // Its schemas are those that `schemas.rs` validates with; the server here has only the names of the kinds.
        "--disable-openapi-validation",
    ];
    arguments.extend(more);
    let answer = helm.run_with_kubeconfig(&arguments, &server.kubeconfig)?;
    ensure!(answer.success, "{helm}, {arguments:?}: {}", answer.stderr);
    Ok(answer.stdout)
}

#[test]
fn an_installation_can_be_tried_dry() -> Result<()> {
    for helm in Helm::both()? {
        let server = ApiServer::start(32)?;
        for (name, file) in files()? {
            if name == "cert-manager" {
                continue;
            }
            let file = file.display().to_string();
            let output = dry_run(&helm, &server, &chart()?.display().to_string(), &["--values", &file])?;
            ensure!(output.contains("kind: MutatingWebhookConfiguration"), "{helm}, {name}: {output}");
            ensure!(output.contains("NOTES:"), "{helm}, {name}: {output}");
        }
        let example = Example::new(&helm)?;
        dry_run(&helm, &server, &example.chart().display().to_string(), &[])?;
        let written: Vec<String> =
            server.requests().into_iter().filter(|request| !request.starts_with("GET ")).collect();
        ensure!(written.is_empty(), "{helm} wrote: {written:?}");
    }
    Ok(())
}

#[test]
fn the_notes_tell_the_next_command() -> Result<()> {
    let server = ApiServer::start(32)?;
    let helm = Helm::new(4)?;
    let notes = |more: &[&str]| -> Result<String> {
        let output = dry_run(&helm, &server, &chart()?.display().to_string(), more)?;
        Ok(output.split_once("NOTES:").context("no notes")?.1.to_owned())
    };
    let plain = notes(&["--set", "otlp.endpoint=http://otel-collector.observability:4317"])?;
    insta::with_settings!({snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!("notes", plain.trim());
    });
    let without = notes(&[])?;
    ensure!(without.contains("--set otlp.endpoint="), "{without}");
    let given = notes(&["--set", "tls.mode=secret,tls.secretName=mine"])?;
    ensure!(given.contains("WARNING: tls.caBundle is empty"), "{given}");
    let demo = notes(&["--set", "demo.enabled=true"])?;
    ensure!(demo.contains("kubectl -n ackbeat-demo logs"), "{demo}");
    Ok(())
}
