//! `leaks`: how often all sockets are counted, what makes a leak, and whether idle ones are destroyed.

use ackbeat_liveness::leak::{LeakSettings, Quota, ReapMode};

use super::{ConfigError, LeaksLayer, in_range};

super::words! {
    /// Whether idle sockets of a full quota are destroyed.
    ReapChoice {
        /// Nothing is destroyed.
        Off = "off",
        /// What would be destroyed is told.
        DryRun = "dry-run",
        /// It is destroyed.
        On = "on",
    }
}

impl ReapChoice {
    const fn mode(self) -> ReapMode {
        match self {
            Self::Off => ReapMode::Off,
            Self::DryRun => ReapMode::DryRun,
            Self::On => ReapMode::On,
        }
    }
}

impl LeaksLayer {
    /// Fills the defaults in and checks the ranges.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for a value out of its range, a text that is no quota, and reaping without a quota.
    pub(super) fn resolve(self) -> Result<LeakSettings, ConfigError> {
        for (key, value) in [
            ("leaks.census_interval_ms", self.census_interval_ms),
            ("leaks.idle_after_ms", self.idle_after_ms),
            ("leaks.flat_after_ms", self.flat_after_ms),
            ("leaks.count_min", self.count_min.map(u64::from)),
            ("leaks.close_wait_after_ms", self.close_wait_after_ms),
            ("leaks.orphan_after_ms", self.orphan_after_ms),
            ("leaks.reap_min_age_ms", self.reap_min_age_ms),
            ("leaks.reap_min_idle_ms", self.reap_min_idle_ms),
        ] {
            value.map_or(Ok(()), |value| in_range(key, value))?;
        }
        let default = LeakSettings::default();
        let quotas = self
            .reap_quota
            .unwrap_or_default()
            .iter()
            .map(|text| {
                text.parse::<Quota>().map_err(|_| ConfigError::Value {
                    name: "leaks.reap_quota".to_owned(),
                    value: text.clone(),
                    expected: super::reference::ValueKind::Quotas.expected(),
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        no_port_twice(&quotas)?;
        let reap = self.reap.map_or(default.reap, ReapChoice::mode);
        let census_interval_ms = self.census_interval_ms.unwrap_or(default.census_interval_ms);
        if reap != ReapMode::Off && (quotas.is_empty() || census_interval_ms == 0) {
            return Err(ConfigError::Value {
                name: "leaks.reap".to_owned(),
                value: reap.as_str().to_owned(),
                expected: "off: reaping needs leaks.reap_quota, and leaks.census_interval_ms above 0"
                    .to_owned(),
            });
        }
        Ok(LeakSettings {
            census_interval_ms,
            idle_after_ms: self.idle_after_ms.unwrap_or(default.idle_after_ms),
            flat_after_ms: self.flat_after_ms.unwrap_or(default.flat_after_ms),
            count_min: self.count_min.unwrap_or(default.count_min),
            close_wait_after_ms: self.close_wait_after_ms.unwrap_or(default.close_wait_after_ms),
            orphan_after_ms: self.orphan_after_ms.unwrap_or(default.orphan_after_ms),
            quotas,
            reap,
            reap_min_age_ms: self.reap_min_age_ms.unwrap_or(default.reap_min_age_ms),
            reap_min_idle_ms: self.reap_min_idle_ms.unwrap_or(default.reap_min_idle_ms),
        })
    }
}

/// Of two quotas of one port only one can be meant.
fn no_port_twice(quotas: &[Quota]) -> Result<(), ConfigError> {
    let place = |quota: &Quota| (quota.side, quota.address.map(|address| address.to_canonical()), quota.port);
    for (index, quota) in quotas.iter().enumerate() {
        if let Some(before) = quotas.iter().take(index).find(|before| place(before) == place(quota)) {
            return Err(ConfigError::Value {
                name: "leaks.reap_quota".to_owned(),
                value: quota.to_string(),
                expected: format!("one quota for each port: {before} is there already"),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Settings, parse_yaml};

    fn resolved(text: &str) -> Result<LeakSettings, ConfigError> {
        Settings::resolve(parse_yaml(text, Path::new("ackbeat.yaml"))?).map(|settings| settings.leaks)
    }

    #[test]
    fn reaping_is_off_unless_it_is_asked_for() {
        assert_eq!(resolved("mode: auto\n").unwrap(), LeakSettings::default());
        assert_eq!(LeakSettings::default().reap, ReapMode::Off);
        assert_eq!(resolved("leaks: {reap: off}\n").unwrap().reap, ReapMode::Off);
        let on =
            resolved("leaks:\n  reap: on\n  reap_quota: ['remote:8080=64', 'local:[::1]:90=5']\n").unwrap();
        assert_eq!((on.reap, on.quotas.len(), on.reap_min_age_ms), (ReapMode::On, 2, 600_000));
        assert_eq!(on.quotas[0].limit, 64);
    }

    #[test]
    fn a_port_may_have_a_quota_of_its_own_at_an_address_and_on_either_side() {
        let quotas = "['remote:80=64', 'remote:10.0.0.7:80=32', 'local:80=64']";
        assert_eq!(resolved(&format!("leaks: {{reap_quota: {quotas}}}\n")).unwrap().quotas.len(), 3);
        let message =
            resolved("leaks: {reap_quota: ['remote:80=64', 'remote:80=32']}\n").unwrap_err().to_string();
        assert!(
            message.contains("remote:80=32") && message.contains("remote:80=64 is there already"),
            "{message}"
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        for (text, named) in [
            ("leaks: {reap: on}\n", "leaks.reap"),
            ("leaks: {reap: dry-run, reap_quota: ['remote:80=1'], census_interval_ms: 0}\n", "leaks.reap"),
            ("leaks: {reap_quota: ['80=1']}\n", "leaks.reap_quota"),
            ("leaks: {reap_quota: ['remote:80=0']}\n", "leaks.reap_quota"),
            ("leaks: {reap_quota: ['local:80=9', 'remote:80=9', 'local:80=10']}\n", "leaks.reap_quota"),
            (
                "leaks: {reap_quota: ['remote:10.0.0.7:80=9', 'remote:[::ffff:10.0.0.7]:80=9']}\n",
                "leaks.reap_quota",
            ),
            ("leaks: {census_interval_ms: 3600001}\n", "leaks.census_interval_ms"),
            ("leaks: {reap: maybe}\n", "leaks.reap"),
        ] {
            let message = resolved(text).unwrap_err().to_string();
            assert!(message.contains(named), "{text}: {message}");
        }
    }
}
