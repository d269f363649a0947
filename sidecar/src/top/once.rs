//! One plain table: for `--once`, for pipes, and for terminals that cannot be drawn on.

use super::client::Answer;
use super::columns::plain;
use super::query::Query;
use super::text::grouped;
use super::view;

/// The header and the table, as lines without any control character but the line feed.
pub(super) fn render(answer: Answer, query: &Query) -> String {
    let Answer { status, connections: answered, .. } = answer;
    let mut rows = answered.connections;
    rows.retain(|connection| query.admits(connection));
    query.sort.apply(&mut rows);
    let mut text = format!(
        "{}\n{}\n{}  {}\nshowing {} of {}, {}\n",
        view::summary(&status),
        view::verdicts(&status),
        view::closes(&status),
        view::losses(&status),
        grouped(rows.len() as u64),
        grouped(answered.total as u64),
        query.sort.key.order(query.sort.descending),
    );
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&plain(&rows, query.sort));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_table_is_plain_and_whole() {
        let query = Query::default();
        let answer = Answer {
            query: query.clone(),
            status: samples::status(),
            connections: samples::answer(10_000, samples::connections().into_iter().take(5).collect()),
            pinned: None,
        };
        let text = render(answer, &query);
        assert!(!text.chars().any(|character| character.is_control() && character != '\n'), "{text:?}");
        insta::assert_snapshot!(text);
    }
}
