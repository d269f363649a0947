//! Where the webhook's certificate comes from, and what the API server is told about the webhook.

use std::collections::BTreeMap;

use ackbeat_chart_tests::api_server::ApiServer;
use ackbeat_chart_tests::helm::{Helm, NAMESPACE, RELEASE, Render};
use ackbeat_chart_tests::manifests;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::matrix::chart;

fn render(set: Vec<&str>, kube_version: &str, api_versions: Vec<&str>) -> Result<Vec<Value>> {
    let render = Render { set, kube_version: Some(kube_version), api_versions, ..Render::default() };
    Helm::new(4)?.template(&chart()?, &render)
}

fn webhook(documents: &[Value]) -> Result<&Value> {
    Ok(&manifests::find(documents, "MutatingWebhookConfiguration", "ackbeat")?["webhooks"][0])
}

fn arguments(documents: &[Value]) -> Result<Vec<String>> {
    let deployment = manifests::find(documents, "Deployment", "ackbeat")?;
    let list = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    Ok(list
        .as_array()
        .context("arguments")?
        .iter()
        .map(|word| word.as_str().unwrap_or("?").to_owned())
        .collect())
}

#[test]
fn the_webhook_can_break_no_pod() -> Result<()> {
    let documents = render(vec![], "1.37", vec![])?;
    let webhook = webhook(&documents)?;
    ensure!(webhook["failurePolicy"] == "Ignore" && webhook["timeoutSeconds"] == 5, "{webhook}");
    ensure!(webhook["sideEffects"] == "None" && webhook["reinvocationPolicy"] == "IfNeeded", "{webhook}");
    ensure!(webhook["rules"][0]["operations"] == json!(["CREATE"]), "{webhook}");
    ensure!(webhook["rules"][0]["resources"] == json!(["pods"]), "{webhook}");
    ensure!(
        webhook["namespaceSelector"]["matchExpressions"][0]["values"]
            == json!(["kube-system", "kube-node-lease", "kube-public", "ackbeat"]),
        "{webhook}"
    );
    Ok(())
}

#[test]
fn match_conditions_only_where_the_server_has_them() -> Result<()> {
    for (version, expected) in [("1.25", false), ("1.27", false), ("1.28", true), ("1.37", true)] {
        let documents = render(vec![], version, vec![])?;
        ensure!(webhook(&documents)?["matchConditions"].is_array() == expected, "{version}");
    }
    Ok(())
}

#[test]
fn the_injector_makes_its_own_certificate() -> Result<()> {
    let documents = render(vec![], "1.37", vec![])?;
    let secret = manifests::find(&documents, "Secret", "ackbeat-tls")?;
    ensure!(
        secret["data"].is_null() && secret["stringData"].is_null(),
        "an upgrade would take it away: {secret}"
    );
    ensure!(webhook(&documents)?["clientConfig"].get("caBundle").is_none());
    let arguments = arguments(&documents)?;
    for wanted in ["--tls-secret=ackbeat-tls", "--webhook-configuration=ackbeat", "--service=ackbeat"] {
        ensure!(arguments.iter().any(|argument| argument == wanted), "{arguments:?}");
    }
    Ok(())
}

#[test]
fn helm_makes_a_certificate_that_its_own_ca_has_signed() -> Result<()> {
    let documents = render(vec!["tls.mode=helm"], "1.37", vec![])?;
    let secret = manifests::find(&documents, "Secret", "ackbeat-helm-tls")?;
    ensure!(secret["type"] == "kubernetes.io/tls", "{secret}");
    ensure!(webhook(&documents)?["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]);
    let folder = tempfile::tempdir()?;
    for key in ["ca.crt", "tls.crt"] {
        let text = secret["data"][key].as_str().context("a certificate")?;
        std::fs::write(folder.path().join(format!("{key}.base64")), text)?;
    }
    let script = "cd \"$0\" && for name in ca.crt tls.crt; do base64 -d $name.base64 > $name; done && \
                  openssl verify -CAfile ca.crt tls.crt && \
                  openssl x509 -in tls.crt -noout -checkhost ackbeat.ackbeat.svc -ext subjectAltName";
    let output =
        std::process::Command::new("sh").args(["-c", script]).arg(folder.path()).output().context("sh")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(said.contains("tls.crt: OK") && said.contains("does match certificate"), "{said}");
    ensure!(said.contains("DNS:ackbeat.ackbeat.svc.cluster.local"), "{said}");
    ensure!(arguments(&documents)?.iter().any(|argument| argument == "--tls-dir=/etc/ackbeat/tls"));
    Ok(())
}

#[test]
fn an_upgrade_keeps_the_certificate_that_helm_made() -> Result<()> {
    let data = json!({"ca.crt": "Q0E=", "tls.crt": "Q1JU", "tls.key": "S0VZ"});
    // As an earlier installation left it.
    let metadata = json!({
        "name": "ackbeat-helm-tls",
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": NAMESPACE}
    });
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/ackbeat-helm-tls");
    for helm in Helm::both()? {
        let server = ApiServer::with_objects(32, BTreeMap::from([(path.clone(), secret.clone())]))?;
        let chart = chart()?.display().to_string();
        let arguments = [
            "template",
            RELEASE,
            &chart,
            "--namespace",
            NAMESPACE,
            "--dry-run=server",
            "--disable-openapi-validation",
            "--set",
            "tls.mode=helm",
        ];
        let answer = helm.run_with_kubeconfig(&arguments, &server.kubeconfig)?;
        ensure!(answer.success, "{helm}: {}", answer.stderr);
        let documents = manifests::parse(&answer.stdout)?;
        let rendered = manifests::find(&documents, "Secret", "ackbeat-helm-tls")?;
        ensure!(rendered["data"] == data, "{helm}: {rendered}");
        ensure!(webhook(&documents)?["clientConfig"]["caBundle"] == "Q0E=", "{helm}");
        let requests = server.requests();
        ensure!(requests.contains(&format!("GET {path}")), "{helm} asked only {requests:?}");
    }
    Ok(())
}

#[test]
fn cert_manager_makes_it_where_the_cluster_has_it() -> Result<()> {
    let set = || vec!["tls.mode=certManager"];
    let documents = render(set(), "1.37", vec!["cert-manager.io/v1"])?;
    let leaf = manifests::find(&documents, "Certificate", "ackbeat-cert-manager-tls")?;
    ensure!(leaf["spec"]["dnsNames"][0] == "ackbeat.ackbeat.svc", "{leaf}");
    ensure!(leaf["spec"]["issuerRef"]["name"] == "ackbeat-ca", "{leaf}");
    let configuration = manifests::find(&documents, "MutatingWebhookConfiguration", "ackbeat")?;
    let annotation = &configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    ensure!(*annotation == "ackbeat/ackbeat-cert-manager-tls", "{annotation}");
    ensure!(!manifests::has(&documents, "Secret"));
    let mut with_issuer = set();
    with_issuer
        .extend(["tls.certManager.issuerRef.name=corporate", "tls.certManager.issuerRef.kind=ClusterIssuer"]);
    let documents = render(with_issuer, "1.37", vec!["cert-manager.io/v1"])?;
    ensure!(!manifests::has(&documents, "Issuer"));
    let error = render(set(), "1.37", vec![]).expect_err("no cert-manager").to_string();
    ensure!(error.contains("install cert-manager first, or set tls.mode to self"), "{error}");
    Ok(())
}

#[test]
fn a_given_secret_must_be_named() -> Result<()> {
    let error = render(vec!["tls.mode=secret"], "1.37", vec![]).expect_err("no name").to_string();
    ensure!(error.contains("set tls.secretName to the Secret with tls.crt and tls.key"), "{error}");
    let documents =
        render(vec!["tls.mode=secret", "tls.secretName=mine", "tls.caBundle=QQ=="], "1.37", vec![])?;
    ensure!(webhook(&documents)?["clientConfig"]["caBundle"] == "QQ==");
    let deployment = manifests::find(&documents, "Deployment", "ackbeat")?;
    let volume = &deployment["spec"]["template"]["spec"]["volumes"][1]["secret"];
    ensure!(volume["secretName"] == "mine", "{volume}");
    Ok(())
}
