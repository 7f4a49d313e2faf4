//! HTML of a hostile source, made fit for a page that can talk to a Jupyter server.
//!
//! Imports ammonia, which parses as browsers do and keeps what is on the lists below. Three ways lead out:
//!
//! 1. HTML without script is *cleaned*: elements and attributes on the lists stay; addresses, styles, classes and
//!    names go through [`attribute`]; pictures may not come from the network (loading one would carry data out
//!    of a sandbox that has none).
//! 2. Style sheets are taken out, confined to a container (`css`), and put before the cleaned rest. The container
//!    also clips what its elements paint, so that nothing can cover the page.
//! 3. HTML that needs script, or that does not come to rest when it is cleaned, goes into a *frame* as it is:
//!    `<iframe sandbox="allow-scripts">` has an origin of its own (no cookies, no server API, no access to the
//!    page), and its policy allows no network. The guest's document lies in a frame inside of the frame, because
//!    a policy can keep an inner frame from navigating to an address with data in it, but not the outer one.
//!    Two leaks that no policy closes remain in a browser: name look-ups for `preconnect`, and WebRTC.
//!
//! To allow an element or attribute, add it to its list; to allow one with an address in it, also decide in
//! [`attribute`] what the address may be.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use ammonia::{Builder, UrlRelative};

mod frame;
mod lists;
mod shape;

use frame::{frame, is_costly, is_own_frame, needs_script};
pub(super) use shape::is_heavy;

use lists::{ATTRIBUTES, DROPPED_WHOLE, FOREIGN_CLASSES, PRESENTATION, SVG_ATTRIBUTES, SVG_TAGS, TAGS};

use super::{css, tex, url};

/// Classes of ours: containers of styled output, and pictures with rules.
const OWN_CLASSES: &[&str] = &["cellblock-html", "cellblock-svg"];
/// The container around styled output, the scope of its rules.
const CONTAINER: &str =
    "<div class=\"cellblock-html\" style=\"contain:paint;overflow:auto;position:relative\">";
const CONTAINER_END: &str = "</div>";

/// HTML above this size is not parsed but framed: parsing takes memory by the element.
pub(super) const MAX_PARSED: usize = 4 << 20;
/// How often HTML may change under cleaning before it is framed.
const MAX_ROUNDS: usize = 3;

/// What becomes of styles that can move an element out of its place.
#[derive(Debug, Clone)]
enum Moving {
    /// They stay, and are noticed here: a container will clip them.
    Noticed(Arc<AtomicBool>),
    /// They go: there will be no container.
    Refused,
}

/// HTML made fit for a front end: cleaned, or framed when it needs script.
pub(super) fn sanitised(html: &str) -> String {
    if is_own_frame(html) {
        return html.to_owned();
    }
    if html.len() > MAX_PARSED || needs_script(html) || is_heavy(html) || is_costly(html) {
        return frame(html);
    }
    let first = cleaned(html);
    if first.is_final {
        return first.text;
    }
    settled(&first.text, |html| cleaned(html).text).unwrap_or_else(|| frame(html))
}

/// Applies a cleaning until it changes nothing any more, which is what makes its result final for every parser
/// that reads as ours does; `None` when it does not come to rest.
pub(super) fn settled(text: &str, clean: impl Fn(&str) -> String) -> Option<String> {
    let mut current = clean(text);
    if current == text {
        return Some(current);
    }
    for _ in 0..MAX_ROUNDS {
        let next = clean(&current);
        if next == current {
            return Some(current);
        }
        current = next;
    }
    None
}

/// Every `&` that begins no complete character reference is written as one: the parser takes quadratic time for
/// a long run of incomplete ones.
fn complete_references(html: &str) -> Cow<'_, str> {
    const LONGEST: usize = 34;
    let is_reference = |behind: &str| {
        let letters = behind.strip_prefix('#').unwrap_or(behind).as_bytes();
        let end = letters.iter().take(LONGEST).position(|b| !b.is_ascii_alphanumeric());
        end.is_some_and(|end| end > 0 && letters.get(end) == Some(&b';'))
    };
    let mut out = String::new();
    let mut done = 0;
    for (at, _) in html.match_indices('&') {
        if !is_reference(html.get(at + 1..).unwrap_or_default()) {
            out.push_str(html.get(done..=at).unwrap_or_default());
            out.push_str("amp;");
            done = at + 1;
        }
    }
    if done == 0 {
        return Cow::Borrowed(html);
    }
    out.push_str(html.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

/// Cleaned HTML.
struct Cleaned {
    text: String,
    /// Cleaning it again would change nothing: apart from style sheets and the container this one changed nothing.
    is_final: bool,
}

fn cleaned(html: &str) -> Cleaned {
    let inner =
        html.strip_prefix(CONTAINER).and_then(|rest| rest.strip_suffix(CONTAINER_END)).unwrap_or(html);
    let (rest, sheet) = without_styles(inner);
    let sheet = css::stylesheet(&sheet, ".cellblock-html");
    let moves = Arc::new(AtomicBool::new(false));
    let body = builder(Moving::Noticed(Arc::clone(&moves))).clean(&complete_references(&rest)).to_string();
    let body = if tex::may_hold_formulas(&body) { tex::neutral(&body).into_owned() } else { body };
    let is_final = body == rest;
    if sheet.is_empty() && !moves.load(Ordering::Relaxed) {
        return Cleaned { text: body, is_final };
    }
    let style = if sheet.is_empty() { String::new() } else { format!("<style>\n{sheet}</style>") };
    Cleaned { text: format!("{CONTAINER}{style}{body}{CONTAINER_END}"), is_final }
}

/// Takes style elements out: the rest, and all their text. What is no style element for a browser but looks like
/// one is taken out too, which harms nobody: the text is checked by itself, and the rest is cleaned.
pub(super) fn without_styles(html: &str) -> (Cow<'_, str>, String) {
    let (mut rest, mut sheet) = (String::new(), String::new());
    let lower = html.to_ascii_lowercase();
    let mut done = 0;
    while let Some(at) = lower.get(done..).and_then(|text| text.find("<style")).map(|at| done + at) {
        let Some(open) = lower.get(at..).and_then(|text| text.find('>')).map(|end| at + end + 1) else {
            break;
        };
        let close =
            lower.get(open..).and_then(|text| text.find("</style")).map_or(html.len(), |end| open + end);
        let end =
            lower.get(close..).and_then(|text| text.find('>')).map_or(html.len(), |end| close + end + 1);
        rest.push_str(html.get(done..at).unwrap_or_default());
        // In XML the text may be in a CDATA section.
        let text = html.get(open..close).unwrap_or_default();
        sheet.push_str(&text.replace("<![CDATA[", "").replace("]]>", ""));
        sheet.push('\n');
        done = end;
    }
    if done == 0 {
        return (Cow::Borrowed(html), sheet);
    }
    rest.push_str(html.get(done..).unwrap_or_default());
    (Cow::Owned(rest), sheet)
}

fn builder(moving: Moving) -> Builder<'static> {
    let mut builder = base(TAGS.iter().chain(SVG_TAGS).copied().collect());
    builder
        .generic_attributes(ATTRIBUTES.iter().chain(SVG_ATTRIBUTES).copied().collect())
        .link_rel(Some("noopener noreferrer nofollow"))
        .set_tag_attribute_values(HashMap::from([("input", HashMap::from([("type", "checkbox")]))]))
        .attribute_filter(move |element, name, value| attribute(element, name, value, &moving));
    builder
}

fn base(tags: HashSet<&'static str>) -> Builder<'static> {
    let mut builder = Builder::empty();
    builder
        .tags(tags)
        .clean_content_tags(DROPPED_WHOLE.iter().copied().collect())
        .tag_attributes(HashMap::new())
        .url_schemes(HashSet::from(["http", "https", "mailto", "data"]))
        .url_relative(UrlRelative::PassThrough);
    builder
}

/// The cleaner of pictures (`svg`).
pub(super) fn svg_builder() -> Builder<'static> {
    let mut builder = base(SVG_TAGS.iter().copied().collect());
    let generic = SVG_ATTRIBUTES.iter().copied().chain(["class", "id", "style", "href", "width", "height"]);
    builder
        .generic_attributes(generic.collect())
        .link_rel(None)
        .attribute_filter(|element, name, value| attribute(element, name, value, &Moving::Refused));
    builder
}

/// Decides about one attribute that is on a list; ammonia calls it with the value decoded.
fn attribute<'v>(element: &str, name: &str, value: &'v str, moving: &Moving) -> Option<Cow<'v, str>> {
    let same = Some(Cow::Borrowed(value));
    match (element, name) {
        ("use" | "textPath" | "linearGradient" | "radialGradient" | "pattern", "href") => {
            Some(format!("#{}", css::renamed(value.trim().strip_prefix('#')?)?).into())
        }
        ("image", "href") | ("img", "src") => url::is_safe_image(value).then_some(Cow::Borrowed(value)),
        ("audio" | "video" | "source", "src") => url::is_safe_media(value).then_some(Cow::Borrowed(value)),
        ("a", "href") => match url::target(value) {
            url::Target::Remote | url::Target::File => same,
            url::Target::Fragment => {
                Some(format!("#{}", css::renamed(value.trim().strip_prefix('#')?)?).into())
            }
            url::Target::Refused => None,
        },
        (_, "href" | "src" | "cite") => None,
        (_, "id" | "for") => css::renamed(value).map(Cow::Owned),
        (_, "headers") => {
            let names: Vec<_> = value.split_whitespace().filter_map(css::renamed).collect();
            Some(names.join(" ").into())
        }
        (_, "class") => {
            let classes: Vec<_> = value.split_whitespace().filter(|class| !is_foreign(class)).collect();
            (!classes.is_empty()).then(|| classes.join(" ").into())
        }
        (_, "style") => {
            let declarations = css::declarations(value);
            match moving {
                Moving::Noticed(moves) => moves.fetch_or(declarations.moves, Ordering::Relaxed),
                Moving::Refused if declarations.moves => return None,
                Moving::Refused => false,
            };
            let text = declarations.text;
            // As it was written, when only the last semicolon differs.
            let same = value.trim_end().trim_end_matches(';') == text;
            (!text.is_empty()).then_some(if same { Cow::Borrowed(value) } else { Cow::Owned(text) })
        }
        (_, name) if PRESENTATION.contains(&name) => css::checked_value(value).map(Cow::Owned),
        ("svg", "overflow") => None,
        _ => same,
    }
}

fn is_foreign(class: &str) -> bool {
    let lower = class.to_ascii_lowercase();
    FOREIGN_CLASSES.iter().any(|prefix| lower.starts_with(prefix)) && !OWN_CLASSES.contains(&class)
}

/// One start tag made safe, for HTML inside of Markdown; `None` when nothing of it may stay. The result has no
/// `<` or `>` but its own.
pub(super) fn clean_start_tag(name: &str, tag: &str) -> Option<String> {
    static BUILDER: LazyLock<Builder<'static>> = LazyLock::new(|| builder(Moving::Refused));
    let name = TAGS.iter().find(|known| **known == name)?;
    let bare = format!("<{name}>");
    if tag == bare || is_costly(tag) {
        return Some(bare);
    }
    let out = BUILDER.clean(tag).to_string();
    // Parts of a table do not stand alone: of them only the name stays.
    let end = out.find('>').filter(|_| is_start_of(&out, name)).map(|at| at + 1);
    Some(end.and_then(|end| out.get(..end)).map_or(bare, str::to_owned))
}

fn is_start_of(html: &str, name: &str) -> bool {
    let rest = html.strip_prefix('<').and_then(|rest| rest.strip_prefix(name));
    rest.is_some_and(|rest| rest.starts_with([' ', '>']))
}
