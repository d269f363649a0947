//! The dashboard as a file, and its queries as Grafana sends them.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::chart;

/// The file, as it is.
pub(crate) fn load() -> Result<Value> {
    let path = chart("dashboards/host-closes.json")?;
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {} failed", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}

/// The panels that ask something; rows only head them.
pub(crate) fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    panels.filter(|panel| panel["type"] != "row").collect()
}

/// The variables of the dashboard that hold label values.
pub(crate) fn label_variables(dashboard: &Value) -> Vec<&Value> {
    let list = dashboard["templating"]["list"].as_array().into_iter().flatten();
    list.filter(|variable| variable["type"] == "query").collect()
}

/// What is chosen in the dashboard.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// The time range.
    pub(crate) range: Duration,
    /// The step of the graphs.
    pub(crate) interval: Duration,
    /// How often the data source is read (its setting "Scrape interval").
    pub(crate) scrape_interval: Duration,
    /// Chosen values by variable; the others are at "All".
    pub(crate) chosen: Vec<(&'static str, &'static str)>,
}

impl Choice {
    /// Replaces the variables as Grafana does for a Prometheus data source: durations, and regular expressions for
    /// variables of which several values may be chosen.
    pub(crate) fn substitute(&self, dashboard: &Value, expression: &str) -> Result<String> {
        let seconds = |duration: Duration| format!("{}s", duration.as_secs().max(1));
        let rate_interval = (self.interval + self.scrape_interval).max(4 * self.scrape_interval);
        let mut text = expression
            .replace("$__rate_interval", &seconds(rate_interval))
            .replace("$__range", &seconds(self.range))
            .replace("$__interval", &seconds(self.interval));
        for variable in label_variables(dashboard) {
            let name = variable["name"].as_str().context("a variable has a name")?;
            let all = variable["allValue"].as_str().context("a variable says what All means")?;
            let value = self.chosen.iter().find(|(of, _)| *of == name).map_or(all, |(_, value)| value);
            text = text.replace(&format!("${name}"), value);
        }
        anyhow::ensure!(!text.contains('$'), "a variable that nothing is known of: {text}");
        Ok(text)
    }
}
