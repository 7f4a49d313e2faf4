//! Which addresses may stand in sanitised output.
//!
//! Imports nothing of ours. A link is followed only when somebody clicks it; a picture is loaded at once, so an
//! address of one could carry data out of a sandbox that has no network.

/// Media types of pictures that may stand in a `data:` address.
const IMAGES: &[&str] = &["png", "jpeg", "jpg", "gif", "webp", "bmp"];

/// An address as a browser reads it: no white space around it, no tabs and line ends anywhere.
fn normalised(address: &str) -> String {
    address
        .trim_matches(|c: char| c <= ' ' || c.is_whitespace())
        .chars()
        .filter(|c| !matches!(c, '\t' | '\n' | '\r'))
        .collect()
}

/// What an address refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// A place in the same document, `#name`.
    Fragment,
    /// A web page or a mail address.
    Remote,
    /// A file beside or below the notebook.
    File,
    /// Everything else: other schemes, the server's own addresses, folders above.
    Refused,
}

/// Says what a link's address refers to.
pub(super) fn target(address: &str) -> Target {
    let address = normalised(address);
    let lower = address.to_ascii_lowercase();
    if lower.starts_with('#') {
        return Target::Fragment;
    }
    if ["http://", "https://", "mailto:"].iter().any(|scheme| lower.starts_with(scheme)) {
        let odd = lower.contains(|c: char| c.is_control() || matches!(c, '<' | '>' | '"'));
        return if odd { Target::Refused } else { Target::Remote };
    }
    // Everything that a browser, or a decoder on the way to it, could read as a scheme, as the server's root
    // (`/lab`, `\\host`), as a folder above or as a query is refused.
    let odd = |c: char| c.is_control() || matches!(c, ':' | '\\' | '?' | '<' | '>' | '"' | '`' | '&' | '%');
    let path = lower.split('#').next().unwrap_or_default();
    let plain_escapes = path.replace("%20", "_");
    if path.is_empty() || path.starts_with('/') || plain_escapes.contains(odd) {
        return Target::Refused;
    }
    if path.split('/').any(|part| part == "..") { Target::Refused } else { Target::File }
}

/// Whether a picture may be loaded: data in the address itself, or a file beside or below the notebook.
pub(super) fn is_safe_image(address: &str) -> bool {
    is_data(address, "image/", IMAGES) || target(address) == Target::File
}

/// Whether sound or a film may be loaded: data in the address itself, or a file.
pub(super) fn is_safe_media(address: &str) -> bool {
    const KINDS: &[&str] = &["wav", "x-wav", "mpeg", "mp3", "ogg", "webm", "mp4", "flac", "aac", "quicktime"];
    is_data(address, "audio/", KINDS) || is_data(address, "video/", KINDS) || target(address) == Target::File
}

/// `data:{family}{one of kinds};base64,{base64}`.
fn is_data(address: &str, family: &str, kinds: &[&str]) -> bool {
    let address = address.trim();
    let Some((head, data)) = address.split_once(',') else { return false };
    let head = head.to_ascii_lowercase();
    let Some(kind) = head.strip_prefix("data:").and_then(|rest| rest.strip_prefix(family)) else {
        return false;
    };
    let Some(kind) = kind.strip_suffix(";base64") else { return false };
    kinds.contains(&kind) && is_base64(data)
}

/// Whether a text is base64 with nothing else but line ends and spaces in it.
pub(super) fn is_base64(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'\n' | b'\r' | b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_addresses_pass() {
        for (address, expected) in [
            ("https://example.org/a?b=c#d", Target::Remote),
            (" HTTP://example.org ", Target::Remote),
            ("mailto:a@example.org", Target::Remote),
            ("#part", Target::Fragment),
            ("data/plot.png", Target::File),
            ("a%20b.csv#x", Target::File),
            ("javascript:alert(1)", Target::Refused),
            (" \u{1}java\tscript\n:alert(1)", Target::Refused),
            ("JavaScript:alert(1)", Target::Refused),
            ("javascript&colon;alert(1)", Target::Refused),
            ("vbscript:x", Target::Refused),
            ("data:text/html,x", Target::Refused),
            ("blob:x", Target::Refused),
            ("file:///etc/passwd", Target::Refused),
            ("command:workbench.action", Target::Refused),
            ("/lab/api/x", Target::Refused),
            ("//host/x", Target::Refused),
            ("\\\\host\\x", Target::Refused),
            ("a/../../api", Target::Refused),
            ("a/%2e%2e/api", Target::Refused),
            ("..", Target::Refused),
            ("x?shutdown=1", Target::Refused),
            ("", Target::Refused),
        ] {
            assert_eq!(target(address), expected, "{address:?}");
        }
    }

    #[test]
    fn only_pictures_that_need_no_network_pass() {
        assert!(is_safe_image("data:image/png;base64,iVBORw0KGgo="));
        assert!(is_safe_image("plot.png"));
        for address in [
            "https://evil.example/?data",
            "//evil.example/x.png",
            "data:image/svg+xml;base64,AAAA",
            "data:text/html;base64,AAAA",
            "data:image/png;base64,AA\"onerror=x",
            "data:image/png,x",
        ] {
            assert!(!is_safe_image(address), "{address:?}");
        }
        assert!(is_safe_media("data:audio/wav;base64,AAAA"));
        assert!(!is_safe_media("data:text/html;base64,AAAA"));
    }
}
