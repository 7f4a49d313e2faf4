//! The images that code runs in: what they are made of, what they are called, and how to have them made.
//!
//! Imports `docker`. The built-in Dockerfiles and what they copy travel inside the binary, so that an installed
//! kernel can build its images anywhere. `containers/` is where they are edited; to add one, add a row to
//! `RECIPES`.
//!
//! | module | what |
//! | --- | --- |
//! | `context` | what is sent to the engine to build from |
//! | `ignore` | `.dockerignore` |
//! | `layer` | packages on top of an image |

mod context;
mod ignore;
pub(crate) mod layer;

use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::docker::Engine;

/// How the image is built.
pub const DOCKERFILE: &str = include_str!("../../containers/python/Dockerfile");
/// What Python packages are in it.
pub const REQUIREMENTS: &str = include_str!("../../containers/python/requirements.txt");
/// Every image that the binary can build.
const RECIPES: &[Recipe] = &[
    Recipe { name: "python", files: &[("Dockerfile", DOCKERFILE), ("requirements.txt", REQUIREMENTS)] },
    Recipe {
        name: "polyglot",
        files: &[("Dockerfile", include_str!("../../containers/polyglot/Dockerfile"))],
    },
];
/// What the host's certificate authorities are called in a context.
pub(crate) const AUTHORITIES_FILE: &str = "ca-bundle.crt";
/// The base that `scripts/base-image.sh` makes from Debian's packages, for places without a registry.
pub const DEBIAN_BASE: &str = "cellblock-base:debian";
/// Where systems keep the certificate authorities that they trust.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub(crate) use context::{Context, folder};

/// An image that the binary can build: its Dockerfile, first, and what that copies.
#[derive(Debug)]
pub struct Recipe {
    /// Its name, and that of the containers that run it.
    pub name: &'static str,
    files: &'static [(&'static str, &'static str)],
}

/// The recipe of that name.
pub fn recipe(name: &str) -> Option<&'static Recipe> {
    RECIPES.iter().find(|recipe| recipe.name == name)
}

impl Recipe {
    /// The name of the image that this binary builds: it changes with the Dockerfile and what it copies.
    pub fn tag(&self) -> String {
        let mut hash = Sha256::new();
        for (number, (_, text)) in self.files.iter().enumerate() {
            if number > 0 {
                hash.update([0]);
            }
            hash.update(text);
        }
        format!("cellblock-{}:{}", self.name, hexadecimal(&hash.finalize()))
    }

    /// The base that its Dockerfile names.
    pub fn usual_base(&self) -> &'static str {
        let (_, dockerfile) = self.files.first().unwrap_or(&("", ""));
        base_argument(dockerfile).unwrap_or_default()
    }

    /// The build context: a tar archive of the Dockerfile and what it copies.
    pub(crate) fn context(&self, authorities: Option<&Path>) -> Result<Vec<u8>, ImageError> {
        let authorities = authorities_of(authorities)?;
        let mut files = self.files.to_vec();
        files.push((AUTHORITIES_FILE, &authorities));
        context::files(&files)
    }
}

/// Whether a Dockerfile asks for its base, and which one it takes when nobody answers (empty: none).
pub(crate) fn base_argument(dockerfile: &str) -> Option<&str> {
    for line in dockerfile.lines() {
        let mut words = line.split_whitespace();
        match words.next().map(str::to_ascii_uppercase).as_deref() {
            Some("ARG") => {
                for word in words {
                    let (name, default) = word.split_once('=').unwrap_or((word, ""));
                    if name == "BASE" {
                        return Some(default.trim_matches(['"', '\'']));
                    }
                }
            }
            // What comes later belongs to a stage.
            Some("FROM") => return None,
            _ => {}
        }
    }
    None
}

/// The first six bytes of a hash.
pub(crate) fn hexadecimal(hash: &[u8]) -> String {
    let number = hash.iter().take(6).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("{number:012x}")
}

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
         to see more, or name another one (sandbox.image, or `image:` of the container)"
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
    /// A Dockerfile of the user's does not build.
    #[error(
        "the image of the container {container} can't be built: {why}. The last lines were:\n{tail}\nFix what they name \
         in its Dockerfile (behind a company proxy: HTTPS_PROXY, and SSL_CERT_FILE with its certificate authorities), \
         then run the cell again"
    )]
    Own {
        /// Which container.
        container: String,
        /// What the engine said.
        why: String,
        /// The end of the output.
        tail: String,
    },
    /// A folder can't be built from.
    #[error("the folder {path} can't be built from: {why}")]
    Context {
        /// Which folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Packages can't be installed.
    #[error("{packages} can't be installed: {why}. The last lines were:\n{tail}\nWhat to do: {remedy}")]
    Packages {
        /// Which packages.
        packages: String,
        /// What the engine said.
        why: String,
        /// The end of the output.
        tail: String,
        /// What may help.
        remedy: &'static str,
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

/// Builds the usual image, telling `progress` what happens. Dropping the future stops the build.
///
/// # Errors
/// An [`ImageError`], which says what to do.
pub async fn build(options: &BuildOptions, progress: OnProgress<'_>) -> Result<BuiltImage, ImageError> {
    let engine =
        Engine::connect(options.host.as_deref()).await.map_err(|e| ImageError::Engine(e.to_string()))?;
    engine.build(&RECIPES[0], options, progress).await
}

/// The name of the usual image, as this binary builds it.
pub fn default_tag() -> String {
    RECIPES[0].tag()
}

/// The certificates of a bundle, or of the system's; nothing else that may be in the file, private keys least
/// of all, goes into an image.
pub(crate) fn authorities_of(path: Option<&Path>) -> Result<String, ImageError> {
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
    use crate::sandbox::language::LANGUAGES;

    #[test]
    fn the_polyglot_image_has_the_packages_of_every_language() {
        let installed: Vec<_> = recipe("polyglot").unwrap().files[0].1.split_whitespace().collect();
        for language in LANGUAGES {
            for package in language.packages {
                assert!(installed.contains(package), "{} needs {package}", language.name);
            }
        }
    }

    #[test]
    fn the_dockerfile_has_one_build_argument_with_a_default() {
        for recipe in RECIPES {
            let (name, text) = recipe.files[0];
            assert_eq!(name, "Dockerfile");
            assert_eq!(text.lines().filter(|line| line.starts_with("ARG ")).count(), 1);
            assert!(recipe.usual_base().contains(':'), "{}", recipe.usual_base());
        }
    }

    #[test]
    fn a_dockerfile_asks_for_its_base_before_its_first_stage() {
        for (text, asked) in [
            ("ARG BASE=a:1\nFROM ${BASE}", Some("a:1")),
            ("# x\narg BASE\nFROM $BASE", Some("")),
            ("ARG X=1 BASE=\"b\"\nFROM b", Some("b")),
            ("FROM a\nARG BASE=b", None),
            ("ARG BASES=a\nFROM a", None),
        ] {
            assert_eq!(base_argument(text), asked, "{text}");
        }
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
        let context = RECIPES[0].context(Some(&path)).unwrap();
        assert!(!String::from_utf8_lossy(&context).contains("SECRET"));
    }

    #[test]
    fn a_bundle_that_was_named_must_be_there() {
        let said = authorities_of(Some(Path::new("/nowhere/at/all.pem"))).unwrap_err().to_string();
        assert!(said.contains("/nowhere/at/all.pem") && said.contains("SSL_CERT_FILE"), "{said}");
    }

    #[test]
    fn the_context_has_all_that_the_dockerfile_copies() {
        for recipe in RECIPES {
            let context = recipe.context(None).unwrap();
            let mut archive = tar::Archive::new(context.as_slice());
            let name = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
                entry.unwrap().path().unwrap().to_string_lossy().into_owned()
            };
            let names: Vec<_> = archive.entries().unwrap().map(name).collect();
            for copied in recipe.files[0].1.lines().filter_map(|line| line.strip_prefix("COPY ")) {
                let name = copied.split_whitespace().next().unwrap();
                assert!(names.iter().any(|n| n == name), "{name}");
            }
        }
    }
}
