//! The OTLP exporter, over gRPC or HTTP, with TLS by rustls and ring.

use opentelemetry_otlp::{
    Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _, WithTonicConfig as _,
};

use super::environment::{OtlpPlan, OtlpProtocol};
use super::pipeline::PipelineError;

/// Builds it. gRPC needs a tokio runtime around the call; its connections live there.
pub(super) fn build(plan: &OtlpPlan) -> Result<SpanExporter, PipelineError> {
    let failed = |step: &'static str, cause: String| PipelineError { step, cause };
    let certificates = plan
        .certificate
        .as_ref()
        .map(std::fs::read)
        .transpose()
        .map_err(|error| failed("reading OTEL_EXPORTER_OTLP_CERTIFICATE", error.to_string()))?;
    match plan.protocol {
        OtlpProtocol::Grpc => {
            let builder =
                SpanExporter::builder().with_tonic().with_endpoint(&plan.endpoint).with_timeout(plan.timeout);
            let builder = if plan.endpoint.starts_with("https://") {
                let tls = tonic::transport::ClientTlsConfig::new();
                let tls = match certificates {
                    Some(pem) => tls.ca_certificate(tonic::transport::Certificate::from_pem(pem)),
                    None => tls.with_native_roots(),
                };
                builder.with_tls_config(tls)
            } else {
                builder
            };
            builder.build().map_err(|error| failed("building the gRPC exporter", error.to_string()))
        }
        OtlpProtocol::HttpProtobuf => {
            // Fails only if a provider is installed already, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let timeout = plan.timeout;
            let plain = plan.endpoint.starts_with("http://");
            // The blocking client starts a runtime of its own, which tokio refuses on a thread that drives another.
            let client = std::thread::spawn(move || {
                let builder = reqwest::blocking::Client::builder().timeout(timeout);
                let builder = match certificates {
                    Some(pem) => builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(&pem)?),
                    // An image without any certificates must still be able to export without TLS.
                    None if plain => builder.tls_certs_only([]),
                    None => builder,
                };
                builder.build()
            })
            .join()
            .map_err(|_| failed("building the HTTP client", "its thread panicked".to_owned()))?
            .map_err(|error| failed("building the HTTP client", error.to_string()))?;
            SpanExporter::builder()
                .with_http()
                .with_http_client(client)
                .with_protocol(Protocol::HttpBinary)
                .with_endpoint(&plan.endpoint)
                .with_timeout(plan.timeout)
                .build()
                .map_err(|error| failed("building the HTTP exporter", error.to_string()))
        }
    }
}
