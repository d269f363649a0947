//! Prometheus itself (Debian's package), reading the page of a sidecar.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::http_get::{escaped, free_port, get_json};
use crate::journal::wait_until;
use crate::namespace::Namespace;
use crate::process::Process;

/// It must answer within this time.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// How often it reads a page.
pub const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

/// A page to read, with the labels that service discovery gives a pod.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where the page is.
    pub address: SocketAddr,
    /// Label `namespace`.
    pub namespace: String,
    /// Label `pod`.
    pub pod: String,
}

/// A running Prometheus. Dropping it kills it and removes what it stored.
pub struct Prometheus<'a> {
    namespace: Option<&'a Namespace>,
    address: SocketAddr,
    // Before the folder: it must have ended when the folder goes.
    process: Process,
    _storage: tempfile::TempDir,
}

fn configuration(targets: &[Target]) -> String {
    let interval = SCRAPE_INTERVAL.as_secs();
    let targets: String = targets
        .iter()
        .map(|target| {
            format!(
                "      - targets: ['{}']\n        labels: {{namespace: '{}', pod: '{}'}}\n",
                target.address, target.namespace, target.pod
            )
        })
        .collect();
    format!(
        "global: {{scrape_interval: {interval}s, scrape_timeout: {interval}s}}\n\
         scrape_configs:\n  - job_name: ackbeat\n    static_configs:\n{targets}"
    )
}

impl<'a> Prometheus<'a> {
    /// Starts it on the loopback (of `namespace`, if there is one); it reads the pages of `targets` from then on.
    ///
    /// # Errors
    /// If it is not installed or does not answer.
    pub fn start(namespace: impl Into<Option<&'a Namespace>>, targets: &[Target]) -> Result<Self> {
        let namespace = namespace.into();
        let storage = tempfile::tempdir().context("making a folder failed")?;
        let file = storage.path().join("prometheus.yml");
        std::fs::write(&file, configuration(targets)).context("writing the configuration failed")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(namespace)?));
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", storage.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--log.level=warn", "--enable-feature=exemplar-storage"]);
        let mut process = Process::spawn("prometheus", namespace, command)
            .context("install Debian's package prometheus")?;
        wait_until("Prometheus's word that it is ready", START_DEADLINE, || {
            if let Some(status) = process.try_wait()? {
                bail!("Prometheus ended with {status}: {}", process.last_words());
            }
            Ok(crate::http_get::get(namespace, address, "/-/ready").is_ok())
        })?;
        Ok(Self { namespace, address, process, _storage: storage })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn api(&self, target: &str) -> Result<Value> {
        let mut answer =
            get_json(self.namespace, self.address, target).with_context(|| self.process.last_words())?;
        if answer["status"] != "success" {
            bail!("Prometheus refuses {target}: {answer}");
        }
        Ok(answer["data"].take())
    }

    /// The series of `expression` now, as `(labels, value)`.
    ///
    /// # Errors
    /// If it does not parse; the message says where.
    pub fn query(&self, expression: &str) -> Result<Vec<Series>> {
        series(&self.api(&format!("/api/v1/query?query={}", escaped(expression)))?)
    }

    /// The series of `expression` over a time, one value each `step`.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub fn query_range(
        &self,
        expression: &str,
        start: SystemTime,
        end: SystemTime,
        step: Duration,
    ) -> Result<Vec<Series>> {
        let seconds = |time: SystemTime| {
            time.duration_since(SystemTime::UNIX_EPOCH).map(|since| since.as_secs_f64()).unwrap_or_default()
        };
        series(&self.api(&format!(
            "/api/v1/query_range?query={}&start={}&end={}&step={}",
            escaped(expression),
            seconds(start),
            seconds(end),
            step.as_secs_f64()
        ))?)
    }

    /// The values of a label among the series of `metric`, as a dashboard's variable asks for them.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub fn label_values(&self, selector: &str, label: &str) -> Result<Vec<String>> {
        let answer = self.api(&format!("/api/v1/label/{label}/values?match[]={}", escaped(selector)))?;
        let values = answer.as_array().context("label values are a list")?;
        Ok(values.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// The exemplars of `selector` within the last hour, as `(labels of the series, labels of the exemplar)`.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub fn exemplars(&self, selector: &str) -> Result<Vec<(Value, Value)>> {
        let answer = self.api(&format!("/api/v1/query_exemplars?query={}", escaped(selector)))?;
        let list = answer.as_array().context("exemplars are a list")?;
        Ok(list
            .iter()
            .flat_map(|of_series| {
                let labels = &of_series["seriesLabels"];
                let exemplars = of_series["exemplars"].as_array().into_iter().flatten();
                exemplars.map(|exemplar| (labels.clone(), exemplar["labels"].clone()))
            })
            .collect())
    }
}

/// One series of an answer.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its labels.
    pub labels: Value,
    /// Its values, oldest first; one if the query was for an instant.
    pub values: Vec<f64>,
}

impl Series {
    /// A label's value.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels[name].as_str()
    }

    /// Its last value.
    #[must_use]
    pub fn last(&self) -> Option<f64> {
        self.values.last().copied()
    }
}

fn series(data: &Value) -> Result<Vec<Series>> {
    let value = |pair: &Value| pair[1].as_str().and_then(|text| text.parse().ok());
    let of = |entry: &Value| {
        let values = match (entry.get("values"), entry.get("value")) {
            (Some(pairs), _) => pairs.as_array()?.iter().map(value).collect::<Option<Vec<f64>>>()?,
            (None, Some(pair)) => vec![value(pair)?],
            (None, None) => return None,
        };
        Some(Series { labels: entry["metric"].clone(), values })
    };
    let result = &data["result"];
    if data["resultType"] == "scalar" {
        let number = value(result).context("a scalar has a value")?;
        return Ok(vec![Series { labels: Value::Null, values: vec![number] }]);
    }
    result
        .as_array()
        .and_then(|entries| entries.iter().map(of).collect::<Option<Vec<_>>>())
        .with_context(|| format!("Prometheus answered something else: {data}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let vector = serde_json::json!({"resultType": "vector", "result": [
            {"metric": {"pod": "a"}, "value": [1.0, "3.5"]}]});
        let [one] = series(&vector).unwrap().try_into().unwrap();
        assert_eq!((one.label("pod"), one.last()), (Some("a"), Some(3.5)));
        let matrix = serde_json::json!({"resultType": "matrix", "result": [
            {"metric": {}, "values": [[1.0, "0"], [2.0, "NaN"]]}]});
        let [one] = series(&matrix).unwrap().try_into().unwrap();
        assert!(one.values[0] == 0.0 && one.values[1].is_nan());
    }
}
