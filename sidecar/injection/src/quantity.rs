//! Kubernetes' quantities (`20m`, `64Mi`): read well enough to refuse what the API server would refuse.
//!
//! Source: `apimachinery/pkg/api/resource/quantity.go`, and `ValidateContainerResourceRequirements` in
//! `pkg/apis/core/validation`: a request is at most its limit.

use std::collections::BTreeMap;

use crate::settings::Resources;

/// Digits and exponents beyond this are nobody's CPU or memory.
const LENGTH_MAX: usize = 32;

/// A quantity in its unit; `None` where it is none, or negative.
pub(crate) fn parse(text: &str) -> Option<f64> {
    if text.len() > LENGTH_MAX {
        return None;
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    if !number.contains(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    let number: f64 = number.parse().ok()?;
    let factor = match suffix {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024_f64.powi(2),
        "Gi" => 1024_f64.powi(3),
        "Ti" => 1024_f64.powi(4),
        "Pi" => 1024_f64.powi(5),
        "Ei" => 1024_f64.powi(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            10_f64.powi(exponent)
        }
    };
    let value = number * factor;
    value.is_finite().then_some(value)
}

/// Whether a container may have these resources. The error says why not.
pub(crate) fn check(resources: &Resources) -> Result<(), String> {
    let read = |quantities: &BTreeMap<String, String>| -> Result<Vec<(String, f64)>, String> {
        quantities
            .iter()
            .map(|(name, text)| {
                let value = parse(text).ok_or_else(|| {
                    format!("`{text}` is no quantity of {name}; write 100m, 0.5, 64Mi or the like")
                })?;
                Ok((name.clone(), value))
            })
            .collect()
    };
    let limits: BTreeMap<String, f64> = read(&resources.limits)?.into_iter().collect();
    for (name, request) in read(&resources.requests)? {
        // Two spellings of one quantity may differ in the last binary digit.
        if limits.get(&name).is_some_and(|limit| request > limit * (1.0 + 1e-9)) {
            return Err(format!(
                "the request of {name} ({}) is above its limit ({})",
                resources.requests.get(&name).map_or("", String::as_str),
                resources.limits.get(&name).map_or("", String::as_str),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_as_kubernetes_writes_them() {
        for (text, value) in [
            ("20m", Some(0.02)),
            ("1", Some(1.0)),
            ("0.5", Some(0.5)),
            ("64Mi", Some(67_108_864.0)),
            ("1e3", Some(1e3)),
        ] {
            assert_eq!(parse(text), value, "{text}");
        }
        for text in ["", "m", ".", "-1", "1 Mi", "64MiB", "1e", "64mi", "1e99999", "nan", "1.2.3"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_request_above_its_limit_is_told() {
        let mut resources = Resources::default();
        assert_eq!(check(&resources), Ok(()));
        resources.requests.insert("memory".to_owned(), "1Gi".to_owned());
        assert_eq!(
            check(&resources),
            Err("the request of memory (1Gi) is above its limit (256Mi)".to_owned())
        );
    }
}
