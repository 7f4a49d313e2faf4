"""Two executed notebooks, compared cell by cell.

Outputs are normalised first: what can't be equal in two runs (addresses, timings, paths, process ids) is
replaced by a placeholder, pictures are compared by their pixels, and sanitised markup by what a reader sees.
Everything else must be the same. `differences` lists what is not; `DELIBERATE` in `test_notebooks.py` names
the cells in which the kernels are meant to differ, and why.
"""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from nbformat import NotebookNode

ANSI = re.compile(r"\x1b\[[0-9;]*m")

# Order matters: the more specific come first.
REPLACEMENTS = [
    (re.compile(r"\b0x[0-9a-fA-F]{6,}\b"), "0xADDRESS"),
    (re.compile(r"/tmp/ipykernel_\d+/\d+\.py|\b\d{6,}\.py\b|<ipython-input-[^>]*>"), "<cell>"),
    # Frames outside the notebook: which file it is counts, where the installation put it does not (below /tmp too).
    (re.compile(r"~?(?:/[\w.+-]+)+/(?:site-packages|dist-packages|lib/python3\.\d+|lib/python3)/"), "<lib>/"),
    # Where the notebook runs: a directory of the test, or the sandbox's.
    (re.compile(r"/(?:var/)?tmp/[\w.+-]+(?:/[\w.+-]+)*|/workspace(?:/[\w.+-]+)*"), "<tmp>"),
    (re.compile(r"\(Thread-\d+\b|\bThread-\d+\b"), "Thread-N"),
    (re.compile(r"\bpid[ =:]+\d+"), "pid N"),
    (re.compile(r"\b(?:ForkPoolWorker|Process|SpawnPoolWorker)-\d+(?::\d+)?"), "Worker-N"),
]

# `%time`, `%timeit`, progress bars, unittest: figures with a unit of time.
DURATION = re.compile(
    r"[+-]?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?\s?(?:ns|µs|μs|us|ms|s|min|h)\b(?:\s\d+(?:\.\d+)?\s?(?:ns|µs|ms|s)\b)*"
)
TQDM_RATE = re.compile(r"\[[\d:?]+<[\d:?]+,[^\]]*\]|\[\d\d:\d\d(?:<[^\]]*)?\]")

# Mime types that our kernel sanitises: compared by what a reader sees, not by attributes.
MARKUP = {"text/html", "image/svg+xml"}


@dataclass(frozen=True)
class Difference:
    """One thing that two runs of a cell do not have in common."""

    notebook: str
    cell: str
    what: str
    reference: Any
    candidate: Any

    def __str__(self) -> str:
        return (
            f"{self.notebook}, cell {self.cell}: {self.what}\n"
            f"    reference: {shorten(self.reference)}\n"
            f"    candidate: {shorten(self.candidate)}"
        )


def shorten(value: Any, limit: int = 600) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[:limit // 2]!r} ... {text[-limit // 2:]!r} ({len(text)} characters)"


def differences(name: str, reference: NotebookNode, candidate: NotebookNode) -> list[Difference]:
    """What differs between two runs of the same notebook."""
    found: list[Difference] = []
    if [c.id for c in reference.cells] != [c.id for c in candidate.cells]:
        return [Difference(name, "*", "the cells", [c.id for c in reference.cells], [c.id for c in candidate.cells])]
    for ours, theirs in zip(reference.cells, candidate.cells):
        if ours.cell_type != "code":
            continue
        tags = frozenset(ours.metadata.get("tags", []))
        found += [Difference(name, ours.id, *d) for d in cell_differences(ours, theirs, tags)]
    return found


def cell_differences(reference: NotebookNode, candidate: NotebookNode, tags: frozenset[str]):
    if reference.execution_count != candidate.execution_count:
        yield "execution_count", reference.execution_count, candidate.execution_count
    ours, theirs = outputs(reference.outputs, tags), outputs(candidate.outputs, tags)
    kinds = [kind_of(o) for o in ours], [kind_of(o) for o in theirs]
    if kinds[0] != kinds[1]:
        yield "the outputs", brief(ours), brief(theirs)
        return
    for number, (left, right) in enumerate(zip(ours, theirs)):
        yield from output_differences(number, left, right)


def kind_of(output: dict) -> str:
    return output["kind"] + (":" + output["name"] if output["kind"] == "stream" else "")


def brief(items: list[dict]) -> str:
    def one(o: dict) -> str:
        if o["kind"] == "stream":
            return f"{o['name']}({shorten(o['text'], 300)!r})"
        if o["kind"] == "error":
            return f"error({o['ename']}: {o['evalue']})"
        return f"{o['kind']}({sorted(o['data'])})"

    return "; ".join(map(one, items)) or "none"


def outputs(raw: list[NotebookNode], tags: frozenset[str]) -> list[dict]:
    """The outputs in the shape that is compared: streams joined, texts normalised."""
    joined: list[dict] = []
    for output in raw:
        kind = output.output_type
        if kind == "stream":
            last = joined[-1] if joined else None
            if last and last["kind"] == "stream" and last["name"] == output.name:
                last["text"] += output.text
            else:
                joined.append({"kind": "stream", "name": output.name, "text": output.text})
        elif kind == "error":
            trace = normal("\n".join(output.traceback), tags)
            joined.append({
                "kind": "error", "ename": output.ename, "evalue": normal(output.evalue, tags), "trace": frames(trace),
                "coloured": bool(ANSI.search("\n".join(output.traceback))),
            })
        else:
            joined.append({
                "kind": kind, "data": dict(output.data), "metadata": dict(output.metadata), "tags": tags,
                "count": output.get("execution_count"),
            })
    joined = streams_grouped(joined, everywhere="fd-output" in tags)
    for o in joined:
        if o["kind"] == "stream":
            o["text"] = normal(o["text"], tags)
            if "stderr-trace" in tags and o["name"] == "stderr":
                o["text"] = frames(o["text"])
    return joined


def streams_grouped(items: list[dict], everywhere: bool) -> list[dict]:
    """Between two other outputs first all of stdout, then all of stderr: ipykernel keeps no order between them.

    `everywhere`: what child processes write has no order with displays either.
    """
    out: list[dict] = []
    run: dict[str, str] = {}

    def flush() -> None:
        out.extend({"kind": "stream", "name": name, "text": run[name]} for name in sorted(run, reverse=True))
        run.clear()

    for item in items:
        if item["kind"] == "stream":
            run[item["name"]] = run.get(item["name"], "") + item["text"]
        else:
            if not everywhere:
                flush()
            out.append(item)
    flush()
    return out


def normal(text: str, tags: frozenset[str] = frozenset()) -> str:
    """Text without what differs from run to run."""
    # `!command` has a terminal in ipykernel and a pipe in the sandbox.
    text = ANSI.sub("", text).replace("\r\n", "\n")
    for pattern, replacement in REPLACEMENTS:
        text = pattern.sub(replacement, text)
    if "progress" in tags:
        # A longer rate leaves a shorter bar.
        text = re.sub(r"\|[█▏▎▍▌▋▊▉# ]+\|", "|bar|", last_of_each_line(TQDM_RATE.sub("[rate]", text)))
    if "timing" in tags:
        text = re.sub(r" {2,}", " ", DURATION.sub("TIME", text))
        text = re.sub(r"(?m)^.*(?:slowest run took|could mean that an intermediate).*\n?", "", text)
    return re.sub(r"(Ran \d+ tests? in )[\d.]+s", r"\1TIME", text)


def last_of_each_line(text: str) -> str:
    """What a terminal shows at the end: how often a bar was redrawn depends on the clock."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2].replace("\x1b[A", "").rstrip() for line in text.split("\n"))


# A line of source in a traceback: `----> 2     return x`, `      3 y = 1`.
CONTEXT = re.compile(r"^\s*(?:-+>\s*)?\d+(?: .*)?$")
LIBRARY = re.compile(r"^\s*File .*(?:<lib>/|<frozen |<string>)")


def frames(trace: str) -> str:
    """A traceback as its heads, frames and last words.

    Lines of source around a frame are left out: which of them IPython shows depends on whether it finds the
    cell's file, and ipykernel's has none. `test_nbclient.py` looks at those of ours. Frames in libraries lose
    their line numbers, which belong to the installation, and their bodies; frames in the notebook keep theirs.
    """
    kept, skipping = [], False
    for line in trace.split("\n"):
        if CONTEXT.match(line):
            continue
        if LIBRARY.match(line):
            kept.append(re.sub(r"(:\d+|, line \d+)", "", line, count=1))
            skipping = True
            continue
        if skipping and (re.match(r"^\s*(?:Cell|File) ", line) or not line.startswith((" ", "-", "\t")) and line.strip()):
            skipping = False
        if not skipping and line.strip():
            kept.append(re.sub(r"-{20,}", "-----", line.rstrip()))
    return "\n".join(kept)


def output_differences(number: int, left: dict, right: dict):
    label = f"output {number} ({kind_of(left)})"
    if left["kind"] == "stream":
        if left["text"] != right["text"]:
            yield (f"{label}: text", *around_difference(left["text"], right["text"]))
        return
    if left["kind"] == "error":
        for key in ("ename", "evalue", "coloured"):
            if left[key] != right[key]:
                yield f"{label}: {key}", left[key], right[key]
        if left["trace"] != right["trace"]:
            yield (f"{label}: traceback", *around_difference(left["trace"], right["trace"]))
        return
    if left["count"] != right["count"]:
        yield f"{label}: execution_count", left["count"], right["count"]
    if set(left["data"]) != set(right["data"]):
        yield f"{label}: mime types", sorted(left["data"]), sorted(right["data"])
    for mime in sorted(set(left["data"]) & set(right["data"])):
        yield from mime_differences(f"{label}: {mime}", mime, left["data"][mime], right["data"][mime], left["tags"])
    if left["metadata"] != right["metadata"]:
        yield f"{label}: metadata", left["metadata"], right["metadata"]


def mime_differences(label: str, mime: str, left: Any, right: Any, tags: frozenset[str]):
    if mime in ("image/png", "image/jpeg"):
        problem = picture_difference(left, right)
        if problem:
            yield label + ": " + problem, f"{len(left)} characters", f"{len(right)} characters"
        return
    if mime in MARKUP:
        left, right = visible(left), visible(right)
    if isinstance(left, str) and isinstance(right, str):
        left, right = normal(left, tags), normal(right, tags)
        if left != right:
            yield (label, *around_difference(left, right))
    elif left != right:
        yield label, left, right


def around_difference(left: str, right: str) -> tuple[str, str]:
    """Both texts from shortly before the place where they part."""
    at = next((i for i, (a, b) in enumerate(zip(left, right)) if a != b), min(len(left), len(right)))
    start = max(0, at - 80)
    return tuple(("..." if start else "") + repr(t[start : at + 200]) for t in (left, right))  # type: ignore[return-value]


def picture_difference(left: str, right: str) -> str | None:
    """None when two base64 pictures show the same: same size, and pixels that differ by a trifle at most."""
    import numpy
    from PIL import Image

    one, two = (numpy.asarray(Image.open(io.BytesIO(base64.b64decode(p))).convert("RGB"), dtype=float) for p in (left, right))
    # Fonts may be hinted differently by another build of the library: a pixel or two of size.
    if any(abs(a - b) > 2 for a, b in zip(one.shape, two.shape)):
        return f"sizes differ: {one.shape[1]}x{one.shape[0]} and {two.shape[1]}x{two.shape[0]}"
    height, width = min(one.shape[0], two.shape[0]), min(one.shape[1], two.shape[1])
    apart = float(numpy.abs(one[:height, :width] - two[:height, :width]).mean())
    return f"pixels differ by {apart:.1f} of 255 on average" if apart > 4 else None


class Visible(HTMLParser):
    """The tags and the text of some markup, without attributes, styles and scripts."""

    IGNORED = {"style", "script", "metadata"}
    # Tags that carry no meaning of their own and that sanitisers add or drop.
    PLAIN = {"div", "html", "head", "body", "tbody", "meta", "link", "defs"}

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self.ignoring = 0

    def handle_starttag(self, tag, attrs):
        if tag in self.IGNORED:
            self.ignoring += 1
        elif tag not in self.PLAIN and not self.ignoring:
            self.out.append(f"<{tag}>")

    def handle_startendtag(self, tag, attrs):
        if tag not in self.PLAIN and tag not in self.IGNORED and not self.ignoring:
            self.out.append(f"<{tag}>")

    def handle_endtag(self, tag):
        if tag in self.IGNORED:
            self.ignoring = max(0, self.ignoring - 1)

    def handle_data(self, data):
        if not self.ignoring and data.strip():
            self.out.append(" ".join(data.split()))


def visible(markup: str) -> str:
    parser = Visible()
    parser.feed(markup)
    parser.close()
    return "\n".join(parser.out)
