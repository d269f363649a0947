//! The OTLP exporters, over gRPC or HTTP, with TLS by rustls and ring.

use opentelemetry_otlp::{
    MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use tonic::transport::{Certificate, ClientTlsConfig};

use super::environment::{OtlpPlan, OtlpProtocol};
use super::pipeline::PipelineError;

/// Builds the exporter of spans. gRPC needs a tokio runtime around the call; its connections live there.
pub(super) fn build(plan: &OtlpPlan) -> Result<SpanExporter, PipelineError> {
    match plan.protocol {
        OtlpProtocol::Grpc => grpc(SpanExporter::builder().with_tonic(), plan)?
            .build()
            .map_err(|error| failed("building the gRPC exporter of spans", error.to_string())),
        OtlpProtocol::HttpProtobuf => http(SpanExporter::builder().with_http(), plan)?
            .build()
            .map_err(|error| failed("building the HTTP exporter of spans", error.to_string())),
    }
}

/// Builds the exporter of metrics. As [`build`].
pub(crate) fn build_metrics(plan: &OtlpPlan) -> Result<MetricExporter, PipelineError> {
    match plan.protocol {
        OtlpProtocol::Grpc => grpc(MetricExporter::builder().with_tonic(), plan)?
            .build()
            .map_err(|error| failed("building the gRPC exporter of metrics", error.to_string())),
        OtlpProtocol::HttpProtobuf => http(MetricExporter::builder().with_http(), plan)?
            .build()
            .map_err(|error| failed("building the HTTP exporter of metrics", error.to_string())),
    }
}

/// A builder over gRPC, with what the plan says.
fn grpc<B: WithExportConfig + WithTonicConfig>(builder: B, plan: &OtlpPlan) -> Result<B, PipelineError> {
    let builder = builder.with_endpoint(&plan.endpoint).with_timeout(plan.timeout);
    Ok(match tls(plan)? {
        Some(tls) => builder.with_tls_config(tls),
        None => builder,
    })
}

/// A builder over HTTP, with what the plan says.
fn http<B: WithExportConfig + WithHttpConfig>(builder: B, plan: &OtlpPlan) -> Result<B, PipelineError> {
    Ok(builder
        .with_http_client(http_client(plan)?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(&plan.endpoint)
        .with_timeout(plan.timeout))
}

const fn failed(step: &'static str, cause: String) -> PipelineError {
    PipelineError { step, cause }
}

fn certificates(plan: &OtlpPlan) -> Result<Option<Vec<u8>>, PipelineError> {
    plan.certificate
        .as_ref()
        .map(std::fs::read)
        .transpose()
        .map_err(|error| failed("reading OTEL_EXPORTER_OTLP_CERTIFICATE", error.to_string()))
}

/// For gRPC; `None` for an endpoint without TLS.
fn tls(plan: &OtlpPlan) -> Result<Option<ClientTlsConfig>, PipelineError> {
    if !plan.endpoint.starts_with("https://") {
        return Ok(None);
    }
    let tls = ClientTlsConfig::new();
    Ok(Some(match certificates(plan)? {
        Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
        None => tls.with_native_roots(),
    }))
}

fn http_client(plan: &OtlpPlan) -> Result<reqwest::blocking::Client, PipelineError> {
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificates = certificates(plan)?;
    let timeout = plan.timeout;
    let plain = plan.endpoint.starts_with("http://");
    // The blocking client starts a runtime of its own, which tokio refuses on a thread that drives another.
    std::thread::spawn(move || {
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
    .map_err(|error| failed("building the HTTP client", error.to_string()))
}
