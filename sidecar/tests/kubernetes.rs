//! The binary beside an API server that is played over TLS: in its sandbox, with the token of a kubeconfig. Needs no privilege.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);

/// A request: its method, its path with its query, its token, and its body.
#[derive(Clone, Debug)]
struct Request {
    method: String,
    path: String,
    authorization: String,
    body: Value,
}

/// An API server that lets everything or nothing be done, and knows one pod, which is being deleted.
struct ApiServer {
    requests: Arc<Mutex<Vec<Request>>>,
    is_refusing: Arc<AtomicBool>,
    folder: tempfile::TempDir,
}

impl ApiServer {
    fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, is_refusing) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let server = Self {
            requests: Arc::clone(&requests),
            is_refusing: Arc::clone(&is_refusing),
            folder: tempfile::tempdir().unwrap(),
        };
        server.write_kubeconfig(address, &made.cert.pem());
        let config = Arc::new(config);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, requests) = (Arc::clone(&config), Arc::clone(&requests));
                let is_refusing = Arc::clone(&is_refusing);
                // A client that goes away ends its thread.
                std::thread::spawn(move || serve(stream, config, &requests, &is_refusing));
            }
        });
        server
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn write_kubeconfig(&self, address: SocketAddr, authority: &str) {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://{address}"), "certificate-authority-data": STANDARD.encode(authority),
            }}],
            "users": [{"name": "test", "user": {"token": "the-token"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        std::fs::write(self.kubeconfig(), config.to_string()).unwrap();
    }

    /// What was asked so far by this method.
    fn asked(&self, method: &str) -> Vec<Request> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.method == method).cloned().collect()
    }
}

fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    requests: &Mutex<Vec<Request>>,
    is_refusing: &AtomicBool,
) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let (mut head, mut length, mut authorization) = (String::new(), 0, String::new());
        if stream.read_line(&mut head)? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap(),
                "authorization" => value.trim().clone_into(&mut authorization),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let mut words = head.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let (status, answer) = answer(&path, &body, is_refusing.load(Ordering::Relaxed));
        let is_watch = path.contains("watch=true") && status == 200;
        requests.lock().unwrap().push(Request { method, path, authorization, body });
        let text = answer.to_string();
        let framing = if is_watch {
            "transfer-encoding: chunked".to_owned()
        } else {
            format!("content-length: {}", text.len())
        };
        let text = if is_watch { String::new() } else { text };
        write!(
            stream.get_mut(),
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{framing}\r\n\r\n{text}"
        )?;
        stream.get_mut().flush()?;
        if is_watch {
            // Nothing ever changes.
            stream.read_exact(&mut [0])?;
        }
    }
}

fn answer(path: &str, body: &Value, is_refusing: bool) -> (u16, Value) {
    if is_refusing {
        let message = "User \"system:serviceaccount:shop:default\" cannot do that";
        return (
            403,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message}),
        );
    }
    if path.contains("/events") {
        return (201, body.clone());
    }
    let pods = if path.contains("/pods") {
        json!([{"apiVersion": "v1", "kind": "Pod", "spec": {}, "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "u-web-0", "deletionTimestamp": "2026-12-01T00:00:30Z",
        }}])
    } else {
        json!([])
    };
    (200, json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": pods}))
}

/// A running sidecar, and its log as it comes.
struct Sidecar {
    child: Child,
    log: Receiver<String>,
    seen: Vec<String>,
    settings: PathBuf,
    _host: TcpListener,
}

impl Sidecar {
    fn start(server: &ApiServer) -> Self {
        let host = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = host.local_addr().unwrap().port().to_string();
        let settings = server.folder.path().join("ackbeat.yaml");
        std::fs::write(&settings, "policy: default\n").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ackbeat"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["OTEL_", "ACKBEAT_", "RUST_LOG", "KUBE"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command
            .args(["run", "--mode", "sock-diag", "--ports", &port, "--config"])
            .arg(&settings)
            .envs([
                ("OTEL_RESOURCE_ATTRIBUTES_POD_NAME", "web-0"),
                ("OTEL_RESOURCE_ATTRIBUTES_POD_UID", "u-web-0"),
                ("OTEL_RESOURCE_ATTRIBUTES_NAMESPACE", "shop"),
                ("ACKBEAT_METRICS_LISTEN", "127.0.0.1:0"),
                ("ACKBEAT_API_LISTEN", "off"),
                ("ACKBEAT_KUBERNETES_PEERS", "cluster"),
            ])
            .env("KUBECONFIG", server.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let (sender, log) = channel();
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut sidecar = Self { child, log, seen: Vec::new(), settings, _host: host };
        sidecar.wait_for_log(": ready");
        sidecar
    }

    fn wait_for_log(&mut self, part: &str) {
        let start = Instant::now();
        while !self.seen.iter().any(|line| line.contains(part)) {
            match self.log.recv_timeout(DEADLINE.saturating_sub(start.elapsed())) {
                Ok(line) => self.seen.push(line),
                Err(_) => panic!("no {part:?} in {:#?}", self.seen),
            }
        }
    }

    /// Writes a configuration with a mistake, and waits until it is told.
    fn configure_wrongly(&mut self, word: &str) {
        std::fs::write(&self.settings, format!("policy: {word}\n")).unwrap();
        self.wait_for_log(&format!("\"{word}\" is not one of"));
    }

    /// A line of the page of metrics.
    fn metric(&self, series: &str) -> Option<String> {
        let (_, address) = self.seen.iter().find_map(|line| line.split_once("http://"))?;
        let mut stream = TcpStream::connect(address.trim_end_matches("/metrics")).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page.lines().find_map(|line| line.strip_prefix(series)).map(|value| value.trim().to_owned())
    }

    fn stop(mut self) -> Vec<String> {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        let start = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < DEADLINE, "it did not end: {:#?}", self.seen);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{:#?}", self.seen);
        self.seen.extend(self.log.iter());
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // Ended already, as a rule.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn in_its_sandbox_it_tells_and_hears_by_tls() {
    let server = ApiServer::start();
    let mut sidecar = Sidecar::start(&server);
    sidecar.wait_for_log("the sandbox is in force capabilities=\"none\" seccomp=true");
    sidecar.wait_for_log("this pod is being deleted");
    sidecar.configure_wrongly("slow");
    until("an Event", || !server.asked("POST").is_empty());
    let Request { path, authorization, body, .. } = server.asked("POST").remove(0);
    assert_eq!(authorization, "Bearer the-token");
    assert!(path.starts_with("/apis/events.k8s.io/v1/namespaces/shop/events"), "{path}");
    assert_eq!(body["reason"], "ConfigurationRefused");
    assert_eq!(body["type"], "Warning");
    assert_eq!(
        body["regarding"],
        json!({"apiVersion": "v1", "kind": "Pod", "name": "web-0", "namespace": "shop", "uid": "u-web-0"})
    );
    let note = body["note"].as_str().unwrap();
    assert!(
        note.starts_with("the configuration has a mistake") && note.contains("key \"policy\": \"slow\""),
        "{note}"
    );
    until("a count", || {
        sidecar.metric("ackbeat_kubernetes_events_total{outcome=\"published\"}").as_deref() == Some("1")
    });
    let lists: Vec<String> = server.asked("GET").into_iter().map(|request| request.path).collect();
    for list in ["/api/v1/pods?", "/api/v1/services?", "/api/v1/namespaces/shop/pods?"] {
        assert!(
            lists.iter().any(|path| path.starts_with(list) && path.contains("watch=true")),
            "{list}: {lists:#?}"
        );
    }
    sidecar.stop();
}

#[test]
fn without_any_right_each_thing_is_said_once() {
    let server = ApiServer::start();
    server.is_refusing.store(true, Ordering::Relaxed);
    let mut sidecar = Sidecar::start(&server);
    for word in ["slow", "slower"] {
        sidecar.configure_wrongly(word);
    }
    until("refusals", || {
        sidecar
            .metric("ackbeat_kubernetes_events_total{outcome=\"refused\"}")
            .is_some_and(|count| count != "0")
    });
    sidecar.configure_wrongly("slowest");
    until("another", || {
        sidecar
            .metric("ackbeat_kubernetes_events_total{outcome=\"refused\"}")
            .is_some_and(|count| count.parse::<u32>().unwrap() > 1)
    });
    let log = sidecar.stop();
    for part in [
        "no Events about this pod",
        "not watching for the deletion of this pod",
        "not resolving peers to names of pods",
        "not resolving peers to names of Services",
    ] {
        let lines: Vec<&String> = log.iter().filter(|line| line.contains(part)).collect();
        assert_eq!(lines.len(), 1, "{part}: {log:#?}");
        assert!(lines[0].contains(" INFO "), "{}", lines[0]);
    }
}

#[test]
fn a_server_that_answers_nothing_holds_up_neither_the_start_nor_the_end() {
    let server = ApiServer::start();
    // It takes connections and says nothing: not even TLS begins.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    server.write_kubeconfig(silent.local_addr().unwrap(), &made.cert.pem());
    let began = Instant::now();
    let mut sidecar = Sidecar::start(&server);
    sidecar.configure_wrongly("slow");
    assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
    let began = Instant::now();
    sidecar.stop();
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}
