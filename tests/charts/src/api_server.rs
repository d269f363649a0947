//! The reading half of an API server: what Helm asks before it installs anything.
//!
//! `helm install --dry-run=client` asks for the version, the kinds, and whether an object is there already; `lookup` in a template
//! asks for an object. This answers from a list of kinds and the objects that it was given, and keeps every request: a dry
//! run writes nothing.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Group and version, kind, resource, whether it lies in a namespace: everything that the charts render.
const KINDS: [(&str, &str, &str, bool); 15] = [
    ("v1", "ConfigMap", "configmaps", true),
    ("v1", "Namespace", "namespaces", false),
    ("v1", "Pod", "pods", true),
    ("v1", "Secret", "secrets", true),
    ("v1", "Service", "services", true),
    ("v1", "ServiceAccount", "serviceaccounts", true),
    ("apps/v1", "Deployment", "deployments", true),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", true),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        false,
    ),
    ("monitoring.coreos.com/v1", "PodMonitor", "podmonitors", true),
];

/// An API server that can only be asked.
pub struct ApiServer {
    /// A kubeconfig that leads to it.
    pub kubeconfig: PathBuf,
    requests: Arc<Mutex<Vec<String>>>,
    _folder: TempDir,
}

impl ApiServer {
    /// Listens on loopback, until the process ends.
    ///
    /// # Errors
    /// No port, or no folder for the kubeconfig.
    pub fn start(minor: u32) -> Result<Self> {
        Self::with_objects(minor, BTreeMap::new())
    }

    /// The same with objects, by their paths (`/api/v1/namespaces/NAMESPACE/secrets/NAME`).
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn with_objects(minor: u32, objects: BTreeMap<String, Value>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no port on loopback")?;
        let address = listener.local_addr().context("a listener has an address")?;
        let folder = tempfile::tempdir().context("no folder for the kubeconfig")?;
        let kubeconfig = folder.path().join("kubeconfig");
        let content = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test"
        });
        std::fs::write(&kubeconfig, content.to_string()).context("the kubeconfig could not be written")?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let objects = Arc::new(objects);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, objects) = (Arc::clone(&seen), Arc::clone(&objects));
                // A client that goes away is no matter of ours.
                thread::spawn(move || serve(stream, minor, &objects, &seen).ok());
            }
        });
        Ok(Self { kubeconfig, requests, _folder: folder })
    }

    /// `METHOD PATH` of everything that was asked.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(
    stream: TcpStream,
    minor: u32,
    objects: &BTreeMap<String, Value>,
    seen: &Mutex<Vec<String>>,
) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone().context("a second handle")?);
    let mut stream = stream;
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        loop {
            let mut header = String::new();
            // Only requests without a body are answered; others end the connection below.
            if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
                break;
            }
        }
        let mut words = request.split_whitespace();
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let path = target.split('?').next().unwrap_or_default();
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{method} {path}"));
        let answer = match method {
            "GET" => objects.get(path).cloned().or_else(|| answer_to(path, minor)),
            _ => None,
        };
        let (status, body) = answer.map_or_else(
            || ("404 Not Found", json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})),
            |body| ("200 OK", body),
        );
        let body = body.to_string();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        if method != "GET" {
            return Ok(());
        }
    }
}

fn answer_to(path: &str, minor: u32) -> Option<Value> {
    let groups = || {
        let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.0).filter(|name| *name != "v1").collect();
        names.dedup();
        names
    };
    match path {
        "/version" => {
            Some(json!({"major": "1", "minor": minor.to_string(), "gitVersion": format!("v1.{minor}.0")}))
        }
        "/api" => Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/apis" => {
            let groups: Vec<Value> = groups()
                .into_iter()
                .filter_map(|name| {
                    let (group, version) = name.split_once('/')?;
                    let version = json!({"groupVersion": name, "version": version});
                    Some(json!({"name": group, "versions": [version], "preferredVersion": version}))
                })
                .collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        _ => {
            let name = path.strip_prefix("/apis/").or_else(|| path.strip_prefix("/api/"))?;
            let resources: Vec<Value> = KINDS
                .iter()
                .filter(|kind| kind.0 == name)
                .map(|(_, kind, resource, namespaced)| {
                    json!({"name": resource, "singularName": "", "namespaced": namespaced, "kind": kind,
                        "verbs": ["get", "list", "create", "patch"]})
                })
                .collect();
            (!resources.is_empty())
                .then(|| json!({"kind": "APIResourceList", "groupVersion": name, "resources": resources}))
        }
    }
}
