//! The image that code runs in: what it is made of, what it is called, and how to have it made.
//!
//! Imports `docker`. The Dockerfile and its list of packages travel inside the binary, so that an installed
//! kernel can build its image anywhere. `containers/python/` is where both are edited.

use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::docker::Engine;

/// How the image is built.
pub const DOCKERFILE: &str = include_str!("../../containers/python/Dockerfile");
/// What Python packages are in it.
pub const REQUIREMENTS: &str = include_str!("../../containers/python/requirements.txt");
/// The base that `scripts/base-image.sh` makes from Debian's packages, for places without a registry.
pub const DEBIAN_BASE: &str = "cellblock-base:debian";
/// Where systems keep the certificate authorities that they trust.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// What to build, and how.
#[derive(Debug, Clone, Default)]
pub struct BuildOptions {
    /// The engine, as `DOCKER_HOST` names it; `None`: the usual places.
    pub host: Option<String>,
    /// The image to build on; `None`: the usual Python image when it is there or can be pulled, else
    /// [`DEBIAN_BASE`].
    pub base: Option<String>,
    /// The name of the result; `None`: [`default_tag`].
    pub tag: Option<String>,
    /// Certificate authorities that the build and the image trust besides the base's own (PEM); `None`: the
    /// system's.
    pub authorities: Option<PathBuf>,
    /// Proxy variables (`HTTPS_PROXY` and so on) for the build; they are not kept in the image.
    pub proxies: Vec<(String, String)>,
    /// Build every step again.
    pub fresh: bool,
}

/// An image that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltImage {
    /// What to run it by: `cellblock-python:0123456789ab`.
    pub reference: String,
    /// The engine's id of it.
    pub id: String,
    /// What it was built on.
    pub base: String,
}

/// One state of a pull or a build.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// Which step of how many.
    pub step: Option<(u32, u32)>,
    /// The last line of output.
    pub line: String,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some((step, steps)) => write!(f, "step {step} of {steps}: {}", self.line),
            None => f.write_str(&self.line),
        }
    }
}

/// Where states of a pull or a build go.
pub type OnProgress<'a> = &'a mut (dyn FnMut(&Progress) + Send);

/// Why there is no image.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ImageError {
    /// The engine does not answer or refuses.
    #[error("{0}")]
    Engine(String),
    /// An image that was asked for can't be had.
    #[error(
        "the image {image} is not on this machine and can't be pulled: {why}. Pull it by hand (`docker pull {image}`) \
         to see more, or name another one in sandbox.image"
    )]
    Pull {
        /// Which image.
        image: String,
        /// What the engine said.
        why: String,
    },
    /// Nothing to build on.
    #[error(
        "the sandbox image can't be built: its base {usual} is not on this machine and can't be pulled ({why}), and \
         there is no {DEBIAN_BASE} either. Make that one from Debian's packages with scripts/base-image.sh, or name \
         an image that has Python 3 with `cellblock build --base-image NAME`"
    )]
    NoBase {
        /// The usual base.
        usual: String,
        /// What the engine said.
        why: String,
    },
    /// The build failed.
    #[error(
        "the sandbox image can't be built on {base}: {why}. The last lines were:\n{tail}\nFix what they name (behind a \
         company proxy: HTTPS_PROXY, and SSL_CERT_FILE with its certificate authorities), then run `cellblock build`"
    )]
    Build {
        /// The base.
        base: String,
        /// What the engine said.
        why: String,
        /// The end of the output.
        tail: String,
    },
    /// The certificate authorities can't be read.
    #[error("the certificate authorities at {path} can't be read: {why}; correct or unset SSL_CERT_FILE")]
    Authorities {
        /// Where.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
}

/// Builds the image, telling `progress` what happens. Dropping the future stops the build.
///
/// # Errors
/// An [`ImageError`], which says what to do.
pub async fn build(options: &BuildOptions, progress: OnProgress<'_>) -> Result<BuiltImage, ImageError> {
    let engine =
        Engine::connect(options.host.as_deref()).await.map_err(|e| ImageError::Engine(e.to_string()))?;
    engine.build(options, progress).await
}

/// The name of the image that this binary builds: it changes with the Dockerfile and the packages.
pub fn default_tag() -> String {
    let mut hash = Sha256::new();
    hash.update(DOCKERFILE);
    hash.update([0]);
    hash.update(REQUIREMENTS);
    let hash = hash.finalize().iter().take(6).fold(0_u64, |hash, byte| (hash << 8) | u64::from(*byte));
    format!("cellblock-python:{hash:012x}")
}

/// The base that the Dockerfile names.
pub fn usual_base() -> &'static str {
    DOCKERFILE.lines().find_map(|line| line.strip_prefix("ARG BASE=")).unwrap_or_default().trim()
}

/// The build context: a tar archive of the Dockerfile and what it copies.
pub(crate) fn context(authorities: Option<&Path>) -> Result<Vec<u8>, ImageError> {
    let authorities = authorities_of(authorities)?;
    let mut archive = tar::Builder::new(Vec::new());
    let files =
        [("Dockerfile", DOCKERFILE), ("requirements.txt", REQUIREMENTS), ("ca-bundle.crt", &authorities)];
    let written = files.iter().try_for_each(|(name, text)| {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, text.as_bytes())
    });
    written
        .and_then(|()| archive.into_inner())
        .map_err(|e| ImageError::Engine(format!("the build context can't be packed: {e}")))
}

/// The certificates of a bundle, or of the system's; nothing else that may be in the file, private keys least
/// of all, goes into an image.
fn authorities_of(path: Option<&Path>) -> Result<String, ImageError> {
    let read = |path: &Path| {
        std::fs::read(path)
            .map(|bytes| certificates(&String::from_utf8_lossy(&bytes)))
            .map_err(|e| ImageError::Authorities { path: path.to_owned(), why: e.to_string() })
    };
    match path {
        Some(path) => read(path),
        None => AUTHORITIES.map(Path::new).into_iter().find(|p| p.is_file()).map_or(Ok(String::new()), read),
    }
}

fn certificates(text: &str) -> String {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let mut found = String::new();
    for block in text.split(BEGIN).skip(1) {
        if let Some((body, _)) = block.split_once(END) {
            found.extend([BEGIN, body, END, "\n"]);
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_dockerfile_has_one_build_argument_with_a_default() {
        assert_eq!(DOCKERFILE.lines().filter(|line| line.starts_with("ARG ")).count(), 1);
        assert!(usual_base().starts_with("python:3"), "{}", usual_base());
    }

    #[test]
    fn the_tag_names_the_contents() {
        let tag = default_tag();
        assert_eq!(tag, default_tag());
        assert_eq!(tag.strip_prefix("cellblock-python:").unwrap().len(), 12);
    }

    #[test]
    fn only_certificates_enter_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bundle.pem");
        let cert = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----\n";
        std::fs::write(&path, format!("# a comment\n{cert}{key}{cert}-----BEGIN CERTIFICATE-----\ncut"))
            .unwrap();
        assert_eq!(authorities_of(Some(&path)).unwrap(), format!("{cert}{cert}"));
        let context = context(Some(&path)).unwrap();
        assert!(!String::from_utf8_lossy(&context).contains("SECRET"));
    }

    #[test]
    fn a_bundle_that_was_named_must_be_there() {
        let said = authorities_of(Some(Path::new("/nowhere/at/all.pem"))).unwrap_err().to_string();
        assert!(said.contains("/nowhere/at/all.pem") && said.contains("SSL_CERT_FILE"), "{said}");
    }

    #[test]
    fn the_context_has_all_that_the_dockerfile_copies() {
        let context = context(None).unwrap();
        let mut archive = tar::Archive::new(context.as_slice());
        let names: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().to_string_lossy().into_owned())
            .collect();
        for copied in DOCKERFILE.lines().filter_map(|line| line.strip_prefix("COPY ")) {
            let name = copied.split_whitespace().next().unwrap();
            assert!(names.iter().any(|n| n == name), "{name}");
        }
    }
}
