//! Numbers and long texts in words for people and models. Imports nothing of ours.

/// A number with its thousands apart: `1,234`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A fence of backticks that the text between two of it can't close: at least three.
pub fn fence(text: &str) -> String {
    "`".repeat((longest_ticks(text) + 1).max(3))
}

/// The length of the longest run of backticks.
pub fn longest_ticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// About so many bytes of a text's head and of its tail, with what is missing counted between them. Characters stay
/// whole; `head` and `tail` together are less than the text has.
pub fn head_and_tail(text: &str, head: usize, tail: usize) -> String {
    let head = text.floor_char_boundary(head);
    let tail = text.ceil_char_boundary(text.len().saturating_sub(tail));
    let missing = tail.saturating_sub(head);
    format!("{}\n[... {missing} bytes left out ...]\n{}", &text[..head], &text[tail..])
}
