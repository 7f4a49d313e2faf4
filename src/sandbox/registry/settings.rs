//! `settings:` of a registry, and how its layers are put together: built-in < project < user, key by key.
//!
//! May import `config`. A project may choose the default container, how many spares wait (a few), and what is
//! tighter; the rest waits for trust.

use std::time::Duration;

use crate::config::{Environment, Kind, Value as Setting};
use crate::sandbox::definition::PoolSettings;

use super::fields::{At, Mistakes, Table, flag, line, setting};
use super::layer::Gate;
use super::written::check_name;
use super::yaml::Node;

const KEYS: &[&str] = &["auto_cleanup", "max_concurrent", "default", "warm", "idle_timeout"];
/// The most spares that a project may have wait.
const PROJECT_WARM: usize = 4;
/// The most that anybody may.
const MOST_WARM: u64 = 64;
const MOST_CONCURRENT: u64 = 1024;

/// What one file says.
#[derive(Debug, Default)]
pub(super) struct Written {
    auto_cleanup: Option<At<bool>>,
    max_concurrent: Option<At<usize>>,
    pub(super) default: Option<At<String>>,
    warm: Option<At<usize>>,
    idle_timeout: Option<At<Option<Duration>>>,
}

/// Reads them.
pub(super) fn read(node: &At<&Node>, mistakes: &mut Mistakes) -> Written {
    let Some(table) = Table::new(node, KEYS, mistakes) else { return Written::default() };
    let mut count = |name: &str, min: u64, max: u64| {
        let at = table.get(name)?;
        match setting(&at, Kind::Count { min, max }, &Environment::default(), mistakes)?.value {
            Setting::Count(count) => Some(at.with(usize::try_from(count).unwrap_or(usize::MAX))),
            _ => None,
        }
    };
    let max_concurrent = count("max_concurrent", 1, MOST_CONCURRENT);
    let warm = count("warm", 0, MOST_WARM);
    let default = table.get("default").and_then(|at| {
        let found = line(&at, 64, mistakes)?;
        check_name(&found.value).map_err(|why| mistakes.value(&at, &found.value, why)).ok()?;
        Some(found)
    });
    let idle_timeout = table.get("idle_timeout").and_then(|at| {
        match setting(&at, Kind::Time { none: true }, &Environment::default(), mistakes)?.value {
            Setting::Time(time) => Some(at.with(Some(time))),
            Setting::Unset => Some(at.with(None)),
            _ => None,
        }
    });
    let auto_cleanup = table.get("auto_cleanup").and_then(|at| flag(&at, mistakes));
    Written { auto_cleanup, max_concurrent, default, warm, idle_timeout }
}

/// The user's own word.
pub(super) fn user(written: &Written, settings: &mut PoolSettings) {
    if let Some(at) = &written.default {
        settings.default.clone_from(&at.value);
    }
    settings.auto_cleanup = written.auto_cleanup.as_ref().map_or(settings.auto_cleanup, |at| at.value);
    settings.max_concurrent =
        written.max_concurrent.as_ref().map_or(settings.max_concurrent, |at| Some(at.value));
    settings.warm = written.warm.as_ref().map_or(settings.warm, |at| at.value);
    settings.idle_timeout = written.idle_timeout.as_ref().map_or(settings.idle_timeout, |at| at.value);
}

/// A project's, as far as it is allowed; it lies below the user's own.
pub(super) fn project(written: &Written, settings: &mut PoolSettings, gate: &mut Gate<'_>) {
    if let Some(at) = &written.default {
        settings.default.clone_from(&at.value);
    }
    if let Some(at) = &written.auto_cleanup
        && (at.value || gate.opens(at, "false", "session folders are removed when their kernel ends"))
    {
        settings.auto_cleanup = at.value;
    }
    if let Some(at) = &written.max_concurrent {
        let lower = settings.max_concurrent.is_none_or(|most| at.value <= most);
        if lower || gate.opens(at, &at.value.to_string(), "it stays lower") {
            settings.max_concurrent = Some(at.value);
        }
    }
    if let Some(at) = &written.warm {
        let allowed = at.value <= PROJECT_WARM
            || gate.opens(at, &at.value.to_string(), &format!("at most {PROJECT_WARM} spares wait"));
        settings.warm = if allowed { at.value } else { PROJECT_WARM };
    }
    if let Some(at) = &written.idle_timeout {
        let lower = match (at.value, settings.idle_timeout) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(theirs), Some(ours)) => theirs <= ours,
        };
        let kind = Kind::Time { none: true };
        let show = |time: Option<Duration>| kind.show(&time.map_or(Setting::Unset, Setting::Time));
        let stays = format!("it stays at {}", show(settings.idle_timeout));
        if lower || gate.opens(at, &show(at.value), &stays) {
            settings.idle_timeout = at.value;
        }
    }
}
