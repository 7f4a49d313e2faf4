//! Text written so that nothing in it is markup, in Markdown and in HTML.

/// A code block as HTML in one line, so that no container's indentation and no blank line matters.
pub(super) fn html_block(info: &str, code: &str) -> String {
    let language = info.split_whitespace().next().unwrap_or_default();
    let named =
        !language.is_empty() && language.chars().all(|c| c.is_ascii_alphanumeric() || "_+-".contains(c));
    let class = if named { format!(" class=\"language-{language}\"") } else { String::new() };
    format!("<pre><code{class}>{}</code></pre>", entities(code))
}

/// The length of code that was written as HTML here before: it is final.
pub(super) fn own_code(here: &str) -> Option<usize> {
    let forms = [("<pre><code>", "</code></pre>"), ("<code>", "</code>"), ("<pre>", "</pre>")];
    let with_language = here.strip_prefix("<pre><code class=\"language-").and_then(|rest| {
        let end = rest.find('"')?;
        let plain = rest.get(..end)?.chars().all(|c| c.is_ascii_alphanumeric() || "_+-".contains(c));
        let text = rest.get(end..)?.strip_prefix("\">")?;
        plain.then_some((text, "</code></pre>"))
    });
    let simple = || forms.iter().find_map(|(start, end)| Some((here.strip_prefix(start)?, *end)));
    let (text, end) = with_language.or_else(simple)?;
    let length = text.find('<')?;
    let is_end = text.get(length..)?.starts_with(end);
    (is_end && is_entities(text.get(..length)?)).then(|| here.len() - text.len() + length + end.len())
}

/// Whether a text could come from [`entities`].
fn is_entities(text: &str) -> bool {
    let known = |rest: &str| {
        let number = || rest.strip_prefix("&#")?.split_once(';').filter(|(n, _)| n.len() < 4 && is_number(n));
        ["&amp;", "&lt;", "&gt;"].iter().any(|name| rest.starts_with(name)) || number().is_some()
    };
    text.char_indices().all(|(at, c)| match c {
        '&' => known(text.get(at..).unwrap_or_default()),
        '#' => text.get(..at).is_some_and(|before| before.ends_with('&')),
        c => !c.is_control() && (!c.is_ascii_punctuation() || ENTITY_PLAIN.contains(&c)),
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// A character as a reference by its number.
pub(super) fn number(c: char) -> String {
    format!("&#{};", u32::from(c))
}

/// Punctuation that is nowhere markup.
const ENTITY_PLAIN: [char; 6] = [',', ';', '%', '?', '/', '.'];

/// Text in which nothing is markup, in Markdown and in HTML, in one line.
pub(super) fn entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() || (c.is_ascii_punctuation() && !ENTITY_PLAIN.contains(&c)) => {
                out.push_str(&number(c));
            }
            c => out.push(c),
        }
    }
    out
}
