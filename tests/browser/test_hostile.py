"""Output is an attack on the front end: nothing that a guest or a model shows reaches the page, the server or the net.

The control runs the same cells through ipykernel, which sanitises nothing: there the attacks work, so the test
would see it if they worked through ours.
"""

from __future__ import annotations

from attacks import ATTACKS, reply

PROBES = {attack.name: attack.probe.replace("NAME", attack.name) for attack in ATTACKS if attack.probe}


def attack(opened, beacon, kernel):
    """Runs every attack in one notebook, clicks what is to be clicked, and says what worked."""
    notebook = opened(kernel, [attack.code(beacon.address) for attack in ATTACKS])
    for attack in ATTACKS:
        if attack.click:
            notebook.click(attack.name)
    return notebook, notebook.proof(beacon, PROBES)


def test_the_attacks_work_where_nothing_is_sanitised(opened, beacon):
    _, proof = attack(opened, beacon, "python3")
    expected = {attack.name for attack in ATTACKS if attack.control}
    assert expected - proof.worked == set(), f"these prove nothing, they do not work in ipykernel; {proof}"
    assert "html-script" in proof.wrote, "script in output can use the server's API as the user"


def test_no_output_of_the_sandbox_reaches_the_page_the_server_or_the_net(opened, beacon, kernels):
    notebook, proof = attack(opened, beacon, kernels.python)
    assert proof.worked == set(), proof
    assert proof.odd == (), proof
    silent = [attack.name for index, attack in enumerate(ATTACKS) if not notebook.outputs(index)]
    assert silent == [], "every attack must have shown something, or it was not tried"


def test_no_reply_of_a_model_reaches_the_page_the_server_or_the_net(model, opened, beacon, kernels, monkeypatch):
    monkeypatch.setattr("scripted_model.ANSWER", reply(beacon.address))
    notebook = opened(kernels.markdown, ["Tell me something."])
    assert "markdown" in str(notebook.outputs(0)), notebook.outputs(0)
    notebook.click("reply-")
    for attack in ATTACKS:
        notebook.click(f"reply-{attack.name}")
    proof = notebook.proof(beacon, {})
    assert proof.worked == set() and proof.odd == (), proof


def test_the_same_reply_works_where_nothing_is_sanitised(opened, beacon):
    notebook = opened("python3", [f"from IPython.display import Markdown\nMarkdown({reply(beacon.address)!r})"])
    proof = notebook.proof(beacon, {})
    assert {"reply-html-script", "reply-load-img"} <= proof.worked, proof
