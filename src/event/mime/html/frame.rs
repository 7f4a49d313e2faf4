//! HTML that is not cleaned but framed: which, and the frame. See the parent module for what a frame keeps in.

const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' blob: data:; \
     style-src 'unsafe-inline' data:; img-src data: blob:; font-src data:; media-src data: blob:; \
     worker-src blob: data:; base-uri 'none'; form-action 'none'";
const DEFAULT_HEIGHT: u32 = 450;
const HEIGHTS: std::ops::RangeInclusive<u32> = 60..=1200;
/// How much of a document's beginning and end is searched for its height.
const HEIGHT_WINDOW: usize = 64 << 10;

/// What stands before the guest's document (without the height) and behind it.
fn frame_parts() -> (&'static str, String, &'static str) {
    let outer = format!(
        "<!doctype html><meta charset=utf-8><meta http-equiv=\"x-dns-prefetch-control\" content=\"off\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <style>html,body,iframe{{margin:0;padding:0;border:0;width:100%;height:100%;display:block;\
         overflow:hidden;background:white}}</style>\
         <iframe sandbox=\"allow-scripts\" srcdoc=\""
    );
    let start = "<iframe sandbox=\"allow-scripts\" referrerpolicy=\"no-referrer\" \
                 style=\"border:0;width:100%;resize:vertical;height:";
    (start, format!("px\" srcdoc=\"{}", escaped(&outer)), "&quot;&gt;&lt;/iframe&gt;\"></iframe>")
}

/// A document as it is, in a frame that can reach neither the page nor the network.
pub(super) fn frame(html: &str) -> String {
    let (start, middle, end) = frame_parts();
    let height = height(html);
    // The inner document inherits the policy of the outer one.
    format!("{start}{height}{middle}{}{end}", escaped(&escaped(html)))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Whether HTML is exactly one frame of ours with any document in it.
pub(super) fn is_own_frame(html: &str) -> bool {
    let (start, middle, end) = frame_parts();
    let Some(rest) = html.strip_prefix(start) else { return false };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let inner =
        rest.get(digits..).and_then(|rest| rest.strip_prefix(&middle)).and_then(|r| r.strip_suffix(end));
    // Escaped twice, the document can't end either of the two attributes.
    inner.is_some_and(|inner| {
        (1..=4).contains(&digits)
            && !inner.contains(['"', '<', '>'])
            && inner
                .match_indices('&')
                .all(|(at, _)| inner.get(at..).is_some_and(|rest| rest.starts_with("&amp;")))
    })
}

/// The height that a document seems to want, in pixels.
fn height(html: &str) -> u32 {
    let end = html.len().saturating_sub(HEIGHT_WINDOW);
    let windows = [html.as_bytes().get(..HEIGHT_WINDOW.min(html.len())), html.as_bytes().get(end..)];
    let heights = windows.into_iter().flatten().flat_map(|window| {
        let text = String::from_utf8_lossy(window).to_ascii_lowercase();
        text.match_indices("height")
            .filter_map(|(at, name)| pixels(text.get(at + name.len()..)?))
            .collect::<Vec<_>>()
    });
    heights.filter(|height| HEIGHTS.contains(height)).max().map_or(DEFAULT_HEIGHT, |height| height + 20)
}

/// The number in `: 450px`, `="450"`, `":450`.
fn pixels(text: &str) -> Option<u32> {
    let number = text
        .trim_start_matches(['"', '\'', ' '])
        .strip_prefix([':', '='])?
        .trim_start_matches(['"', '\'', ' ']);
    let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    let (digits, unit) = number.split_at(digits);
    if unit.starts_with(['%', 'e', 'v', 'r', '.']) { None } else { digits.parse().ok() }
}

/// Whether HTML does nothing useful without script, or brings frames of its own.
pub(super) fn needs_script(html: &str) -> bool {
    html.match_indices('<').any(|(at, _)| {
        let name = html.as_bytes().get(at + 1..).unwrap_or_default();
        ["script", "iframe"].iter().any(|tag| {
            name.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag.as_bytes()))
                && !name.get(tag.len()).is_some_and(u8::is_ascii_alphanumeric)
        })
    })
}

/// Whether writing the parsed text out would take quadratic time: the serializer looks through a whole run
/// without angle brackets again at each of these bytes.
pub(super) fn is_costly(html: &str) -> bool {
    const BUDGET: usize = 2_000_000_000;
    let cost = |run: &[u8]| run.iter().filter(|b| matches!(b, b'&' | 0xc2)).count().saturating_mul(run.len());
    html.as_bytes()
        .split(|b| matches!(b, b'<' | b'>'))
        .fold(0_usize, |sum, run| sum.saturating_add(cost(run)))
        > BUDGET
}
