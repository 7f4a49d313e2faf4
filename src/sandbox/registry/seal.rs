//! All that a project's registry names and that would matter if it changed: what is built from, what is read, where
//! mounts lead. Trust is bound to it.
//!
//! May import `config`. A folder to build from is read as the engine would be sent it; its hash goes on with the
//! definition, so that nothing else is built later.

use std::os::unix::ffi::OsStrExt;

use crate::config::Matters;
use crate::sandbox::definition::Build;
use crate::sandbox::image;

use super::written::{Source, Written};

/// The most files and folders that one project may have built from.
const ENTRIES: usize = 10_000;

/// What matters of these containers.
///
/// # Errors
/// When it is too much to look at, or can't be read.
pub(super) fn matters(containers: &[Written]) -> Result<Matters, String> {
    let mut matters = Matters::new();
    let mut entries = 0;
    for container in containers {
        let name = &container.name.value;
        let mut add = |what: &str, bytes: Vec<u8>| matters.push((format!("{name} {what}"), bytes));
        if let Some(Source::Build { context, dockerfile, seal, .. }) =
            container.source.as_ref().map(|at| &at.value)
        {
            let build = Build {
                context: context.path.clone(),
                dockerfile: dockerfile.clone(),
                arguments: Vec::new(),
                target: None,
                seal: None,
            };
            let read = image::folder(&build, None, false).map_err(|why| why.to_string())?;
            entries += read.entries;
            if entries > ENTRIES {
                return Err(format!(
                    "{}: there are more than {ENTRIES} files; build from a folder that has only what the Dockerfile needs",
                    context.path.display()
                ));
            }
            let hash = *seal.get_or_init(|| read.hash);
            add("context", hash.to_vec());
            add("dockerfile", dockerfile.as_os_str().as_bytes().to_vec());
        }
        for at in &container.mounts {
            add("mount", at.value.host.path.as_os_str().as_bytes().to_vec());
        }
        for at in &container.packages {
            add("packages", at.value.to_string().into_bytes());
        }
        if let Some(at) = &container.seccomp {
            add("seccomp", at.value.1.clone().into_bytes());
        }
        if let Some(at) = &container.guide {
            add("guide", at.value.1.clone().into_bytes());
        }
    }
    Ok(matters)
}
