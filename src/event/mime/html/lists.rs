//! The elements and attributes that stay in cleaned HTML. What is not here goes.

/// Elements of HTML.
#[rustfmt::skip]
pub(super) const TAGS: &[&str] = &[
    "a", "abbr", "address", "article", "aside", "audio", "b", "bdi", "bdo", "big", "blockquote", "br",
    "caption", "center", "cite", "code", "col", "colgroup", "dd", "del", "details", "dfn", "div", "dl",
    "dt", "em", "figcaption", "figure", "font", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header",
    "hr", "i", "img", "input", "ins", "kbd", "label", "li", "main", "mark", "meter", "nav", "ol", "p",
    "pre", "progress", "q", "rp", "rt", "ruby", "s", "samp", "section", "small", "source", "span",
    "strike", "strong", "sub", "summary", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "time",
    "tr", "tt", "u", "ul", "var", "video",
];
/// Elements of SVG pictures, in HTML and by themselves.
#[rustfmt::skip]
pub(super) const SVG_TAGS: &[&str] = &[
    "svg", "g", "path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text", "tspan",
    "textPath", "defs", "use", "symbol", "marker", "linearGradient", "radialGradient", "stop",
    "clipPath", "mask", "pattern", "image", "filter", "feBlend", "feColorMatrix", "feComponentTransfer",
    "feComposite", "feDropShadow", "feFlood", "feFuncA", "feFuncB", "feFuncG", "feFuncR",
    "feGaussianBlur", "feMerge", "feMergeNode", "feMorphology", "feOffset", "feTile", "feTurbulence",
    "switch",
];
/// Elements that go with everything inside of them.
#[rustfmt::skip]
pub(super) const DROPPED_WHOLE: &[&str] = &[
    "script", "style", "title", "metadata", "desc", "noscript", "template", "iframe", "object", "embed",
    "noembed", "noframes", "plaintext", "xmp", "textarea", "select", "foreignObject", "math",
];
/// Attributes of HTML elements.
#[rustfmt::skip]
pub(super) const ATTRIBUTES: &[&str] = &[
    "align", "alt", "border", "bgcolor", "cellpadding", "cellspacing", "checked", "cite", "class",
    "color", "colspan", "controls", "datetime", "dir", "disabled", "face", "for", "headers", "height",
    "high", "href", "id", "lang", "loop", "low", "max", "min", "muted", "open", "optimum", "reversed",
    "rowspan", "scope", "size", "span", "src", "start", "style", "title", "type", "valign", "value",
    "width",
];
/// Attributes of SVG elements.
#[rustfmt::skip]
pub(super) const SVG_ATTRIBUTES: &[&str] = &[
    "alignment-baseline", "baseline-shift", "clip-path", "clip-rule", "clipPathUnits", "cx", "cy", "d",
    "dominant-baseline", "dx", "dy", "fill", "fill-opacity", "fill-rule", "filter", "filterUnits",
    "flood-color", "flood-opacity", "font-family", "font-size", "font-style", "font-weight", "fx", "fy",
    "gradientTransform", "gradientUnits", "in", "in2", "k1", "k2", "k3", "k4", "lengthAdjust",
    "letter-spacing", "marker-end", "marker-mid", "marker-start", "markerHeight", "markerUnits",
    "markerWidth", "mask", "maskContentUnits", "maskUnits", "mode", "offset", "opacity", "operator",
    "orient", "overflow", "paint-order", "pathLength", "patternContentUnits", "patternTransform",
    "patternUnits", "points", "preserveAspectRatio", "primitiveUnits", "r", "radius", "refX", "refY",
    "result", "rotate", "rx", "ry", "scale", "shape-rendering", "spreadMethod", "stdDeviation",
    "stop-color", "stop-opacity", "stroke", "stroke-dasharray", "stroke-dashoffset", "stroke-linecap",
    "stroke-linejoin", "stroke-miterlimit", "stroke-opacity", "stroke-width", "tableValues",
    "text-anchor", "text-decoration", "text-rendering", "textLength", "transform", "values",
    "vector-effect", "version", "viewBox", "visibility", "word-spacing", "x", "x1", "x2", "y", "y1",
    "y2",
];
/// SVG attributes whose value is read as CSS.
#[rustfmt::skip]
pub(super) const PRESENTATION: &[&str] = &[
    "clip-path", "fill", "filter", "marker-end", "marker-mid", "marker-start", "mask", "stroke",
    "stop-color", "flood-color", "font-family",
];
/// Classes that a page gives a meaning: an element of the guest must not look or act like one of the page's own.
#[rustfmt::skip]
pub(super) const FOREIGN_CLASSES: &[&str] = &[
    "jp-", "lm-", "p-", "cm-", "bp3-", "bp4-", "bp5-", "jupyter", "nb-", "notebook", "modal", "ui-",
    "monaco", "vscode", "mathjax", "mjx", "cellblock", "sidebar", "toolbar", "dialog", "dropdown",
    "navbar",
];
/// Elements that need no end tag; they do not lie inside each other.
#[rustfmt::skip]
pub(super) const ENDLESS: &[&str] = &[
    "br", "hr", "img", "col", "input", "link", "meta", "source", "wbr", "p", "li", "td", "th", "tr", "dt", "dd",
    "option", "tbody", "thead", "tfoot",
];
/// Elements that a parser opens again after they were closed from outside.
#[rustfmt::skip]
pub(super) const FORMATTING: &[&str] = &[
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
];
/// Elements whose end tag closes what they hold.
#[rustfmt::skip]
pub(super) const CLOSING: &[&str] = &[
    "address", "article", "aside", "blockquote", "center", "details", "div", "dl", "figcaption", "figure",
    "footer", "header", "main", "nav", "ol", "pre", "section", "summary", "ul",
];
/// Elements whose content a parser reads by other rules.
#[rustfmt::skip]
pub(super) const RAW: &[&str] = &[
    "title", "textarea", "xmp", "iframe", "noembed", "noframes", "plaintext", "script", "style", "noscript",
    "math", "template", "frameset", "select",
];
/// HTML elements that end an SVG picture which they stand in, and what changes the rules in one.
#[rustfmt::skip]
pub(super) const BREAKOUT: &[&str] = &[
    "b", "big", "blockquote", "body", "br", "center", "code", "dd", "div", "dl", "dt", "em", "embed", "font",
    "h1", "h2", "h3", "h4", "h5", "h6", "head", "hr", "i", "img", "li", "listing", "menu", "meta", "nobr", "ol",
    "p", "pre", "ruby", "s", "small", "span", "strong", "strike", "sub", "sup", "table", "tt", "u", "ul", "var",
    "script", "style", "math",
];
