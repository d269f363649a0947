//! Where certificates come from: a Secret that all replicas share, or files. Both are looked at again and again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde_json::json;
use tracing::{info, warn};

use super::authorities::{Chain, MakeError, Times};
use super::{CertificateOptions, Counters, Options};

/// How often given files are read again.
const FILES_EVERY: Duration = Duration::from_secs(10);
/// After a failure, and where another replica was faster.
const PAUSE: Duration = Duration::from_secs(2);
/// Steps of a replacement that can be due at once.
const STEPS_MAX: usize = 8;
/// Replicas that may be faster, one after the other.
const RACES_MAX: usize = 5;
/// Keys of the Secret.
const BUNDLE: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "authorities.json";

/// TLS cannot be set up, or a certificate not be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("reading {} failed: {cause}; --tls-dir needs tls.crt and tls.key", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// What was read is no certificate with its key.
    #[error("{name} is no certificate with its key: {cause}")]
    Pair {
        /// The Secret or folder.
        name: String,
        /// Why.
        cause: String,
    },
    /// A certificate cannot be made.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The API server refuses.
    #[error("{step} failed: {cause}")]
    Cluster {
        /// The step, with the right that it needs.
        step: String,
        /// Why.
        cause: Box<kube::Error>,
    },
    /// rustls refuses its settings.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// The certificate in use; replaced while it serves.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl Certificates {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.current.read().is_some()
    }

    /// Serves with this from the next handshake on.
    pub(super) fn install(&self, name: &str, certificate: &[u8], key: &[u8]) -> Result<(), TlsError> {
        let failed = |cause: String| TlsError::Pair { name: name.to_owned(), cause };
        let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| failed(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| failed(error.to_string()))?;
        let provider = rustls::crypto::ring::default_provider();
        let pair = CertifiedKey::from_der(certificates, key, &provider)
            .map_err(|error| failed(error.to_string()))?;
        pair.end_entity_cert().map_err(|error| failed(error.to_string()))?;
        *self.current.write() = Some(Arc::new(pair));
        Ok(())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().clone()
    }
}

/// Where certificates come from.
pub enum Source {
    /// A Secret.
    Secret(Box<SecretSource>),
    /// Files.
    Folder(PathBuf),
}

/// A Secret, and the configuration in which callers find whom to trust.
pub struct SecretSource {
    secrets: Api<Secret>,
    configurations: Api<MutatingWebhookConfiguration>,
    secret: String,
    configuration: String,
    names: Vec<String>,
    times: Times,
    check: Duration,
    /// What was seen last: written again where somebody emptied the Secret.
    last: Chain,
}

impl Source {
    /// As the options say. Files are read once, so that a mistake is told at the start.
    pub(super) fn new(options: &Options, client: Client) -> Result<Self, TlsError> {
        Ok(match &options.certificates {
            CertificateOptions::Folder(folder) => {
                files(folder)?;
                Self::Folder(folder.clone())
            }
            CertificateOptions::Secret { name, service, configuration, times, check } => {
                let namespace = &options.namespace;
                let names =
                    [".svc", "", ".svc.cluster.local"].map(|end| format!("{service}.{namespace}{end}"));
                Self::Secret(Box::new(SecretSource {
                    secrets: Api::namespaced(client.clone(), namespace),
                    configurations: Api::all(client),
                    secret: name.clone(),
                    configuration: configuration.clone(),
                    names: names.to_vec(),
                    times: *times,
                    check: *check,
                    last: Chain::default(),
                }))
            }
        })
    }
}

fn files(folder: &Path) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).map_err(|cause| TlsError::Read { path, cause })
    };
    Ok((read(CERTIFICATE)?, read(KEY)?))
}

/// Keeps the certificate in use current. It ends with the runtime.
pub(super) async fn keep(source: Source, certificates: Arc<Certificates>, counters: Arc<Counters>) {
    match source {
        Source::Folder(folder) => keep_files(&folder, &certificates).await,
        Source::Secret(mut secret) => loop {
            let pause = match secret.check(&certificates, &counters).await {
                Ok(()) => secret.check,
                Err(error) => {
                    warn!(%error, "the webhook's certificate; it is tried again");
                    PAUSE.min(secret.check)
                }
            };
            tokio::time::sleep(pause).await;
        },
    }
}

async fn keep_files(folder: &Path, certificates: &Certificates) {
    let mut last = None;
    loop {
        // A mount is swapped as a whole, but two reads may be of two mounts: then the pair does not fit, and the next does.
        let read = files(folder);
        if let Ok(pair) = &read
            && last.as_ref() != Some(pair)
        {
            match certificates.install(&folder.display().to_string(), &pair.0, &pair.1) {
                Ok(()) => {
                    info!(folder = %folder.display(), "a certificate is in use");
                    last = Some(pair.clone());
                }
                Err(error) => warn!(%error, "the certificate in use stays"),
            }
        } else if let Err(error) = read {
            warn!(%error, "the certificate in use stays");
        }
        tokio::time::sleep(FILES_EVERY).await;
    }
}

pub(super) fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

impl SecretSource {
    /// Looks at the Secret, takes the steps that are due, tells the API servers whom to trust, and serves with the leaf.
    pub(super) async fn check(
        &mut self,
        certificates: &Certificates,
        counters: &Counters,
    ) -> Result<(), TlsError> {
        for _ in 0..RACES_MAX {
            if self.try_check(certificates, counters).await? {
                break;
            }
        }
        Ok(())
    }

    /// `false` where another replica was faster: what it wrote is read next.
    async fn try_check(
        &mut self,
        certificates: &Certificates,
        counters: &Counters,
    ) -> Result<bool, TlsError> {
        let failed =
            |step: String| move |cause: kube::Error| TlsError::Cluster { step, cause: Box::new(cause) };
        let reading = format!("reading the Secret {} (right: get)", self.secret);
        let mut secret = self.secrets.get(&self.secret).await.map_err(failed(reading))?;
        let data = secret.data.take().unwrap_or_default();
        let there: Option<Chain> =
            data.get(AUTHORITIES).and_then(|bytes| serde_json::from_slice(&bytes.0).ok());
        if there.is_none() && data.contains_key(AUTHORITIES) {
            warn!(secret = self.secret, "authorities.json cannot be read; it is written anew");
        }
        let mut chain = there.clone().unwrap_or_else(|| self.last.clone());
        let mut steps = Vec::new();
        for _ in 0..STEPS_MAX {
            match chain.step(now_s(), &self.names, self.times)? {
                Some(step) => steps.push(step),
                None => break,
            }
        }
        if there.as_ref() != Some(&chain) {
            secret.data = Some(self.data_of(&chain, data)?);
            let writing = format!("writing the Secret {} (right: update)", self.secret);
            match self.secrets.replace(&self.secret, &PostParams::default(), &secret).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => return Ok(false),
                Err(error) => return Err(failed(writing)(error)),
            }
            for step in steps {
                info!(?step, "certificates");
                for what in step.made() {
                    counters.rotated(what);
                }
            }
        }
        self.trust(&chain).await?;
        if let Some((certificate, key)) = chain.leaf() {
            certificates.install(&self.secret, certificate.as_bytes(), key.as_bytes())?;
            counters.expires_at(chain.leaf_ends_s().unwrap_or_default());
        }
        self.last = chain;
        Ok(true)
    }

    fn data_of(
        &self,
        chain: &Chain,
        mut data: BTreeMap<String, ByteString>,
    ) -> Result<BTreeMap<String, ByteString>, TlsError> {
        let failed =
            |cause: serde_json::Error| TlsError::Pair { name: self.secret.clone(), cause: cause.to_string() };
        let (certificate, key) = chain.leaf().unwrap_or_default();
        for (name, text) in [
            (BUNDLE, chain.bundle().into_bytes()),
            (CERTIFICATE, certificate.as_bytes().to_vec()),
            (KEY, key.as_bytes().to_vec()),
            (AUTHORITIES, serde_json::to_vec(chain).map_err(failed)?),
        ] {
            data.insert(name.to_owned(), ByteString(text));
        }
        Ok(data)
    }

    /// Writes the bundle into the configuration, where it is not there yet: an upgrade of the chart may have taken it away.
    async fn trust(&self, chain: &Chain) -> Result<(), TlsError> {
        let name = &self.configuration;
        let failed = |verb: &str| {
            let step = format!("the caBundle of the MutatingWebhookConfiguration {name} (right: {verb})");
            move |cause: kube::Error| TlsError::Cluster { step, cause: Box::new(cause) }
        };
        let configuration = self.configurations.get(name).await.map_err(failed("get"))?;
        let bundle = ByteString(chain.bundle().into_bytes());
        let webhooks = configuration.webhooks.unwrap_or_default();
        if webhooks.iter().all(|webhook| webhook.client_config.ca_bundle.as_ref() == Some(&bundle)) {
            return Ok(());
        }
        let patches: Vec<serde_json::Value> = webhooks
            .iter()
            .map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": bundle}}))
            .collect();
        let patch = Patch::Strategic(json!({"webhooks": patches}));
        self.configurations.patch(name, &PatchParams::default(), &patch).await.map_err(failed("patch"))?;
        info!(configuration = name, "the caBundle is written");
        Ok(())
    }
}
