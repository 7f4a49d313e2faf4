//! Style sheets and style attributes of a hostile source, made fit for a page that is not theirs.
//!
//! Imports nothing of ours. Tables of data frames, diagrams and object views bring their own rules, and people
//! want to see them; a rule must not reach other parts of the page, load anything, or cover anything:
//!
//! - every selector is confined to a container's class, names of elements live in a name space of their own;
//! - a value may call only the functions in [`FUNCTIONS`]; `url()` only refers to a fragment;
//! - `position: fixed`, imports, fonts, key frames and everything with a backslash or an angle bracket go.
//!
//! What comes out is written anew from checked pieces; it holds no `<`, no backslash and no comment.

/// Before the name of every element (`id`), so that it can't take the place of one of the page's own.
pub(super) const ID_PREFIX: &str = "cb-";

/// Functions that compute, colour or move, and load nothing.
const FUNCTIONS: &[&str] = &[
    "abs",
    "attr",
    "blur",
    "brightness",
    "calc",
    "circle",
    "clamp",
    "color-mix",
    "conic-gradient",
    "contrast",
    "cubic-bezier",
    "drop-shadow",
    "ellipse",
    "fit-content",
    "grayscale",
    "hsl",
    "hsla",
    "hue-rotate",
    "hwb",
    "inset",
    "invert",
    "lab",
    "lch",
    "light-dark",
    "linear-gradient",
    "matrix",
    "max",
    "min",
    "minmax",
    "oklab",
    "oklch",
    "opacity",
    "polygon",
    "radial-gradient",
    "rect",
    "repeat",
    "repeating-linear-gradient",
    "rgb",
    "rgba",
    "rotate",
    "saturate",
    "scale",
    "sepia",
    "skew",
    "translate",
    "translatex",
    "translatey",
];
/// Functions of custom properties.
const VARIABLES: &[&str] = &["var"];
/// Properties that load or run something in some browser.
const REFUSED: &[&str] = &["behavior", "-moz-binding", "-ms-behavior", "src"];
/// Properties (or their first word before a hyphen) that keep an element in its place.
const PLAIN: &[&str] = &[
    "background",
    "border",
    "color",
    "display",
    "fill",
    "float",
    "font",
    "height",
    "letter",
    "line",
    "list",
    "margin",
    "max",
    "min",
    "opacity",
    "overflow",
    "padding",
    "stroke",
    "table",
    "text",
    "vertical",
    "visibility",
    "white",
    "width",
    "word",
    "stop",
    "clear",
];
/// Media queries and the like inside each other.
const MAX_DEPTH: usize = 3;

/// Checked declarations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Declarations {
    /// `name: value; name: value`.
    pub(super) text: String,
    /// Whether something in it can move the element out of its place.
    pub(super) moves: bool,
}

/// The declarations of a style attribute, or of a rule's body.
pub(super) fn declarations(text: &str) -> Declarations {
    let text = without_comments(text);
    let mut checked = Declarations::default();
    for declaration in split(&text, ';') {
        let Some((name, value)) = declaration.split_once(':') else { continue };
        let name = name.trim();
        let name = if name.starts_with("--") { name.to_owned() } else { name.to_ascii_lowercase() };
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(letters) || REFUSED.contains(&name.as_str()) {
            continue;
        }
        let Some(value) = checked_value(value.trim()) else { continue };
        if name == "position" && value.to_ascii_lowercase().contains("fixed") {
            continue;
        }
        let plain = PLAIN.contains(&name.split('-').next().unwrap_or_default());
        checked.moves |= !plain || (name.starts_with("margin") && value.contains(['-', '(']));
        if !checked.text.is_empty() {
            checked.text.push_str("; ");
        }
        checked.text.push_str(&name);
        checked.text.push_str(": ");
        checked.text.push_str(&value);
    }
    checked
}

/// A value that loads nothing, with its references to fragments renamed; `None` when it is not safe.
pub(super) fn checked_value(value: &str) -> Option<String> {
    let harmless = |c: char| !c.is_control() && !matches!(c, '\\' | '<' | '>' | '{' | '}' | '@' | '`');
    let value = value.replace(['\n', '\r', '\t'], " ");
    if value.is_empty() || !value.chars().all(harmless) || value.contains("/*") || !is_balanced(&value) {
        return None;
    }
    let mut out = String::with_capacity(value.len());
    let mut done = 0;
    for (at, c) in unquoted(&value) {
        if c != '(' || at < done {
            continue;
        }
        let before = value.get(..at).unwrap_or_default();
        let name_length =
            before.bytes().rev().take_while(|b| b.is_ascii_alphanumeric() || *b == b'-' || *b >= 128);
        let name = before.get(at - name_length.count()..).unwrap_or_default().to_ascii_lowercase();
        let name = name.trim_start_matches('-');
        if name == "url" {
            let inner = value.get(at + 1..).and_then(|rest| rest.split(')').next()).unwrap_or_default();
            let fragment = inner.trim().trim_matches(['"', '\'']).strip_prefix('#')?;
            out.push_str(value.get(done..=at).unwrap_or_default());
            out.push('#');
            out.push_str(&renamed(fragment)?);
            done = at + 1 + inner.len();
        } else if !name.is_empty() && !FUNCTIONS.contains(&name) && !VARIABLES.contains(&name) {
            return None;
        }
    }
    out.push_str(value.get(done..).unwrap_or_default());
    Some(out)
}

/// An element's name in the name space of sanitised output; `None` when it is no plain name.
pub(super) fn renamed(id: &str) -> Option<String> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if id.is_empty() || !id.chars().all(plain) {
        return None;
    }
    Some(if id.starts_with(ID_PREFIX) { id.to_owned() } else { format!("{ID_PREFIX}{id}") })
}

/// A style sheet whose every rule is confined to elements inside of `scope` (a class selector).
pub(super) fn stylesheet(text: &str, scope: &str) -> String {
    let mut out = String::new();
    rules(&without_comments(text), scope, 0, &mut out);
    out
}

fn rules(text: &str, scope: &str, depth: usize, out: &mut String) {
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let Some((at, mark)) = unquoted(rest).find(|(_, c)| matches!(c, '{' | ';' | '}')) else { return };
        let prelude = rest.get(..at).unwrap_or_default().trim();
        rest = rest.get(at + 1..).unwrap_or_default();
        if mark != '{' {
            // A statement without a block (an import), or a stray end.
            rest = rest.trim_start();
            continue;
        }
        let end = block_end(rest);
        let body = rest.get(..end).unwrap_or_default();
        rest = rest.get(end + 1..).unwrap_or_default().trim_start();
        match prelude.strip_prefix('@') {
            Some(query) if depth < MAX_DEPTH && is_query(query) => {
                let mut inner = String::new();
                rules(body, scope, depth + 1, &mut inner);
                if !inner.is_empty() {
                    out.extend(["@", &one_line(query), " {\n", &inner, "}\n"]);
                }
            }
            Some(_) => {}
            None => {
                let selectors: Vec<_> =
                    split(prelude, ',').filter_map(|selector| confined(selector.trim(), scope)).collect();
                let declarations = declarations(body).text;
                if !selectors.is_empty() && !declarations.is_empty() {
                    out.extend([&selectors.join(", "), " { ", &declarations, " }\n"]);
                }
            }
        }
    }
}

/// A media or feature query made of plain words.
fn is_query(query: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c.is_whitespace() || "():,.-_".contains(c);
    (query.starts_with("media") || query.starts_with("supports"))
        && query.chars().all(plain)
        && is_balanced(query)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A selector that matches only inside of `scope`; `None` when it is not understood.
fn confined(selector: &str, scope: &str) -> Option<String> {
    let plain = |c: char| c.is_alphanumeric() || c.is_whitespace() || "-_.#:*>+~()[]=\"'^$|,".contains(c);
    if selector.is_empty() || !selector.chars().all(plain) || !is_balanced(selector) {
        return None;
    }
    let selector = one_line(selector);
    let mut own = selector.as_str();
    for root in [scope, ":root", "html", "body", ":host"] {
        if let Some(after) = own.strip_prefix(root)
            && (after.is_empty() || after.starts_with(' '))
        {
            own = after.trim_start();
            break;
        }
    }
    // A combinator right behind the container would lead out of it.
    if own.starts_with(['+', '~', '>']) || own.starts_with("||") {
        return None;
    }
    if own.is_empty() {
        return Some(scope.to_owned());
    }
    let mut out = format!("{scope} ");
    let mut brackets = 0_usize;
    let mut done = 0;
    for (at, c) in unquoted(own) {
        match c {
            '[' => brackets += 1,
            ']' => brackets = brackets.saturating_sub(1),
            '#' if brackets == 0 => {
                let name = own.get(at + 1..).unwrap_or_default();
                let length =
                    name.find(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).unwrap_or(name.len());
                out.push_str(own.get(done..=at).unwrap_or_default());
                out.push_str(&renamed(name.get(..length).unwrap_or_default())?);
                done = at + 1 + length;
            }
            _ => {}
        }
    }
    out.push_str(own.get(done..).unwrap_or_default());
    Some(out)
}

/// Where the block ends whose inside begins the text; the text's end when it never does.
fn block_end(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in unquoted(text) {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return at,
            '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// The characters that stand outside of quotes. A quote ends at its line's end, as in a style sheet.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut quote = None;
    text.char_indices().filter(move |(_, c)| {
        if let Some(open) = quote {
            if *c == open || *c == '\n' {
                quote = None;
            }
            return false;
        }
        quote = matches!(c, '"' | '\'').then_some(*c);
        quote.is_none()
    })
}

/// Whether quotes, parentheses and brackets are closed in order.
fn is_balanced(text: &str) -> bool {
    let mut open = Vec::new();
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(mark), c) if mark == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '(') => open.push(')'),
            (None, '[') => open.push(']'),
            (None, ')' | ']') if open.pop() != Some(c) => return false,
            _ => {}
        }
    }
    quote.is_none() && open.is_empty()
}

/// The pieces between separators that stand outside of quotes, parentheses and brackets.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    let mut cuts: Vec<usize> = unquoted(text)
        .filter(|(_, c)| {
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                _ => {}
            }
            *c == separator && depth <= 0
        })
        .map(|(at, _)| at)
        .collect();
    cuts.push(text.len());
    let mut from = 0;
    cuts.into_iter().map(move |to| {
        let piece = text.get(from..to).unwrap_or_default();
        from = to + 1;
        piece
    })
}

/// Comments become a space; one that is never closed takes the rest with it.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    // HTML comment marks are allowed around a style sheet and mean nothing.
    out.replace("<!--", " ").replace("-->", " ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn harmless_declarations_stay() {
        for (text, expected) in [
            ("color:red", "color: red"),
            ("COLOR : Red ;; ", "color: Red"),
            (
                "width: calc(100% - 2px); --a: 1; color: var(--a)",
                "width: calc(100% - 2px); --a: 1; color: var(--a)",
            ),
            ("font-family: \"A;B\", serif", "font-family: \"A;B\", serif"),
            ("fill:url(#grad)", "fill: url(#cb-grad)"),
            ("background: rgb(1,2,3) !important", "background: rgb(1,2,3) !important"),
            ("/* c */color: red", "color: red"),
            ("position: relative; position: absolute", "position: relative; position: absolute"),
        ] {
            assert_eq!(declarations(text).text, expected);
        }
    }

    #[test]
    fn declarations_that_load_run_or_cover_go() {
        for text in [
            "background: url(https://evil.example/?x)",
            "background: URL('https://evil.example')",
            "background:u\\72l(https://evil.example)",
            "background: image-set('https://evil.example/x' 1x)",
            "background: -webkit-image-set(url(x) 1x)",
            "background: src('x')",
            "position: fixed",
            "behavior: url(#x)",
            "width: expression(alert(1))",
            "color: red</style><script>",
            "color: \"open",
            "-moz-binding: x",
            "a b: c",
            "color",
        ] {
            assert_eq!(declarations(text).text, "", "{text:?}");
        }
    }

    #[test]
    fn rules_are_confined_to_their_container() {
        for (text, expected) in [
            (".a b:hover{color:red}", ".s .a b:hover { color: red }\n"),
            ("a,\nb > c{color:red;}", ".s a, .s b > c { color: red }\n"),
            ("body{color:red}:root{--x:1}", ".s { color: red }\n.s { --x: 1 }\n"),
            ("#T_a_row0_col1{color:red}", ".s #cb-T_a_row0_col1 { color: red }\n"),
            ("a[href='#x']{color:red}", ".s a[href='#x'] { color: red }\n"),
            (
                "@media (prefers-color-scheme: dark){a{color:red}}b{color:blue}",
                "@media (prefers-color-scheme: dark) {\n.s a { color: red }\n}\n.s b { color: blue }\n",
            ),
            ("@import url(x);a{color:red}", ".s a { color: red }\n"),
            ("@font-face{src:url(x)}a{color:red}", ".s a { color: red }\n"),
            ("+ a{color:red}:root ~ a{color:red}.s + a{color:red}", ""),
            ("a{color:red", ".s a { color: red }\n"),
            ("}a{color:red}", ".s a { color: red }\n"),
            ("a{b{color:red}}", ""),
            ("a\\{b{color:red}", ""),
            ("<a>{color:red}", ""),
        ] {
            assert_eq!(stylesheet(text, ".s"), expected, "{text:?}");
            assert_eq!(stylesheet(expected, ".s"), expected, "{text:?}");
        }
    }

    #[test]
    fn what_can_move_is_known() {
        assert!(!declarations("color: red; text-align: left; margin: 2px; border-left: 1px").moves);
        for text in
            ["position: absolute", "margin-top: -9px", "transform: none", "z-index: 1", "box-shadow: none"]
        {
            assert!(declarations(text).moves, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_comes_out_is_stable_and_can_not_leave_its_element(
            text in "([a-z#.:;{}@()\"'\\\\</>*\n -]|url\\(|/\\*|@media |position:fixed|</style>){0,40}"
        ) {
            let sheet = stylesheet(&text, ".s");
            prop_assert!(!sheet.contains(['<', '\\']), "{}", sheet);
            prop_assert!(!sheet.contains("fixed"));
            prop_assert_eq!(stylesheet(&sheet, ".s"), sheet.clone());
            let inline = declarations(&text);
            prop_assert_eq!(declarations(&inline.text), inline.clone());
        }
    }
}
