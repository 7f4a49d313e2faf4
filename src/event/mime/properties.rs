//! What holds for every text: sanitising ends, and what it lets through it lets through again.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;

use super::tests::{html, markdown};
use super::*;

const HTML_PIECES: &[&str] = &[
    "<div>",
    "</div>",
    "<p>",
    "<a href='javascript:x'>",
    "</a>",
    "<a href=\"https://e.org\">",
    "<b onclick=x>",
    "</b>",
    "<img src=x onerror=alert(1)>",
    "<svg>",
    "</svg>",
    "<path d='x'/>",
    "<math>",
    "<mtext>",
    "<style>",
    "</style>",
    "a{color:red}",
    "<table>",
    "<tr>",
    "<td>",
    "</table>",
    "<pre>",
    "\n",
    "text ",
    "<!--",
    "-->",
    "<title>",
    "</title>",
    "<noscript>",
    "<select>",
    "<option>",
    "<template>",
    "<form>",
    "<textarea>",
    "&lt;",
    "&amp;",
    "\"",
    "'",
    ">",
    "<",
    "<foreignObject>",
    "<desc>",
    "<use href='#x'/>",
    "<font color=red>",
    "<i>",
    "</i>",
    "<li>",
    "<ul>",
    "$\\href{x}$",
    "<div style=\"position:absolute\">",
    "<div id=x class='a jp-b'>",
    "<image href='data:image/png;base64,AA'>",
    "\u{a0}",
    "<![CDATA[",
    "]]>",
    "<annotation-xml encoding='text/html'>",
    "<mglyph>",
    "<br/>",
    "<input>",
    "<button>",
];

const MARKDOWN_PIECES: &[&str] = &[
    "`",
    "``",
    "```",
    "~~~",
    "\n",
    "\n\n",
    "\n    ",
    "- ",
    "> ",
    "  ",
    "<script>",
    "</script>",
    "<img src=x onerror=y>",
    "<b>",
    "</b>",
    "<div>",
    "<!--",
    "-->",
    "[x]",
    "(javascript:y)",
    "](",
    "]: ",
    "![",
    "(https://e.org)",
    "$",
    "$$",
    "\\",
    "&#97;",
    "&lt;",
    "&#92;",
    "href{x}",
    "text ",
    "*",
    "_",
    "<https://e.org/x>",
    "<",
    ">",
    "html\n",
    "| a |\n|---|\n",
    "\\begin{x}",
    "1. ",
    "# ",
    "<pre>",
    "<a href=\"x\" title='\n\n'>",
    "é",
    "\t",
    "@@0@@",
    "<&#98;",
    "[^1]: ",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn sanitising_html_twice_is_sanitising_it_once(
        pieces in prop::collection::vec(prop::sample::select(HTML_PIECES), 0..25)
    ) {
        let once = html(&pieces.concat());
        prop_assert_eq!(html(&once), once.clone());
        prop_assert!(once.starts_with("<iframe sandbox=\"allow-scripts\"") || !once.contains("onerror"), "{}", once);
        prop_assert!(!once.contains("<script"), "{}", once);
    }

    #[test]
    fn sanitising_markdown_twice_is_sanitising_it_once(
        pieces in prop::collection::vec(prop::sample::select(MARKDOWN_PIECES), 0..25)
    ) {
        let once = markdown(&pieces.concat());
        prop_assert_eq!(markdown(&once), once);
    }

    #[test]
    fn sanitising_a_picture_twice_is_sanitising_it_once(
        pieces in prop::collection::vec(prop::sample::select(HTML_PIECES), 0..25)
    ) {
        if let Some(once) = svg::sanitised(&format!("<svg>{}", pieces.concat())) {
            prop_assert_eq!(svg::sanitised(&once), Some(once));
        }
    }

    #[test]
    fn every_text_can_be_sanitised(text in any::<String>()) {
        html(&text);
        markdown(&text);
        svg::sanitised(&text);
    }
}
