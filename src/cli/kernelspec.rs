//! The two kernelspecs: their files, which travel inside the binary, and writing and removing them.
//!
//! What is ours is known by `metadata.cellblock` in `kernel.json`; a kernelspec of the same name without it
//! belongs to somebody else and is never touched.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Value, json};

/// One kernelspec, as it lies in `kernelspec/` of the source tree.
pub(crate) struct Kernelspec {
    /// Its name, which is its directory's.
    pub name: &'static str,
    template: &'static str,
    logos: [(&'static str, &'static [u8]); 3],
}

macro_rules! kernelspec {
    ($name:literal) => {
        Kernelspec {
            name: $name,
            template: include_str!(concat!("../../kernelspec/", $name, "/kernel.json")),
            logos: [
                ("logo-32x32.png", include_bytes!(concat!("../../kernelspec/", $name, "/logo-32x32.png"))),
                ("logo-64x64.png", include_bytes!(concat!("../../kernelspec/", $name, "/logo-64x64.png"))),
                ("logo-svg.svg", include_bytes!(concat!("../../kernelspec/", $name, "/logo-svg.svg"))),
            ],
        }
    };
}

/// Both of them.
pub(crate) static KERNELSPECS: [Kernelspec; 2] = [kernelspec!("cellblock"), kernelspec!("cellblock-python")];

/// Whose kernelspec lies in a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// There is none.
    Nobody,
    /// Written by `cellblock install`; it starts this executable.
    Ours(PathBuf),
    /// Another program's, or a link.
    Other,
}

impl Kernelspec {
    /// `kernel.json` that starts this executable.
    fn json(&self, executable: &str) -> anyhow::Result<String> {
        let mut spec: Value =
            serde_json::from_str(self.template).context("the kernelspec's template is damaged")?;
        for argument in spec["argv"].as_array_mut().into_iter().flatten() {
            if argument == "{executable}" {
                *argument = Value::from(executable);
            }
        }
        spec["metadata"]["cellblock"] = json!({"version": env!("CARGO_PKG_VERSION")});
        Ok(format!("{spec:#}\n"))
    }

    /// Writes it below `kernels`, replacing an older one of ours; it appears whole or not at all.
    pub(crate) fn write(&self, kernels: &Path, executable: &Path) -> anyhow::Result<PathBuf> {
        let target = kernels.join(self.name);
        let Some(executable) = executable.to_str() else {
            bail!("{} can't be written into a kernelspec: the path is not Unicode", executable.display());
        };
        if Owner::of(&target) == Owner::Other {
            bail!(
                "{} is a kernelspec that `cellblock install` did not write; it was left alone. Remove it with \
                 `jupyter kernelspec remove {}` and try again",
                target.display(),
                self.name
            );
        }
        fs::create_dir_all(kernels)
            .with_context(|| format!("the directory {} can't be made", kernels.display()))?;
        // Made beside `kernels`, not in it: Jupyter lists whatever lies there.
        let staging = staging(kernels)?;
        let fresh = staging.path().join(self.name);
        let write = || -> anyhow::Result<()> {
            fs::create_dir(&fresh)?;
            fs::write(fresh.join("kernel.json"), self.json(executable)?)?;
            for (name, bytes) in self.logos {
                fs::write(fresh.join(name), bytes)?;
            }
            replace(&fresh, &target, &staging.path().join("old"))?;
            Ok(())
        };
        write().with_context(|| format!("the kernelspec {} can't be written", target.display()))?;
        Ok(target)
    }

    /// Removes it from `kernels` when it is ours; whose it was.
    pub(crate) fn remove(&self, kernels: &Path) -> anyhow::Result<Owner> {
        let target = kernels.join(self.name);
        let owner = Owner::of(&target);
        if matches!(owner, Owner::Ours(_)) {
            let staging = staging(kernels)?;
            // Out of Jupyter's sight in one step; the files go with the staging directory.
            fs::rename(&target, staging.path().join("old"))
                .with_context(|| format!("the kernelspec {} can't be removed", target.display()))?;
            staging.close().with_context(|| format!("files of {} remain", target.display()))?;
        }
        Ok(owner)
    }
}

impl Owner {
    /// Whose kernelspec lies in this directory.
    pub(crate) fn of(dir: &Path) -> Owner {
        match dir.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Owner::Nobody,
            Ok(metadata) if metadata.is_dir() => {}
            _ => return Owner::Other,
        }
        let spec: Option<Value> =
            fs::read(dir.join("kernel.json")).ok().and_then(|json| serde_json::from_slice(&json).ok());
        match spec {
            Some(spec) if spec["metadata"]["cellblock"].is_object() => {
                Owner::Ours(PathBuf::from(spec["argv"][0].as_str().unwrap_or_default()))
            }
            _ => Owner::Other,
        }
    }
}

fn staging(kernels: &Path) -> anyhow::Result<tempfile::TempDir> {
    let beside = kernels.parent().unwrap_or(kernels);
    tempfile::Builder::new()
        .prefix(".cellblock-")
        .tempdir_in(beside)
        .with_context(|| format!("the directory {} can't be written", beside.display()))
}

/// Puts `fresh` in the place of `target`. With something there the two are exchanged in one step where the
/// file system can, else the old one is moved aside first.
fn replace(fresh: &Path, target: &Path, aside: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    if target.symlink_metadata().is_err() {
        return fs::rename(fresh, target);
    }
    if renameat_with(CWD, fresh, CWD, target, RenameFlags::EXCHANGE).is_ok() {
        return Ok(());
    }
    fs::rename(target, aside)?;
    fs::rename(fresh, target).inspect_err(|_| {
        // The old one back: better than none. Its failure would only repeat the first.
        let _ = fs::rename(aside, target);
    })
}
