//! The node: its daemons in the order in which they need each other, and their end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};

use super::kubectl::{Kubectl, PAUSE};
use super::remains;
use crate::journal::wait_every;
use crate::namespace::Namespace;
use crate::process::{Process, run};
use crate::tools;

/// Where the API server and whatever runs beside it on the node are reached, by pods too.
pub const NODE_ADDRESS: &str = "10.88.0.1";
const NODE_NAME: &str = "node-1";
const NODE_INTERFACE: &str = "node0";
const POD_SUBNET: &str = "10.89.0.0/24";
const SERVICE_SUBNET: &str = "10.96.0.0/16";
const API_PORT: u16 = 16_443;
/// Authorities, data, sockets. Short: a Unix socket's path has 107 bytes at most.
const STATE: &str = "/var/tmp/ackbeat-node";
/// A daemon that was started answers within this time, on a busy machine too.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// Everybody's password to the API server of this namespace.
const ADMINISTRATOR: &str = "admintoken";

/// How much of a node is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePart {
    /// etcd, the API server and the controllers: no pod ever runs.
    ControlPlane,
    /// All of it.
    Whole,
}

/// A running node. Dropping it ends everything that belongs to it.
pub struct Node {
    // In the order in which they end: whoever depends on others first.
    daemons: Vec<Process>,
    namespace: Namespace,
    folder: PathBuf,
    binaries: PathBuf,
    programs: PathBuf,
    api_server: Option<Process>,
    _lock: Flock<File>,
}

impl Node {
    /// Starts it.
    ///
    /// # Errors
    /// A program is missing, or does not begin to work in time; the message has what it said last.
    pub fn start(part: NodePart) -> Result<Self> {
        let folder = PathBuf::from(STATE);
        let lock = File::create(folder.with_extension("lock")).context("making the lock file failed")?;
        let lock = match Flock::lock(lock, FlockArg::LockExclusive) {
            Ok(lock) => lock,
            Err((_, error)) => bail!("waiting for another node of the tests to end failed: {error}"),
        };
        remains::remove(&folder);
        fs::create_dir_all(folder.join("certs")).context("making the node's folder failed")?;
        let binaries = tools::kubernetes()?;
        let programs = tools::helm_folder("v4")?;
        let namespace = Namespace::create("node")?;
        let mut node = Self {
            daemons: Vec::new(),
            namespace,
            folder,
            binaries,
            programs,
            api_server: None,
            _lock: lock,
        };
        node.network()?;
        node.keys()?;
        node.control_plane()?;
        if part == NodePart::Whole {
            node.pods()?;
        }
        Ok(node)
    }

    /// The network namespace of the node: where its address is, and whose routes lead to the pods.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A folder that goes with the node.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// `kubectl` and Helm 4 with all rights.
    #[must_use]
    pub fn kubectl(&self) -> Kubectl<'_> {
        Kubectl::new(&self.namespace, &self.programs, &self.folder.join("kubeconfig"), &self.folder)
    }

    /// The same with Helm 3 and a kubectl of its age.
    ///
    /// # Errors
    /// They are not among the test tools.
    pub fn kubectl_of_helm_3(&self) -> Result<Kubectl<'_>> {
        let programs = tools::helm_folder("v3")?;
        Ok(Kubectl::new(&self.namespace, &programs, &self.folder.join("kubeconfig"), &self.folder))
    }

    /// A kubeconfig for the bearer of `token`, in the node's folder.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn configuration_for(&self, name: &str, token: &str) -> Result<PathBuf> {
        let path = self.folder.join(format!("kubeconfig-{name}"));
        fs::write(&path, configuration(token)).context("writing a kubeconfig failed")?;
        Ok(path)
    }

    fn network(&self) -> Result<()> {
        let namespace = Some(&self.namespace);
        for arguments in [
            vec!["link", "add", NODE_INTERFACE, "type", "bridge"],
            vec!["addr", "add", "10.88.0.1/24", "dev", NODE_INTERFACE],
            vec!["link", "set", NODE_INTERFACE, "up"],
            // The daemons look for the address of the default route; nothing leaves this namespace.
            vec!["route", "add", "default", "dev", NODE_INTERFACE],
        ] {
            run(namespace, "ip", &arguments)?;
        }
        self.namespace.set_sysctl("ipv4/ip_forward", "1")?;
        Ok(())
    }

    fn keys(&self) -> Result<()> {
        let path = |name: &str| self.path(name);
        run(None, "openssl", &["genrsa", "-out", &path("sa.key"), "2048"])?;
        run(None, "openssl", &["rsa", "-in", &path("sa.key"), "-pubout", "-out", &path("sa.pub")])?;
        let users = format!("{ADMINISTRATOR},admin,admin,system:masters\n");
        fs::write(self.folder.join("tokens.csv"), users).context("writing the users failed")?;
        fs::write(self.folder.join("kubeconfig"), configuration(ADMINISTRATOR))
            .context("writing the kubeconfig failed")
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    fn spawn(&self, label: &str, command: Command) -> Result<Process> {
        Process::spawn(label, Some(&self.namespace), command)
    }

    fn daemon(&mut self, label: &str, command: Command) -> Result<()> {
        let process = self.spawn(label, command)?;
        self.daemons.insert(0, process);
        Ok(())
    }

    /// Waits until `is_up`, or until a daemon has ended.
    fn wait(&mut self, what: &str, mut is_up: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        let waited = wait_every(PAUSE, what, START_DEADLINE, || {
            for process in self.daemons.iter_mut().chain(&mut self.api_server) {
                if let Some(status) = process.try_wait()? {
                    bail!("a daemon ended with {status}: {}", process.last_words());
                }
            }
            is_up(self)
        });
        waited.with_context(|| {
            let words: Vec<String> =
                self.daemons.iter().chain(&self.api_server).map(Process::last_words).collect();
            words.join("\n")
        })
    }

    fn control_plane(&mut self) -> Result<()> {
        let mut etcd = Command::new("etcd");
        etcd.args(["--data-dir", &self.path("etcd"), "--unsafe-no-fsync"]);
        etcd.args(["--listen-client-urls", "http://127.0.0.1:12379"]);
        etcd.args(["--advertise-client-urls", "http://127.0.0.1:12379"]);
        etcd.args(["--listen-peer-urls", "http://127.0.0.1:12380"]);
        etcd.args(["--initial-advertise-peer-urls", "http://127.0.0.1:12380"]);
        etcd.args(["--initial-cluster", "default=http://127.0.0.1:12380"]);
        self.daemon("etcd", etcd)?;
        self.start_api_server()?;
        let mut controllers = Command::new(self.binaries.join("kube-controller-manager"));
        controllers.args(["--kubeconfig", &self.path("kubeconfig"), "--leader-elect=false"]);
        controllers.args(["--service-account-private-key-file", &self.path("sa.key")]);
        controllers.args([
            "--root-ca-file",
            &self.path("certs/apiserver.crt"),
            "--port=0",
            "--secure-port=0",
        ]);
        self.daemon("kube-controller-manager", controllers)?;
        // Pods are refused until it has made this.
        self.wait("the ServiceAccount default", |node| {
            let arguments = ["get", "serviceaccount", "default", "--namespace=default", "--output=json"];
            let said = node.kubectl().try_with("kubectl", &arguments, "")?;
            Ok(said.is_ok && said.stdout.contains("\"secrets\""))
        })
    }

    /// Starts the API server, again after [`Node::kill_api_server`].
    ///
    /// # Errors
    /// It does not answer in time.
    pub fn start_api_server(&mut self) -> Result<()> {
        let mut server = Command::new(self.binaries.join("kube-apiserver"));
        server.args(["--etcd-servers=http://127.0.0.1:12379", "--insecure-port=0"]);
        server.arg(format!("--bind-address={NODE_ADDRESS}")).arg(format!("--secure-port={API_PORT}"));
        server.arg(format!("--advertise-address={NODE_ADDRESS}"));
        server.args(["--cert-dir", &self.path("certs")]);
        server.arg(format!("--service-cluster-ip-range={SERVICE_SUBNET}"));
        server.args(["--service-account-key-file", &self.path("sa.pub")]);
        server.args(["--service-account-signing-key-file", &self.path("sa.key")]);
        server.arg("--service-account-issuer=https://kubernetes.default.svc");
        server.args(["--token-auth-file", &self.path("tokens.csv")]);
        server.args(["--authorization-mode=RBAC", "--allow-privileged=true"]);
        // It calls a webhook's Service by the address of a pod: it does not see what kube-proxy does.
        server.args(["--enable-aggregator-routing=true", "--kubelet-preferred-address-types=InternalIP"]);
        self.api_server = Some(self.spawn("kube-apiserver", server)?);
        self.wait("the API server", |node| {
            Ok(node.kubectl().try_with("kubectl", &["get", "--raw", "/readyz"], "")?.is_ok)
        })
    }

    /// Ends the API server without a farewell: told to end, it would wait a minute for those who watch.
    pub fn kill_api_server(&mut self) {
        self.api_server = None;
    }

    fn pods(&mut self) -> Result<()> {
        let kubeconfig = self.path("kubeconfig");
        let mut scheduler = Command::new(self.binaries.join("kube-scheduler"));
        scheduler.args(["--kubeconfig", &kubeconfig, "--leader-elect=false", "--port=0", "--secure-port=0"]);
        self.daemon("kube-scheduler", scheduler)?;
        let mut proxy = Command::new(self.binaries.join("kube-proxy"));
        proxy.args(["--kubeconfig", &kubeconfig, "--proxy-mode=iptables", "--conntrack-max-per-core=0"]);
        proxy.arg(format!("--cluster-cidr={POD_SUBNET}")).arg(format!("--hostname-override={NODE_NAME}"));
        proxy.args(["--healthz-bind-address=127.0.0.1:11256", "--metrics-bind-address=127.0.0.1:11249"]);
        self.daemon("kube-proxy", proxy)?;
        self.containers()?;
        self.import(&tools::image("pause")?)?;
        self.kubelet()
    }

    fn containers(&mut self) -> Result<()> {
        fs::create_dir_all(self.folder.join("cni"))
            .context("making the folder of the network plugin failed")?;
        // Each pod has a link of its own to the node, which routes: on a bridge the answers of a Service's pod would pass by
        // the rules that gave it the connection.
        fs::write(self.folder.join("cni/10-pods.conflist"), POD_NETWORK)
            .context("writing the network's configuration failed")?;
        let folder = self.folder.display();
        // Without CAP_SYS_RESOURCE a score below the own one is refused, and every sandbox fails with "can't get final child's
        // PID from pipe".
        let configuration = format!(
            r#"version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"#
        );
        fs::write(self.folder.join("containerd.toml"), configuration)
            .context("writing containerd's configuration failed")?;
        let mut containerd = Command::new("containerd");
        containerd.args(["--config", &self.path("containerd.toml")]);
        self.daemon("containerd", containerd)?;
        self.wait("containerd", |node| Ok(node.containerd(&["version"]).is_ok()))
    }

    fn containerd(&self, arguments: &[&str]) -> Result<String> {
        let socket = self.path("containerd.sock");
        let mut all = vec!["--address", &socket, "--namespace", "k8s.io"];
        all.extend(arguments);
        Ok(run(None, "ctr", &all)?)
    }

    /// Gives the node an image from an OCI archive, as a registry would.
    ///
    /// # Errors
    /// containerd does not take it.
    pub fn import(&self, archive: &Path) -> Result<()> {
        let archive = archive.to_str().context("the archive's path is no text")?;
        self.containerd(&["images", "import", archive]).map(drop)
    }

    fn kubelet(&mut self) -> Result<()> {
        let dns = NODE_ADDRESS;
        let configuration = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {NODE_ADDRESS}
port: 11250
healthzPort: 0
readOnlyPort: 0
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
clusterDNS: [{dns}]
clusterDomain: cluster.local
evictionHard: {{memory.available: 1Mi, nodefs.available: 0%, imagefs.available: 0%}}
"
        );
        fs::write(self.folder.join("kubelet.yaml"), configuration)
            .context("writing the kubelet's configuration failed")?;
        let mut kubelet = Command::new(self.binaries.join("kubelet"));
        kubelet.args(["--config", &self.path("kubelet.yaml"), "--kubeconfig", &self.path("kubeconfig")]);
        kubelet.args(["--container-runtime=remote", "--container-runtime-endpoint"]);
        kubelet.arg(format!("unix://{}", self.path("containerd.sock")));
        kubelet.args(["--root-dir", &self.path("kubelet"), "--cert-dir", &self.path("kubelet-certs")]);
        kubelet.arg(format!("--hostname-override={NODE_NAME}")).arg(format!("--node-ip={NODE_ADDRESS}"));
        kubelet.arg("--pod-infra-container-image=localhost/pause:1");
        self.daemon("kubelet", kubelet)?;
        self.wait("a node that is ready", |node| {
            let arguments = ["get", "node", NODE_NAME, "--output=json"];
            let said = node.kubectl().try_with("kubectl", &arguments, "")?;
            Ok(said.is_ok && said.stdout.contains("\"KubeletReady\""))
        })
    }

    /// Answers pods that ask for these names: `(name, address)`. There is no DNS of the cluster.
    ///
    /// # Errors
    /// dnsmasq is missing.
    pub fn resolve(&mut self, names: &[(String, String)]) -> Result<()> {
        let mut server = Command::new("dnsmasq");
        server.args([
            "--no-daemon",
            "--no-hosts",
            "--no-resolv",
            "--bind-interfaces",
            "--conf-file=/dev/null",
        ]);
        server.arg(format!("--listen-address={NODE_ADDRESS}")).arg("--pid-file=").arg("--user=root");
        for (name, address) in names {
            server.arg(format!("--host-record={name},{address}"));
        }
        self.daemon("dnsmasq", server)
    }

    /// The process ids of a running container on this machine, its first process first.
    ///
    /// # Errors
    /// The pod or the container is not there, or does not run.
    pub fn pids(&self, namespace: &str, pod: &str, container: &str) -> Result<Vec<u32>> {
        let object = self.kubectl().json(&["get", "pod", "--namespace", namespace, pod])?;
        let statuses = object.pointer("/status/containerStatuses").and_then(serde_json::Value::as_array);
        let id = statuses
            .into_iter()
            .flatten()
            .find(|status| status.get("name").and_then(serde_json::Value::as_str) == Some(container))
            .and_then(|status| status.get("containerID")?.as_str()?.strip_prefix("containerd://"))
            .with_context(|| format!("the container {container} of {pod} does not run"))?;
        let table = self.containerd(&["tasks", "ps", id])?;
        let pids: Vec<u32> =
            table.lines().skip(1).filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
        ensure!(!pids.is_empty(), "the container {container} of {pod} has no process: {table}");
        Ok(pids)
    }
}

const POD_NETWORK: &str = r#"{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": "/var/tmp/ackbeat-node/addresses",
           "ranges": [[{"subnet": "10.89.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
"#;

/// A kubeconfig for this API server. Its certificate is its own; nobody else is in this namespace.
fn configuration(token: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters: [{{name: local, cluster: {{server: 'https://{NODE_ADDRESS}:{API_PORT}', insecure-skip-tls-verify: true}}}}]
users: [{{name: user, user: {{token: '{token}'}}}}]
contexts: [{{name: local, context: {{cluster: local, user: user}}}}]
current-context: local
"
    )
}

impl Drop for Node {
    fn drop(&mut self) {
        // Whoever starts containers first, so that nothing starts again what ends.
        self.daemons.clear();
        self.api_server = None;
        remains::remove(&self.folder);
    }
}
