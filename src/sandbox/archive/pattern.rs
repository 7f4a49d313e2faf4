//! Patterns for names, as in a shell.
//!
//! Imports nothing of ours.

/// Whether a name fits a pattern with `*`, `?` and `[...]`. Takes at most as many steps as the two lengths multiplied:
/// the notebook chooses both.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut pos) = (0, 0);
    // Where the last star stands, and the name's letter from which it was tried.
    let mut star: Option<(usize, usize)> = None;
    while pos < name.len() {
        if pattern.get(at) == Some(&'*') {
            star = Some((at, pos));
            at += 1;
            continue;
        }
        if let Some(next) = one(&pattern, at, name[pos]) {
            (at, pos) = (next, pos + 1);
            continue;
        }
        let Some((back, from)) = star else { return false };
        star = Some((back, from + 1));
        (at, pos) = (back + 1, from + 1);
    }
    pattern[at.min(pattern.len())..].iter().all(|c| *c == '*')
}

/// Whether a letter fits the pattern at a place; the place behind it.
fn one(pattern: &[char], at: usize, letter: char) -> Option<usize> {
    match *pattern.get(at)? {
        '?' => Some(at + 1),
        '[' => {
            let Some(length) = pattern[at + 1..].iter().position(|c| *c == ']') else {
                return (letter == '[').then_some(at + 1);
            };
            let set = &pattern[at + 1..at + 1 + length];
            let (set, wanted) = match set.split_first() {
                Some(('!' | '^', rest)) => (rest, false),
                _ => (set, true),
            };
            let range = set.windows(3).any(|w| w[1] == '-' && (w[0]..=w[2]).contains(&letter));
            ((range || set.contains(&letter)) == wanted).then_some(at + length + 2)
        }
        c => (c == letter).then_some(at + 1),
    }
}

/// Names that are hidden, or that settings are made of: nothing of a notebook's touches them unasked.
pub fn is_private(name: &[u8]) -> bool {
    name.first() == Some(&b'.') || matches!(name, b"cellblock.toml" | b"containers")
}

/// Whether a file of that name is data: nothing runs it, so a newer one may take its place.
pub(super) fn is_data(name: &[u8]) -> bool {
    const KINDS: [&str; 24] = [
        "csv", "tsv", "txt", "log", "parquet", "feather", "arrow", "xlsx", "png", "jpg", "jpeg", "gif",
        "webp", "svg", "pdf", "npy", "npz", "h5", "zip", "gz", "tar", "md", "jsonl", "wav",
    ];
    let name = String::from_utf8_lossy(name).to_lowercase();
    name.rsplit_once('.').is_some_and(|(stem, kind)| !stem.is_empty() && KINDS.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names_as_in_a_shell() {
        let fits = matches;
        for (pattern, name) in [
            ("*.csv", "a.csv"),
            ("a?c", "abc"),
            ("*", ""),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("a*b*c", "aXbYc"),
            ("a[b", "a[b"),
            ("é*", "éa"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("*.csv", "a.csvx"), ("a?c", "ac"), ("[a-c]x", "dx"), ("", "a"), ("a*b", "a")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_comes_to_an_end() {
        let (pattern, name) = ("*a".repeat(100) + "b", "a".repeat(2000));
        assert!(!matches(&pattern, &name));
        assert!(matches(&"*a".repeat(100), &name));
    }

    #[test]
    fn what_runs_or_configures_is_no_data() {
        for data in ["a.csv", "plot.PNG", "x.tar.gz"] {
            assert!(is_data(data.as_bytes()), "{data}");
        }
        for other in ["nb.ipynb", "a.py", "Makefile", "x.toml", ".csv", "csv", "run.sh", "page.html"] {
            assert!(!is_data(other.as_bytes()), "{other}");
        }
        for private in [".git", ".env", "cellblock.toml", "containers"] {
            assert!(is_private(private.as_bytes()), "{private}");
        }
    }
}
