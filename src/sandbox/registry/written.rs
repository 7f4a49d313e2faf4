//! One container as its registry describes it: every key read and checked, nothing decided yet.
//!
//! May import `config`. To add a key: its name in the list of its table, a field, and the line that reads it; what a
//! project may do with it is decided in `layer`.

use std::path::Path;

use crate::config::{Environment, Key, Kind, Network, Value as Setting, nearest};
use crate::sandbox::definition::Mode;
use crate::sandbox::language;
use crate::sandbox::packages::Packages;
use crate::sandbox::spec::{HOME, Identity, WORKSPACE};

use super::fields::{At, Mistakes, Table, choice, flag, line, list, setting, text};
pub(super) use super::image::Source;
use super::image::{packages, requirements, source};
use super::paths::{Found, Ground};
use super::yaml::{Node, Value};

/// The largest guide, list of requirements or seccomp profile.
pub(super) const LARGEST: u64 = 1 << 20;
/// The keys of a container.
const KEYS: &[&str] = &[
    "description",
    "dockerfile",
    "image",
    "build",
    "languages",
    "triggers",
    "mode",
    "security",
    "resources",
    "mounts",
    "env",
    "requirements",
    "environment",
    "keep",
    "system",
];
const SECURITY: &[&str] = &["network_mode", "read_only", "needs_confirm", "runtime", "user", "seccomp"];
const MOUNT: &[&str] = &["host", "path", "read_only"];
/// The keys of `resources:` that are settings of `[sandbox]` for one container.
const LIMITS: &[&str] = &["memory", "cpus", "timeout", "pids", "tmpfs", "output"];
const RESOURCES: &[&str] = &["memory", "cpus", "timeout", "pids", "tmpfs", "output", "disk"];
/// Places in a container that are taken, or that its programs come from.
const TAKEN: &[&str] = &[
    WORKSPACE,
    "/session",
    "/work",
    "/tmp",
    HOME,
    "/proc",
    "/sys",
    "/dev",
    "/etc",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/run",
    "/boot",
    "/opt/cellblock",
];

/// One container.
#[derive(Debug)]
pub(super) struct Written {
    pub name: At<String>,
    pub description: String,
    pub languages: Vec<&'static str>,
    pub triggers: Vec<String>,
    pub mode: Mode,
    pub source: Option<At<Source>>,
    /// Settings of `[sandbox]` for this container, with their row in the table.
    pub limits: Vec<At<(&'static Key, Setting)>>,
    pub disk: Option<u64>,
    pub read_only: Option<At<bool>>,
    pub confirm: bool,
    pub user: Option<At<Identity>>,
    pub seccomp: Option<At<(Found, String)>>,
    pub mounts: Vec<At<Mount>>,
    pub environment: Vec<At<(String, String)>>,
    pub packages: Vec<At<Packages>>,
    pub keep: Option<At<bool>>,
    pub guide: Option<At<(Found, String)>>,
}

/// A folder of the host.
#[derive(Debug)]
pub(super) struct Mount {
    pub written: String,
    pub host: Found,
    pub path: String,
    pub read_only: bool,
}

/// Reads one container.
pub(super) fn container(
    name: &str,
    node: &At<&Node>,
    ground: &Ground,
    environment: &Environment,
    mistakes: &mut Mistakes,
) -> Option<Written> {
    if let Err(why) = check_name(name) {
        mistakes.at(node, why);
        return None;
    }
    let table = Table::new(node, KEYS, mistakes)?;
    let mut written = Written {
        name: At { line: node.line, key: node.key.clone(), value: name.to_owned() },
        description: String::new(),
        languages: Vec::new(),
        triggers: Vec::new(),
        mode: Mode::Session,
        source: source(&table, ground, mistakes),
        limits: Vec::new(),
        disk: None,
        read_only: None,
        confirm: false,
        user: None,
        seccomp: None,
        mounts: Vec::new(),
        environment: Vec::new(),
        packages: Vec::new(),
        keep: table.get("keep").and_then(|at| flag(&at, mistakes)),
        guide: None,
    };
    if let Some(at) = table.get("description") {
        written.description = line(&at, 300, mistakes).map(|at| at.value).unwrap_or_default();
    }
    match table.get("languages") {
        Some(at) => {
            written.languages = list(&at, 64, mistakes, language);
            let empty = matches!(&at.value.value, Value::Nothing)
                || matches!(&at.value.value, Value::List(l) if l.is_empty());
            if empty {
                mistakes.at(&at, "it names no language, so nothing could run there");
            }
        }
        None => {
            mistakes.at(node, "languages is missing: name what it runs, such as `languages: [python, sh]`");
        }
    }
    written.languages.dedup();
    if let Some(at) = table.get("triggers") {
        written.triggers = list(&at, 100, mistakes, |at, mistakes| Some(line(at, 200, mistakes)?.value));
    }
    if let Some(at) = table.get("mode") {
        let modes = [("session", Mode::Session), ("ephemeral", Mode::Ephemeral)];
        written.mode = choice(&at, &modes, mistakes).map_or(Mode::Session, |at| at.value);
    }
    if let Some(at) = table.get("security") {
        security(&at, ground, environment, &mut written, mistakes);
    }
    if let Some(at) = table.get("resources") {
        resources(&at, environment, &mut written, mistakes);
    }
    if let Some(at) = table.get("mounts") {
        written.mounts = list(&at, 32, mistakes, |at, mistakes| mount(at, ground, mistakes));
        for (n, mount) in written.mounts.iter().enumerate() {
            if written.mounts.iter().take(n).any(|other| other.value.path == mount.value.path) {
                mistakes.at(mount, format!("{} is mounted twice", mount.value.path));
            }
        }
    }
    if let Some(at) = table.get("env") {
        variables(&at, &mut written, mistakes);
    }
    if let Some(at) = table.get("requirements") {
        written.packages.extend(requirements(&at, ground, mistakes));
    }
    if let Some(at) = table.get("environment") {
        packages(&at, &mut written, mistakes);
    }
    written.guide = guide(&table, &written, ground, mistakes);
    Some(written)
}

/// A container's name is written in fences and magics, and is part of the names of images.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.len() > 64 || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(plain) {
        return Err(
            "a container's name begins with a letter or digit, and has letters, digits, `-`, `_` and `.`, \
                    at most 64",
        );
    }
    Ok(())
}

fn language(at: &At<&Node>, mistakes: &mut Mistakes) -> Option<&'static str> {
    let found = text(at, mistakes)?;
    let known = language::find(&found.value);
    if known.is_none() {
        let names = language::LANGUAGES.iter().map(|language| language.name);
        let why = match nearest(&found.value, names.clone()) {
            Some(name) => format!("there is no such language; did you mean {name}?"),
            None => format!("there is no such language; there are {}", names.collect::<Vec<_>>().join(", ")),
        };
        mistakes.value(at, &found.value, why);
    }
    known.map(|language| language.name)
}

fn security(
    at: &At<&Node>,
    ground: &Ground,
    environment: &Environment,
    written: &mut Written,
    mistakes: &mut Mistakes,
) {
    let Some(table) = Table::new(at, SECURITY, mistakes) else { return };
    if let (Some(at), Some(key)) = (table.get("network_mode"), Key::find("sandbox", "network"))
        && let Some(found) = setting(&at, Kind::Choice(Network::NAMES), environment, mistakes)
    {
        written.limits.push(found.with((key, found.value.clone())));
    }
    if let (Some(at), Some(key)) = (table.get("runtime"), Key::find("sandbox", "runtime"))
        && let Some(found) = line(&at, 128, mistakes)
    {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if found.value.chars().all(plain) {
            let value =
                if found.value == "default" { Setting::Unset } else { Setting::Text(found.value.clone()) };
            written.limits.push(found.with((key, value)));
        } else {
            mistakes.value(
                &at,
                &found.value,
                "it takes the engine's name of a runtime, such as `runsc`, or `default`",
            );
        }
    }
    written.read_only = table.get("read_only").and_then(|at| flag(&at, mistakes));
    written.confirm =
        table.get("needs_confirm").and_then(|at| flag(&at, mistakes)).is_some_and(|at| at.value);
    written.user = table.get("user").and_then(|at| user(&at, mistakes));
    written.seccomp = table.get("seccomp").and_then(|at| seccomp(&at, ground, mistakes));
}

/// `auto`, a user, or a user and a group.
fn user(at: &At<&Node>, mistakes: &mut Mistakes) -> Option<At<Identity>> {
    // The largest number is -1 to the system: "leave as it is".
    let number = |text: &str| text.parse::<u32>().ok().filter(|id| (1..u32::MAX).contains(id));
    let found = line(at, 64, mistakes)?;
    if found.value == "auto" {
        return None;
    }
    let (uid, gid) = found.value.split_once(':').unwrap_or((&found.value, &found.value));
    if let (Some(uid), Some(gid)) = (number(uid), number(gid)) {
        return Some(at.with(Identity { uid, gid }));
    }
    let why = "it takes `auto`, or numbers of a user and a group (`1000` or `\"1000:1000\"`) other than 0, which is root";
    mistakes.value(at, &found.value, why);
    None
}

fn seccomp(at: &At<&Node>, ground: &Ground, mistakes: &mut Mistakes) -> Option<At<(Found, String)>> {
    let found = line(at, 4096, mistakes)?;
    if found.value == "default" {
        return None;
    }
    if found.value == "unconfined" {
        mistakes.value(
            at,
            &found.value,
            "no container runs without a filter of system calls; name a profile's file, or `default`",
        );
        return None;
    }
    let read = ground.text(&found.value, LARGEST).and_then(|(file, text)| {
        match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text) {
            Ok(_) => Ok((file, text)),
            // Its own words could quote the file.
            Err(why) => Err(format!("it is not a profile, which is a JSON object (line {})", why.line())),
        }
    });
    read.map(|read| at.with(read)).map_err(|why| mistakes.value(at, &found.value, why)).ok()
}

fn resources(at: &At<&Node>, environment: &Environment, written: &mut Written, mistakes: &mut Mistakes) {
    let Some(table) = Table::new(at, RESOURCES, mistakes) else { return };
    for name in LIMITS {
        if let (Some(at), Some(key)) = (table.get(name), Key::find("sandbox", name))
            && let Some(found) = setting(&at, key.kind, environment, mistakes)
        {
            written.limits.push(found.with((key, found.value.clone())));
        }
    }
    if let Some(at) = table.get("disk")
        && let Some(At { value: Setting::Count(bytes), .. }) =
            setting(&at, Kind::Size { min: 1 << 20 }, environment, mistakes)
    {
        written.disk = Some(bytes);
    }
}

fn mount(at: &At<&Node>, ground: &Ground, mistakes: &mut Mistakes) -> Option<At<Mount>> {
    let table = Table::new(at, MOUNT, mistakes)?;
    let mut word = |name: &str| {
        if let Some(at) = table.get(name) {
            return line(&at, 4096, mistakes);
        }
        mistakes.at(at, format!("{name} is missing: a mount is `{{host: ./data, path: /data}}`"));
        None
    };
    let (host, path) = (word("host"), word("path"));
    let read_only = table.get("read_only").and_then(|at| flag(&at, mistakes)).is_none_or(|at| at.value);
    let (host, path) = (host?, path?);
    if let Err(why) = check_target(&path.value) {
        mistakes.value(&path, &path.value, why);
        return None;
    }
    let target = path.value.trim_end_matches('/').to_owned();
    match ground.mount(&host.value) {
        Ok(found) => {
            let written = host.value.clone();
            Some(host.with(Mount { written, host: found, path: target, read_only }))
        }
        Err(why) => {
            mistakes.value(&host, &host.value, why);
            None
        }
    }
}

/// Whether something may be mounted there in a container.
fn check_target(path: &str) -> Result<(), String> {
    let steps: Vec<_> = path.trim_end_matches('/').split('/').skip(1).collect();
    let plain = |step: &&str| !step.is_empty() && *step != "." && *step != "..";
    if !path.starts_with('/')
        || steps.is_empty()
        || !steps.iter().all(plain)
        || path.contains([':', ',', '\\'])
    {
        return Err(
            "it takes an absolute path in the container, such as `/data`, without `..`, colons and commas"
                .to_owned(),
        );
    }
    let path = Path::new(path);
    match TAKEN.iter().find(|taken| path.starts_with(taken) || Path::new(taken).starts_with(path)) {
        Some(taken) => Err(format!("{taken} is the sandbox's own; choose another place, such as `/data`")),
        None => Ok(()),
    }
}

fn variables(at: &At<&Node>, written: &mut Written, mistakes: &mut Mistakes) {
    let Some(table) = Table::open(at, mistakes) else { return };
    for (name, at) in table.iter() {
        if name == "HOME" || name.starts_with("CELLBLOCK_") {
            mistakes.at(&at, "the sandbox sets this variable itself");
        } else if let Some(value) = variable(name, &at, mistakes) {
            written.environment.push(at.with((name.to_owned(), value)));
        }
    }
}

/// The value of a variable; it may be empty.
pub(super) fn variable(name: &str, at: &At<&Node>, mistakes: &mut Mistakes) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty()
        || name.len() > 128
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.chars().all(plain)
    {
        mistakes.at(at, "a variable's name has letters, digits and `_`, and begins with no digit");
        return None;
    }
    match &at.value.value {
        Value::Nothing => Some(String::new()),
        Value::Quoted(text) if text.is_empty() => Some(String::new()),
        _ => {
            let found = text(at, mistakes)?;
            if found.value.len() > 32 << 10 {
                mistakes.at(at, "a variable's value is at most 32 KB");
                return None;
            }
            Some(found.value)
        }
    }
}

/// The file that `system` names, else `SYSTEM.md` beside the Dockerfile when there is one.
fn guide(
    table: &Table<'_>,
    written: &Written,
    ground: &Ground,
    mistakes: &mut Mistakes,
) -> Option<At<(Found, String)>> {
    let (at, path) = match (table.get("system"), &written.source) {
        (Some(at), _) => {
            let path = line(&at, 4096, mistakes)?;
            (at.with(()), path.value)
        }
        (None, Some(at)) => {
            let Source::Build { dockerfile, .. } = &at.value else { return None };
            let beside = dockerfile.with_file_name("SYSTEM.md");
            beside.symlink_metadata().ok()?;
            (at.with(()), beside.to_str()?.to_owned())
        }
        (None, None) => return None,
    };
    match ground.text(&path, 64 << 10) {
        Ok((file, text)) => Some(at.with((file, text))),
        Err(why) => {
            mistakes.value(&at, &path, why);
            None
        }
    }
}
