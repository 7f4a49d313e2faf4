//! What differs from run to run in the output of code: addresses, times that things took, today's date, names of containers
//! and of temporary files. Imports nothing of ours.
//!
//! Only output is treated so: in the user's own words everything counts.

use chrono::{DateTime, Days, NaiveDate, Utc};

/// What stands before an output in what the model is told of code that ran.
const SHOWED: [&str; 2] = ["It ran and showed:", "It failed and showed:"];
/// Units of time.
const UNITS: &[&str] =
    &["ns", "us", "µs", "μs", "ms", "s", "sec", "secs", "second", "seconds", "min", "minutes"];

/// The user's side of a request: the outputs in it without what differs.
pub(super) fn said(text: &str, now: DateTime<Utc>) -> String {
    if !SHOWED.iter().any(|showed| text.contains(showed)) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let (mut showed, mut fence) = (false, None::<String>);
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end_matches(['\n', '\r']);
        match &fence {
            Some(end) if bare == end => fence = None,
            Some(_) => {
                out.push_str(&outcome(line, now));
                continue;
            }
            None if showed && bare.starts_with("```") => {
                fence = Some(bare.chars().take_while(|c| *c == '`').collect());
                showed = false;
            }
            None if !bare.is_empty() => showed = SHOWED.contains(&bare),
            None => {}
        }
        out.push_str(line);
    }
    out
}

/// An output without what differs.
pub(super) fn outcome(text: &str, now: DateTime<Utc>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let found = (!word(before)).then(|| volatile(rest, before, now)).flatten();
        if let Some((length, instead)) = found {
            out.push_str(instead);
            before = rest[..length].chars().next_back().unwrap_or(' ');
            rest = &rest[length..];
        } else {
            out.push(c);
            before = c;
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// How many bytes at the beginning of `text` differ from run to run, and what to write instead.
fn volatile(text: &str, before: char, now: DateTime<Utc>) -> Option<(usize, &'static str)> {
    let first = *text.as_bytes().first()?;
    if !first.is_ascii_alphanumeric() {
        return None;
    }
    let ends = |length: usize| !text[length..].chars().next().is_some_and(word);
    if let Some(digits) = text.strip_prefix("0x") {
        let length = 2 + run(digits, |b| b.is_ascii_hexdigit());
        if length >= 8 && ends(length) {
            return Some((length, "0x..."));
        }
    }
    if let Some(length) = uuid(text).filter(|length| ends(*length)) {
        return Some((length, "<uuid>"));
    }
    let hex = run(text, |b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mixed = text[..hex].bytes().any(|b| b.is_ascii_digit())
        && text[..hex].bytes().any(|b| b.is_ascii_alphabetic());
    if matches!(hex, 12 | 64) && mixed && ends(hex) {
        return Some((hex, "<id>"));
    }
    if before == '/' && text.starts_with("tmp") {
        let length = 3 + run(&text[3..], |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if length == 11 {
            return Some((length, "<tmp>"));
        }
    }
    if first.is_ascii_alphabetic() {
        return written_date(text, now).map(|length| (length, "<now>"));
    }
    if let Some(length) = date(text, now).filter(|length| ends(*length)) {
        return Some((length, "<now>"));
    }
    let mut length = run(text, |b| b.is_ascii_digit());
    let whole = &text[..length];
    if text[length..].starts_with('.') {
        let fraction = run(&text[length + 1..], |b| b.is_ascii_digit());
        length += if fraction > 0 { 1 + fraction } else { 0 };
    }
    if whole.len() == 10
        && ends(length)
        && whole.parse::<i64>().is_ok_and(|seconds| (seconds - now.timestamp()).abs() < 86_400)
    {
        return Some((length, "<now>"));
    }
    let rest = &text[length..];
    let unit = rest.strip_prefix(' ').unwrap_or(rest);
    let name: usize = unit.chars().take_while(|c| word(*c)).map(char::len_utf8).sum();
    UNITS.contains(&&unit[..name]).then(|| (text.len() - unit.len() + name, "<time>"))
}

fn run(text: &str, of: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|b| of(*b)).count()
}

fn uuid(text: &str) -> Option<usize> {
    let text = text.as_bytes().get(..36)?;
    let fits = text.iter().enumerate().all(|(at, b)| match at {
        8 | 13 | 18 | 23 => *b == b'-',
        _ => b.is_ascii_hexdigit(),
    });
    fits.then_some(36)
}

/// Whether a day is today, as far as clocks and zones agree on that.
fn today(date: NaiveDate, now: DateTime<Utc>) -> bool {
    let today = now.date_naive();
    let near = [today.checked_sub_days(Days::new(1)), Some(today), today.checked_add_days(Days::new(1))];
    near.contains(&Some(date))
}

/// `2026-11-22`, with a time after it or not, when that is today.
fn date(text: &str, now: DateTime<Utc>) -> Option<usize> {
    let date = NaiveDate::parse_from_str(text.get(..10)?, "%Y-%m-%d").ok()?;
    if !today(date, now) {
        return None;
    }
    let Some(time) = text[10..].strip_prefix(['T', ' ']) else { return Some(10) };
    let length = time_of_day(time);
    if length == 0 {
        return Some(10);
    }
    let zone = &time[length..];
    let zone = match zone.as_bytes() {
        [b'Z', ..] => 1,
        [b'+' | b'-', ..] => 1 + run(&zone[1..], |b| b.is_ascii_digit() || b == b':'),
        _ => 0,
    };
    Some(11 + length + zone)
}

/// `05:33` or `05:33:10.123456`.
fn time_of_day(text: &str) -> usize {
    let length = run(text, |b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b','));
    let is_time = length >= 5 && text.as_bytes().get(2) == Some(&b':');
    if is_time { text[..length].trim_end_matches(['.', ',', ':']).len() } else { 0 }
}

/// `Sun Nov 22 05:33:10 2026`, with a zone before the year or not, when that is today.
fn written_date(text: &str, now: DateTime<Utc>) -> Option<usize> {
    let day = text.get(..10)?;
    let time = time_of_day(text.get(11..)?);
    if time == 0 {
        return None;
    }
    let rest = text.get(11 + time..)?.strip_prefix(' ')?;
    let zone = run(rest, |b| b.is_ascii_uppercase());
    let year_at = if zone > 0 { zone + 1 } else { 0 };
    let year = rest.get(year_at..year_at + 4)?;
    let date = NaiveDate::parse_from_str(&format!("{} {year}", day.get(4..)?), "%b %e %Y").ok()?;
    today(date, now).then_some(11 + time + 1 + year_at + 4)
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn now() -> DateTime<Utc> {
        "2026-11-22T05:33:10Z".parse().expect("a time")
    }

    #[test]
    fn what_differs_from_run_to_run_is_taken_out() {
        for (text, expected) in [
            ("<Foo object at 0x7f12ab34cd56>", "<Foo object at 0x...>"),
            ("CPU times: user 1.2 s, total: 12.3ms", "CPU times: user <time>, total: <time>"),
            ("1.01 µs ± 3 ns per loop", "<time> ± <time> per loop"),
            ("wrote /tmp/tmpab12_x9z/a.txt", "wrote /tmp/<tmp>/a.txt"),
            ("on 2026-11-22 05:33:10.123+00:00.", "on <now>."),
            ("2026-11-21T23:59:59Z", "<now>"),
            ("Sun Nov 22 05:33:10 UTC 2026", "<now>"),
            ("Sun Nov 22 05:33:10 2026", "<now>"),
            ("time 1795325590.25", "time <now>"),
            ("id 123e4567-e89b-12d3-a456-426614174000", "id <uuid>"),
            ("container 4f5e6d7c8b9a gone", "container <id> gone"),
        ] {
            assert_eq!(outcome(text, now()), expected);
        }
    }

    #[test]
    fn what_is_data_stays() {
        for text in [
            "2024-05-01 120\n2024-05-02 7",
            "x = 0x1f, 12 samples, 3 min_count, s 5 m",
            "colour #aabbcc 123456789012 abcdefabcdef",
            "é 12 µ",
            "tmpfile and /tmp/mine.txt",
            "1234567890 rows",
            "ratio 3.5 x2",
        ] {
            assert_eq!(outcome(text, now()), text);
        }
    }

    #[test]
    fn only_outputs_are_touched() {
        let text = "This code was run in the notebook:\n\n```python\nt(5)  # 5 ms\n```\n\nIt ran and showed:\n\n````\n\
                    7 ms\n```\n8 ms\n````\n\nWhy 7 ms?";
        let expected = text.replacen("\n7 ms\n```\n8 ms", "\n<time>\n```\n<time>", 1);
        assert_eq!(said(text, now()), expected);
    }

    proptest::proptest! {
        #[test]
        fn whatever_comes_is_survived(text in "\\PC{0,60}|[0-9a-f:. xTZ/tmpµ-]{0,60}") {
            outcome(&text, now());
            said(&format!("It ran and showed:\n\n```\n{text}"), now());
        }
    }
}
