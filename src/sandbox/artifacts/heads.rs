//! The beginning of tables and texts.
//!
//! Imports nothing of ours. What a cell holds is plain text by the time it leaves here: bounded, without control
//! characters; whoever shows it escapes it.

use std::io::{BufRead, BufReader, Read};
use std::time::Instant;

use serde::Deserialize;

/// Rows and columns that are shown.
pub(super) const ROWS: usize = 10;
const COLUMNS: usize = 30;
/// Characters of one value.
const VALUE: usize = 100;
/// Bytes and rows that are read to count them.
const READ: u64 = 16 << 20;
const COUNTED: u64 = 200_000;
/// Lines of a text, characters of a line, and bytes that are read for them.
const LINES: usize = 20;
const LINE: usize = 200;
const TEXT: u64 = 64 << 10;

/// The beginning of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Columns there are, of which the first are shown.
    pub(super) columns: usize,
    /// Rows that were read, the header not counted.
    pub(super) count: u64,
    /// Whether there are more.
    pub(super) more: bool,
}

/// The beginning of a file of values with `delimiter` between them.
pub(super) fn table(file: impl Read, delimiter: u8, until: Instant) -> Option<Table> {
    let mut limited = file.take(READ);
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .flexible(true)
        .has_headers(false)
        .from_reader(&mut limited);
    let mut record = csv::ByteRecord::new();
    let mut table: Option<Table> = None;
    let mut broke_off = false;
    while reader.read_byte_record(&mut record).ok()? {
        let values =
            || record.iter().take(COLUMNS).map(|value| value_of(&String::from_utf8_lossy(value))).collect();
        let Some(table) = &mut table else {
            let (header, columns) = (values(), record.len());
            table = Some(Table { header, rows: Vec::new(), columns, count: 0, more: false });
            continue;
        };
        if table.count == COUNTED || (table.count % 1024 == 1023 && Instant::now() >= until) {
            broke_off = true;
            break;
        }
        table.count += 1;
        table.columns = table.columns.max(record.len());
        if table.rows.len() < ROWS {
            table.rows.push(values());
        }
    }
    drop(reader);
    let mut table = table?;
    table.more = broke_off || limited.limit() == 0;
    Some(table)
}

/// A table in the words of a program in the container, which are the guest's.
#[derive(Deserialize)]
struct Told {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    width: usize,
    count: u64,
}

/// A table that was read inside of the container.
pub(crate) fn told(text: &str) -> Option<Table> {
    let told: Told = serde_json::from_str(text).ok()?;
    let values =
        |row: &Vec<String>| row.iter().take(COLUMNS).map(|value| value_of(value)).collect::<Vec<_>>();
    Some(Table {
        header: values(&told.columns),
        rows: told.rows.iter().take(ROWS).map(values).collect(),
        columns: told.width,
        count: told.count,
        more: false,
    })
}

/// The first lines of a text, and whether there is more of it.
pub(super) fn text(file: impl Read) -> Option<(String, bool)> {
    let mut reader = BufReader::new(file.take(TEXT));
    let (mut text, mut line) = (String::new(), Vec::new());
    for _ in 0..LINES {
        line.clear();
        if reader.read_until(b'\n', &mut line).ok()? == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\n', '\r']);
        text.push_str(&bounded(line, LINE));
        text.push('\n');
    }
    let more = reader.fill_buf().is_ok_and(|rest| !rest.is_empty()) || reader.into_inner().limit() == 0;
    Some((text, more))
}

fn value_of(value: &str) -> String {
    bounded(&value.replace(['\n', '\r', '\t'], " "), VALUE)
}

fn bounded(text: &str, most: usize) -> String {
    let mut out: String = text.chars().filter(|c| *c == '\t' || !c.is_control()).take(most).collect();
    if text.chars().nth(most).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(text: &str, delimiter: u8) -> Table {
        table(text.as_bytes(), delimiter, Instant::now() + Duration::from_mins(1)).unwrap()
    }

    #[test]
    fn a_table_is_its_first_rows_and_their_number() {
        let lines = "1,\"a \"\"b\"\"\nc\",\n".repeat(1000);
        let table = read(&format!("n,text,empty\n{lines}"), b',');
        assert_eq!(table.header, ["n", "text", "empty"]);
        assert_eq!((table.rows.len(), table.count, table.columns, table.more), (ROWS, 1000, 3, false));
        assert_eq!(table.rows[1], ["1", "a \"b\" c", ""]);
        assert_eq!(read("a\tb\n1\t2\n", b'\t').rows, [["1", "2"]]);
    }

    #[test]
    fn rows_of_any_length_and_nonsense_are_bounded() {
        let table = read(&format!("a\n{}\n{}\n", ",".repeat(5000), "x".repeat(5000)), b',');
        assert_eq!((table.columns, table.rows[0].len()), (5001, COLUMNS));
        assert_eq!(table.rows[1][0].chars().count(), VALUE + 1);
        let open = format!("a,\"{}", "x,\n".repeat(1000));
        assert_eq!(read(&open, b',').count, 0);
        let many = "x\n".repeat(300_000);
        let table = read(&many, b',');
        assert_eq!((table.count, table.more), (COUNTED, true));
        assert_eq!(read("a\n\u{1b}[31mred\u{7}\n", b',').rows[0][0], "[31mred");
        assert!(super::table(&b""[..], b',', Instant::now()).is_none());
    }

    #[test]
    fn a_text_is_its_first_lines() {
        let text = |text: &str| super::text(text.as_bytes()).unwrap();
        assert_eq!(text("a\nb"), ("a\nb\n".to_owned(), false));
        let (head, more) = text(&"line\n".repeat(21));
        assert_eq!((head.lines().count(), more), (LINES, true));
        assert_eq!(text(&"line\n".repeat(20)), ("line\n".repeat(20), false));
        let (head, more) = text(&"x".repeat(1_000_000));
        assert!(head.chars().count() < LINE + 5 && more);
    }

    #[test]
    fn what_the_container_tells_of_a_table_is_bounded() {
        let row = vec!["x".repeat(1000); 100];
        let text =
            serde_json::json!({ "columns": row, "rows": vec![row.clone(); 100], "width": 100, "count": 5 });
        let table = told(&text.to_string()).unwrap();
        assert_eq!((table.header.len(), table.rows.len(), table.rows[0].len()), (COLUMNS, ROWS, COLUMNS));
        assert!(told("nonsense").is_none());
    }
}
