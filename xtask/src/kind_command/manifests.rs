//! What is sent to the cluster, beside the chart: a collector, and values of the chart.

/// The OpenTelemetry Collector, in a namespace of its own.
pub(super) const COLLECTOR: &str = include_str!("manifests/collector.yaml");
/// Namespace of the collector.
pub(super) const COLLECTOR_NAMESPACE: &str = "observability";
/// Its Deployment.
pub(super) const COLLECTOR_DEPLOYMENT: &str = "deployment/otel-collector";

/// The chart's folder in the repository.
pub(super) const CHART: &str = "charts/ackbeat";
/// Name of the release, and by the chart's rules the name of the injector and the start of every other name.
pub(super) const RELEASE: &str = "ackbeat";
/// Namespace of the release.
pub(super) const RELEASE_NAMESPACE: &str = "ackbeat";
/// Values of the chart without its demo.
pub(super) const CHART_VALUES: &str = include_str!("manifests/chart-values.yaml");
/// The same with the demo. Both parts are mappings without a key in common, so that one after the other is a mapping too.
pub(super) const CHART_VALUES_WITH_DEMO: &str =
    concat!(include_str!("manifests/chart-values.yaml"), include_str!("manifests/demo-values.yaml"));

/// Namespace of the demo, by the chart's default.
pub(super) const DEMO_NAMESPACE: &str = "ackbeat-demo";
/// Deployments of the demo, by the chart's templates: the host, clients that read slowly, one that reads fast.
pub(super) const DEMO_DEPLOYMENTS: [&str; 3] =
    ["ackbeat-demo-host", "ackbeat-demo-slow-client", "ackbeat-demo-fast-client"];
/// Labels of the demo's host once it has a sidecar: the first from the chart, the second from the injector.
pub(super) const DEMO_HOST_WITH_SIDECAR: &str =
    "app.kubernetes.io/component=demo-host,ackbeat.dev/injected=true";
