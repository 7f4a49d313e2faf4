"""Files that a run writes are shown in JupyterLab, their links open them, and hostile ones do no harm."""

from __future__ import annotations

from pathlib import Path

from attacks import PAYLOAD

MAPPING = "application/vnd.cellblock.artifacts+json"
ARTIFACTS = Path(__file__).resolve().parents[1] / "artifacts"

WRITE = """import os
import matplotlib.pyplot as plt
os.chdir('/session/artifacts')
fig, axes = plt.subplots(figsize=(4, 2.5))
axes.plot([1, 4, 2, 3])
fig.savefig('plot.png')
plt.close(fig)
with open('cities.csv', 'w') as f:
    print('city,people,note', file=f)
    for n in range(25):
        print(f'City {n},{n * 1000},"costs $5, not $6"', file=f)
with open('page.html', 'w') as f:
    f.write('<p>A page</p><div id=out style="height:80px">waiting</div>'
            '<script>document.getElementById("out").textContent = "drawn" + 6*7</script>')
with open('notes and more.txt', 'w') as f:
    f.write(''.join(f'line {n} of <b>the notes</b>\\n' for n in range(30)))
with open('model.bin', 'wb') as f:
    f.write(os.urandom(123456))"""

HOSTILE = """import os
os.chdir('/session/artifacts')
page = '<script>PAYLOAD;fetch("BEACON")</script><img src="BEACON" onerror="PAYLOAD">'
svg = '<svg xmlns="http://www.w3.org/2000/svg" onload="PAYLOAD"><script>PAYLOAD</script><rect width="9" height="9"/></svg>'
names = ['<img src=x onerror=alert(1)>.png', '<img src=x onerror=NOTE>.txt', 'a\\nb.txt', 'gnp\\u202egpj.exe',
         '"onmouseover="NOTE".csv', "'onmouseover='NOTE'.md", '$\\\\href{javascript:NOTE}{x}$.txt', 'up..%2f..%2fx',
         'javascript:NOTE', '&lt;b&gt;NOTE&lt;b&gt;.txt']
for name in names:
    with open(name, 'w') as f:
        f.write('<img src=x onerror="NOTE">,$\\\\href{javascript:NOTE}{x}$\\n1,2\\n')
for name, text in (('page.html', page), ('picture.svg', svg)):
    with open(name, 'w') as f:
        f.write(text)
os.symlink('/etc/passwd', 'link.txt')
os.mkfifo('fifo.txt')"""


def test_files_are_shown_and_their_links_open_them(opened, kernels):
    notebook = opened(kernels.python, [WRITE, "print('nothing written')"])
    page, text = notebook.page, notebook.text()
    for expected in ("Artifacts: 5 files", "model.bin", "25 rows, 3 columns", "City 9", "costs $5, not $6", "line 19 of <b>the notes</b>"):
        assert expected in text, text
    assert "City 10" not in text and "line 20" not in text, text
    pictures = page.evaluate("[...document.querySelectorAll('.jp-OutputArea-output img')].map(i => i.naturalWidth)")
    assert pictures == [400], pictures
    drawn = [frame.evaluate("document.getElementById('out')?.textContent") for frame in page.frames]
    assert "drawn42" in drawn, "script runs inside of its frame"
    found = [output["metadata"].get(MAPPING) for output in notebook.outputs(0) if "metadata" in output]
    [listed] = [mapping["artifacts"] for mapping in found if mapping]
    assert [Path(file["container"]).name for file in listed] == [
        "cities.csv", "model.bin", "notes and more.txt", "page.html", "plot.png",
    ]
    for file in listed:
        assert (notebook.lab.folder / file["host"]).stat().st_size == file["bytes"], file
    assert all(MAPPING not in str(output) for output in notebook.outputs(1)), notebook.outputs(1)
    notebook.screenshot(ARTIFACTS / "artifacts.png")
    page.locator(".jp-OutputArea-output a", has_text="notes and more.txt").click()
    page.wait_for_function("window.jupyterapp.shell.currentWidget?.context?.path?.endsWith('/notes and more.txt')")


def test_hostile_files_do_no_harm(opened, beacon, kernels):
    note = "void((window.pwned=window.pwned||[]).push(1))"
    code = HOSTILE.replace("PAYLOAD", PAYLOAD.replace("NAME", "artifact").replace('"', "'").replace("'", "\\'"))
    code = code.replace("BEACON", f"{beacon.address}/artifact").replace("NOTE", note)
    notebook = opened(kernels.python, [code])
    assert "Artifacts: 12 files" in notebook.text(), notebook.outputs(0)
    notebook.screenshot(ARTIFACTS / "hostile-artifacts.png")
    for link in notebook.page.locator(".jp-OutputArea-output a, .jp-OutputArea-output code").all():
        link.hover()
    proof = notebook.proof(beacon, {})
    assert proof.worked == set() and proof.odd == (), proof
    assert notebook.page.locator(".jp-OutputArea-output img[src='x']").count() == 0
    assert "root:" not in notebook.text()
