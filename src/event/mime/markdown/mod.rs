//! Markdown of a hostile source (a guest's display, a model's reply), made fit for a front end that renders the
//! HTML in it.
//!
//! Imports pulldown-cmark, to know what is code. Front ends use other parsers, and where two parsers disagree
//! about what is code, text that is harmless for one is markup for the other. So nothing here depends on
//! agreement:
//!
//! - Outside of code every `<` that could begin a tag is part of a tag that was made safe (`html`), or escaped;
//!   every address behind `](` and `]:` is checked; pictures stay only in their plainest form.
//! - Code that holds nothing which would be markup outside of code stays as it is written.
//! - Other inline code, and code in lists and quotes, is written as HTML with every special character escaped:
//!   it looks the same, and it is text for every parser.
//! - Other fenced blocks at the top level stay fences, between blank lines, with a fence longer than any run of
//!   backticks or tildes in the whole text; then every parser sees them alike.
//! - The result is final: cleaning it again changes nothing.

mod code;
mod entities;
mod prose;

use code::{Kind, code, has_display_formula, is_markup, longest_run};
use entities::{entities, html_block};
use prose::Prose;

use super::{html, tex};

/// Markdown above this size is shown as plain text.
const MAX_PARSED: usize = 2 << 20;

/// Markdown made fit for a front end.
pub(super) fn sanitised(text: &str) -> String {
    let plain = without_controls(text);
    let cleaned = if plain.len() > MAX_PARSED { None } else { html::settled(&plain, cleaned) };
    cleaned.unwrap_or_else(|| format!("<pre>{}</pre>\n", entities(&plain)))
}

/// Line ends are `\n`; of the other controls only the tab stays.
fn without_controls(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        return text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    }
    text
}

fn cleaned(text: &str) -> String {
    if !text.contains(['<', '[', '\\', '&']) {
        return text.to_owned();
    }
    let pieces = code(text);
    let strict =
        pieces.iter().any(|piece| matches!(&piece.kind, Kind::Fence { code, .. } if is_markup(code)));
    let fence = "`".repeat(if strict { longest_run(text, &pieces) + 1 } else { 0 }.max(3));
    let prose = Prose { formulas: tex::may_hold_formulas(text), strict };
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut at = 0;
    for piece in pieces {
        prose.clean(text.get(at..piece.range.start).unwrap_or_default(), false, &mut out);
        let written = text.get(piece.range.clone()).unwrap_or_default();
        at = piece.range.end;
        match piece.kind {
            Kind::Formula => prose.clean(written, true, &mut out),
            Kind::Span(code) if is_markup(&code) || (strict && written.starts_with("```")) => {
                out.extend(["<code>", &entities(&code), "</code>"]);
            }
            Kind::Fence { info, code } if strict && !has_display_formula(&code) => {
                blank_line_before(&mut out);
                out.extend([&fence, plain_info(&info), "\n", &code]);
                if !code.is_empty() && !code.ends_with('\n') {
                    out.push('\n');
                }
                out.push_str(&fence);
                let rest = text.get(at..).unwrap_or_default();
                let blank_line_follows = rest.trim_start_matches('\n').is_empty() || rest.starts_with("\n\n");
                out.push_str(if blank_line_follows { "" } else { "\n" });
            }
            Kind::Fence { info, code } | Kind::Nested { info, code } if strict || is_markup(&code) => {
                if !written.starts_with(['`', '~']) {
                    without_indentation(&mut out);
                }
                out.push_str(&html_block(&info, &code));
                if !text.get(at..).unwrap_or_default().starts_with('\n') {
                    out.push('\n');
                }
            }
            Kind::Span(_) | Kind::Fence { .. } | Kind::Nested { .. } => out.push_str(written),
        }
    }
    prose.clean(text.get(at..).unwrap_or_default(), false, &mut out);
    out
}

/// An info string without anything that could be markup.
fn plain_info(info: &str) -> &str {
    let plain = |c: char| c.is_alphanumeric() || " _+#.=-".contains(c);
    if info.chars().all(plain) {
        return info;
    }
    info.split(|c: char| !plain(c) || c == ' ').next().unwrap_or_default()
}

fn blank_line_before(out: &mut String) {
    // A fence may be indented a little; its line begins anew here.
    while out.ends_with([' ', '\t']) {
        out.pop();
    }
    if !out.is_empty() && !out.ends_with("\n\n") && out != "\n" {
        out.push_str(if out.ends_with('\n') { "\n" } else { "\n\n" });
    }
}

/// Takes away what would make the line's rest an indented block, which would show its entities.
fn without_indentation(out: &mut String) {
    while out.ends_with([' ', '\t']) {
        out.pop();
    }
    if !out.is_empty() && !out.ends_with('\n') {
        out.push(' ');
    }
}
