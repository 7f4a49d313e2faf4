//! One settings file: TOML text to entries, each with its line. Knows nothing of which keys there are.

use std::io::Read;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

/// No settings file needs more; a project's file may be hostile, and endless.
const LARGEST: u64 = 1 << 20;

/// What a file says, in its order.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Entries {
    /// Every `key = value` and every section header.
    pub entries: Vec<Entry>,
    /// Where it is not TOML, and why. The entries are then those that could be read.
    pub syntax: Vec<(usize, String)>,
}

/// One line of a settings file.
#[derive(Debug, PartialEq)]
pub(crate) struct Entry {
    /// Line, from 1.
    pub line: usize,
    /// Section; `None` for a `key = value` before the first header.
    pub section: Option<String>,
    /// Key; `None` for the section's header itself.
    pub key: Option<String>,
    /// The value; [`Written::Nothing`] for a header.
    pub value: Written,
}

/// A value as it was written.
#[derive(Debug, PartialEq)]
pub(crate) enum Written {
    /// Nothing (a section header).
    Nothing,
    /// Text in quotes.
    Quoted(String),
    /// A number or `true`/`false`, in a form that every source of settings understands.
    Bare(String),
    /// A date, an array or a table: no setting takes one.
    Other(&'static str),
}

/// Reads a file of at most [`LARGEST`] bytes; `Ok(None)` when there is none.
///
/// It may be anything: a directory, a device, a pipe that never ends. Opening must not wait for a writer,
/// and only regular files are read.
pub(crate) fn read(path: &Path) -> Result<Option<String>, String> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(std::io::Error::from(error).to_string()),
    };
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut text = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LARGEST {
        return Err(format!("it is larger than {LARGEST} bytes"));
    }
    String::from_utf8(text).map(Some).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// The nearest file of that name in a directory or above it.
pub(crate) fn find_above(directory: &Path, name: &str) -> Option<PathBuf> {
    // `symlink_metadata`: a dangling link is found too, so that it is reported instead of passed over.
    directory.ancestors().map(|above| above.join(name)).find(|path| path.symlink_metadata().is_ok())
}

/// Takes TOML text apart; total.
pub(crate) fn parse(text: &str) -> Entries {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let line = |at: usize| 1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
    let (document, errors) = DeTable::parse_recoverable(text);
    let syntax = errors
        .iter()
        .map(|e| (line(e.span().map_or(0, |span| span.start)), e.message().to_owned()))
        .collect();
    let mut entries = Vec::new();
    for (name, value) in document.into_inner() {
        let at = line(name.span().start);
        let name = name.into_inner().into_owned();
        let DeValue::Table(table) = value.get_ref() else {
            let value = written(value.get_ref());
            entries.push(Entry { line: at, section: None, key: Some(name), value });
            continue;
        };
        entries.push(Entry { line: at, section: Some(name.clone()), key: None, value: Written::Nothing });
        for (key, value) in table {
            entries.push(Entry {
                line: line(key.span().start),
                section: Some(name.clone()),
                key: Some(key.get_ref().to_string()),
                value: written(value.get_ref()),
            });
        }
    }
    Entries { entries, syntax }
}

fn written(value: &DeValue<'_>) -> Written {
    match value {
        DeValue::String(text) => Written::Quoted(text.to_string()),
        DeValue::Boolean(flag) => Written::Bare(flag.to_string()),
        // Decimal as it stands (a number too large for its setting is reported as it was written); the
        // other bases are converted.
        DeValue::Integer(number) if number.radix() == 10 => Written::Bare(number.as_str().to_owned()),
        DeValue::Integer(number) => Written::Bare(
            u64::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| number.to_string(), |number| number.to_string()),
        ),
        DeValue::Float(number) => Written::Bare(number.as_str().to_owned()),
        DeValue::Datetime(_) => Written::Other("a date"),
        DeValue::Array(_) => Written::Other("an array"),
        DeValue::Table(_) => Written::Other("a table"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_knows_its_line() {
        let parsed =
            parse("# head\n[model]\nname = 'x'\n\n[sandbox]\nmemory = 1_024\npids = 0x40\ncpus = 0.5\n");
        assert_eq!(parsed.syntax, []);
        let seen: Vec<_> = parsed.entries.into_iter().map(|e| (e.line, e.section, e.key, e.value)).collect();
        let s = |text: &str| Some(text.to_owned());
        assert_eq!(
            seen,
            [
                (2, s("model"), None, Written::Nothing),
                (3, s("model"), s("name"), Written::Quoted("x".to_owned())),
                (5, s("sandbox"), None, Written::Nothing),
                (6, s("sandbox"), s("memory"), Written::Bare("1024".to_owned())),
                (7, s("sandbox"), s("pids"), Written::Bare("64".to_owned())),
                (8, s("sandbox"), s("cpus"), Written::Bare("0.5".to_owned())),
            ]
        );
    }

    #[test]
    fn text_that_is_not_toml_names_the_line() {
        let parsed = parse("[model]\nname = 'x'\nbase url = 3\n");
        assert_eq!(parsed.syntax.first().map(|(line, _)| *line), Some(3));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken_apart_without_a_panic(text in ".{0,200}|[a-z\\[\\]{}.=\"'#\n 0-9]{0,200}") {
            parse(&text);
        }
    }
}
