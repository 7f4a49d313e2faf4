#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::json;

use super::*;

fn bundle(data: &Value, metadata: &Value) -> Bundle {
    Bundle::sanitised(data.as_object().unwrap().clone(), metadata.as_object().unwrap().clone())
}

pub(super) fn html(text: &str) -> String {
    html::sanitised(text)
}

pub(super) fn markdown(text: &str) -> String {
    markdown::sanitised(text)
}

#[test]
fn the_html_that_people_display_stays_as_it_is() {
    for text in [
        "plain &amp; simple",
        "<b>bold</b> <a href=\"https://example.org/x?y=1\" rel=\"noopener noreferrer nofollow\">link</a>",
        "<table border=\"1\" class=\"dataframe\">\n  <thead>\n    <tr style=\"text-align: right\">\n      <th></th>\
         \n      <th>a</th>\n    </tr>\n  </thead>\n  <tbody>\n    <tr>\n      <th>0</th>\n      <td>1</td>\n    </tr>\
         \n  </tbody>\n</table>",
        "<img src=\"data:image/png;base64,iVBORw0KGgo=\" alt=\"x\" width=\"10\">",
        "<details open=\"\"><summary>more</summary>text</details>",
        "<svg width=\"10\" height=\"10\" viewBox=\"0 0 10 10\"><path d=\"M0 0L10 10\" fill=\"none\"></path></svg>",
        "<progress value=\"3\" max=\"10\"></progress>",
        "$a &lt; b$ costs C:\\data",
    ] {
        assert_eq!(html(text).replace("\\ data", "\\data"), text);
    }
}

#[test]
fn html_can_not_run_load_cover_or_pretend() {
    for (text, expected) in [
        ("<img src=x onerror=alert(1)>", "<img src=\"x\">"),
        ("<img src=\"https://evil.example/?data\">", "<img>"),
        ("<IMG SRC=//evil.example/x srcset='https://evil.example 2x'>", "<img>"),
        ("<a href=\" java\nscript:alert(1)\">x</a>", "<a rel=\"noopener noreferrer nofollow\">x</a>"),
        ("<a href=\"/lab/api/kernels\">x</a>", "<a rel=\"noopener noreferrer nofollow\">x</a>"),
        ("<a href=\"../x\" onclick=x>x</a>", "<a rel=\"noopener noreferrer nofollow\">x</a>"),
        (
            "<a ping=\"https://evil.example\" href=\"#top\">x</a>",
            "<a href=\"#cb-top\" rel=\"noopener noreferrer nofollow\">x</a>",
        ),
        ("<form action=x><input name=q><button>b</button></form>", "<input type=\"checkbox\">b"),
        ("<base href=x><meta http-equiv=refresh content=0><link rel=stylesheet href=x>a", "a"),
        ("<object data=x>o</object><embed src=x>", ""),
        ("<div id=\"jupyter-config-data\" name=x>y</div>", "<div id=\"cb-jupyter-config-data\">y</div>"),
        ("<b class=\"jp-Dialog mine lm-Widget\">x</b>", "<b class=\"mine\">x</b>"),
        (
            "<b data-commandlinker-command=\"terminal:create-new\" data-commandlinker-args='{}'>x</b>",
            "<b>x</b>",
        ),
        ("<div style=\"position:fixed;background:url(https://evil.example)\">x</div>", "<div>x</div>"),
        (
            "<svg onload=alert(1)><a xlink:href='javascript:x'><text>t</text></a></svg>",
            "<svg><a rel=\"noopener noreferrer nofollow\"><text>t</text></a></svg>",
        ),
        (
            "<svg><use href='https://evil.example/#x'/><image href='https://evil.example/x'/></svg>",
            "<svg><use></use><image></image></svg>",
        ),
        ("<svg><animate attributeName=href to='javascript:x'/><set/></svg>", "<svg></svg>"),
        ("<svg><foreignObject><b>x</b></foreignObject></svg>", "<svg></svg>"),
        ("<math><mtext><img src=x onerror=alert(1)></mtext></math>", ""),
        ("<template><img onerror=x></template><noscript><img></noscript>", ""),
        ("<!-- c --><!DOCTYPE x><?php x ?>a", "a"),
        ("$\\href{javascript:alert(1)}{x}$", "$\\ href{javascript:alert(1)}{x}$"),
    ] {
        assert_eq!(html(text), expected, "{text:?}");
    }
}

#[test]
fn style_sheets_are_confined_and_what_moves_is_clipped() {
    let pandas = "<div>\n<style scoped>\n    .dataframe tbody tr th { vertical-align: top; }\n</style>\n<table></table></div>";
    let out = html(pandas);
    assert!(out.starts_with("<div class=\"cellblock-html\" style=\"contain:paint;"), "{out}");
    assert!(out.contains(".cellblock-html .dataframe tbody tr th { vertical-align: top }"), "{out}");
    let styler = "<style>#T_a1_row0_col0 {background-color: red}</style><table id=T_a1><td id=\"T_a1_row0_col0\">x</td></table>";
    let out = html(styler);
    assert!(out.contains(".cellblock-html #cb-T_a1_row0_col0 { background-color: red }"), "{out}");
    assert!(out.contains("id=\"cb-T_a1_row0_col0\""), "{out}");
    let out = html("<style>.jp-Toolbar{display:none}</style><style>a{}</style ><script");
    assert!(!out.contains("<script"), "{out}");
    let out = html("<div style=\"position:absolute;top:-999px\">x</div>");
    assert!(out.starts_with("<div class=\"cellblock-html\""), "{out}");
    for text in
        ["<style>@import 'https://evil.example';</style>", "<style>*{background:url(//evil.example)}</style>"]
    {
        assert!(!html(text).contains("evil"), "{text}");
    }
    let out = html("</div></div><style>a{color:red}</style><b>x</b></div>");
    assert_eq!(out.matches("<div").count(), out.matches("</div").count(), "{out}");
}

#[test]
fn html_with_script_goes_into_a_frame_that_it_can_not_leave() {
    for text in [
        "<script>fetch('/api/contents')</script>",
        "<SCRIPT src='https://cdn.example/x.js'></SCRIPT><div id=p style='height:520px'></div>",
        "<iframe src=\"https://evil.example\"></iframe>",
        "<iframe srcdoc='&lt;script&gt;x&lt;/script&gt;'></iframe>",
        "\"></iframe><script>x</script><iframe srcdoc=\"",
        "&quot;&gt;<script>x</script>",
    ] {
        let out = html(text);
        assert!(out.starts_with("<iframe sandbox=\"allow-scripts\" "), "{out}");
        assert_eq!(out.matches('<').count(), 2, "one element, nothing beside it: {out}");
        assert_eq!(out.matches('"').count(), 8, "no attribute can be ended: {out}");
        assert!(!out.contains("allow-same-origin"));
        assert_eq!(html(&out), out);
    }
    assert!(html("<script></script><div style='height:520px'>").contains("height:540px"));
    let forged = html("<script></script>").replace("default-src", "default-arc");
    assert_ne!(html(&forged), forged, "a frame with another policy is not ours");
}

#[test]
fn pictures_are_clean_well_formed_and_keep_their_looks() {
    let matplotlib = "<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"no\"?>\n<!DOCTYPE svg PUBLIC \"-//W3C//DTD SVG 1.1//EN\"\n  \
        \"http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd\">\n<svg xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\"460pt\" \
        viewBox=\"0 0 460 345\" xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\">\n <metadata>\n  <rdf:RDF>m</rdf:RDF>\n </metadata>\n \
        <defs>\n  <style type=\"text/css\">*{stroke-linejoin: round; stroke-linecap: butt}</style>\n </defs>\n <g id=\"figure_1\">\n  \
        <path d=\"M 0 345 \" clip-path=\"url(#pa)\" style=\"fill: #ffffff; stroke: url(#g)\"/>\n  <use xlink:href=\"#m1\" x=\"1\"/>\n \
        <text>a\u{a0}&lt; b</text></g>\n <defs><clipPath id=\"pa\"><rect x=\"1\"/></clipPath></defs>\n</svg>\n";
    let out = svg::sanitised(matplotlib).unwrap();
    assert!(out.starts_with("<svg ") && out.ends_with("</svg>"), "{out}");
    for kept in [
        "xmlns=\"http://www.w3.org/2000/svg\"",
        "xmlns:xlink=\"http://www.w3.org/1999/xlink\"",
        ".cellblock-svg * { stroke-linejoin: round; stroke-linecap: butt }",
        "clip-path=\"url(#cb-pa)\"",
        "<clipPath id=\"cb-pa\">",
        "xlink:href=\"#cb-m1\"",
        "stroke: url(#cb-g)",
        "viewBox=\"0 0 460 345\"",
        "a&#160;&lt; b",
    ] {
        assert!(out.contains(kept), "{kept}: {out}");
    }
    assert_eq!(out.matches("xmlns=").count(), 1, "{out}");
    assert!(!out.contains("rdf") && !out.contains("<metadata"), "{out}");
    assert_eq!(svg::sanitised(&out).as_ref(), Some(&out));
    for text in [
        "<svg onload=alert(1)><script>alert(1)</script></svg>",
        "<svg><a href='javascript:x'>y</a><script xlink:href=x/></svg>",
    ] {
        let out = svg::sanitised(text).unwrap();
        assert!(!out.contains("script") && !out.contains("onload"), "{out}");
    }
    assert_eq!(svg::sanitised("<b>no picture</b>"), None);
    assert_eq!(svg::sanitised(""), None);
}

#[test]
fn markdown_without_markup_is_left_as_it_was_written() {
    for text in [
        "# Title\n\nSome *text* with `code` and a [link](https://example.org \"t\").\n\n- a\n- b\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n",
        "```python\nx = a[i](y)\nprint('a < b')\n```\n".replace("[i](y)", "[i]").as_str(),
        "5 < 6 && a <- b, a <= b\n",
        "$a < b$ and $$\\frac{1}{2}$$ and \\(x\\)\n",
        "<details><summary>More</summary>\n\ntext <br> x<sub>2</sub>\n\n</details>\n",
        "![plot](plot.png) ![p](data:image/png;base64,AAAA)\n",
        "[a]: https://example.org\n[^1]: a note\n\nsee [a] [^1]\n",
        "- [ ] task\n- [x] done: f[x] = 1\n",
        "&lt;b&gt; &amp; &copy; &#8364;\n",
        "C:\\data\\style\n",
    ] {
        assert_eq!(markdown(text), text);
    }
}

#[test]
fn markup_in_markdown_is_made_safe_and_code_stays_code() {
    for (text, expected) in [
        ("<script>alert(1)</script>", "&lt;script>alert(1)&lt;/script>"),
        ("a <img src=x onerror=alert(1)> b", "a <img src=\"x\"> b"),
        ("<img src=\"https://evil.example/?x\">", "<img>"),
        ("<b onclick=x>y</b>", "<b>y</b>"),
        ("<td onclick=x>y</td>", "<td>y</td>"),
        ("<pre>a *b*</pre>", "&lt;pre>a *b*&lt;/pre>"),
        ("<pre>x</pre>", "<pre>x</pre>"),
        ("a<!-- <script> -->b", "a b"),
        ("<!-- open", "&lt;!-- open"),
        ("<https://example.org/a?b=c>", "https://example.org/a?b=c"),
        ("<javascript:alert(1)>", "&lt;javascript:alert(1)>"),
        ("<div>\n<https://x/onmouseover=alert(1)>\n</div>", "<div>\nhttps://x/onmouseover=alert(1)\n</div>"),
        ("[x](javascript:alert(1))", "[x](#javascript:alert(1))"),
        ("[x](java&#115;cript:alert(1))", "[x](#javascript:alert(1))"),
        ("[x](javascript&colon;alert(1))", "[x](#javascript:alert(1))"),
        ("[x](javascript\\:alert(1))", "[x](#javascript\\:alert(1))"),
        ("[x](< javascript:alert(1)>)", "[x](#javascript:alert%281%29)"),
        ("[x](\n  javascript:alert(1))", "[x](\n  #javascript:alert(1))"),
        ("[x](data:text/html,x)", "[x](#data:text/html,x)"),
        ("[x](/lab/api)", "[x](#/lab/api)"),
        ("[x](../y)", "[x](#../y)"),
        ("[x][a]\n\n[a]: javascript:alert(1)", "[x][a]\n\n[a]: #javascript:alert(1)"),
        ("> [a]:\n> javascript:alert(1)", "> [a]:\n> #javascript:alert(1)"),
        ("![x](https://evil.example/?data)", "&#33;[x](https://evil.example/?data)"),
        ("![x][a]\n\n[a]: https://evil.example", "&#33;[x][a]\n\n[a]: https://evil.example"),
        ("`<b>x</b>`", "<code>&lt;b&gt;x&lt;/b&gt;</code>"),
        ("`a < b`", "`a < b`"),
        ("```html\n<script>x</script>\n```\n", "```html\n<script>x</script>\n```\n"),
        ("a\n```html\n<b>\n```\nb", "a\n\n```html\n<b>\n```\n\nb"),
        ("````html\n```\n<b>\n````", "````html\n```\n<b>\n````"),
        ("- ```html\n  <b>\n  ```\n", "- <pre><code class=\"language-html\">&lt;b&gt;&#10;</code></pre>\n"),
        (
            "    <b>x</b>\n",
            "<pre><code>&lt;b&gt;x&lt;&#47;b&gt;&#10;</code></pre>\n".replace("&#47;", "/").as_str(),
        ),
        ("$a<b$ and $\\href{javascript:x}{y}$", "$a< b$ and $\\ href{javascript:x}{y}$"),
        ("$\\&#104;ref{x}$ &#36;&#92;href{y}&#36;", "$\\ href{x}$ \\$\\\\ href{y}\\$"),
        ("\\<script>", "&lt;script>"),
        ("x\u{0}\u{1b}[31my\r\nz", "x[31my\nz"),
        ("<&#97; onclick=x>", "<a rel=\"noopener noreferrer nofollow\">"),
    ] {
        assert_eq!(markdown(text), expected, "{text:?}");
    }
}

#[test]
fn only_known_types_pass_and_the_rest_leaves_a_note() {
    let out = bundle(
        &json!({"application/javascript": "alert(1)", "text/plain": "<Javascript object>\u{1b}]0;t\u{7}"}),
        &json!({}),
    );
    assert_eq!(
        out.data()["text/plain"],
        "<Javascript object>\n[not shown: application/javascript from the sandbox could act in this page as you; \
         display HTML, a picture or text instead]"
    );
    assert_eq!(out.data().len(), 1);
    let out = bundle(
        &json!({"application/vnd.plotly.v1+json": {}, "text/html": "<b>x</b>", "text/plain": "x"}),
        &json!({}),
    );
    assert_eq!(Value::Object(out.data().clone()), json!({"text/html": "<b>x</b>", "text/plain": "x"}));
    for kind in [
        "application/vnd.jupyter.widget-view+json",
        "text/vnd.mermaid",
        "application/vnd.jupyter.stderr",
        "application/xhtml+xml",
        "text/HTML",
        "application/vnd.vega.v5+json; charset=utf-8",
        "application/vnd.bokehjs_exec.v0+json",
    ] {
        let out = bundle(&json!({kind: "x"}), &json!({}));
        assert_eq!(out.data().keys().collect::<Vec<_>>(), ["text/plain"], "{kind}");
    }
    for (kind, value) in [
        ("image/png", json!("iVBORw0\nKGgo=")),
        ("image/jpeg", json!("/9j/4AAQ")),
        ("application/pdf", json!("JVBERi0x")),
        ("application/json", json!({"a": ["<script>", 1, null]})),
        ("text/latex", json!("$x$")),
        ("application/vnd.vegalite.v5.8.0+json", json!({"data": {"values": [{"url": "x"}]}, "mark": "bar"})),
    ] {
        let out = bundle(&json!({kind: value}), &json!({}));
        assert_eq!(out.data()[kind], value, "{kind}");
    }
    for (kind, value) in [
        ("image/png", json!("\"><script>")),
        ("image/png", json!(3)),
        ("application/pdf", json!("PGh0bWw+")),
        ("application/vnd.vegalite.v5+json", json!({"data": {"url": "/api/contents"}, "mark": "bar"})),
        (
            "application/vnd.vega.v5+json",
            json!({"marks": [{"encode": {"enter": {"href": {"value": "javascript:x"}}}}]}),
        ),
    ] {
        let out = bundle(&json!({kind: value}), &json!({}));
        assert!(!out.data().contains_key(kind), "{kind} {value}");
    }
    let out = bundle(&json!({"text/html": ["<b>a</b>\n", "b"]}), &json!({}));
    assert_eq!(out.data()["text/html"], "<b>a</b>\nb");
}

#[test]
fn of_the_metadata_only_sizes_and_the_like_stay() {
    let out = bundle(
        &json!({"image/png": "AAAA", "image/svg+xml": "<svg></svg>", "text/html": "x", "application/json": {}}),
        &json!({
            "image/png": {"width": 10, "height": 1e9, "needs_background": "light", "evil": "x"},
            "image/svg+xml": {"unconfined": true, "isolated": true},
            "text/html": {"isolated": false, "width": 3},
            "application/json": {"expanded": true, "root": "r"},
            "image/gif": {"width": 3},
            "tags": ["x"]
        }),
    );
    let expected = json!({
        "image/png": {"width": 10, "needs_background": "light"},
        "application/json": {"expanded": true, "root": "r"}
    });
    assert_eq!(Value::Object(out.metadata().clone()), expected);
}

#[test]
fn a_reply_is_markdown_with_plain_text_beside_it() {
    let out = Bundle::markdown("**a** <script>x</script>");
    assert_eq!(out.data()["text/markdown"], "**a** &lt;script>x&lt;/script>");
    assert_eq!(out.data()["text/plain"], "**a** <script>x</script>");
    let out = Bundle::trusted_html("<b>x</b>", "x").with_metadata("cellblock", json!({"a": 1}));
    assert_eq!(out.metadata()["cellblock"], json!({"a": 1}));
}

#[test]
fn deep_and_large_outputs_come_to_an_end() {
    // Quadratic work on any of these would take minutes; there is no clock in this test.
    for piece in [
        "<div>",
        "<b>",
        "<a>",
        "<table>",
        "<td>",
        "<",
        "<!--",
        "<style>",
        "</p>",
        "&#",
        "<svg><g>",
        "<font color=a>",
    ] {
        html(&piece.repeat(100_000 / piece.len()));
    }
    for piece in
        ["<b>", "[", "](", "![", "`", "``` ", "$", "\\", "<a ", "&#", "> ", "- ", "<!--", "](<", "```\n<b>\n"]
    {
        markdown(&piece.repeat(100_000 / piece.len()));
    }
    let row = "<tr><th>0</th><td>1.5</td><td>text</td></tr>\n";
    assert!(html(&format!("<table>{}</table>", row.repeat(20_000))).len() > 20_000 * row.len());
}

/// A hundred kilobytes that a parser makes gigabytes of: 500 elements are opened again in every paragraph.
fn bomb() -> String {
    let bold: Vec<_> = (0..499).map(|n| format!("<b id={n}>")).collect();
    format!("<p>{}{}", bold.concat(), "<p>x".repeat(30_000))
}

#[test]
fn text_that_grows_when_it_is_parsed_is_not_parsed() {
    // Were it parsed, this test would not come to an end.
    assert!(html(&bomb()).starts_with("<iframe"));
    let picture = format!("<svg><foreignObject>{}</foreignObject></svg>", bomb());
    let data = json!({ "image/svg+xml": picture, "text/plain": "x" });
    let bundle = Bundle::sanitised(data.as_object().unwrap().clone(), Map::new());
    assert!(!bundle.data().contains_key("image/svg+xml"));
    // A reply stays text: its tags are cleaned one by one.
    assert!(markdown(&bomb()).len() < 3 * bomb().len());
}
