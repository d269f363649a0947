//! What a scalar means to Kubernetes, which reads YAML 1.1 (`sigs.k8s.io/yaml` over go-yaml 2): `yes` is true and `0644` is octal.

use granit_parser::Tag;
use serde_json::{Number, Value};

/// The value of a scalar.
pub(super) fn resolve(text: &str, is_plain: bool, tag: Option<&Tag>) -> Value {
    let is_text = tag.and_then(Tag::core_suffix) == Some("str");
    if !is_plain || is_text {
        return Value::String(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    }
}

fn number(text: &str) -> Option<Number> {
    let first = *text.as_bytes().first()?;
    if !(first.is_ascii_digit() || b"+-.".contains(&first)) {
        return None;
    }
    let plain = text.replace('_', "");
    let (is_negative, digits) = match plain.as_bytes().first()? {
        b'-' => (true, plain.get(1..)?),
        b'+' => (false, plain.get(1..)?),
        _ => (false, plain.as_str()),
    };
    if !digits.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
        return None;
    }
    let whole = if let Some(digits) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        u64::from_str_radix(digits, 16).ok()
    } else if let Some(digits) = digits.strip_prefix("0b").or_else(|| digits.strip_prefix("0B")) {
        u64::from_str_radix(digits, 2).ok()
    } else if let Some(digits) = digits.strip_prefix("0o") {
        u64::from_str_radix(digits, 8).ok()
    } else if digits.len() > 1
        && digits.starts_with('0')
        && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit))
    {
        u64::from_str_radix(digits, 8).ok()
    } else {
        digits.parse().ok()
    };
    match whole {
        Some(whole) if is_negative => {
            let negative = i64::try_from(-i128::from(whole)).ok()?;
            Some(Number::from(negative))
        }
        Some(whole) => Some(Number::from(whole)),
        None if is_float(digits) => Number::from_f64(plain.parse().ok()?),
        None => None,
    }
}

/// go-yaml's `^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`, without its sign.
fn is_float(digits: &str) -> bool {
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (digits, None),
    };
    let all_digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && all_digits(exponent)
    });
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, fraction)) => {
            all_digits(whole) && all_digits(fraction) && !(whole.is_empty() && fraction.is_empty())
        }
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    exponent_fits && mantissa_fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scalars_as_kubernetes_reads_them() {
        for (text, value) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("yes", json!(true)),
            ("off", json!(false)),
            ("0644", json!(420)),
            ("0899", json!(899)),
            ("0x1F", json!(31)),
            ("-12", json!(-12)),
            ("1_000", json!(1000)),
            ("1.10", json!(1.1)),
            ("1e3", json!(1000.0)),
            (".5", json!(0.5)),
            ("1.2.3", json!("1.2.3")),
            ("-", json!("-")),
            ("10.0.0.1:80", json!("10.0.0.1:80")),
            ("128Mi", json!("128Mi")),
            ("2026-11-30", json!("2026-11-30")),
            (".inf", json!(".inf")),
        ] {
            assert_eq!(resolve(text, true, None), value, "{text}");
        }
        assert_eq!(resolve("yes", false, None), json!("yes"));
    }
}
