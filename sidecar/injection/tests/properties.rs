//! What holds for every manifest.
#![expect(clippy::expect_used, reason = "a test ends where it cannot go on")]

use ackbeat_injection::{
    Facts, Mode, NativeSidecar, Outcome, Report, ServerVersion, Settings, inject, is_pod_bearing, names,
    uninject,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z$,=%/~]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,6}",
        prop::sample::select(vec![
            "metadata",
            "annotations",
            "labels",
            "spec",
            "template",
            "jobTemplate",
            "containers",
            "initContainers",
            "imagePullSecrets",
            "name",
            "env",
            "ports",
            "ownerReferences",
            "a/b~c",
            names::INJECT,
            names::STATUS,
            names::INJECTED,
            "resource.opentelemetry.io/service.name",
        ])
        .prop_map(str::to_owned),
    ]
}

/// Absent, null, or something.
fn optional(value: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![2 => Just(None), 1 => Just(Some(Value::Null)), 5 => value.prop_map(Some)]
}

fn texts() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "a",
        "app.kubernetes.io/name",
        "resource.opentelemetry.io/service.name",
        "resource.opentelemetry.io/team",
        "linkerd.io/inject",
        names::INJECTED,
        names::INJECT,
        names::PORTS,
        names::MODE,
    ]);
    let text = prop::sample::select(vec!["x", "enabled", "8080", "a,b=$(c)", "auto", ""]);
    prop::collection::btree_map(name, text, 0..3).prop_map(|map| {
        Value::Object(map.into_iter().map(|(key, text)| (key.to_owned(), json!(text))).collect())
    })
}

fn containers(names: &'static [&'static str], at_least: usize) -> impl Strategy<Value = Value> {
    let container = (prop::sample::select(names), any_json(), any::<u16>()).prop_map(
        |(name, unknown, port)| json!({"name": name, "unknown": unknown, "ports": [{"containerPort": port}]}),
    );
    prop::collection::vec(container, at_least..3).prop_map(Value::from)
}

fn object(fields: Vec<(&'static str, Option<Value>)>) -> Value {
    let map: Map<String, Value> =
        fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    Value::Object(map)
}

/// Pods as they come, and some that do not.
fn pod() -> impl Strategy<Value = Value> {
    let metadata = (optional(texts()), optional(texts()), optional(any_json())).prop_map(
        |(annotations, labels, unknown)| {
            object(vec![("annotations", annotations), ("labels", labels), ("unknown", unknown)])
        },
    );
    let secrets = prop::sample::subsequence(vec![json!({"name": "pull"}), json!({"name": "other"})], 0..=2);
    (
        optional(metadata),
        containers(&["app", "web", "istio-proxy"], 1),
        optional(containers(&["init"], 0)),
        optional(secrets.prop_map(Value::from)),
        optional(prop::sample::select(vec!["Always", "Never", "OnFailure"]).prop_map(Value::from)),
        optional(any_json()),
    )
        .prop_map(|(metadata, containers, init_containers, secrets, restart_policy, unknown)| {
            let spec = object(vec![
                ("containers", Some(containers)),
                ("initContainers", init_containers),
                ("imagePullSecrets", secrets),
                ("restartPolicy", restart_policy),
                ("unknown", unknown),
            ]);
            object(vec![("metadata", metadata), ("spec", Some(spec))])
        })
}

fn manifest() -> impl Strategy<Value = Value> {
    (pod(), 0_u8..4).prop_map(|(pod, kind)| match kind {
        0 => {
            let mut manifest = pod;
            manifest["apiVersion"] = json!("v1");
            manifest["kind"] = json!("Pod");
            manifest
        }
        1 => json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}, "spec": {"template": pod}}),
        2 => json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": pod}}}}),
        _ => json!({"apiVersion": "v1", "kind": "PodTemplate", "template": pod}),
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    (any::<bool>(), any::<bool>(), prop::sample::select(vec![Mode::Auto, Mode::SockDiag])).prop_map(
        |(is_native, has_secret, mode)| Settings {
            image: "ackbeat:1".to_owned(),
            mode,
            native_sidecar: if is_native { NativeSidecar::Always } else { NativeSidecar::Never },
            image_pull_secrets: if has_secret { vec!["pull".to_owned()] } else { Vec::new() },
            ..Settings::default()
        },
    )
}

fn facts() -> Facts {
    Facts { server: ServerVersion::from_text("1.30"), is_wanted: true, ..Facts::default() }
}

fn applied(manifest: &Value, report: &Report) -> Value {
    let mut after = manifest.clone();
    if let Some(patch) = report.outcome.patch() {
        json_patch::patch(&mut after, patch).expect("our own patch applies");
    }
    after
}

/// Every value of `before` is in `after`, at the same place; but for lists, which may be longer.
fn is_kept(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before.iter().all(|(key, value)| {
            key == names::INJECTED || after.get(key).is_some_and(|there| is_kept(value, there))
        }),
        (Value::Array(before), Value::Array(after)) => {
            before.len() <= after.len()
                && before.iter().zip(after).all(|(before, after)| is_kept(before, after))
        }
        // A place that was null may have been made.
        (Value::Null, _) => true,
        (before, after) => before == after,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn twice_is_once_and_back_is_as_before(manifest in manifest(), settings in settings()) {
        let first = inject(&manifest, &facts(), &settings).expect("it holds a pod");
        let injected = applied(&manifest, &first);
        if matches!(first.outcome, Outcome::Injected { .. }) {
            prop_assert!(is_kept(&manifest, &injected));
            let second = inject(&injected, &facts(), &settings).expect("it holds a pod");
            prop_assert_eq!(&second.outcome, &Outcome::Unchanged);
            let back = uninject(&injected).expect("it holds a pod");
            prop_assert!(matches!(back.outcome, Outcome::Removed { .. }), "{:?}", back.outcome);
            prop_assert_eq!(&applied(&injected, &back), &manifest);
        } else {
            prop_assert_eq!(&injected, &manifest);
        }
    }

    #[test]
    fn an_update_is_what_a_first_injection_would_be(manifest in manifest(), old in settings(), new in settings()) {
        let first = inject(&manifest, &facts(), &old).expect("it holds a pod");
        let wanted = inject(&manifest, &facts(), &new).expect("it holds a pod");
        let both = matches!(first.outcome, Outcome::Injected { .. }) && matches!(wanted.outcome, Outcome::Injected { .. });
        prop_assume!(both);
        let old = applied(&manifest, &first);
        let updated = applied(&old, &inject(&old, &facts(), &new).expect("it holds a pod"));
        let back = applied(&updated, &uninject(&updated).expect("it holds a pod"));
        prop_assert_eq!(&back, &manifest);
    }

    #[test]
    fn nothing_panics(mut manifest in any_json(), kind in prop::sample::select(vec!["Pod", "Deployment", "CronJob", "PodTemplate"])) {
        if let Some(map) = manifest.as_object_mut() {
            let group = match kind { "Deployment" => "apps/v1", "CronJob" => "batch/v1", _ => "v1" };
            map.insert("kind".to_owned(), json!(kind));
            map.insert("apiVersion".to_owned(), json!(group));
        }
        let settings = Settings { image: "ackbeat:1".to_owned(), ..Settings::default() };
        let report = inject(&manifest, &facts(), &settings);
        prop_assert_eq!(report.is_some(), is_pod_bearing(&manifest));
        if let Some(report) = report {
            let injected = applied(&manifest, &report);
            let _ = uninject(&injected);
        }
        let _ = uninject(&manifest);
    }
}
