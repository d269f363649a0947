//! What becomes of the pods that there are.
#![expect(clippy::expect_used, clippy::panic, reason = "a test ends where it cannot go on")]

use std::collections::BTreeMap;

use ackbeat_injection::{
    Facts, Mode, Namespace, NativeSidecar, NotWanted, Otlp, Outcome, Owner, PodSecurity, Report,
    ServerVersion, Settings, Skip, inject, names, uninject,
};
use serde_json::{Value, json};

fn settings() -> Settings {
    Settings {
        image: "registry.example/ackbeat:1".to_owned(),
        otlp: Otlp { endpoint: "http://otel-collector.observability:4317".to_owned(), ..Otlp::default() },
        ..Settings::default()
    }
}

fn server(version: &str) -> Facts {
    Facts { server: ServerVersion::from_text(version), is_wanted: true, ..Facts::default() }
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "shop"},
        "spec": {"template": {
            "metadata": {"labels": {"app": "shop"}},
            "spec": {"containers": [{"name": "web", "image": "shop:7", "ports": [{"containerPort": 8080}]}]},
        }},
    })
}

/// The deployment with one value more.
fn with(pointer: &str, value: Value) -> Value {
    let mut manifest = deployment();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let place = manifest.pointer_mut(parent).expect("it is there");
    place[key] = value;
    manifest
}

fn annotated(name: &str, text: &str) -> Value {
    with("/spec/template/metadata/annotations", json!({name: text}))
}

fn injected(manifest: &Value, facts: &Facts, settings: &Settings) -> (Value, Report) {
    let report = inject(manifest, facts, settings).expect("it holds a pod");
    let mut after = manifest.clone();
    let patch = report.outcome.patch().unwrap_or_else(|| panic!("a patch, not {report:?}"));
    json_patch::patch(&mut after, patch).expect("it applies");
    (after, report)
}

fn skipped(manifest: &Value, facts: &Facts, settings: &Settings) -> Skip {
    match inject(manifest, facts, settings).expect("it holds a pod").outcome {
        Outcome::Skipped(skip) => skip,
        other => panic!("skipped, not {other:?}"),
    }
}

fn container(manifest: &Value, list: &str) -> Value {
    let containers =
        manifest.pointer(&format!("/spec/template/spec/{list}")).and_then(Value::as_array).expect("a list");
    containers.last().expect("a container").clone()
}

fn variable(container: &Value, name: &str) -> Option<String> {
    let variables = container["env"].as_array().expect("variables");
    let variable = variables.iter().find(|variable| variable["name"] == name)?;
    variable["value"].as_str().map(str::to_owned)
}

fn in_namespace(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Facts {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let namespace = Namespace { name: "shop".to_owned(), labels: map(labels), annotations: map(annotations) };
    Facts { namespace: Some(namespace), is_wanted: false, ..server("1.30") }
}

/// The API server gives the token to the containers that are there before it asks the webhook.
#[test]
fn the_sidecar_has_the_token_of_the_service_account_where_the_application_has() {
    let mount = json!({"name": "shop-token-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true});
    let pod = with(
        "/spec/template/spec/containers",
        json!([{"name": "web", "image": "shop:7", "volumeMounts": [{"name": "data", "mountPath": "/data"}, mount]}]),
    );
    let mounts = |manifest: &Value| {
        let (after, _) = injected(manifest, &server("1.20"), &settings());
        let containers = after.pointer("/spec/template/spec/containers").and_then(Value::as_array).cloned();
        let ours = containers.into_iter().flatten().find(|container| container["name"] == "ackbeat");
        ours.expect("injected").get("volumeMounts").cloned()
    };
    assert_eq!(mounts(&pod), Some(json!([mount])));
    assert_eq!(mounts(&deployment()), None);
}

#[test]
fn a_native_sidecar_with_capabilities() {
    let (after, report) = injected(&deployment(), &server("1.29"), &settings());
    insta::assert_yaml_snapshot!("native_ebpf", after);
    insta::assert_json_snapshot!("native_ebpf_patch", report.outcome.patch());
    assert_eq!(report.warnings, Vec::<String>::new());
}

#[test]
fn an_ordinary_container_without_any() {
    let settings = Settings { mode: Mode::SockDiag, otlp: Otlp::default(), metrics_port: 0, ..settings() };
    let (after, report) = injected(&deployment(), &server("1.28"), &settings);
    insta::assert_yaml_snapshot!("ordinary_sock_diag", after);
    assert!(matches!(report.outcome, Outcome::Injected { mode: Mode::SockDiag, is_native: false, .. }));
}

#[test]
fn the_server_decides_which_kind_it_is() {
    let is_native = |facts: &Facts, choice| {
        let settings = Settings { native_sidecar: choice, ..settings() };
        match injected(&deployment(), facts, &settings).1.outcome {
            Outcome::Injected { is_native, .. } => is_native,
            other => panic!("injected, not {other:?}"),
        }
    };
    let unknown = Facts { server: None, ..server("1.29") };
    assert!(is_native(&server("v1.29.3"), NativeSidecar::Auto));
    assert!(!is_native(&server("1.28+"), NativeSidecar::Auto));
    assert!(
        !is_native(&unknown, NativeSidecar::Auto),
        "a native one would stop an old server's pod for ever"
    );
    assert!(is_native(&unknown, NativeSidecar::Always));
    assert!(!is_native(&server("1.37"), NativeSidecar::Never));
    let always = Settings { native_sidecar: NativeSidecar::Always, ..settings() };
    assert!(matches!(skipped(&deployment(), &server("1.20"), &always), Skip::NoNativeSidecars { .. }));
}

#[test]
fn the_pod_is_stronger_than_its_namespace() {
    let asked = in_namespace(&[(names::INJECT, "enabled")], &[]);
    let by_annotation = in_namespace(&[], &[(names::INJECT, "enabled")]);
    let refused = in_namespace(&[(names::INJECT, "disabled")], &[]);
    let both = in_namespace(&[(names::INJECT, "enabled")], &[(names::INJECT, "disabled")]);
    let silent = in_namespace(&[], &[]);
    let outcome = |manifest: &Value, facts: &Facts, settings: &Settings| {
        inject(manifest, facts, settings).expect("it holds a pod").outcome
    };
    let (plain, yes, no) =
        (deployment(), annotated(names::INJECT, "enabled"), annotated(names::INJECT, "disabled"));
    for (manifest, facts) in
        [(&plain, &asked), (&plain, &by_annotation), (&yes, &refused), (&yes, &silent), (&yes, &both)]
    {
        assert!(
            matches!(outcome(manifest, facts, &settings()), Outcome::Injected { .. }),
            "{manifest} {facts:?}"
        );
    }
    for (manifest, facts, why) in [
        (&plain, &silent, NotWanted::NotAsked),
        (&plain, &refused, NotWanted::NamespaceDisabled),
        (&plain, &both, NotWanted::NamespaceDisabled),
        (&no, &asked, NotWanted::Disabled),
        (&no, &server("1.30"), NotWanted::Disabled),
    ] {
        assert_eq!(outcome(manifest, facts, &settings()), Outcome::NotWanted(why));
    }
    let by_default = Settings { inject_by_default: true, ..settings() };
    assert!(matches!(outcome(&plain, &silent, &by_default), Outcome::Injected { .. }));
    let wrong = in_namespace(&[(names::INJECT, "yes")], &[]);
    assert!(matches!(outcome(&plain, &wrong, &settings()), Outcome::Skipped(Skip::BadAnnotation { .. })));
}

#[test]
fn annotations_choose() {
    let mut manifest = deployment();
    manifest["spec"]["template"]["metadata"]["annotations"] = json!({
        names::PORTS: "8080, 9090",
        names::POLICY: "fast",
        names::MODE: "ebpf",
        names::LOG_LEVEL: "debug",
        names::PEERS: "namespace",
        names::OTLP_ENDPOINT: "http://$(NODE_IP):4318",
        names::OTLP_PROTOCOL: "http/protobuf",
        names::CPU_REQUEST: "50m",
        names::CPU_LIMIT: "1",
        names::MEMORY_REQUEST: "32Mi",
        names::MEMORY_LIMIT: "64Mi",
        "ackbeat.dev/colour": "red",
    });
    let (after, report) = injected(&manifest, &server("1.30"), &settings());
    let container = container(&after, "initContainers");
    let value = |name: &str| variable(&container, name).unwrap_or_default();
    assert_eq!(value("ACKBEAT_PORTS"), "8080,9090");
    assert_eq!(value("ACKBEAT_POLICY"), "fast");
    assert_eq!(value("ACKBEAT_MODE"), "ebpf");
    assert_eq!(value("ACKBEAT_LOG_LEVEL"), "debug");
    assert_eq!(value("ACKBEAT_KUBERNETES_PEERS"), "namespace");
    assert_eq!(value("OTEL_EXPORTER_OTLP_ENDPOINT"), "http://$(NODE_IP):4318");
    assert_eq!(value("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf");
    assert_eq!(
        container["resources"],
        json!({"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}})
    );
    let names: Vec<&str> = container["env"]
        .as_array()
        .expect("variables")
        .iter()
        .filter_map(|entry| entry["name"].as_str())
        .collect();
    let at = |name: &str| names.iter().position(|there| *there == name).expect("it is there");
    assert!(at("NODE_IP") < at("OTEL_EXPORTER_OTLP_ENDPOINT"), "a variable names only earlier ones");
    assert_eq!(
        report.warnings,
        vec!["annotation ackbeat.dev/colour is unknown and has no effect".to_owned()]
    );
}

#[test]
fn a_bad_annotation_leaves_the_pod_alone_and_is_named() {
    for (name, text) in [
        (names::INJECT, "true"),
        (names::PORTS, "http"),
        (names::POLICY, "strict"),
        (names::MODE, "bpf"),
        (names::LOG_LEVEL, "verbose"),
        (names::PEERS, "all"),
        (names::OTLP_ENDPOINT, "collector:4317"),
        (names::OTLP_PROTOCOL, "http"),
        (names::CPU_REQUEST, "a lot"),
        (names::MEMORY_REQUEST, "1Gi"),
        (names::STATUS, "{}}"),
    ] {
        match skipped(&annotated(name, text), &server("1.30"), &settings()) {
            Skip::BadAnnotation { name: told, .. } => assert_eq!(told, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn pods_that_cannot_be_served_are_left_alone() {
    let facts = server("1.30");
    let spec = |key: &str, value: Value| with(&format!("/spec/template/spec/{key}"), value);
    let old = server("1.20");
    let reasons = [
        (spec("hostNetwork", json!(true)), &facts),
        (spec("os", json!({"name": "windows"})), &facts),
        (spec("nodeSelector", json!({"kubernetes.io/os": "windows"})), &facts),
        (annotated("kubernetes.io/config.mirror", "x"), &facts),
        (spec("containers", json!([{"name": "web"}, {"name": "ackbeat"}])), &facts),
        (annotated(names::STATUS, "{\"version\":\"0.1.0\"}"), &facts),
        (spec("restartPolicy", json!("Never")), &old),
        (spec("containers", json!("web")), &facts),
        (spec("containers", json!([])), &facts),
        (json!({"apiVersion": "v1", "kind": "Pod"}), &facts),
    ]
    .map(|(manifest, facts)| {
        let skip = skipped(&manifest, facts, &settings());
        format!("{}: {skip}", skip.word())
    });
    insta::assert_yaml_snapshot!("reasons", reasons);
    let allowed = Settings { allow_host_network: true, ..settings() };
    injected(&spec("hostNetwork", json!(true)), &facts, &allowed);
    injected(&spec("restartPolicy", json!("Never")), &facts, &settings());
}

#[test]
fn where_capabilities_are_forbidden_it_goes_without() {
    let baseline =
        in_namespace(&[(names::INJECT, "enabled"), ("pod-security.kubernetes.io/enforce", "baseline")], &[]);
    let (after, report) = injected(&deployment(), &baseline, &settings());
    let security = &container(&after, "initContainers")["securityContext"];
    assert_eq!(security["runAsNonRoot"], true);
    assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
    assert!(report.warnings[0].contains("PodSecurity `baseline`"), "{:?}", report.warnings);
    assert_eq!(
        skipped(&annotated(names::MODE, "ebpf"), &baseline, &settings()),
        Skip::PodSecurity { level: PodSecurity::Baseline }
    );
    let own_users = with("/spec/template/spec/hostUsers", json!(false));
    let (after, _) = injected(&own_users, &server("1.33"), &settings());
    assert_eq!(variable(&container(&after, "initContainers"), "ACKBEAT_MODE").as_deref(), Some("sock-diag"));
    let privileged = in_namespace(
        &[(names::INJECT, "enabled"), ("pod-security.kubernetes.io/enforce", "privileged")],
        &[],
    );
    let strict = Settings { default_pod_security: PodSecurity::Restricted, ..settings() };
    let (after, _) = injected(&deployment(), &privileged, &strict);
    assert_eq!(
        variable(&container(&after, "initContainers"), "ACKBEAT_MODE").as_deref(),
        Some("best-effort")
    );
}

#[test]
fn a_pod_that_runs_as_nobody_keeps_that_for_itself() {
    let manifest =
        with("/spec/template/spec/securityContext", json!({"runAsNonRoot": true, "runAsUser": 1000}));
    let (after, _) = injected(&manifest, &server("1.30"), &settings());
    assert_eq!(
        after.pointer("/spec/template/spec/securityContext"),
        manifest.pointer("/spec/template/spec/securityContext")
    );
    let security = &container(&after, "initContainers")["securityContext"];
    assert_eq!((&security["runAsNonRoot"], &security["runAsUser"]), (&json!(false), &json!(0)));
}

#[test]
fn behind_a_mesh_the_applications_ports_are_watched() {
    let meshed = with(
        "/spec/template/spec/containers",
        json!([
            {"name": "web", "ports": [{"containerPort": 8080}, {"containerPort": 53, "protocol": "UDP"}]},
            {"name": "istio-proxy", "ports": [{"containerPort": 15090}]},
        ]),
    );
    let (after, report) = injected(&meshed, &server("1.30"), &settings());
    let container = container(&after, "initContainers");
    assert_eq!(variable(&container, "ACKBEAT_PORTS").as_deref(), Some("8080"));
    assert_eq!(variable(&container, "ACKBEAT_PEER_IS_PROXY").as_deref(), Some("yes"));
    assert!(report.warnings[0].starts_with("Istio: "), "{:?}", report.warnings);
    let linkerd = inject(&annotated("linkerd.io/inject", "enabled"), &server("1.30"), &settings());
    assert!(linkerd.expect("a pod").warnings[0].starts_with("Linkerd: "));
}

#[test]
fn a_port_of_the_application_is_never_taken() {
    let ports = json!([{"containerPort": 9465}, {"containerPort": 9466}]);
    let manifest = with("/spec/template/spec/containers", json!([{"name": "web", "ports": ports}]));
    let (after, report) = injected(&manifest, &server("1.30"), &settings());
    let container = container(&after, "initContainers");
    assert_eq!(variable(&container, "ACKBEAT_METRICS_LISTEN").as_deref(), Some("off"));
    assert_eq!(variable(&container, "ACKBEAT_API_LISTEN").as_deref(), Some("off"));
    assert_eq!((container.get("ports"), container.get("startupProbe")), (None, None));
    assert_eq!(report.warnings.len(), 2);
}

#[test]
fn the_service_has_the_applications_own_name() {
    let name = |manifest: &Value, facts: &Facts| {
        let (after, _) = injected(manifest, facts, &settings());
        let list = if after["kind"] == "Pod" { &after } else { &after["spec"]["template"] };
        let container =
            list["spec"]["initContainers"].as_array().and_then(|list| list.last()).expect("ours").clone();
        let value = |name: &str| variable(&container, name).expect("it is there");
        (value("OTEL_SERVICE_NAME"), value("OTEL_RESOURCE_ATTRIBUTES"))
    };
    let facts = server("1.30");
    let mut manifest = deployment();
    let (service, attributes) = name(&manifest, &facts);
    assert_eq!(service, "shop");
    assert!(attributes.contains("k8s.deployment.name=shop"), "{attributes}");
    assert!(attributes.contains("k8s.container.name=web"), "{attributes}");

    manifest["spec"]["template"]["metadata"]["labels"] = json!({"app.kubernetes.io/name": "n"});
    assert_eq!(name(&manifest, &facts).0, "n");
    manifest["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/instance"] = json!("i");
    assert_eq!(name(&manifest, &facts).0, "i");
    manifest["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "OTEL_SERVICE_NAME", "value": "its-own"}]);
    assert_eq!(name(&manifest, &facts).0, "its-own");
    manifest["spec"]["template"]["metadata"]["annotations"] = json!({
        "resource.opentelemetry.io/service.name": "a$b",
        "resource.opentelemetry.io/team": "x,y",
        "resource.opentelemetry.io/k8s.container.name": "told",
    });
    let (service, attributes) = name(&manifest, &facts);
    assert_eq!(service, "a$$b", "a dollar sign is no variable");
    assert!(attributes.contains("team=x%2Cy"), "{attributes}");
    assert!(attributes.contains("k8s.container.name=told"), "{attributes}");

    // A pod of that Deployment, as the webhook sees it, is named the same.
    let owner = json!([{"kind": "ReplicaSet", "name": "shop-6d5f", "controller": true}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "shop-6d5f-", "labels": {"pod-template-hash": "6d5f"}, "ownerReferences": owner},
        "spec": {"containers": [{"name": "web"}]},
    });
    let (service, attributes) = name(&pod, &facts);
    assert_eq!(service, "shop");
    assert!(
        attributes.contains("k8s.deployment.name=shop") && !attributes.contains("replicaset"),
        "{attributes}"
    );

    let owner = json!([{"kind": "Job", "name": "nightly-28471230", "controller": true}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"ownerReferences": owner}, "spec": {"containers": [{"name": "web"}]},
    });
    assert_eq!(name(&pod, &facts).0, "nightly-28471230");
    let cron_job = Owner { kind: "CronJob".to_owned(), name: "nightly".to_owned() };
    let known = Facts { further_owners: vec![cron_job], ..facts.clone() };
    assert_eq!(name(&pod, &known).0, "nightly");
    let bare = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "web"}]}});
    assert_eq!(name(&bare, &facts).0, "$(OTEL_RESOURCE_ATTRIBUTES_POD_NAME)");
}

#[test]
fn an_old_sidecar_is_brought_up_to_date_in_its_place() {
    let (mut first, _) = injected(&deployment(), &server("1.28"), &settings());
    let containers =
        first.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut).expect("a list");
    containers.push(json!({"name": "late"}));
    let newer = Settings { image: "registry.example/ackbeat:2".to_owned(), ..settings() };
    let (second, report) = injected(&first, &server("1.28"), &newer);
    assert!(matches!(report.outcome, Outcome::Updated { .. }));
    let names: Vec<&str> = second
        .pointer("/spec/template/spec/containers")
        .and_then(Value::as_array)
        .expect("a list")
        .iter()
        .filter_map(|container| container["name"].as_str())
        .collect();
    assert_eq!(names, ["web", "ackbeat", "late"]);
    // The server learned native sidecars meanwhile.
    let (third, _) = injected(&second, &server("1.29"), &newer);
    assert_eq!(container(&third, "initContainers")["image"], "registry.example/ackbeat:2");
    let back = uninject(&third).expect("it holds a pod");
    let mut plain = third;
    json_patch::patch(&mut plain, back.outcome.patch().expect("a patch")).expect("it applies");
    let mut expected = deployment();
    expected["spec"]["template"]["spec"]["containers"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"name": "late"}));
    assert_eq!(plain, expected);
}

#[test]
fn the_operators_settings_reach_the_container() {
    let settings = Settings {
        settings: BTreeMap::from([
            ("leaks.reap".to_owned(), json!("dry-run")),
            ("close.final_codes".to_owned(), json!([4001, 4002])),
            ("probe.window".to_owned(), json!(true)),
        ]),
        env: vec![
            json!({"name": "OTEL_SERVICE_NAME", "value": "all"}),
            json!({"name": "RUST_LOG", "value": "info"}),
        ],
        extra_capabilities: vec!["SYS_ADMIN".to_owned()],
        cluster_name: "prod".to_owned(),
        ports: vec![80],
        ..settings()
    };
    assert_eq!(settings.check(), Ok(()));
    let (after, _) = injected(&deployment(), &server("1.30"), &settings);
    let container = container(&after, "initContainers");
    let value = |name: &str| variable(&container, name).unwrap_or_default();
    assert_eq!(value("ACKBEAT_LEAKS_REAP"), "dry-run");
    assert_eq!(value("ACKBEAT_CLOSE_FINAL_CODES"), "4001,4002");
    assert_eq!(value("ACKBEAT_PROBE_WINDOW"), "true");
    assert_eq!(value("ACKBEAT_PORTS"), "80");
    assert_eq!(value("OTEL_SERVICE_NAME"), "all");
    assert!(value("OTEL_RESOURCE_ATTRIBUTES").contains("k8s.cluster.name=prod"));
    assert_eq!(
        container["securityContext"].get("allowPrivilegeEscalation"),
        None,
        "Kubernetes refuses both together"
    );
}

#[test]
fn annotations_at_the_wrong_place_are_told() {
    let mut manifest = deployment();
    manifest["metadata"]["annotations"] = json!({names::PORTS: "8080"});
    let (_, report) = injected(&manifest, &server("1.30"), &settings());
    assert_eq!(
        report.warnings,
        vec!["annotation ackbeat.dev/ports has no effect here; its place is spec.template.metadata.annotations".to_owned()]
    );
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let bad = |change: &dyn Fn(&mut Settings)| {
        let mut changed = settings();
        change(&mut changed);
        changed.check().expect_err("refused").key
    };
    assert_eq!(Settings::default().check().expect_err("no image").key, "image");
    assert_eq!(bad(&|settings| settings.otlp.endpoint = "collector".to_owned()), "otlp.endpoint");
    assert_eq!(bad(&|settings| settings.ports = vec![0]), "ports");
    assert_eq!(bad(&|settings| settings.extra_capabilities = vec!["ALL".to_owned()]), "extraCapabilities");
    assert_eq!(bad(&|settings| settings.seccomp_profile.kind = "Localhost".to_owned()), "seccompProfile");
    assert_eq!(bad(&|settings| settings.env = vec![json!({"value": "x"})]), "env[0]");
    assert_eq!(
        bad(&|settings| {
            settings.resources.requests.insert("memory".to_owned(), "1Gi".to_owned());
        }),
        "resources"
    );
}
