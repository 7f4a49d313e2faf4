//! What a text mentions: `@data.csv`, `@"my file.csv"`, `@sub/dir/file`, `@cell`, `@cell:3`, `@out:3`. Pure and total.
//!
//! Imports nothing of ours. Code is not looked into: neither fences nor code between backticks, for an `@` there is a
//! decorator or an address.

/// Something that is mentioned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mention {
    /// A cell of this kernel, by its number or the one before.
    Cell(Option<u32>),
    /// Only what a cell showed.
    Output(Option<u32>),
    /// Perhaps a file: what it may be called, the likeliest first. Never empty.
    Path {
        /// `data.csv,` and `data.csv`: the comma may end the name or the clause.
        candidates: Vec<String>,
        /// Whether it stands in quotes, and so can be nothing else.
        quoted: bool,
    },
}

/// The most mentions that are looked at in one text.
const MOST: usize = 40;
/// The longest path, in bytes.
const LONGEST: usize = 1000;

/// The mentions in a text, in their order, each once.
pub(super) fn find(text: &str) -> Vec<Mention> {
    let mut found: Vec<Mention> = Vec::new();
    let mut fence: Option<(char, usize)> = None;
    for line in text.lines() {
        let trimmed = line.trim_start_matches([' ', '>', '-', '*', '+']);
        let mark = trimmed.chars().next().filter(|c| matches!(c, '`' | '~'));
        let width = mark.map_or(0, |mark| trimmed.chars().take_while(|c| *c == mark).count());
        match (fence, mark) {
            (Some((open, least)), Some(mark)) if mark == open && width >= least => fence = None,
            (Some(_), _) => {}
            (None, Some(mark)) if width >= 3 => fence = Some((mark, width)),
            (None, _) => of_line(line, &mut found),
        }
        if found.len() >= MOST {
            found.truncate(MOST);
            break;
        }
    }
    found
}

fn of_line(line: &str, found: &mut Vec<Mention>) {
    let mut rest = line;
    let mut before = ' ';
    while let Some(at) = rest.find(['@', '`']) {
        before = rest.get(..at).and_then(|text| text.chars().next_back()).unwrap_or(before);
        let (sign, after) = rest.get(at..).unwrap_or_default().split_at(1);
        if sign == "`" {
            let ticks = 1 + after.chars().take_while(|c| *c == '`').count();
            let code = "`".repeat(ticks);
            let inner = after.get(ticks - 1..).unwrap_or_default();
            // Backticks that are never closed are no code.
            rest = inner.split_once(&code).map_or(inner, |(_, behind)| behind);
            before = '`';
            continue;
        }
        // An address (`a@b.c`) mentions nothing.
        let begins = before.is_whitespace()
            || matches!(
                before,
                '(' | '['
                    | '{'
                    | '"'
                    | '\''
                    | ','
                    | ';'
                    | ':'
                    | '—'
                    | '–'
                    | '*'
                    | '_'
                    | '¿'
                    | '¡'
                    | '„'
                    | '“'
                    | '«'
            );
        before = '@';
        rest = after;
        if !begins {
            continue;
        }
        if let Some((mention, behind)) = one(after) {
            if !found.contains(&mention) {
                found.push(mention);
            }
            rest = behind;
        }
    }
}

/// The mention behind an `@`, and what follows it.
fn one(text: &str) -> Option<(Mention, &str)> {
    if let Some(quote @ ('"' | '\'')) = text.chars().next() {
        let (path, behind) = text.get(1..)?.split_once(quote)?;
        let fits = !path.trim().is_empty() && is_path(path);
        return fits.then(|| (Mention::Path { candidates: vec![path.to_owned()], quoted: true }, behind));
    }
    let end = text
        .find(|c: char| c.is_whitespace() || matches!(c, '`' | '"' | '<' | '>' | '|' | '@'))
        .unwrap_or(text.len());
    let (word, behind) = text.split_at(end);
    if let Some(mention) = of_cell(word) {
        return Some((mention, behind));
    }
    let candidates = candidates(word);
    (!candidates.is_empty()).then_some((Mention::Path { candidates, quoted: false }, behind))
}

/// `cell`, `cell:3`, `out`, `out:3`, with what may end a clause behind them.
fn of_cell(word: &str) -> Option<Mention> {
    let word = word.trim_end_matches(|c: char| !c.is_alphanumeric());
    let word = word.strip_suffix("'s").unwrap_or(word);
    let (name, number) = match word.split_once(':') {
        Some((name, number)) => (name, Some(number.parse().ok()?)),
        None => (word, None),
    };
    match name {
        "cell" => Some(Mention::Cell(number)),
        "out" => Some(Mention::Output(number)),
        _ => None,
    }
}

/// What a word may name: the whole of it, and without what may belong to the sentence.
fn candidates(word: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut now = word;
    while !now.is_empty() && now != "." && now != ".." && all.len() < 8 {
        if is_path(now) {
            all.push(now.to_owned());
        }
        let shorter = now.strip_suffix("'s").or_else(|| now.strip_suffix("’s"));
        match shorter.or_else(|| now.strip_suffix(ends_a_clause)) {
            Some(shorter) => now = shorter,
            None => break,
        }
    }
    all
}

fn ends_a_clause(c: char) -> bool {
    matches!(
        c,
        '.' | ','
            | ';'
            | ':'
            | '!'
            | '?'
            | ')'
            | ']'
            | '}'
            | '\''
            | '*'
            | '_'
            | '’'
            | '”'
            | '“'
            | '»'
            | '…'
            | '/'
    )
}

/// Whether a name that leads nowhere was most likely meant as a file's: names of packages (`@types/node`), decorators
/// (`@app.post`) and people are not.
pub(super) fn looks_like_a_file(name: &str) -> bool {
    /// Endings of nothing else.
    #[rustfmt::skip]
    const ENDINGS: [&str; 52] = [
        "csv", "tsv", "txt", "md", "rst", "json", "jsonl", "ndjson", "yaml", "yml", "toml", "ini", "cfg", "conf", "xml",
        "html", "htm", "css", "pdf", "docx", "xlsx", "xls", "pptx", "parquet", "feather", "npy", "npz", "pkl", "h5", "hdf5",
        "sqlite", "png", "jpg", "jpeg", "gif", "webp", "svg", "bmp", "tif", "tiff", "ipynb", "py", "rs", "cpp", "sql", "sh",
        "tex", "bib", "gz", "zip", "tar", "tgz",
    ];
    if ["./", "../", "/", "~/"].iter().any(|begin| name.starts_with(begin)) {
        return true;
    }
    let file = name.rsplit('/').next().unwrap_or(name);
    file.rsplit_once('.').is_some_and(|(stem, ending)| {
        !stem.is_empty() && ENDINGS.contains(&ending.to_ascii_lowercase().as_str())
    })
}

/// Whether a text can be a path at all.
fn is_path(text: &str) -> bool {
    text.len() <= LONGEST && !text.chars().any(char::is_control) && text.chars().any(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let first = |mention: Mention| match mention {
            Mention::Path { candidates, quoted } => {
                format!("{}{}", if quoted { "quoted " } else { "" }, candidates.join("|"))
            }
            other => format!("{other:?}"),
        };
        find(text).into_iter().map(first).collect()
    }

    #[test]
    fn files_are_named_in_every_way() {
        for (text, expected) in [
            ("Plot @data.csv", vec!["data.csv"]),
            ("@data.csv?", vec!["data.csv?|data.csv"]),
            ("(see @sub/dir/file.txt).", vec!["sub/dir/file.txt).|sub/dir/file.txt)|sub/dir/file.txt"]),
            ("compare @a.csv, @b.csv and @a.csv,", vec!["a.csv,|a.csv", "b.csv"]),
            ("@\"my file.csv\" and @'it'", vec!["quoted my file.csv", "quoted it"]),
            ("@data.csv's columns", vec!["data.csv's|data.csv"]),
            ("**@data.csv**", vec!["data.csv**|data.csv*|data.csv"]),
            ("@Größe.txt", vec!["Größe.txt"]),
            ("@../x @/etc/passwd @~/x", vec!["../x", "/etc/passwd", "~/x"]),
            ("ask @ada about it", vec!["ada"]),
        ] {
            assert_eq!(paths(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_file_is_told_from_packages_decorators_and_people() {
        for file in
            ["data/sales.csv", "sales.CSV", "./data", "../x", "/etc/hosts", "~/x", "a/b/c.py", "a.tar.gz"]
        {
            assert!(looks_like_a_file(file), "{file}");
        }
        for other in [
            "types/node",
            "angular/core",
            "angular/common/http",
            "ada",
            "john.doe",
            "app.post",
            "functools.cache",
            "mock.patch",
            "next.js",
            "socket.io",
            ".csv",
            "v1.2",
        ] {
            assert!(!looks_like_a_file(other), "{other}");
        }
    }

    #[test]
    fn what_is_no_mention_is_text() {
        for text in [
            "mail ada@example.org",
            "x@y",
            "@",
            "@ data.csv",
            "@...",
            "`@data.csv` and ``@x ` @y``",
            "```python\n@dataclass\nclass X: pass\n```\n",
            "~~~\n@a\n```\n@b\n~~~",
            "> ```\n> @a\n> ```",
            "a @\"\" b",
            "@\u{7}",
        ] {
            assert_eq!(paths(text), Vec::<String>::new(), "{text:?}");
        }
        assert_eq!(paths("a ` @b.c"), ["b.c"], "a backtick that is never closed");
        assert_eq!(paths("```\n@a\n```\n@b"), ["b"]);
    }

    #[test]
    fn cells_are_named_by_number_or_as_the_one_before() {
        for (text, expected) in [
            ("@cell", "Cell(None)"),
            ("explain @cell:3.", "Cell(Some(3))"),
            ("(@out:12)", "Output(Some(12))"),
            ("@out, why?", "Output(None)"),
            ("@cell's output", "Cell(None)"),
        ] {
            assert_eq!(paths(text), [expected], "{text:?}");
        }
        assert_eq!(paths("@cell:x @cells"), ["cell:x", "cells"]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_looked_through(text in "[@`~\"' a-z./:\n>]{0,80}|.{0,80}") {
            proptest::prop_assert!(find(&text).len() <= MOST);
        }
    }
}
