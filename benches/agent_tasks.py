"""Small data tasks that a model has to solve by working in the sandbox, each with an automatic check.

    benches/agent_tasks.py                     # the model that the kernel finds
    benches/agent_tasks.py --json FILE         # with every end in a file; goes on where it was interrupted
    benches/agent_tasks.py --only sales mean   # only tasks with such names
    benches/agent_tasks.py --notebook FILE     # with the whole dialogue as a notebook

Each task puts files into a fresh workspace and asks one question in prose; the model has the tools of the mode `auto`.
A task is solved when the model has called a tool, its last words (code and output do not count) hold the right answer,
and the picture or the file that was asked for is there. That the answer stands only in what its code printed is counted
apart.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from book import Book, failed, fence, last_words, printed


@dataclass(frozen=True)
class Task:
    """One question about files in the workspace."""

    name: str
    prompt: str
    # Files of the workspace by name.
    files: dict[str, str] = field(default_factory=dict)
    # Regular expressions of the answer; every one must be found. Case does not count.
    answer: tuple[str, ...] = ()
    # Whether a picture must come of it.
    picture: bool = False
    # A file that must be made, with a pattern of what it holds.
    made: tuple[str, str] | None = None
    # Python that the user ran before.
    before: str = ""


def number(value: str) -> str:
    """The pattern of a number: `1234` with or without separators, not as a part of a longer one."""
    whole, _, rest = value.partition(".")
    groups = re.sub(r"(?<=\d)(?=(\d{3})+$)", ",?", whole)
    tail = rf"\.{rest}\d*" if rest else r"(\.0+)?"
    return rf"(?<![\d.]){groups}{tail}(?!\d|\.\d)"


SALES = "month,sold\nJan,12\nFeb,19\nMar,7\nApr,23\nMay,31\nJun,28\n"
PEOPLE = "name,age,city\nAnna,34,Oslo\nBen,28,Rome\nCleo,45,Oslo\nDan,31,Paris\nEva,22,Rome\nFinn,39,Lima\n"
WEATHER = "day,temperature\nMon,14.5\nTue,17.0\nWed,19.5\nThu,16.0\nFri,13.0\n"
PRODUCTS = json.dumps([
    {"name": "lamp", "price": 35.5, "category": "home"}, {"name": "desk", "price": 249.0, "category": "home"},
    {"name": "pen", "price": 2.2, "category": "office"}, {"name": "chair", "price": 129.0, "category": "office"},
    {"name": "clip", "price": 0.4, "category": "office"},
])
LOG = "\n".join(
    f"2026-03-{day:02d} {level} job {day}"
    for day, level in enumerate(["INFO", "ERROR", "INFO", "WARNING", "ERROR", "INFO", "ERROR", "INFO", "ERROR"], 1)
) + "\n"
STORY = "the sea was calm and the wind was low so the captain slept while the navigator watched the stars\n"

TASKS = [
    Task("sales-best-month", "Which month sold most in sales.csv? Plot it.", {"sales.csv": SALES}, (r"\bmay\b",), picture=True),
    Task("sales-total", "How many units were sold in total in sales.csv?", {"sales.csv": SALES}, (number("120"),)),
    Task("sales-worst-month", "Which month in sales.csv had the lowest sales?", {"sales.csv": SALES}, (r"\bmar(ch)?\b",)),
    Task("sales-above", "In how many months were more than 20 units sold (sales.csv)?", {"sales.csv": SALES},
         (rf"{number('3')}|\bthree\b",)),
    Task("weather-mean", "What is the mean temperature in weather.csv?", {"weather.csv": WEATHER}, (number("16"),)),
    Task("weather-warmest", "Which day was the warmest according to weather.csv?", {"weather.csv": WEATHER}, (r"\bwed(nesday)?\b",)),
    Task("weather-plot", "Plot the temperature by day from weather.csv as a line chart.", {"weather.csv": WEATHER}, picture=True),
    Task("people-mean-age", "What is the average age of the people in people.csv?", {"people.csv": PEOPLE}, (number("33.1"),)),
    Task("people-oldest", "Who is the oldest person in people.csv?", {"people.csv": PEOPLE}, (r"\bcleo\b",)),
    Task("people-cities", "How many different cities are there in people.csv?", {"people.csv": PEOPLE},
         (rf"{number('4')}|\bfour\b",)),
    Task("people-over-30", "How many people in people.csv are older than 30?", {"people.csv": PEOPLE},
         (rf"{number('4')}|\bfour\b",)),
    Task("people-histogram", "Draw a histogram of the ages in people.csv.", {"people.csv": PEOPLE}, picture=True),
    Task("people-to-json", "Convert people.csv to a JSON file with the name people.json.", {"people.csv": PEOPLE},
         made=("people.json", r'"name"\s*:\s*"Cleo"')),
    Task("products-dearest", "Which product in products.json has the highest price?", {"products.json": PRODUCTS}, (r"\bdesk\b",)),
    Task("products-sum", "What is the sum of all prices in products.json?", {"products.json": PRODUCTS}, (number("416.1"),)),
    Task("products-office", "How many products in products.json are of the category office?", {"products.json": PRODUCTS},
         (rf"{number('3')}|\bthree\b",)),
    Task("log-errors", "How many lines of app.log are errors (level ERROR)?", {"app.log": LOG}, (rf"{number('4')}|\bfour\b",)),
    Task("log-first-error", "On which date was the first ERROR in app.log?", {"app.log": LOG},
         (r"2026-03-02|march 2(nd)?\b|\b2(nd)? (of )?march",)),
    Task("story-words", "How many words are there in story.txt?", {"story.txt": STORY}, (rf"{number('19')}|\bnineteen\b",)),
    Task("story-common", "Which word is the most frequent in story.txt?", {"story.txt": STORY}, (r"[\"'`*\u201c]the[\"'`*\u201d]",)),
    Task("story-longest", "What is the longest word in story.txt?", {"story.txt": STORY}, (r"\bnavigator\b",)),
    Task("numbers-sum", "numbers.txt has one number a line. What is their sum?",
         {"numbers.txt": "".join(f"{n * n}\n" for n in range(1, 21))}, (number("2870"),)),
    Task("numbers-median", "numbers.txt has one number a line. What is the median?",
         {"numbers.txt": "17\n3\n88\n41\n5\n62\n29\n"}, (number("29"),)),
    Task("orders-join", "orders.csv and customers.csv belong together by customer_id. Which customer spent most?", {
        "orders.csv": "order,customer_id,amount\n1,7,20\n2,9,35\n3,7,30\n4,8,45\n5,9,25\n",
        "customers.csv": "customer_id,name\n7,Ada\n8,Bob\n9,Grace\n",
    }, (r"\bgrace\b",)),
    Task("file-sorted", "Sort the lines of names.txt alphabetically and write them to sorted.txt.",
         {"names.txt": "pear\napple\nfig\ncherry\n"}, made=("sorted.txt", r"\Aapple\s+cherry\s+fig\s+pear\s*\Z")),
    Task("own-variable", "What is the sum of my list `prices`? It is a variable of this session.", answer=(number("61.5"),),
         before="prices = [12.0, 30.5, 19.0]"),
]


def pictures(folder: Path, cell) -> int:
    shown = sum("image/png" in output.get("data", {}) for output in cell.outputs)
    return shown + sum(1 for path in folder.rglob("*.png") if path.is_file())


def found(patterns: tuple[str, ...], text: str) -> bool:
    return all(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)


def judge(task: Task, book: Book, cell) -> str:
    """How a task ended: `solved`, or what is missing."""
    if (wrong := failed(cell)) is not None:
        return f"the cell failed: {wrong}"
    # An answer that nothing was done for is a guess.
    if not book.metadata.get("cellblock_agent", {}).get("calls"):
        return "no tool was called"
    if task.picture and not pictures(book.folder, cell):
        return "no picture"
    if task.made and not (made := book.folder / "workspace" / task.made[0]).is_file():
        return "no file"
    if task.made and not re.search(task.made[1], made.read_text(errors="replace")):
        return "wrong content of the file"
    if found(task.answer, last_words(cell)):
        return "solved"
    if found(task.answer, printed(cell) + results(cell)):
        return "right in the output of its code, not in its last words"
    return "wrong or no answer"


def results(cell) -> str:
    return "\n".join(o.data.get("text/plain", "") for o in cell.outputs if o.output_type == "execute_result")


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def attempt(book: Book, task: Task) -> tuple[str, float]:
    """One task in a session with nothing in it; how it ended, and the seconds it took."""
    book.run("%reset")
    empty(book.folder / "workspace")
    for path in book.folder.rglob("*.png"):
        path.unlink()
    for name, text in task.files.items():
        (book.folder / "workspace" / name).write_text(text)
    if task.before:
        book.run(fence(task.before))
    began = time.monotonic()
    cell = book.run(task.prompt)
    return judge(task, book, cell), time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="only tasks whose names have one of these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every end there, and go on with it")
    parser.add_argument("--notebook", type=Path, metavar="FILE", help="keep the notebook")
    options = parser.parse_args()
    chosen = [task for task in TASKS if any(part in task.name for part in options.only)]
    kept = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    environment = {"CELLBLOCK_AGENT__MODE": "auto", "CELLBLOCK_AGENT__STEPS": "6", "CELLBLOCK_MODEL__TEMPERATURE": "0",
                   "CELLBLOCK_MODEL__MAX_TOKENS": "700", "CELLBLOCK_CONVERSATION__PERSIST": "false"}
    with tempfile.TemporaryDirectory() as folder, Book(Path(folder), environment, timeout=400) as book:
        for task in chosen:
            if task.name not in kept:
                end, seconds = attempt(book, task)
                kept[task.name] = {"end": end, "seconds": round(seconds)}
                if options.json:
                    options.json.write_text(json.dumps(kept, indent=1))
                if options.notebook:
                    book.save(options.notebook)
            print(f"{task.name}: {kept[task.name]['end']} ({kept[task.name]['seconds']} s)", flush=True)
    ends = [kept[task.name]["end"] for task in chosen]
    solved = ends.count("solved")
    print(f"solved: {solved} of {len(ends)} ({100 * solved / len(ends):.0f}%)")
    for end in sorted(set(ends), key=lambda end: -ends.count(end)):
        print(f"{ends.count(end):4} {end}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
