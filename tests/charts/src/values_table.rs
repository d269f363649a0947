//! The table of a chart's README, made from the comments of its `values.yaml` that start with `# --`.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// Where the table stands in a README.
pub const BEGIN: &str = "<!-- values: written from the comments of values.yaml -->";
/// Where it ends.
pub const END: &str = "<!-- end of values -->";

/// One value.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// Dotted path.
    pub key: String,
    /// Its default, as JSON.
    pub default: String,
    /// The comment.
    pub meaning: String,
}

/// The values that a user can set, in the order of the file.
///
/// # Errors
/// The text is no YAML, or a value has no comment and no values with comments below it.
pub fn rows(text: &str) -> Result<Vec<Row>> {
    let values: Value =
        serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("values.yaml: {error}"))?;
    let mut rows = Vec::new();
    // Keys above the current line, each with its indentation.
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut comment: Option<String> = None;
    // Lines that are deeper belong to a value that has its row already.
    let mut described: Option<usize> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let content = line.trim_start();
        if content.is_empty() || described.is_some_and(|depth| indent > depth) {
            continue;
        }
        described = None;
        if let Some(meaning) = content.strip_prefix("# -- ") {
            comment = Some(meaning.trim().to_owned());
            continue;
        }
        if content.starts_with('#') || content.starts_with('-') {
            continue;
        }
        let (key, rest) =
            content.split_once(':').with_context(|| format!("values.yaml: what is `{line}`?"))?;
        above.retain(|(depth, _)| *depth < indent);
        above.push((indent, key.to_owned()));
        let path: Vec<&str> = above.iter().map(|(_, key)| key.as_str()).collect();
        let dotted = path.join(".");
        let value = values
            .pointer(&format!("/{}", path.join("/")))
            .with_context(|| format!("values.yaml: {dotted} cannot be found"))?;
        match comment.take() {
            Some(meaning) => {
                rows.push(Row { key: dotted, default: value.to_string(), meaning });
                described = Some(indent);
            }
            None => {
                ensure!(rest.trim().is_empty() && value.is_object(), "values.yaml: {dotted} has no comment");
            }
        }
    }
    Ok(rows)
}

/// The table in Markdown.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let mut table = "| value | default | what it is |\n|---|---|---|\n".to_owned();
    let cell = |text: &str| text.replace('|', "\\|");
    for row in rows {
        // Writing into a String cannot fail.
        let _ = writeln!(table, "| `{}` | `{}` | {} |", row.key, cell(&row.default), cell(&row.meaning));
    }
    table
}

/// A README with the table in its place.
///
/// # Errors
/// The README lacks the two marks.
pub fn with_table(readme: &str, table: &str) -> Result<String> {
    let (Some(begin), Some(end)) = (readme.find(BEGIN), readme.find(END)) else {
        bail!("README.md needs the lines `{BEGIN}` and `{END}`");
    };
    let before = &readme[..begin + BEGIN.len()];
    Ok(format!("{before}\n{table}{}", &readme[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_for_each_comment() {
        let text = "# -- Its name.\nname: \"\"\nimage:\n  # -- Where a|b is.\n  tag: x\n# -- Free.\nresources:\n  limits:\n    cpu: 1\nother:\n  # -- More.\n  list: [a]\n";
        let rows = rows(text).expect("understood");
        assert_eq!(
            markdown(&rows).lines().skip(2).collect::<Vec<_>>(),
            [
                r#"| `name` | `""` | Its name. |"#,
                r#"| `image.tag` | `"x"` | Where a\|b is. |"#,
                r#"| `resources` | `{"limits":{"cpu":1}}` | Free. |"#,
                r#"| `other.list` | `["a"]` | More. |"#,
            ]
        );
    }

    #[test]
    fn a_value_without_comment_is_named() {
        let error = rows("image:\n  tag: x\n").expect_err("no comment").to_string();
        assert_eq!(error, "values.yaml: image.tag has no comment");
    }
}
