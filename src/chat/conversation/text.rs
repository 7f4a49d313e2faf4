//! Texts of the dialogue: shortened, fenced.

use crate::event::words;

/// A fence that its content can't close.
pub(super) fn fenced(language: &str, content: &str) -> String {
    let fence = words::fence(content);
    format!("{fence}{language}\n{}\n{fence}", content.trim_end_matches('\n'))
}

/// The head and the tail of a long text, with what is missing said between them.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    words::head_and_tail(text, limit * 2 / 3, limit / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortening_keeps_head_and_tail_and_whole_characters() {
        let text = "é".repeat(100);
        let short = shorten(&text, 31);
        assert!(short.starts_with('é') && short.ends_with('é') && short.contains("left out"), "{short}");
        assert_eq!(shorten("abc", 3), "abc");
    }

    #[test]
    fn a_fence_is_longer_than_any_inside() {
        assert_eq!(fenced("md", "```\nx\n```\n"), "````md\n```\nx\n```\n````");
    }
}
