"""`kill -9` while something is said or done: what was said and shown until then comes back with `%resume`."""

from __future__ import annotations

import json
import time

import pytest
from harness import Kernel, fence

# Longer than a run may go on before it is written down (docs/conversation.md).
LASTING = 4.0

SLOW = "import time\nprint('early', 6 * 7, flush=True)\ntime.sleep(300)"

# What runs, what is waited for, what the model must hear of it afterwards.
MOMENTS = {
    "reply": ("Talk slowly, please.", "word7 ", ["word3 "]),
    "block": (fence(SLOW), "early 42", ["time.sleep(300)", "early 42"]),
    "call": (f"please run {SLOW}", "early 42", ["Let me see.", "time.sleep(300)", "early 42"]),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_was_said_outlives_the_kernel(moment, kernels, model, tmp_path):
    cell, awaited, kept = MOMENTS[moment]
    environment = {
        **model.environment,
        "CELLBLOCK_AGENT__MODE": "auto",
        "CELLBLOCK_CONVERSATION__FILE": str(tmp_path / "conversations.sqlite"),
        "JPY_SESSION_NAME": str(tmp_path / "work" / "talk.ipynb"),
    }
    first = Kernel(kernels.markdown, tmp_path / "work", environment)
    assert first.run("My name is Ada.").status == "ok"
    running = first.client.execute(cell)
    first.until(running, lambda ran: awaited in json.dumps([m["content"] for m in ran.messages]))
    time.sleep(LASTING)
    first.kill()

    with Kernel(kernels.markdown, tmp_path / "work", environment) as second:
        resumed = second.run("%resume")
        assert "2 turns" in str(resumed), resumed
        assert second.run("Where were we?").status == "ok"
    heard = json.dumps(model.requests[-1]["messages"], ensure_ascii=False)
    for text in ["My name is Ada.", *kept]:
        assert json.dumps(text, ensure_ascii=False)[1:-1] in heard, f"{text!r} is lost:\n{heard}"
