//! Which versions of runc, the usual container runtime, have known holes through which code gets out.

/// Major, minor, patch, and whether it is the release itself: candidates come before it.
type Version = (u64, u64, u64, bool);

/// Holes and the versions that closed them, one for each release series that got the fix.
const HOLES: &[(&str, &[Version])] = &[
    ("CVE-2024-21626", &[(1, 1, 12, true)]),
    ("CVE-2025-31133, CVE-2025-52565, CVE-2025-52881", &[(1, 2, 8, true), (1, 3, 3, true), (1, 4, 0, true)]),
];

/// The holes in this version, as far as its number tells; `None` when it is not a number (a commit).
///
/// Distributions close holes without changing the number (`1.1.5+ds1-1+deb12u1`), so that a finding is a
/// question to the user, not a verdict.
pub(super) fn holes(version: &str) -> Option<Vec<&'static str>> {
    let version = parse(version)?;
    Some(HOLES.iter().filter(|(_, fixes)| !fixed(version, fixes)).map(|(name, _)| *name).collect())
}

/// Whether a version is the fixed one of its series or later, or of a later series than every fixed one.
fn fixed(version: Version, fixes: &[Version]) -> bool {
    let series = (version.0, version.1);
    match fixes.iter().find(|fix| (fix.0, fix.1) == series) {
        Some(fix) => version >= *fix,
        None => fixes.iter().all(|fix| version > *fix),
    }
}

/// `1.1.5`, `v1.2.8`, `1.1.5+ds1`, `1.4.0-rc.1`.
fn parse(version: &str) -> Option<Version> {
    let version = version.trim().trim_start_matches('v');
    let numbers = version.split(['+', '-', '~']).next()?;
    let mut parts = numbers.split('.').map(|part| part.parse::<u64>().ok());
    let (major, minor, patch) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    Some((major, minor, patch, !version.contains("rc")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_judged_within_their_series() {
        for (version, count) in [
            ("1.0.3", 2),
            ("1.1.5+ds1", 2),
            ("1.1.11", 2),
            ("v1.1.12", 1),
            ("1.2.0", 1),
            ("1.2.7", 1),
            ("1.2.8", 0),
            ("1.3.2", 1),
            ("1.3.3", 0),
            ("1.4.0-rc.1", 1),
            ("1.4.0", 0),
            ("1.4.2", 0),
            ("2.0.0", 0),
        ] {
            assert_eq!(holes(version).map(|holes| holes.len()), Some(count), "{version}");
        }
    }

    #[test]
    fn a_commit_is_no_version() {
        for version in ["", "v", "a916309fff0f838eb94e928713dbc3c0d0ac7aa4", "1", "x.y.z"] {
            assert_eq!(holes(version), None, "{version}");
        }
    }
}
