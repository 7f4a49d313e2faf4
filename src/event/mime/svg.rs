//! SVG pictures of a hostile source. Some front ends show `image/svg+xml` as a picture, where nothing in it can
//! run; others (exported pages) put it into the page, so it is cleaned like HTML.
//!
//! The result is well-formed XML and valid HTML at once: a single `svg` element.

use super::{css, html};

/// The class of a picture with rules of its own.
const SCOPE: &str = "cellblock-svg";
/// Without them a picture is no SVG for an XML parser.
const NAMESPACES: &str = " xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\"";

/// A picture without script, events, outside addresses and foreign content; `None` when it is none.
pub(super) fn sanitised(svg: &str) -> Option<String> {
    if svg.len() > html::MAX_PARSED {
        return None;
    }
    html::settled(svg, cleaned).filter(|svg| svg.starts_with("<svg"))
}

fn cleaned(svg: &str) -> String {
    let (rest, sheet) = html::without_styles(svg);
    let sheet = css::stylesheet(&sheet.replace("&gt;", ">"), ".cellblock-svg");
    let at =
        rest.match_indices('<').map(|(at, _)| at).find(|at| is_root(rest.get(*at..).unwrap_or_default()));
    let Some(picture) = at.and_then(|at| rest.get(at..)) else { return String::new() };
    if html::is_heavy(picture) {
        return String::new();
    }
    // XML knows no `&nbsp;`, which is how HTML writes a no-break space.
    let out = html::svg_builder().clean(picture).to_string().replace("&nbsp;", "&#160;");
    let Some(end) = out.find("</svg>").map(|_| last_svg_end(&out)) else { return String::new() };
    let Some((tag, inner)) = out.get("<svg".len()..end).and_then(|out| out.split_once('>')) else {
        return String::new();
    };
    let tag = format!("<svg{NAMESPACES}{tag}");
    if sheet.is_empty() {
        return format!("{tag}>{inner}");
    }
    format!("{}><style>\n{}</style>{inner}", with_class(&tag), sheet.replace('>', "&gt;"))
}

fn is_root(text: &str) -> bool {
    text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("<svg"))
}

/// What follows the root element is no part of the picture.
fn last_svg_end(svg: &str) -> usize {
    let mut depth = 0_usize;
    for (at, _) in svg.match_indices('<') {
        let tag = svg.get(at..).unwrap_or_default();
        if tag.starts_with("<svg") {
            depth += 1;
        } else if tag.starts_with("</svg>") {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return at + "</svg>".len();
            }
        }
    }
    svg.len()
}

/// The root's start tag (without its `>`) with the scope among its classes.
fn with_class(tag: &str) -> String {
    match tag.split_once(" class=\"") {
        Some((_, classes)) if classes.starts_with(SCOPE) => tag.to_owned(),
        Some((before, classes)) => format!("{before} class=\"{SCOPE} {classes}"),
        None => format!("{tag} class=\"{SCOPE}\""),
    }
}
