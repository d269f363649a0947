//! `kubectl` and `helm`, as people call them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::journal::wait_every;
use crate::namespace::Namespace;

/// Between two questions to the API server.
pub(crate) const PAUSE: Duration = Duration::from_millis(300);

/// Both programs, with one user's credentials for one API server.
pub struct Kubectl<'a> {
    namespace: &'a Namespace,
    programs: PathBuf,
    configuration: PathBuf,
    home: PathBuf,
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub struct Said {
    /// Whether it ended with code 0.
    pub is_ok: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl<'a> Kubectl<'a> {
    /// `programs` is a folder with `kubectl` and `helm`; `configuration` a kubeconfig; `home` a folder for what they remember.
    #[must_use]
    pub fn new(namespace: &'a Namespace, programs: &Path, configuration: &Path, home: &Path) -> Self {
        Self {
            namespace,
            programs: programs.to_owned(),
            configuration: configuration.to_owned(),
            home: home.to_owned(),
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.env("KUBECONFIG", &self.configuration).env("HOME", &self.home);
        command
    }

    /// Runs `program` with `input` as its standard input, however it ends.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn try_with(&self, program: &str, arguments: &[&str], input: &str) -> Result<Said> {
        let mut command = self.command(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output: std::io::Result<Output> = self.namespace.run(move || {
            let mut child = command.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                // Who does not read all of it says why on standard error.
                let _ = stdin.write_all(input.as_bytes());
            }
            child.wait_with_output()
        })?;
        let output = output.with_context(|| format!("starting {program} failed"))?;
        Ok(Said {
            is_ok: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    fn all(&self, program: &str, arguments: &[&str], input: &str) -> Result<String> {
        let said = self.try_with(program, arguments, input)?;
        ensure!(said.is_ok, "`{program} {}` failed: {}{}", arguments.join(" "), said.stderr, said.stdout);
        Ok(said.stdout)
    }

    /// `kubectl` with these arguments; its standard output.
    ///
    /// # Errors
    /// It failed; the message has what it said.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        self.all("kubectl", arguments, "")
    }

    /// `helm` with these arguments; its standard output.
    ///
    /// # Errors
    /// It failed; the message has what it said.
    pub fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.all("helm", arguments, "")
    }

    /// `kubectl … --output=json`, read.
    ///
    /// # Errors
    /// It failed, or what it printed is no JSON.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let mut all = arguments.to_vec();
        all.push("--output=json");
        let text = self.run(&all)?;
        serde_json::from_str(&text).with_context(|| format!("`kubectl {}` printed no JSON", all.join(" ")))
    }

    /// `kubectl apply --filename=-` with this manifest; what it printed.
    ///
    /// # Errors
    /// It failed; the message has what it said.
    pub fn apply(&self, manifest: &str) -> Result<String> {
        self.all("kubectl", &["apply", "--filename=-"], manifest)
    }

    /// `kubectl replace` with this object as it was read: whoever changed it meanwhile loses.
    ///
    /// # Errors
    /// It failed; the message has what it said.
    pub fn replace(&self, object: &Value) -> Result<()> {
        let mut object = object.clone();
        if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        self.all("kubectl", &["replace", "--filename=-"], &object.to_string()).map(drop)
    }

    /// Waits until a Deployment has all its pods ready.
    ///
    /// # Errors
    /// It has not within `deadline`; the message has its pods and their events.
    pub fn wait_for_rollout(&self, namespace: &str, name: &str, deadline: Duration) -> Result<()> {
        let timeout = format!("--timeout={}s", deadline.as_secs());
        let target = format!("deployment/{name}");
        let said = self.try_with(
            "kubectl",
            &["rollout", "status", "--namespace", namespace, &target, &timeout],
            "",
        )?;
        if !said.is_ok {
            let about = self.run(&["describe", "pods", "--namespace", namespace]).unwrap_or_default();
            bail!("{target} in {namespace} is not ready: {}{}\n{about}", said.stdout, said.stderr);
        }
        Ok(())
    }

    /// Names of the pods that have these labels and are not being deleted.
    ///
    /// # Errors
    /// `kubectl` failed.
    pub fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<String>> {
        let list = self.json(&["get", "pods", "--namespace", namespace, "--selector", selector])?;
        let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(items
            .iter()
            .filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none())
            .filter_map(|pod| pod.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned))
            .collect())
    }

    /// Waits until the log of a container has a line with `needle`, and gives that line.
    ///
    /// # Errors
    /// None came within `deadline`; the message has the log.
    pub fn wait_for_log(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        needle: &str,
        deadline: Duration,
    ) -> Result<String> {
        let mut found = None;
        let mut log = String::new();
        wait_every(PAUSE, &format!("{needle:?} in the log of {pod}/{container}"), deadline, || {
            // Until the container starts there is none.
            let said = self.try_with(
                "kubectl",
                &["logs", "--namespace", namespace, pod, "--container", container],
                "",
            )?;
            log = if said.is_ok { said.stdout } else { said.stderr };
            found = log.lines().find(|line| said.is_ok && line.contains(needle)).map(str::to_owned);
            Ok(found.is_some())
        })
        .with_context(|| format!("the log is:\n{log}"))?;
        found.context("the line was found and lost")
    }

    /// Events about one object, as `(reason, type, note)`. Both generations of the API are read through `v1`.
    ///
    /// # Errors
    /// `kubectl` failed.
    pub fn events(&self, namespace: &str, kind: &str, name: &str) -> Result<Vec<(String, String, String)>> {
        let selector = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let list = self.json(&["get", "events", "--namespace", namespace, "--field-selector", &selector])?;
        let text =
            |event: &Value, key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(items
            .iter()
            .map(|event| (text(event, "reason"), text(event, "type"), text(event, "message")))
            .collect())
    }

    /// The address of one pod, once it has one.
    ///
    /// # Errors
    /// It has none within `deadline`.
    pub fn pod_address(&self, namespace: &str, pod: &str, deadline: Duration) -> Result<String> {
        let mut address = None;
        wait_every(PAUSE, &format!("an address of the pod {pod}"), deadline, || {
            let object = self.json(&["get", "pod", "--namespace", namespace, pod])?;
            address = object.pointer("/status/podIP").and_then(Value::as_str).map(str::to_owned);
            Ok(address.is_some())
        })?;
        address.context("the address was found and lost")
    }
}
