//! The way to the network for containers that have one: the host's proxies, and the authorities that it trusts.
//!
//! A container without a network gets neither: a proxy's address may hold a password.

use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Inner;
use crate::sandbox::definition::Mount;
use crate::sandbox::image::{authorities_of, hexadecimal};
use crate::sandbox::spec::Spec;

/// Where containers see the certificates.
const INSIDE: &str = "/etc/cellblock";
/// The variables by which programs find them.
const VARIABLES: [&str; 6] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
];

impl Inner {
    /// Gives a container what it takes to get out. What the definition sets itself stays.
    pub(super) async fn give_way(&self, spec: &mut Spec) {
        let set = |spec: &mut Spec, name: &str, value: &str| {
            if !spec.environment.iter().any(|(known, _)| known == name) {
                spec.set_variable(name, value);
            }
        };
        for (name, value) in &self.options.proxies {
            set(spec, name, value);
        }
        let (authorities, state) = (self.options.authorities.clone(), self.options.state.clone());
        let laid_out = tokio::task::spawn_blocking(move || lay_out(authorities.as_deref(), &state?));
        let Some(folder) = laid_out.await.ok().flatten() else { return };
        spec.mounts.push(Mount { host: folder, path: INSIDE.to_owned(), read_only: true });
        for name in VARIABLES {
            set(spec, name, &format!("{INSIDE}/ca-bundle.crt"));
        }
    }
}

/// A folder with the host's authorities, named after what is in it: kernels share it.
fn lay_out(authorities: Option<&Path>, state: &Path) -> Option<PathBuf> {
    let failed = |error: &dyn std::fmt::Display| tracing::warn!(%error, "no certificates for containers");
    let text = authorities_of(authorities).inspect_err(|error| failed(error)).ok()?;
    if text.is_empty() {
        return None;
    }
    let folder = state.join("certificates").join(hexadecimal(&Sha256::digest(&text)));
    let file = folder.join("ca-bundle.crt");
    let write = || {
        std::fs::create_dir_all(&folder)?;
        if std::fs::read(&file).is_ok_and(|there| there == text.as_bytes()) {
            return Ok(());
        }
        let mut fresh = tempfile::NamedTempFile::new_in(state)?;
        fresh.write_all(text.as_bytes())?;
        rustix::fs::fchmod(&fresh, rustix::fs::Mode::from_raw_mode(0o644))?;
        fresh.persist(&file).map(drop).map_err(|e| e.error)
    };
    write().inspect_err(|error| failed(error)).ok()?;
    folder.canonicalize().ok()
}
