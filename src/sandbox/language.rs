//! The table of languages that the sandbox runs.
//!
//! Imports nothing of ours. To add a language that runs as a process of its own: one row in [`LANGUAGES`].

/// A language, and how its code is run.
#[derive(Debug, PartialEq, Eq)]
pub struct Language {
    /// The canonical name.
    pub name: &'static str,
    /// Other names that a fence may use.
    pub aliases: &'static [&'static str],
    /// How its code is run.
    pub program: Program,
}

/// How code is run.
#[derive(Debug, PartialEq, Eq)]
pub enum Program {
    /// In the live Python session.
    Session,
    /// As a process of its own. `{dir}` in a word stands for the folder in which the code lies.
    Process {
        /// The name of the file that the code is written to.
        file: &'static str,
        /// What to run first, when the code has to be compiled.
        compile: Option<&'static [&'static str]>,
        /// What to run.
        run: &'static [&'static str],
    },
}

/// Every language.
pub const LANGUAGES: &[Language] = &[
    Language {
        name: "python",
        aliases: &["py", "python3", "ipython", "ipython3"],
        program: Program::Session,
    },
    Language {
        name: "sh",
        aliases: &["shell"],
        program: Program::Process { file: "cell.sh", compile: None, run: &["sh", "{dir}/cell.sh"] },
    },
    Language {
        name: "bash",
        aliases: &[],
        program: Program::Process { file: "cell.bash", compile: None, run: &["bash", "{dir}/cell.bash"] },
    },
];

/// The language of that name or alias, letter case aside.
pub fn find(name: &str) -> Option<&'static Language> {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    LANGUAGES.iter().find(|l| is(l.name) || l.aliases.iter().any(|alias| is(alias)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_alias_names_one_language() {
        let mut names: Vec<_> =
            LANGUAGES.iter().flat_map(|l| std::iter::once(&l.name).chain(l.aliases)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(find("Shell").map(|l| l.name), Some("sh"));
        assert_eq!(find(""), None);
    }
}
