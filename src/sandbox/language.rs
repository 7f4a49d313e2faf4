//! The table of languages that the sandbox runs.
//!
//! Imports nothing of ours. To add a language that runs as a process of its own: one row in [`LANGUAGES`], its
//! programs in `tests/it/languages/NAME/`, and its row in `docs/languages.md` (tests ask for both).

use std::borrow::Cow;

/// A language, and how its code is run.
#[derive(Debug, PartialEq, Eq)]
pub struct Language {
    /// The canonical name.
    pub name: &'static str,
    /// Other names that a fence may use.
    pub aliases: &'static [&'static str],
    /// How its code is run.
    pub program: Program,
    /// Whether a session container keeps its variables from block to block.
    pub keeps_state: bool,
    /// What prints the version of what runs it.
    pub version: &'static [&'static str],
    /// The packages of Debian that an image needs for it.
    pub packages: &'static [&'static str],
}

/// How code is run.
#[derive(Debug, PartialEq, Eq)]
pub enum Program {
    /// In the live Python session.
    Session,
    /// As a process of its own.
    Process(Process),
}

/// A process for each block. In the words of its commands `{dir}` stands for the fresh folder in which the code lies,
/// and `{state}` for a file that outlives the block until the session is reset.
#[derive(Debug, PartialEq, Eq)]
pub struct Process {
    /// The name of the file that the code is written to.
    pub file: &'static str,
    /// What the code begins with where it does not say so itself: a word that it must have, and the text that is
    /// put before its first line.
    pub opening: Option<(&'static str, &'static str)>,
    /// Other files in the folder: name and text.
    pub helpers: &'static [(&'static str, &'static str)],
    /// What to run first, in that folder, when the code has to be compiled.
    pub compile: Option<&'static [&'static str]>,
    /// What to run, in the workspace.
    pub run: &'static [&'static str],
}

/// Nothing special; each row says what is.
const PLAIN: Process = Process { file: "", opening: None, helpers: &[], compile: None, run: &[] };

/// What makes shell blocks take up where the last one ended.
const KEEP: (&str, &str) = ("keep.bash", include_str!("runner/keep.bash"));

/// Every language.
pub const LANGUAGES: &[Language] = &[
    Language {
        name: "python",
        aliases: &["py", "python3", "ipython", "ipython3"],
        program: Program::Session,
        keeps_state: true,
        version: &["python3", "--version"],
        packages: &["python3"],
    },
    Language {
        name: "sh",
        aliases: &["shell"],
        program: Program::Process(Process {
            file: "cell.sh",
            helpers: &[KEEP],
            // The shell that keeps state is bash, as POSIX wants it; an image without it has a shell all the same.
            run: &[
                "sh",
                "-c",
                "command -v bash >/dev/null && exec bash \"$0\" \"$1\" \"$2\" posix; exec sh \"$1\"",
                "{dir}/keep.bash",
                "{dir}/cell.sh",
                "{state}",
            ],
            ..PLAIN
        }),
        keeps_state: true,
        version: &["bash", "--version"],
        packages: &["bash"],
    },
    Language {
        name: "bash",
        aliases: &[],
        program: Program::Process(Process {
            file: "cell.bash",
            helpers: &[KEEP],
            run: &["bash", "{dir}/keep.bash", "{dir}/cell.bash", "{state}"],
            ..PLAIN
        }),
        keeps_state: true,
        version: &["bash", "--version"],
        packages: &["bash"],
    },
    Language {
        name: "javascript",
        aliases: &["js", "node", "nodejs"],
        program: Program::Process(Process { file: "cell.js", run: &["node", "{dir}/cell.js"], ..PLAIN }),
        keeps_state: false,
        version: &["node", "--version"],
        packages: &["nodejs"],
    },
    Language {
        name: "typescript",
        aliases: &["ts"],
        program: Program::Process(Process {
            file: "cell.ts",
            helpers: &[("tsconfig.json", include_str!("runner/tsconfig.json"))],
            compile: Some(&["tsc", "--pretty", "--project", "."]),
            run: &["node", "{dir}/cell.js"],
            ..PLAIN
        }),
        keeps_state: false,
        version: &["tsc", "--version"],
        packages: &["nodejs", "node-typescript"],
    },
    Language {
        name: "java",
        aliases: &[],
        program: Program::Process(Process {
            file: "cell.java",
            // Compiles in memory, and does not mind what the class is called.
            run: &["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "{dir}/cell.java"],
            ..PLAIN
        }),
        keeps_state: false,
        version: &["java", "--version"],
        packages: &["default-jdk-headless"],
    },
    Language {
        name: "c",
        aliases: &[],
        program: Program::Process(Process {
            file: "cell.c",
            compile: Some(&[
                "cc",
                "-std=gnu17",
                "-O1",
                "-Wall",
                "-fdiagnostics-color=always",
                "-iquote",
                "/workspace",
                "-o",
                "cell",
                "cell.c",
                "-lm",
            ]),
            run: &["{dir}/cell"],
            ..PLAIN
        }),
        keeps_state: false,
        version: &["cc", "--version"],
        packages: &["gcc", "libc6-dev"],
    },
    Language {
        name: "c++",
        aliases: &["cpp", "cxx", "cc"],
        program: Program::Process(Process {
            file: "cell.cpp",
            compile: Some(&[
                "c++",
                "-std=c++20",
                "-O1",
                "-Wall",
                "-fdiagnostics-color=always",
                "-iquote",
                "/workspace",
                "-o",
                "cell",
                "cell.cpp",
            ]),
            run: &["{dir}/cell"],
            ..PLAIN
        }),
        keeps_state: false,
        version: &["c++", "--version"],
        packages: &["g++"],
    },
    Language {
        name: "go",
        aliases: &["golang"],
        program: Program::Process(Process {
            file: "cell.go",
            compile: Some(&["go", "build", "-o", "cell", "cell.go"]),
            run: &["{dir}/cell"],
            ..PLAIN
        }),
        keeps_state: false,
        version: &["go", "version"],
        packages: &["golang-go"],
    },
    Language {
        name: "rust",
        aliases: &["rs"],
        program: Program::Process(Process {
            file: "cell.rs",
            compile: Some(&[
                "rustc",
                "--edition",
                "2021",
                "-O",
                "--color",
                "always",
                "-o",
                "cell",
                "cell.rs",
            ]),
            run: &["{dir}/cell"],
            ..PLAIN
        }),
        keeps_state: false,
        version: &["rustc", "--version"],
        packages: &["rustc", "gcc"],
    },
    Language {
        name: "ruby",
        aliases: &["rb"],
        program: Program::Process(Process { file: "cell.rb", run: &["ruby", "{dir}/cell.rb"], ..PLAIN }),
        keeps_state: false,
        version: &["ruby", "--version"],
        packages: &["ruby"],
    },
    Language {
        name: "r",
        aliases: &["rscript"],
        program: Program::Process(Process {
            file: "cell.R",
            // No profile of the workspace runs before the cell does.
            run: &["Rscript", "--vanilla", "{dir}/cell.R"],
            ..PLAIN
        }),
        keeps_state: false,
        version: &["Rscript", "--version"],
        packages: &["r-base-core"],
    },
    Language {
        name: "perl",
        aliases: &["pl"],
        program: Program::Process(Process { file: "cell.pl", run: &["perl", "{dir}/cell.pl"], ..PLAIN }),
        keeps_state: false,
        version: &["perl", "--version"],
        packages: &["perl"],
    },
    Language {
        name: "php",
        aliases: &[],
        program: Program::Process(Process {
            file: "cell.php",
            opening: Some(("<?", "<?php ")),
            run: &[
                "php",
                "-d",
                "log_errors=0",
                "-d",
                "display_errors=stderr",
                "-d",
                "html_errors=0",
                "{dir}/cell.php",
            ],
            ..PLAIN
        }),
        keeps_state: false,
        version: &["php", "--version"],
        packages: &["php-cli"],
    },
    Language {
        name: "sql",
        aliases: &["sqlite", "sqlite3"],
        program: Program::Process(Process {
            file: "cell.sql",
            run: &["sqlite3", "-batch", "-bail", "-header", "-column", ":memory:", ".read {dir}/cell.sql"],
            ..PLAIN
        }),
        keeps_state: false,
        version: &["sqlite3", "--version"],
        packages: &["sqlite3"],
    },
];

/// The language of that name or alias, letter case aside.
pub fn find(name: &str) -> Option<&'static Language> {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    LANGUAGES.iter().find(|l| is(l.name) || l.aliases.iter().any(|alias| is(alias)))
}

impl Process {
    /// The files of a block: name and text, the code first.
    pub fn files<'a>(&self, code: &'a str) -> Vec<(&'static str, Cow<'a, str>)> {
        let code = match self.opening {
            Some((word, text)) if !code.contains(word) => Cow::Owned(format!("{text}{code}")),
            _ => Cow::Borrowed(code),
        };
        let helpers = self.helpers.iter().map(|(name, text)| (*name, Cow::Borrowed(*text)));
        std::iter::once((self.file, code)).chain(helpers).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;

    #[test]
    fn every_name_and_alias_names_one_language() {
        let mut names: Vec<_> =
            LANGUAGES.iter().flat_map(|l| std::iter::once(&l.name).chain(l.aliases)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| **name == name.to_lowercase()), "letter case makes no difference");
        for (alias, name) in [("Shell", "sh"), ("R", "r"), ("cxx", "c++"), ("C++", "c++"), ("SQLite", "sql")]
        {
            assert_eq!(find(alias).map(|l| l.name), Some(name));
        }
        assert_eq!(find(""), None);
    }

    #[test]
    fn every_process_names_the_file_that_its_code_is_in() {
        for language in LANGUAGES {
            let Program::Process(process) = &language.program else { continue };
            let helpers = process.helpers.iter().map(|(_, text)| text);
            let named = process.run.iter().chain(process.compile.unwrap_or_default()).chain(helpers);
            assert!(named.into_iter().any(|text| text.contains(process.file)), "{}", language.name);
            assert!(!language.packages.is_empty() && language.version.len() == 2, "{}", language.name);
        }
    }

    #[test]
    fn php_is_opened_where_the_cell_does_not_do_it() {
        let Some(Program::Process(php)) = find("php").map(|l| &l.program) else { panic!("no process") };
        assert_eq!(php.files("echo 1;\n")[0], ("cell.php", "<?php echo 1;\n".into()));
        for whole in ["<?php echo 1;", "\n<?php\n", "<p><?= 1 ?></p>"] {
            assert_eq!(php.files(whole)[0].1, whole);
        }
    }
}
