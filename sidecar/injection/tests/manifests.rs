//! Texts: what comes out of a folder of manifests, and that the way back ends where it began.

#![expect(clippy::expect_used, reason = "a test ends where it cannot go on")]

use std::fs;
use std::path::PathBuf;

use ackbeat_injection::manifest::{Format, ManifestError, Transformed, Verb, transform};
use ackbeat_injection::{Facts, Outcome, ServerVersion, Settings};
use proptest::prelude::*;

fn settings() -> Settings {
    Settings { image: "registry.example/ackbeat:1".to_owned(), ..Settings::default() }
}

fn facts() -> Facts {
    Facts { server: ServerVersion::from_text("1.30"), is_wanted: true, ..Facts::default() }
}

fn injected(text: &str, format: Format) -> Transformed {
    let (facts, settings) = (facts(), settings());
    transform(text, Verb::Inject { facts: &facts, settings: &settings }, format).expect("it is YAML")
}

fn uninjected(text: &str) -> Transformed {
    transform(text, Verb::Uninject, Format::Yaml).expect("it is YAML")
}

fn manifests() -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/manifests");
    let mut manifests: Vec<(String, String)> = fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(path).expect("a text"))
        })
        .collect();
    manifests.sort();
    manifests
}

fn told(transformed: &Transformed) -> String {
    transformed
        .objects
        .iter()
        .map(|object| {
            let rewritten = if object.is_rewritten { " (rewritten)" } else { "" };
            format!(
                "line {} {} {}: {}{rewritten}\n",
                object.line,
                object.kind,
                object.name,
                object.report.outcome.word()
            )
        })
        .collect()
}

#[test]
fn a_folder_of_manifests() {
    let all = manifests();
    assert!(all.len() >= 7, "the folder is there");
    for (name, text) in all {
        let after = injected(&text, Format::Yaml);
        insta::assert_snapshot!(name.replace('.', "_"), format!("{}\n{}", told(&after), after.text));

        let again = injected(&after.text, Format::Yaml);
        assert_eq!(again.text, after.text, "{name}: twice is once");

        let back = uninjected(&after.text);
        if after.objects.iter().any(|object| object.is_rewritten) || name.ends_with(".json") {
            let value = |text: &str| injected(text, Format::Json).text;
            assert_eq!(value(&back.text), value(&text), "{name}: back is as before");
        } else if name == "deployment.yaml" || name == "flow.yaml" {
            // What was left out is written as null, and flow mappings are closed with one space less.
            let squeezed = |text: &str| text.replace("annotations: null", "annotations:");
            assert_eq!(squeezed(&back.text), text, "{name}: back is as before");
        } else {
            assert_eq!(back.text, text, "{name}: back is as before");
        }
    }
}

#[test]
fn json_is_what_kubernetes_would_read() {
    let after =
        injected("kind: ConfigMap\napiVersion: v1\ndata: {b: 0644, a: yes}\n---\n---\na: 1\n", Format::Json);
    assert_eq!(
        after.text,
        "{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n  \"data\": {\n    \"b\": 420,\n    \"a\": true\n  }\n}\n{\n  \"a\": 1\n}\n"
    );
}

#[test]
fn what_is_no_manifest_is_told() {
    let error = |text: &str| {
        let (facts, settings) = (facts(), settings());
        transform(text, Verb::Inject { facts: &facts, settings: &settings }, Format::Yaml)
            .expect_err("refused")
    };
    assert!(matches!(error("a: {{ .Values.a }}\nb: [\n"), ManifestError::Syntax(_)));
    assert_eq!(error("a: 1\nb: {c: 1, c: 2}\n"), ManifestError::DuplicateKey { key: "c".to_owned() });
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    assert!(matches!(error(&bomb), ManifestError::TooLarge { .. }));
}

#[test]
fn texts_without_pods_stay_as_they_are() {
    for text in
        ["", "# nothing\n", "---\n", "a:   1 # x\n...\n---\nb: |\n   c\n\n", "- 1\n- 2\n", "kind: List\n"]
    {
        let after = injected(text, Format::Yaml);
        assert_eq!((after.text.as_str(), after.objects.len()), (text, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Comments, blank lines and fields between the known lines of a pod survive.
    #[test]
    fn comments_survive(comments in prop::collection::vec(prop::sample::select(vec!["", "# one\n", "\n", "      # deep\n\n", "    # dedented\n"]), 12), has_labels in any::<bool>(), has_inits in any::<bool>()) {
        let mut parts = vec!["apiVersion: apps/v1\n", "kind: Deployment\n", "spec:\n", "  template:\n", "    metadata:\n", "      name: x # n\n"];
        if has_labels {
            parts.extend(["      labels:\n", "        a: b\n"]);
        }
        parts.push("    spec:\n");
        if has_inits {
            parts.extend(["      initContainers:\n", "      - name: init\n"]);
        }
        parts.extend(["      containers:\n", "      - name: app\n", "        unknown: 'x'\n"]);
        let text: String = parts.iter().zip(comments.iter().cycle()).map(|(part, comment)| format!("{part}{comment}")).collect();
        let after = injected(&text, Format::Yaml);
        let is_injected = matches!(after.objects[0].report.outcome, Outcome::Injected { .. });
        prop_assert!(is_injected);
        prop_assert!(!after.objects[0].is_rewritten, "{}", text);
        let mut rest = after.text.lines();
        for line in text.lines() {
            prop_assert!(rest.any(|there| there == line), "{:?} is gone or moved: {}", line, after.text);
        }
        prop_assert_eq!(uninjected(&after.text).text, text);
    }

    #[test]
    fn no_text_panics(text in "[a-z:\\-# \n{}\\[\\],&*'\"|>%?!~0-9]{0,80}") {
        let (facts, settings) = (facts(), settings());
        for format in [Format::Yaml, Format::Json] {
            let _ = transform(&text, Verb::Inject { facts: &facts, settings: &settings }, format);
        }
    }
}
