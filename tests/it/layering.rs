//! The floors of the house: a module imports only modules above it.

use std::path::{Path, PathBuf};

/// Each module with what it may import. The order is the order of `src/lib.rs`.
const FLOORS: &[(&str, &[&str])] = &[
    ("event", &[]),
    ("config", &[]),
    ("cell", &[]),
    ("sandbox", &["event", "config"]),
    ("chat", &["event", "config"]),
    ("engine", &["event", "config", "cell", "sandbox", "chat"]),
    ("jupyter", &["event", "config", "engine", "cell"]),
    ("cli", &["event", "config", "cell", "sandbox", "chat", "engine", "jupyter"]),
];

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a source folder") {
        let path = entry.expect("a folder entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// What of ours the text names: every `crate::X` that is one of the floors.
fn imports(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for (at, _) in code.match_indices("crate::") {
            let rest = &code[at + "crate::".len()..];
            let names = match rest.strip_prefix('{') {
                Some(group) => group.split(',').map(|n| n.trim().to_owned()).collect(),
                None => vec![rest.to_owned()],
            };
            for name in names {
                let name: String =
                    name.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                if FLOORS.iter().any(|(floor, _)| *floor == name) {
                    found.push((number + 1, name));
                }
            }
        }
    }
    found
}

#[test]
fn no_module_imports_from_a_lower_floor() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (floor, allowed) in FLOORS {
        let mut files = Vec::new();
        sources(&src.join(floor), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).expect("a source file");
            if text.contains("super::super") {
                wrong.push(format!("{}: super::super", file.display()));
            }
            for (line, name) in imports(&text) {
                seen += 1;
                if name != *floor && !allowed.contains(&name.as_str()) {
                    wrong.push(format!("{}:{line}: {floor} must not import {name}", file.display()));
                }
            }
        }
    }
    assert!(seen > 0, "no imports found: the test reads nothing");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_upward_import_would_be_seen() {
    assert_eq!(imports("use crate::engine::Engine;"), [(1, "engine".to_owned())]);
    assert_eq!(
        imports("use crate::{event::Event, jupyter};"),
        [(1, "event".to_owned()), (1, "jupyter".to_owned())]
    );
    assert!(imports("// crate::engine is below").is_empty());
}
