//! What may start or run has passed policy: [`Approved`] is made here and nowhere else.
//!
//! May import `config`. The user's cells and a model's tool calls pass the same gate. To add a rule: check it in
//! [`approve`].

use std::sync::Arc;

use super::definition::{Definition, Mode};
use super::language::{self, Language};
use super::registry::Registry;
use super::{Run, Tighter};

/// Something that has passed policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Approved<T> {
    value: T,
    how: &'static Language,
    place: Arc<Definition>,
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
    /// No container of that name.
    #[error("there is no container {name:?}; there are {}", known.join(", "))]
    UnknownContainer {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The container does not run the language.
    #[error("the container {container} does not run {language}; it runs {}", runs.join(", "))]
    NotThere {
        /// Which container.
        container: String,
        /// The language.
        language: &'static str,
        /// What it runs.
        runs: Vec<&'static str>,
    },
    /// No container runs the language.
    #[error(
        "no container here runs {language}: name one that does in containers/registry.yaml, with \
         `languages: [{language}]`"
    )]
    Nowhere {
        /// The language.
        language: &'static str,
    },
    /// The container can't be used.
    #[error("the container {container} can't be used: {why}")]
    Refused {
        /// Which container.
        container: String,
        /// Why, and what to do.
        why: String,
    },
    /// A limit that only a fresh container can have.
    #[error(
        "{limit} is a limit of the whole container, which other blocks use too; write `ephemeral` in the fence to give \
         this block a container of its own"
    )]
    OfTheContainer {
        /// Which limit.
        limit: &'static str,
    },
}

/// Checks a run against the registry: its language and container must be known, and the limits that it sets
/// can tighten the container's but never widen them.
///
/// # Errors
/// [`PolicyError`] says what is not allowed, and what is.
pub fn approve(mut run: Run, registry: &Registry) -> Result<Approved<Run>, PolicyError> {
    let Some(language) = language::find(&run.language) else {
        let known = language::LANGUAGES.iter().map(|l| l.name).collect();
        return Err(PolicyError::UnknownLanguage { name: run.language, known });
    };
    language.name.clone_into(&mut run.language);
    let mut place = Arc::clone(choose(&run, language, registry)?);
    if let Some(why) = &place.refused {
        return Err(PolicyError::Refused { container: place.name.clone(), why: why.clone() });
    }
    run.ephemeral |= place.mode == Mode::Ephemeral;
    let limits = &place.limits;
    let asked = run.tighter;
    run.tighter = Tighter {
        timeout: tightest(asked.timeout, limits.timeout),
        output: tightest(asked.output, Some(limits.output)),
        memory: asked.memory.filter(|memory| *memory < limits.memory),
        cpus: asked.cpus.filter(|cpus| *cpus < limits.cpus),
        pids: asked.pids.filter(|pids| *pids < limits.pids),
    };
    let of_the_container = [
        ("memory", run.tighter.memory.is_some()),
        ("cpus", run.tighter.cpus.is_some()),
        ("pids", run.tighter.pids.is_some()),
    ];
    if let Some((limit, _)) = of_the_container.into_iter().find(|(_, set)| *set) {
        if !run.ephemeral {
            return Err(PolicyError::OfTheContainer { limit });
        }
        place = Arc::new(tightened(&place, run.tighter));
    }
    Ok(Approved { value: run, how: language, place })
}

/// The container that a run wants, else the first that suits it.
fn choose<'a>(
    run: &Run,
    language: &'static Language,
    registry: &'a Registry,
) -> Result<&'a Arc<Definition>, PolicyError> {
    if let Some(name) = &run.container {
        let Some(wanted) = registry.find(name) else {
            let known = registry.containers().iter().map(|c| c.name.clone()).collect();
            return Err(PolicyError::UnknownContainer { name: name.clone(), known });
        };
        if !wanted.runs(language.name) {
            let (container, runs) = (wanted.name.clone(), wanted.languages.clone());
            return Err(PolicyError::NotThere { container, language: language.name, runs });
        }
        return Ok(wanted);
    }
    let mut named =
        run.preferred.iter().chain([&registry.settings.default]).filter_map(|name| registry.find(name));
    let suits = |container: &&Arc<Definition>| container.runs(language.name);
    // One that waits for trust is taken only when nothing else runs the language: then the reason is told.
    let mut others = registry.containers().iter().filter(suits);
    let usable = others.clone().find(|container| container.refused.is_none());
    named
        .find(suits)
        .or(usable)
        .or_else(|| others.next())
        .ok_or(PolicyError::Nowhere { language: language.name })
}

fn tightened(definition: &Definition, tighter: Tighter) -> Definition {
    let mut own = definition.clone();
    let limits = &mut own.limits;
    limits.memory = tighter.memory.unwrap_or(limits.memory);
    limits.cpus = tighter.cpus.unwrap_or(limits.cpus);
    limits.pids = tighter.pids.unwrap_or(limits.pids);
    own
}

fn tightest<T: Ord>(asked: Option<T>, setting: Option<T>) -> Option<T> {
    match (asked, setting) {
        (Some(asked), Some(setting)) => Some(asked.min(setting)),
        (asked, setting) => asked.or(setting),
    }
}

impl Approved<Run> {
    /// The container that it will run in.
    pub fn container(&self) -> &Arc<Definition> {
        &self.place
    }

    pub(crate) fn into_parts(self) -> (Run, &'static Language, Arc<Definition>) {
        (self.value, self.how, self.place)
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
    use std::time::Duration;

    use super::*;
    use crate::config::{Flavor, Settings};

    fn run(language: &str, timeout: Option<u64>) -> Run {
        let tighter = Tighter { timeout: timeout.map(Duration::from_secs), ..Tighter::default() };
        Run { tighter, ..Run::new(language, "1") }
    }

    fn registry(timeout: Option<Duration>) -> Registry {
        let mut settings = Settings::builtin(Flavor::Markdown).sandbox;
        settings.timeout = timeout;
        Registry::builtin(&settings)
    }

    #[test]
    fn a_timeout_tightens_the_setting_and_never_widens_it() {
        let limited = registry(Some(Duration::from_mins(1)));
        for (asked, granted) in [(None, 60), (Some(5), 5), (Some(600), 60)] {
            let approved = approve(run("python", asked), &limited).unwrap();
            assert_eq!(approved.tighter.timeout, Some(Duration::from_secs(granted)));
        }
        let free = registry(None);
        assert_eq!(approve(run("python", None), &free).unwrap().tighter.timeout, None);
        assert_eq!(approve(run("sh", Some(9)), &free).unwrap().tighter.timeout, Some(Duration::from_secs(9)));
    }

    #[test]
    fn an_alias_becomes_the_canonical_name_and_an_unknown_language_is_refused_by_name() {
        let registry = registry(None);
        assert_eq!(approve(run("py", None), &registry).unwrap().language, "python");
        let refused = approve(run("cobol", None), &registry).unwrap_err().to_string();
        assert!(refused.contains("cobol") && refused.contains("python"), "{refused}");
    }

    #[test]
    fn a_limit_of_the_container_is_for_ephemeral_runs_and_only_tightens() {
        let registry = registry(None);
        let tighter = Tighter { memory: Some(64 << 20), ..Tighter::default() };
        let shared = Run { tighter, ..Run::new("python", "1") };
        assert_eq!(
            approve(shared.clone(), &registry).unwrap_err(),
            PolicyError::OfTheContainer { limit: "memory" }
        );
        let own = approve(Run { ephemeral: true, ..shared }, &registry).unwrap();
        assert_eq!(own.container().limits.memory, 64 << 20);
        let wider = Tighter { memory: Some(1 << 40), ..Tighter::default() };
        let wide = Run { ephemeral: true, tighter: wider, ..Run::new("python", "1") };
        assert_eq!(
            &approve(wide, &registry).unwrap().container().limits,
            &registry.find("python").unwrap().limits
        );
    }

    #[test]
    fn a_container_that_is_named_must_be_there_and_run_the_language() {
        let registry = registry(None);
        let named = |name: &str| Run { container: Some(name.to_owned()), ..Run::new("python", "1") };
        assert!(approve(named("python"), &registry).is_ok());
        let refused = approve(named("pyton"), &registry).unwrap_err().to_string();
        assert!(refused.contains("pyton") && refused.contains("python"), "{refused}");
    }
}
