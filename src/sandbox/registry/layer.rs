//! What becomes of a container as it is written: the user's own as it stands, a project's as far as it is trusted.
//!
//! May import `config`. What is tighter than the user's own settings is always taken; what widens goes through
//! [`Gate::opens`], which lets it pass for a trusted project and otherwise notes what was asked for and what is in
//! force meanwhile. To add a key that widens: one more call of it here, and one row in the test's table.

use std::path::Path;

use crate::config::{Key, Settings, Trust, Value as Setting, judge, plain};
use crate::sandbox::definition::{Build, Definition, Mount, Seccomp, Source, User};
use crate::sandbox::packages::Packages;

use super::fields::At;
use super::paths::exposes;
use super::written::{self, Written};

/// What a project's registry has to pass where it would widen something.
pub(super) struct Gate<'a> {
    /// The registry's file.
    pub file: &'a Path,
    /// The project: what is trusted.
    pub directory: &'a Path,
    /// Whether it is.
    pub trust: &'a Trust,
    /// What it asks for, each in a line, whether it is trusted or not.
    pub asks: Vec<String>,
    /// What it asked for and was not given.
    pub withheld: Vec<String>,
}

impl Gate<'_> {
    /// Whether something that widens is allowed. `meanwhile` is what is in force when it is not.
    pub(super) fn opens<T>(&mut self, at: &At<T>, value: &str, meanwhile: &str) -> bool {
        let place = format!("{}:{}", plain(&self.file.to_string_lossy()), at.line);
        let (key, value) = (plain(&at.key), plain(value));
        self.asks.push(format!("{key} = {value}   ({place})"));
        if self.trust.given() {
            return true;
        }
        let remedy = self.remedy();
        self.withheld.push(format!("{place}: {key} = {value} waits for your trust: {meanwhile}. {remedy}"));
        false
    }

    /// What to do, as a sentence.
    pub(super) fn remedy(&self) -> String {
        self.trust.remedy(self.directory)
    }
}

/// A container of the user's own.
pub(super) fn user(written: &Written, own: &Settings, file: &Path) -> Definition {
    let mut definition = plain_parts(written, own, file);
    let mut settings = own.clone();
    for At { value: (key, value), .. } in &written.limits {
        key.set(&mut settings, value.clone());
    }
    definition.limits = settings.sandbox;
    definition.read_only = written.read_only.as_ref().is_none_or(|at| at.value);
    definition.keep = written.keep.as_ref().is_some_and(|at| at.value);
    if let Some(at) = &written.user {
        definition.user = User::Id(at.value);
    }
    if let Some(at) = &written.seccomp {
        definition.seccomp = Seccomp::Profile(at.value.1.clone());
    }
    definition.mounts = written.mounts.iter().map(|at| mount(&at.value, at.value.read_only)).collect();
    definition.environment = written.environment.iter().map(|at| at.value.clone()).collect();
    for at in &written.packages {
        definition.packages.join(&at.value);
    }
    definition.guide = written.guide.as_ref().map(|at| at.value.1.clone());
    finish(&mut definition, written);
    definition
}

/// A container of a project's.
pub(super) fn project(written: &Written, own: &Settings, root: &Path, gate: &mut Gate<'_>) -> Definition {
    let mut definition = plain_parts(written, own, gate.file);
    let before = gate.withheld.len();
    let mut settings = own.clone();
    for at in &written.limits {
        let (key, value): &(&Key, Setting) = &at.value;
        let allowed = match judge(key, value, own) {
            Ok(()) => true,
            Err(why) => gate.opens(at, &key.kind.show(value), &why),
        };
        if allowed {
            key.set(&mut settings, value.clone());
        }
    }
    definition.limits = settings.sandbox;
    if let Some(at) = &written.read_only {
        definition.read_only = at.value || !gate.opens(at, "false", "the root file system stays read-only");
    }
    if let Some(at) = &written.keep {
        definition.keep = at.value && gate.opens(at, "true", "nothing is kept when the kernel ends");
    }
    if let Some(at) = &written.user
        && gate.opens(at, &at.value.to_string(), "code runs as the usual user")
    {
        definition.user = User::Id(at.value);
    }
    if let Some(at) = &written.seccomp {
        let (file, text) = &at.value;
        if gate.opens(
            at,
            &file.path.display().to_string(),
            "the engine's default filter of system calls stays",
        ) {
            definition.seccomp = Seccomp::Profile(text.clone());
        }
    }
    for at in &written.mounts {
        definition.mounts.extend(mounted(at, root, gate));
    }
    for at in &written.environment {
        let (name, value) = &at.value;
        if !steers(name) || gate.opens(at, value, "the variable is not set") {
            definition.environment.push(at.value.clone());
        }
    }
    for at in &written.packages {
        if !at.value.is_empty() && gate.opens(at, &at.value.to_string(), "these packages are not installed") {
            definition.packages.join(&at.value);
        }
    }
    if let Some(at) = &written.source {
        image(&mut definition, at, gate);
    }
    if let Some(at) = &written.guide {
        let (file, text) = &at.value;
        // One that lies beside the Dockerfile goes with the image.
        let beside = !at.key.ends_with(".system");
        let allowed = if beside {
            definition.refused.is_none()
        } else {
            file.inside
                || gate.opens(at, &file.path.display().to_string(), "the model is not told what it says")
        };
        definition.guide = allowed.then(|| text.clone());
    }
    finish(&mut definition, written);
    definition.withheld = gate.withheld.split_off(before);
    definition
}

/// What needs nobody's leave.
fn plain_parts(written: &Written, own: &Settings, file: &Path) -> Definition {
    let source = match written.source.as_ref().map(|at| &at.value) {
        None => None,
        Some(written::Source::Image(name)) => Some(Source::Image(name.clone())),
        Some(written::Source::Build { context, dockerfile, arguments, target, seal }) => {
            Some(Source::Build(Build {
                context: context.path.clone(),
                dockerfile: dockerfile.clone(),
                arguments: arguments.clone(),
                target: target.clone(),
                seal: seal.get().copied(),
            }))
        }
    };
    let builtin = Definition::python(&own.sandbox);
    Definition {
        name: written.name.value.clone(),
        description: written.description.clone(),
        languages: written.languages.clone(),
        triggers: written.triggers.clone(),
        mode: written.mode,
        source: source.unwrap_or(builtin.source),
        confirm: written.confirm,
        disk: written.disk,
        packages: Packages::default(),
        origin: format!("{}:{}", file.display(), written.name.line),
        ..builtin
    }
}

fn finish(definition: &mut Definition, written: &Written) {
    if written.source.is_some() {
        // Those settings are about the built-in image.
        definition.limits.image = None;
        definition.limits.built_image = None;
    }
    if let Some(disk) = definition.disk {
        // No single file may be larger than all of them together.
        definition.limits.file_size = definition.limits.file_size.min(disk);
    }
}

/// An image that a project names could be anybody's, and a Dockerfile runs what it likes, with a network.
fn image(definition: &mut Definition, at: &At<written::Source>, gate: &mut Gate<'_>) {
    let (value, why) = match &at.value {
        written::Source::Image(name) => {
            (name.clone(), format!("the project chose its image, {}", plain(name)))
        }
        written::Source::Build { context, dockerfile, .. } => {
            let path = plain(&dockerfile.to_string_lossy());
            let outside = if context.inside { "" } else { ", which lies outside the project" };
            let why = format!(
                "its image is built from the project's {path}{outside}, and a build runs with a network"
            );
            (path, why)
        }
    };
    if !gate.opens(at, &value, "there is no image") {
        // Told once: as the reason why it can't be used.
        gate.withheld.pop();
        definition.refused = Some(format!("{why}. {}", gate.remedy()));
    }
}

fn mount(written: &written::Mount, read_only: bool) -> Mount {
    Mount { host: written.host.path.clone(), path: written.path.clone(), read_only }
}

/// A folder inside the project can be read; more than that waits.
fn mounted(at: &At<written::Mount>, root: &Path, gate: &mut Gate<'_>) -> Option<Mount> {
    let wanted = &at.value;
    let mode = if wanted.read_only { "read-only" } else { "writable" };
    let what = format!("{} ({mode}, at {})", wanted.host.path.display(), wanted.path);
    if (!wanted.host.inside || exposes(&wanted.host.path, root)) && !gate.trust.given() {
        let why = if wanted.host.inside {
            "the folder is the project itself or hidden, and is not mounted"
        } else {
            "the folder lies outside the project and is not mounted"
        };
        gate.opens(at, &what, why);
        return None;
    }
    let free = wanted.read_only && wanted.host.inside && !exposes(&wanted.host.path, root);
    let read_only = !free && !gate.opens(at, &what, "it is mounted read-only") || wanted.read_only;
    Some(mount(wanted, read_only))
}

/// Whether a variable decides which programs and libraries run, the supervisor's own among them: before any cell did.
fn steers(name: &str) -> bool {
    const NAMES: &[&str] = &["PATH", "GCONV_PATH", "LOCPATH", "NLSPATH", "ENV", "BASH_ENV", "GLIBC_TUNABLES"];
    NAMES.contains(&name) || ["LD_", "PYTHON", "MALLOC_"].iter().any(|prefix| name.starts_with(prefix))
}
