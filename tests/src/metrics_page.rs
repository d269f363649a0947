//! The page that Prometheus reads, in its text format (`text/plain; version=0.0.4`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anyhow::{Context, Result};

use crate::http_get;
use crate::namespace::Namespace;

/// A series of the page.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// A page, read.
#[derive(Clone, Debug, Default)]
pub struct MetricsPage {
    /// Names of metrics, as the lines `# TYPE` have them.
    pub names: BTreeSet<String>,
    /// Every series.
    pub samples: Vec<Sample>,
}

impl MetricsPage {
    /// Reads it from a sidecar in `namespace`.
    ///
    /// # Errors
    /// If the sidecar does not answer, or a line is none of the format.
    pub fn read(namespace: &Namespace, address: SocketAddr) -> Result<Self> {
        Self::parse(&http_get::get(namespace, address, "/metrics")?)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut page = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                page.names.extend(rest.split(' ').next().map(str::to_owned));
            } else if !line.starts_with('#') && !line.is_empty() {
                page.samples.push(sample(line).with_context(|| format!("this line is no sample: {line}"))?);
            }
        }
        Ok(page)
    }

    /// The sum of the series of `name` that have the label `key` with `value`; of all of them without a label.
    ///
    /// # Errors
    /// If there is none.
    pub fn count(&self, name: &str, label: Option<(&str, &str)>) -> Result<u64> {
        let mut of_name = self.samples.iter().filter(|sample| sample.name == name).filter(|sample| {
            label.is_none_or(|(key, value)| sample.labels.get(key).map(String::as_str) == Some(value))
        });
        let first = of_name.next().with_context(|| format!("the page has no {name} with {label:?}"))?;
        let sum = of_name.fold(first.value, |sum, sample| sum + sample.value);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts are small and whole"
        )]
        let count = sum as u64;
        Ok(count)
    }
}

/// `name{key="value",…} 1`. No label of ours holds a quotation mark or a backslash.
fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.strip_suffix('}')?;
    let labels = labels
        .split_terminator("\",")
        .map(|label| {
            let (key, value) = label.split_once("=\"")?;
            Some((key.to_owned(), value.trim_end_matches('"').to_owned()))
        })
        .collect::<Option<_>>()?;
    Some(Sample { name: name.to_owned(), labels, value: value.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read() {
        let text = "# HELP a_total What, when.\n# TYPE a_total counter\na_total{x=\"1\",y=\"b c\"} 2\na_total{x=\"2\",y=\"\"} 3\n\
            # TYPE b gauge\nb 0.5\n";
        let page = MetricsPage::parse(text).unwrap();
        assert_eq!(page.names, BTreeSet::from(["a_total".to_owned(), "b".to_owned()]));
        assert_eq!(page.samples.len(), 3);
        assert_eq!(page.samples[0].labels["y"], "b c");
        assert_eq!(page.count("a_total", Some(("x", "2"))).unwrap(), 3);
        assert_eq!(page.count("a_total", None).unwrap(), 5);
        assert!(page.count("a", None).is_err());
    }
}
