//! What may start or run has passed policy: [`Approved`] is made here and nowhere else.
//!
//! The user's cells and a model's tool calls pass the same gate. To add a rule: check it in [`approve`].

use std::time::Duration;

use crate::config::SandboxSettings;

use super::Run;
use super::language::{self, Language};

/// Something that has passed policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Approved<T> {
    value: T,
    how: &'static Language,
}

/// Why something may not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No language of that name.
    #[error("this sandbox does not run {name:?}; it runs {}", known.join(", "))]
    UnknownLanguage {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
}

/// Checks a run against the settings: its language must be known, its timeout can tighten the setting but
/// never widen it.
///
/// # Errors
/// [`PolicyError`] says what is not allowed, and what is.
pub fn approve(mut run: Run, settings: &SandboxSettings) -> Result<Approved<Run>, PolicyError> {
    let Some(language) = language::find(&run.language) else {
        let known = language::LANGUAGES.iter().map(|l| l.name).collect();
        return Err(PolicyError::UnknownLanguage { name: run.language, known });
    };
    language.name.clone_into(&mut run.language);
    run.timeout = tightest(run.timeout, settings.timeout);
    Ok(Approved { value: run, how: language })
}

fn tightest(asked: Option<Duration>, setting: Option<Duration>) -> Option<Duration> {
    match (asked, setting) {
        (Some(asked), Some(setting)) => Some(asked.min(setting)),
        (asked, setting) => asked.or(setting),
    }
}

impl Approved<Run> {
    pub(crate) fn into_parts(self) -> (Run, &'static Language) {
        (self.value, self.how)
    }
}

impl<T> std::ops::Deref for Approved<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::{Flavor, Settings};

    fn run(language: &str, timeout: Option<u64>) -> Run {
        Run { timeout: timeout.map(Duration::from_secs), ..Run::new(language, "1") }
    }

    #[test]
    fn a_timeout_tightens_the_setting_and_never_widens_it() {
        let mut settings = Settings::builtin(Flavor::Markdown).sandbox;
        settings.timeout = Some(Duration::from_mins(1));
        for (asked, granted) in [(None, 60), (Some(5), 5), (Some(600), 60)] {
            let approved = approve(run("python", asked), &settings).unwrap();
            assert_eq!(approved.timeout, Some(Duration::from_secs(granted)));
        }
        settings.timeout = None;
        assert_eq!(approve(run("python", None), &settings).unwrap().timeout, None);
        assert_eq!(approve(run("sh", Some(9)), &settings).unwrap().timeout, Some(Duration::from_secs(9)));
    }

    #[test]
    fn an_alias_becomes_the_canonical_name_and_an_unknown_language_is_refused_by_name() {
        let settings = Settings::builtin(Flavor::Markdown).sandbox;
        assert_eq!(approve(run("py", None), &settings).unwrap().language, "python");
        let refused = approve(run("cobol", None), &settings).unwrap_err().to_string();
        assert!(refused.contains("cobol") && refused.contains("python"), "{refused}");
    }
}
