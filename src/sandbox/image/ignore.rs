//! `.dockerignore`: what of a folder is not sent to the engine.
//!
//! Imports nothing of ours. The rules are Docker's: patterns are relative to the folder, `*` and `?` stay within a
//! name, `**` stands for any number of names, `!` takes something back in, the last rule that matches counts, and
//! what matches a folder matches what is in it.

/// The rules of one file.
#[derive(Debug, Default)]
pub(super) struct Ignore {
    rules: Vec<(Vec<String>, bool)>,
}

impl Ignore {
    /// Reads the rules. What can't be one is passed over.
    pub(super) fn parse(text: &str) -> Self {
        let rules = text.trim_start_matches('\u{feff}').lines().filter(|line| !line.starts_with('#'));
        let rules = rules.filter_map(|line| {
            let line = line.trim();
            let (line, excluded) = line.strip_prefix('!').map_or((line, true), |rest| (rest.trim(), false));
            let mut names: Vec<String> = Vec::new();
            for name in line.split('/') {
                match name {
                    "" | "." => {}
                    ".." => drop(names.pop()),
                    name => names.push(name.to_owned()),
                }
            }
            (!names.is_empty()).then_some((names, excluded))
        });
        Ignore { rules: rules.collect() }
    }

    /// Whether something is left out.
    pub(super) fn excludes(&self, path: &[&str]) -> bool {
        let mut excluded = false;
        for (rule, excludes) in &self.rules {
            if *excludes != excluded && (1..=path.len()).any(|depth| names(rule, &path[..depth])) {
                excluded = *excludes;
            }
        }
        excluded
    }

    /// Whether something in a folder that is left out may be taken back in.
    pub(super) fn takes_back(&self) -> bool {
        self.rules.iter().any(|(_, excludes)| !excludes)
    }
}

fn names(rule: &[String], path: &[&str]) -> bool {
    match (rule.split_first(), path.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "**" => {
            names(rest, path) || (!path.is_empty() && names(rule, &path[1..]))
        }
        (Some((first, rest)), Some((name, below))) => {
            let (pattern, name): (Vec<char>, Vec<char>) = (first.chars().collect(), name.chars().collect());
            glob(&pattern, &name) && names(rest, below)
        }
        _ => false,
    }
}

fn glob(pattern: &[char], name: &[char]) -> bool {
    match pattern {
        [] => name.is_empty(),
        ['*', rest @ ..] => glob(rest, name) || (!name.is_empty() && glob(pattern, &name[1..])),
        ['?', rest @ ..] => !name.is_empty() && glob(rest, &name[1..]),
        ['[', rest @ ..] if rest.iter().skip(1).any(|c| *c == ']') => {
            let end = 1 + rest.iter().skip(1).position(|c| *c == ']').unwrap_or_default();
            let (set, rest) = (&rest[..end], &rest[end + 1..]);
            let Some((first, below)) = name.split_first() else { return false };
            one_of(set, *first) && glob(rest, below)
        }
        ['\\', literal, rest @ ..] | [literal, rest @ ..] => {
            name.first() == Some(literal) && glob(rest, &name[1..])
        }
    }
}

fn one_of(set: &[char], c: char) -> bool {
    let (set, negated) = match set {
        ['^' | '!', rest @ ..] => (rest, true),
        set => (set, false),
    };
    let mut found = false;
    let mut at = 0;
    while at < set.len() {
        if at + 2 < set.len() && set[at + 1] == '-' {
            found |= (set[at]..=set[at + 2]).contains(&c);
            at += 3;
        } else {
            found |= set[at] == c;
            at += 1;
        }
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(rules: &str, path: &str) -> bool {
        Ignore::parse(rules).excludes(&path.split('/').collect::<Vec<_>>())
    }

    #[test]
    fn patterns_mean_what_docker_says() {
        for (rules, path) in [
            ("secret", "secret"),
            ("secret", "secret/deep/file"),
            ("/secret/", "secret"),
            ("*.pem", "key.pem"),
            ("*/temp*", "sub/temporary"),
            ("*/*/temp*", "a/b/temp"),
            ("**/*.go", "a/b/c.go"),
            ("**/*.go", "c.go"),
            ("a/**/z", "a/z"),
            ("a/**", "a/b"),
            ("temp?", "tempa"),
            ("[a-c]x", "bx"),
            ("[^a-c]x", "dx"),
            ("\\!x", "!x"),
            ("# no\n  x  \n", "x"),
            ("*\n!a", "b"),
            ("!a\na", "a"),
            ("a/./b/../c", "a/c"),
        ] {
            assert!(excluded(rules, path), "{rules:?} {path}");
        }
        for (rules, path) in [
            ("*.pem", "sub/key.pem"),
            ("secret", "sub/secret"),
            ("*/temp*", "temp"),
            ("temp?", "temp"),
            ("#x", "#x"),
            ("*\n!a", "a"),
            ("*\n!a", "a/below"),
            ("*.md\n!README.md", "README.md"),
            ("[a-c]x", "dx"),
            ("", "x"),
            (".", "x"),
            ("..", "x"),
        ] {
            assert!(!excluded(rules, path), "{rules:?} {path}");
        }
        assert!(Ignore::parse("*\n!a").takes_back() && !Ignore::parse("*").takes_back());
    }
}
