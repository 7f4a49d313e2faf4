//! Packages to add to an image: names and versions, and nothing that could be more than that.
//!
//! Imports nothing of ours.

/// Packages to add to an image, by the program that installs them. Every entry has passed [`Manager::check`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packages {
    entries: Vec<(Manager, String)>,
}

/// What installs packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Manager {
    /// Python packages, wheels only.
    Pip,
    /// Debian packages.
    Apt,
    /// Node packages, without their scripts.
    Npm,
}

/// Why something is not the name of a package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what:?} is not {} package and a version: {why}", manager.article())]
pub struct PackageError {
    /// For which manager.
    pub manager: Manager,
    /// What was written.
    pub what: String,
    /// What is wrong.
    pub why: String,
}

impl Manager {
    /// Its name: `pip`, `apt`, `npm`.
    pub fn name(self) -> &'static str {
        match self {
            Manager::Pip => "pip",
            Manager::Apt => "apt",
            Manager::Npm => "npm",
        }
    }

    fn article(self) -> &'static str {
        match self {
            Manager::Pip => "the name of a Python",
            Manager::Apt => "the name of a Debian",
            Manager::Npm => "the name of a Node",
        }
    }

    /// Checks one package: a name, extras and versions; no option, URL, path or anything a shell would read.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn check(self, what: &str) -> Result<(), PackageError> {
        let wrong = |why: &str| PackageError { manager: self, what: what.to_owned(), why: why.to_owned() };
        if what.is_empty() || what.len() > 200 {
            return Err(wrong("it is empty or too long"));
        }
        if what.starts_with('-') {
            return Err(wrong("options are not taken"));
        }
        let scope = self == Manager::Npm && what.starts_with('@');
        let slashes = what.matches('/').count();
        if what.contains(':') || slashes > usize::from(scope) || what.contains("..") {
            return Err(wrong("URLs, paths and git addresses are not taken"));
        }
        let first = what.trim_start_matches('@').chars().next().unwrap_or('-');
        if !first.is_ascii_alphanumeric() {
            return Err(wrong("a name begins with a letter or a digit"));
        }
        if self == Manager::Apt && what.ends_with('-') {
            return Err(wrong("with a `-` at its end apt would remove it"));
        }
        let allowed = |c: char| {
            c.is_ascii_alphanumeric()
                || match self {
                    Manager::Pip => "-_.[],=<>!~+*".contains(c),
                    Manager::Apt => "-.+=~".contains(c),
                    Manager::Npm => "-_.@/^~".contains(c),
                }
        };
        match what.chars().find(|c| !allowed(*c)) {
            Some(c) => Err(wrong(&format!("{c:?} has no place in it"))),
            None => Ok(()),
        }
    }
}

impl Packages {
    /// Adds one.
    ///
    /// # Errors
    /// When it is not a package's name and version.
    pub fn add(&mut self, manager: Manager, what: &str) -> Result<(), PackageError> {
        manager.check(what)?;
        let entry = (manager, what.to_owned());
        if !self.entries.contains(&entry) {
            self.entries.push(entry);
            self.entries.sort();
        }
        Ok(())
    }

    /// These and those.
    pub fn join(&mut self, other: &Packages) {
        for entry in &other.entries {
            if !self.entries.contains(entry) {
                self.entries.push(entry.clone());
            }
        }
        self.entries.sort();
    }

    /// Whether this one, in these very words, is among them.
    pub fn has(&self, (manager, what): (Manager, &str)) -> bool {
        self.entries.iter().any(|(m, known)| *m == manager && known == what)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Those of one manager, sorted.
    pub fn of(&self, manager: Manager) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(move |(m, _)| *m == manager).map(|(_, what)| what.as_str())
    }

    /// All of them, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (Manager, &str)> {
        self.entries.iter().map(|(manager, what)| (*manager, what.as_str()))
    }
}

impl std::fmt::Display for Packages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.entries.iter().map(|(_, what)| what.as_str()).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn names_and_versions_pass_and_nothing_else_does() {
        for (manager, good) in [
            (Manager::Pip, "httpx"),
            (Manager::Pip, "rich==13.7.1"),
            (Manager::Pip, "uvicorn[standard]>=0.20,<1"),
            (Manager::Apt, "g++"),
            (Manager::Apt, "libfoo2=1.2-3+deb12u1"),
            (Manager::Npm, "@types/node@20.1.0"),
            (Manager::Npm, "left-pad"),
        ] {
            assert_eq!(manager.check(good), Ok(()), "{good}");
        }
        for (manager, bad) in [
            (Manager::Pip, "--index-url=http://evil"),
            (Manager::Pip, "-r"),
            (Manager::Pip, "git+https://evil/x"),
            (Manager::Pip, "x @ https://evil/x.whl"),
            (Manager::Pip, "./x"),
            (Manager::Pip, "../x"),
            (Manager::Pip, "x;touch y"),
            (Manager::Pip, "$(id)"),
            (Manager::Pip, "x\ny"),
            (Manager::Apt, "x`id`"),
            (Manager::Apt, "libc6-"),
            (Manager::Apt, "/etc/passwd.deb"),
            (Manager::Npm, "evil/repo"),
            (Manager::Npm, "@a/b/c"),
            (Manager::Npm, "https://evil"),
            (Manager::Npm, ""),
        ] {
            assert!(manager.check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_order_in_which_they_are_named_makes_no_difference() {
        let mut one = Packages::default();
        let mut two = Packages::default();
        for name in ["a", "b"] {
            one.add(Manager::Pip, name).unwrap();
        }
        for name in ["b", "a", "b"] {
            two.add(Manager::Pip, name).unwrap();
        }
        assert_eq!(one, two);
        assert_eq!(one.to_string(), "a, b");
    }
}
