"""What people display still looks as it should after sanitising; a screenshot for a person is left behind."""

from __future__ import annotations

from pathlib import Path

ARTIFACTS = Path(__file__).resolve().parents[1] / "artifacts"

TABLE = """import pandas as pd
frame = pd.DataFrame({'city': ['Bern', 'Oslo'], 'people': [134, 709]})
frame"""
STYLED = "frame.style.background_gradient(subset=['people']).set_properties(**{'color': 'rgb(1, 2, 3)'})"
PLOT = """import matplotlib.pyplot as plt
plt.plot([1, 4, 2, 3])
plt.title('A plot')
plt.show()"""
PICTURE = """from matplotlib_inline.backend_inline import set_matplotlib_formats
set_matplotlib_formats('svg')
plt.plot([3, 1, 2])
plt.show()"""
RICH = r"""from IPython.display import HTML, Markdown, Latex, JSON, display
display(Markdown('## Heading\n\n$a<b$ and `Vec<u8>`\n\n```html\n<b>bold</b>\n```\n\n- [a link](https://example.org)'))
display(Latex(r'$\frac{1}{2}$'))
display(HTML('<details open><summary>More</summary><b style="color: rgb(4, 5, 6)">inside</b></details>'))"""
SCRIPT = "HTML('<div id=out>waiting</div><script>document.getElementById(\"out\").textContent = \"drawn\" + 6*7</script>')"
COLOUR = "print('\\x1b[31mred\\x1b[0m')"


def test_tables_plots_markdown_and_scripted_output_look_as_they_should(opened, kernels):
    notebook = opened(kernels.python, [TABLE, STYLED, PLOT, PICTURE, RICH, SCRIPT, COLOUR])
    page = notebook.page
    text = notebook.text()
    for expected in ("Bern", "709", "Heading", "Vec<u8>", "<b>bold</b>", "More", "inside", "red"):
        assert expected in text, text
    style = "selector => getComputedStyle(document.querySelector(selector)).color"
    assert page.evaluate(style, ".jp-OutputArea-output td[id]") == "rgb(1, 2, 3)", "the styler's rules apply"
    assert page.evaluate(style, ".jp-OutputArea-output details b") == "rgb(4, 5, 6)"
    pictures = page.evaluate("[...document.querySelectorAll('.jp-OutputArea-output img')].map(i => [i.src.slice(0, 18), i.naturalWidth])")
    assert {kind for kind, width in pictures if width > 100} == {"data:image/png;bas", "data:image/svg+xml"}, pictures
    assert page.locator(".jp-OutputArea-output mjx-container").count() >= 2, "formulas are typeset"
    assert page.locator(".jp-OutputArea-output a[href='https://example.org']").count() == 1
    drawn = [frame.evaluate("document.getElementById('out')?.textContent") for frame in page.frames]
    assert "drawn42" in drawn, "script runs inside of its frame"
    assert page.locator(".ansi-red-fg").count() == 1
    notebook.screenshot(ARTIFACTS / "output.png")


def test_a_reply_is_shown_as_markdown(model, opened, kernels):
    notebook = opened(kernels.markdown, ["How is bread made?", "```python\n6 * 7\n```"])
    assert "Bread needs flour" in notebook.text() and "42" in notebook.text(), notebook.text()
    assert notebook.page.locator(".jp-RenderedMarkdown strong", has_text="flour").count() == 1
    notebook.screenshot(ARTIFACTS / "chat.png")
