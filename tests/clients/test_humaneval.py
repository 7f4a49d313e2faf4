"""HumanEval in the sandbox through nbclient: every reference solution passes, and a wrong one does not.

The models' share is measured with `benches/humaneval.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benches"))

import book
import humaneval
from book import Book


def test_all_reference_solutions_pass(kernels, tmp_path):
    problems = humaneval.problems()
    assert len(problems) == 164
    with Book(tmp_path) as notebook:
        ends = humaneval.run_reference(notebook, problems)
    assert {task: end for task, end in ends.items() if end != humaneval.PASSED} == {}
    assert len(ends) == 164


def test_a_models_reply_is_judged_in_a_container_of_its_own(kernels, model, tmp_path):
    problem = humaneval.problems()[0]
    right = book.fence(problem["prompt"] + problem["canonical_solution"])
    wrong = "Sure!\n\n" + book.fence(f"def {problem['entry_point']}(numbers, threshold):\n    return True")
    for reply in (right, wrong, "I can't.", book.fence("import os\nos._exit(0)")):
        model.say(reply)
    with Book(tmp_path) as notebook:
        ends = [humaneval.ask(notebook, problem)["end"] for _ in range(4)]
        after = notebook.run(book.fence("'has_close_elements' in globals()"))
    assert ends[0] == humaneval.PASSED, ends
    assert ends[1].startswith("AssertionError") and ends[2] == "no fence in the reply", ends
    assert ends[3] != humaneval.PASSED, ends
    assert after.outputs[0].data["text/plain"] == "False"
    asked = [json.dumps(request) for request in model.requests]
    assert "I can't." not in asked[3], "every problem is asked afresh"
