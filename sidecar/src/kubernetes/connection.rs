//! The way to the API server: found in the background, and looked for again as long as there is none.

use std::env;
use std::path::Path;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use kube::{Client, Config};
use tracing::info;

/// Where the kubelet mounts the token of the pod's ServiceAccount.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// A connection is given up after this.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// And one on which nothing comes. The API server ends a watch after five minutes (kube asks for 290 s), and sends a bookmark each
/// minute before that.
const READ_DEADLINE: Duration = Duration::from_secs(295);
/// Pauses between attempts to find the way.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(60)];

/// A client, once there is one. Clones share it.
pub(super) type Connection = Shared<BoxFuture<'static, Client>>;

/// Whether the process has what leads to an API server: a ServiceAccount's token, or a kubeconfig that is named.
pub(super) fn is_there() -> bool {
    kubeconfig_is_named() || Path::new(TOKEN).exists()
}

fn kubeconfig_is_named() -> bool {
    env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty())
}

/// Begins to look for the way when somebody waits for it.
pub(super) fn connect() -> Connection {
    async {
        let mut pauses = PAUSES.into_iter();
        let mut pause = Duration::ZERO;
        loop {
            let problem = match open().await {
                Ok(client) => return client,
                Err(problem) => problem,
            };
            if pause.is_zero() {
                info!("no way to the API server of Kubernetes: {problem}; it is looked for again");
            }
            pause = pauses.next().unwrap_or(pause);
            tokio::time::sleep(pause).await;
        }
    }
    .boxed()
    .shared()
}

async fn open() -> Result<Client, String> {
    // Another part of the process may have chosen already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = if kubeconfig_is_named() {
        Config::infer().await.map_err(|error| error.to_string())?
    } else {
        // It reads files.
        tokio::task::spawn_blocking(Config::incluster)
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?
    };
    config.connect_timeout = Some(CONNECT_DEADLINE);
    config.read_timeout = Some(READ_DEADLINE);
    Client::try_from(config).map_err(|error| error.to_string())
}
