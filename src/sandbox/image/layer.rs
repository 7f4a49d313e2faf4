//! A layer of packages on top of an image: how it is made, what it is called, and why it could not be made.
//!
//! Imports `packages`. A container runs one program, which is told the names through its standard input: no shell
//! and no Dockerfile ever sees them.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::hexadecimal;
use crate::sandbox::packages::{Manager, Packages};

/// The program that installs.
const INSTALL: &str = include_str!("install.py");
/// Where Node looks for what `npm` installs.
const NODE_PATH: &str = "NODE_PATH=/usr/local/lib/node_modules";

/// The name of images with packages added.
pub(crate) const NAME: &str = "cellblock-packages";

/// What the container runs.
pub(crate) fn argv() -> Vec<String> {
    ["python3", "-I", "-c", INSTALL].map(str::to_owned).to_vec()
}

/// What it reads: the packages, the way to the network, and the certificates to trust there.
pub(crate) fn order(packages: &Packages, authorities: &str, proxies: &[(String, String)]) -> Vec<u8> {
    let proxies: serde_json::Map<String, Value> =
        proxies.iter().map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect();
    let order = json!({ "packages": names(packages), "authorities": authorities, "proxies": proxies });
    order.to_string().into_bytes()
}

fn names(packages: &Packages) -> Value {
    let of = |manager: Manager| packages.of(manager).collect::<Vec<_>>();
    json!({ "apt": of(Manager::Apt), "pip": of(Manager::Pip), "npm": of(Manager::Npm) })
}

/// The capabilities that installing takes. Only Debian's packages, which run scripts of their own as root, need to
/// become other users.
pub(crate) fn capabilities(packages: &Packages) -> Vec<&'static str> {
    let mut capabilities = vec!["CHOWN", "DAC_OVERRIDE", "FOWNER"];
    if packages.of(Manager::Apt).next().is_some() {
        capabilities.extend(["FSETID", "SETGID", "SETUID"]);
    }
    capabilities
}

/// Variables that the image gets.
pub(crate) fn environment(packages: &Packages) -> Vec<String> {
    packages.of(Manager::Npm).next().map(|_| NODE_PATH.to_owned()).into_iter().collect()
}

/// What the image is called behind [`NAME`]: the same packages on the same base have the same.
pub(crate) fn tag(base: &str, packages: &Packages) -> String {
    let mut hash = Sha256::new();
    for part in [base, &names(packages).to_string(), INSTALL] {
        hash.update(part);
        hash.update([0]);
    }
    hexadecimal(&hash.finalize())
}

/// What to do about a failure, from the installer's last lines.
pub(crate) fn remedy(tail: &str, why: &str) -> &'static str {
    let has = |texts: &[&str]| texts.iter().any(|text| tail.contains(text) || why.contains(text));
    if has(&["cellblock: "]) {
        "take another image for this container, or add what is missing to its Dockerfile"
    } else if has(&["CERTIFICATE_VERIFY_FAILED", "SELF_SIGNED_CERT", "certificate verify failed"]) {
        "the network here signs connections itself: point SSL_CERT_FILE at its certificate authorities, and start the \
         kernel again"
    } else if has(&[
        "Temporary failure",
        "Failed to establish a new connection",
        "Could not resolve",
        "Network is unreachable",
        "ENOTFOUND",
        "EAI_AGAIN",
        "ETIMEDOUT",
        "ProxyError",
        "Cannot connect to proxy",
        "Failed to fetch",
    ]) {
        "the installer could not reach its index: see whether the engine's containers have a network (behind a proxy: \
         HTTPS_PROXY)"
    } else if has(&["No matching distribution found", "Could not find a version"]) {
        "see whether the name and the version are right. Only wheels are taken (an install runs no code of the \
         package), so one that comes as source alone, or has no wheel for this platform and Python, can't be installed"
    } else if has(&["Unable to locate package", "no installation candidate", "was not found"]) {
        "see whether the name and the version are right, and whether this release of the image's system has it"
    } else if has(&["E404", "ETARGET", "notarget"]) {
        "see whether the name and the version are right"
    } else if has(&["No space left", "no space left"]) {
        "the disk is full: make room (`docker system df` shows what the engine holds)"
    } else if has(&["ResolutionImpossible", "conflicting dependencies"]) {
        "take other versions, or leave them out: these packages exclude each other"
    } else {
        "fix what the lines name, and try again"
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn packages(names: &[(Manager, &str)]) -> Packages {
        let mut packages = Packages::default();
        for (manager, name) in names {
            packages.add(*manager, name).unwrap();
        }
        packages
    }

    #[test]
    fn names_are_elements_of_a_list_and_never_words_of_a_shell() {
        let packages = packages(&[
            (Manager::Pip, "rich[all]==13.7.1"),
            (Manager::Pip, "x>=1,<2"),
            (Manager::Apt, "g++"),
        ]);
        let order = order(&packages, "CERTIFICATE", &[("https_proxy".into(), "http://p".into())]);
        let order: Value = serde_json::from_slice(&order).unwrap();
        let names = json!({ "apt": ["g++"], "pip": ["rich[all]==13.7.1", "x>=1,<2"], "npm": [] });
        assert_eq!(order["packages"], names);
        assert_eq!(order["proxies"]["https_proxy"], "http://p");
        assert!(!argv().join(" ").contains("g++"));
    }

    #[test]
    fn the_name_is_that_of_base_and_packages() {
        let one = packages(&[(Manager::Pip, "six"), (Manager::Pip, "rich")]);
        let other = packages(&[(Manager::Pip, "rich"), (Manager::Pip, "six")]);
        assert_eq!(tag("a", &one), tag("a", &other));
        assert_ne!(tag("a", &one), tag("b", &one));
        assert_ne!(tag("a", &one), tag("a", &packages(&[(Manager::Pip, "six")])));
    }

    #[test]
    fn each_failure_has_its_remedy() {
        for (tail, word) in [
            ("ERROR: No matching distribution found for x", "wheels"),
            ("Failed to establish a new connection\nERROR: No matching distribution found for x", "reach"),
            ("E: Unable to locate package x", "name"),
            ("cellblock: the image has no npm", "Dockerfile"),
            ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]", "SSL_CERT_FILE"),
            ("npm ERR! code E404", "name"),
            ("?", "lines"),
        ] {
            assert!(remedy(tail, "").contains(word), "{tail}");
        }
    }
}
