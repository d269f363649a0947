//! How values are written, and what a peer chose made harmless.

use ratatui::text::Span;

/// What stands for a value that is not known.
pub(super) const UNKNOWN: &str = "-";

/// Text of a peer's choice, without anything that a terminal would obey or that would change how the rest is read:
/// control characters, escape sequences, marks that turn the direction or have no width of their own. They are shown as
/// Rust writes them: `\u{1b}`.
#[must_use]
pub(super) fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\'' => out.push(character),
            _ => out.extend(character.escape_debug()),
        }
    }
    out
}

/// An age or a span of time in milliseconds, in at most 6 columns: `0.3s`, `42s`, `3m12s`, `2h05m`, `4d03h`, `120d`.
#[must_use]
pub(super) fn age(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..10 => format!("{seconds}.{}s", ms % 1_000 / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        86_400..8_640_000 => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// An interval in milliseconds: exact up to ten seconds, then as [`age`].
#[must_use]
pub(super) fn interval(ms: u64) -> String {
    if ms < 10_000 && !ms.is_multiple_of(100) {
        return if ms < 1_000 {
            format!("{ms}ms")
        } else {
            format!("{}.{:02}s", ms / 1_000, ms % 1_000 / 10)
        };
    }
    age(ms)
}

/// Bytes in at most 6 columns, with powers of 1024: `0`, `812`, `12.3K`, `26.5M`.
#[must_use]
pub(super) fn bytes(count: u64) -> String {
    if count < 1_000 {
        return count.to_string();
    }
    let mut unit = 1_024_u64;
    for letter in ["K", "M", "G", "T", "P"] {
        // In tenths, rounded.
        let tenths = (u128::from(count) * 10 + u128::from(unit) / 2) / u128::from(unit);
        match tenths {
            ..1_000 => return format!("{}.{}{letter}", tenths / 10, tenths % 10),
            1_000..10_000 => return format!("{}{letter}", tenths / 10),
            _ => unit <<= 10,
        }
    }
    format!("{}E", count >> 60)
}

/// A round-trip time in microseconds, in at most 6 columns: `0.3ms`, `12.1ms`, `250ms`, `1.2s`.
#[must_use]
pub(super) fn round_trip(us: u32) -> String {
    match us {
        0..100_000 => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
        100_000..1_000_000 => format!("{}ms", us / 1_000),
        _ => age(u64::from(us / 1_000)),
    }
}

/// A count with its thousands apart: `10,000`.
#[must_use]
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A value, or [`UNKNOWN`].
pub(super) fn known<T>(value: Option<T>, write: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), write)
}

/// Time of day in UTC of a moment in milliseconds of Unix time: `14:03:22`.
#[must_use]
pub(super) fn time_of_day(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Columns that a text takes in a terminal.
#[must_use]
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The start of a text that does not fit, with an ellipsis.
#[must_use]
pub(super) fn head(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    shortest(text.chars(), columns).chain(ellipsis(columns)).collect()
}

/// The end of a text that does not fit, with an ellipsis: of an address the port tells more than the network.
#[must_use]
pub(super) fn tail(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut end: Vec<char> = shortest(text.chars().rev(), columns).collect();
    end.reverse();
    ellipsis(columns).chain(end).collect()
}

fn ellipsis(columns: usize) -> impl Iterator<Item = char> {
    (columns > 0).then_some('…').into_iter()
}

/// What fits beside an ellipsis.
fn shortest(characters: impl Iterator<Item = char>, columns: usize) -> impl Iterator<Item = char> {
    let mut left = columns.saturating_sub(1);
    characters.take_while(move |character| {
        let wide = width(character.encode_utf8(&mut [0; 4]));
        let fits = wide <= left;
        left = left.saturating_sub(wide);
        fits
    })
}

/// A text padded to columns; cut if it is longer.
#[must_use]
pub(super) fn padded(text: &str, columns: usize, to_the_right: bool) -> String {
    let text = head(text, columns);
    let blank = " ".repeat(columns.saturating_sub(width(&text)));
    if to_the_right { blank + &text } else { text + &blank }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fit_their_columns() {
        let ages = [0, 349, 9_999, 42_000, 192_000, 7_500_000, 356_400_000, 10_368_000_000];
        assert_eq!(ages.map(age), ["0.0s", "0.3s", "9.9s", "42s", "3m12s", "2h05m", "4d03h", "120d"]);
        assert_eq!([500, 250, 2_000, 1_234, 25_000].map(interval), ["0.5s", "250ms", "2.0s", "1.23s", "25s"]);
        assert_eq!(
            [0, 812, 1_000, 12_595, 27_840_800, 1_048_575, u64::MAX].map(bytes),
            ["0", "812", "1.0K", "12.3K", "26.6M", "1.0M", "15E"]
        );
        assert_eq!(
            [0, 312, 12_123, 250_000, 1_250_000].map(round_trip),
            ["0.0ms", "0.3ms", "12.1ms", "250ms", "1.2s"]
        );
        assert_eq!([0, 999, 10_000, 1_234_567].map(grouped), ["0", "999", "10,000", "1,234,567"]);
        assert_eq!(time_of_day(1_700_000_000_123), "22:13:20");
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert_eq!(harmless("/a\u{1b}]0;x\u{7}b\u{9b}2J\r\n"), "/a\\u{1b}]0;x\\u{7}b\\u{9b}2J\\r\\n");
        assert_eq!(harmless("/\u{202e}txt \u{200b}\u{feff}"), "/\\u{202e}txt \\u{200b}\\u{feff}");
        assert_eq!(harmless("/größe/日本?\"it's\""), "/größe/日本?\"it's\"");
    }

    #[test]
    fn what_does_not_fit_is_cut_by_columns() {
        assert_eq!(
            (head("/api/mux", 5).as_str(), tail("10.87.2.2:51234", 8).as_str()),
            ("/api…", "…2:51234")
        );
        assert_eq!(head("日本語", 4), "日…");
        assert_eq!((head("ab", 0).as_str(), head("ab", 1).as_str()), ("", "…"));
        assert_eq!((padded("7", 3, true).as_str(), padded("日", 3, false).as_str()), ("  7", "日 "));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_harmless_and_fits(text in ".*", columns in 0_usize..40) {
            let shown = harmless(&text);
            proptest::prop_assert!(!shown.chars().any(char::is_control));
            for cut in [head(&shown, columns), tail(&shown, columns)] {
                proptest::prop_assert!(width(&cut) <= columns);
            }
            proptest::prop_assert_eq!(width(&padded(&shown, columns, true)), columns);
        }
    }
}
