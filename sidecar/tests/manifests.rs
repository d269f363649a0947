//! `ackbeat inject` and `ackbeat uninject` as commands: files, folders, pipes, reports and exit codes.

#![expect(clippy::expect_used, reason = "a test ends where it cannot go on")]

use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: shop # ours\nspec:\n  containers:\n  - name: web\n    image: shop:7\n";

fn ackbeat(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ackbeat"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // It may end before it has read anything.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn a_pipe_there_and_back() {
    let injected = ackbeat(&["inject", "--image", "ackbeat:1", "--server-version", "1.30", "-"], POD);
    let (out, errors) = (text(&injected.stdout), text(&injected.stderr));
    assert_eq!(injected.status.code(), Some(0), "{errors}");
    assert!(
        out.contains("  name: shop # ours\n") && out.contains("  initContainers:\n  - name: ackbeat\n"),
        "{out}"
    );
    assert_eq!(errors, "-:1: Pod shop: injected (native sidecar, mode auto)\n");

    let again = ackbeat(&["inject", "--image", "ackbeat:1", "--server-version", "1.30", "-f", "-"], &out);
    assert_eq!(
        (text(&again.stdout), text(&again.stderr)),
        (out.clone(), "-:1: Pod shop: injected already, unchanged\n".to_owned())
    );

    let back = ackbeat(&["uninject", "-"], &out);
    assert_eq!(text(&back.stdout), POD);
    assert_eq!(text(&back.stderr), "-:1: Pod shop: the sidecar is taken out\n");
}

#[test]
fn a_folder_with_settings_as_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let manifests = path("manifests");
    fs::create_dir(&manifests).expect("a folder");
    fs::write(manifests.join("b.yaml"), POD).expect("a file");
    fs::write(manifests.join("a.yml"), "kind: ConfigMap\napiVersion: v1\ndata: {mode: 0644}\n")
        .expect("a file");
    fs::write(manifests.join("notes.txt"), "no manifest").expect("a file");
    let settings = "image: ackbeat:2\nmode: sock-diag\nsettings:\n  leaks.reap: dry-run\n";
    fs::write(path("injector.yaml"), settings).expect("a file");
    let (config, manifests) = (path("injector.yaml").display().to_string(), manifests.display().to_string());

    let done = ackbeat(&["inject", "-o", "json", "--config", &config, &manifests], "");
    let (out, errors) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(0), "{errors}");
    let documents: Vec<serde_json::Value> =
        serde_json::Deserializer::from_str(&out).into_iter().collect::<Result<_, _>>().expect("JSON");
    assert_eq!(documents[0]["data"]["mode"], 420);
    let container = &documents[1]["spec"]["containers"][1];
    assert_eq!(
        (&container["image"], &container["securityContext"]["runAsUser"]),
        (&"ackbeat:2".into(), &65_532.into())
    );
    assert!(
        container["env"].to_string().contains("\"ACKBEAT_LEAKS_REAP\",\"value\":\"dry-run\""),
        "{container}"
    );
    assert!(errors.contains("Pod shop: injected (ordinary container, mode sock-diag)"), "{errors}");
    assert!(errors.contains("warning: the server's version is not known"), "{errors}");
}

#[test]
fn what_cannot_be_done_has_its_exit_code() {
    let code = |arguments: &[&str], input: &str, message: &str| {
        let done = ackbeat(arguments, input);
        let errors = text(&done.stderr);
        assert!(errors.contains(message), "{message}: {errors}");
        assert_eq!(text(&done.stdout), "", "half a result looks like a whole one");
        done.status.code()
    };
    assert_eq!(code(&["inject", "-"], POD, "image: the sidecar's image is needed"), Some(2));
    assert_eq!(code(&["inject", "--image", "a:1"], "", "required"), Some(2));
    assert_eq!(code(&["inject", "--image", "a:1", "-"], "a: {{ .Values.a }}\nb: [\n", "no YAML"), Some(2));
    assert_eq!(
        code(&["inject", "--image", "a:1", "/nowhere.yaml"], "", "reading /nowhere.yaml failed"),
        Some(1)
    );
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), "image: a:1\nsettings: {leaks.rip: dry-run}\n").expect("a file");
    let config = file.path().display().to_string();
    assert_eq!(
        code(
            &["inject", "--config", &config, "-"],
            POD,
            "settings.leaks.rip: the sidecar has no such setting"
        ),
        Some(2)
    );
    fs::write(file.path(), "image: a:1\nimagePulPolicy: Always\n").expect("a file");
    assert_eq!(code(&["inject", "--config", &config, "-"], POD, "imagePulPolicy"), Some(2));
    assert_eq!(
        code(&["ready", "--api", "http://127.0.0.1:1", "--within", "250ms"], "", "waiting for the sidecar"),
        Some(1)
    );
    assert_eq!(
        code(&["ready", "--api", "http://127.0.0.1:1", "--within", "250ms", "--lenient"], "", ""),
        Some(0)
    );
}
