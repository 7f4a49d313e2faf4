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
