"""Whatever ends a kernel, nothing of it stays: containers, networks, volumes, processes, temporary files."""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import Kernel, fence

ROUNDS = 15
AT_ONCE = 4
# How many kernels are killed; CELLBLOCK_KILLS=1000 says another number. No kernel is to see that variable.
KILLS = int(os.environ.pop("CELLBLOCK_KILLS", "60"))

# What may be going on in the cell when the end comes.
BUSY = [
    None,
    "print(1)",
    "import time; time.sleep(600)",
    "while True: print('x' * 200)",
    "import subprocess; subprocess.Popen(['sleep', '600']); subprocess.run(['sleep', '600'])",
    "import os\nfor _ in range(20):\n    if os.fork() == 0:\n        os.setsid(); os.execvp('sleep', ['sleep', '600'])",
    "input('wait')",
]


def start_and(end, name: str, folder, env: dict[str, str], dice: random.Random) -> None:
    """One kernel, ended at a random moment of its life: `end` does it."""
    early = dice.random() < 0.5
    kernel = Kernel(name, folder, env, ready=False)
    try:
        busy = dice.choice(BUSY)
        if busy:
            kernel.client.execute(kernel.python(busy))
        if early:
            # While it starts its container, mostly.
            time.sleep(dice.uniform(0, 0.6))
        else:
            kernel.client.wait_for_ready(timeout=60) if not busy else time.sleep(dice.uniform(0.6, 2.5))
        end(kernel)
    finally:
        kernel.client.stop_channels()
        if kernel.manager.has_kernel and kernel.manager.provisioner.process:
            kernel.manager.provisioner.process.kill()
            kernel.manager.provisioner.process.wait()
        kernel.log.close()


def in_parallel(end, watch, seed: int) -> None:
    print(f"seed {seed}")
    dice = random.Random(seed)

    def one(number: int, seed: int) -> None:
        name = ("cellblock", "cellblock-python")[number % 2]
        start_and(end, name, watch.root / f"kernel-{number}", watch.env, random.Random(seed))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(ROUNDS), [dice.random() for _ in range(ROUNDS)]))


# Fifteen kernels for each seed: by default sixty deaths at random moments.
@pytest.mark.parametrize("seed", range(11, 11 + -(-KILLS // ROUNDS)))
def test_kill_9_at_a_random_moment_leaves_nothing(seed, kernels, watch):
    in_parallel(Kernel.kill, watch, seed)
    watch.assert_nothing_left()


def test_shutdown_at_a_random_moment_leaves_nothing(kernels, watch):
    in_parallel(lambda kernel: kernel.manager.shutdown_kernel(now=False), watch, 21)
    watch.assert_nothing_left()


def test_sigterm_at_a_random_moment_leaves_nothing(kernels, watch):
    def terminate(kernel: Kernel) -> None:
        kernel.manager.provisioner.process.terminate()
        kernel.manager.provisioner.process.wait(timeout=30)

    in_parallel(terminate, watch, 31)
    watch.assert_nothing_left()


@pytest.mark.parametrize("name", ["cellblock", "cellblock-python"])
def test_restarts_leave_one_kernel_and_then_nothing(name, kernels, watch):
    with Kernel(name, watch.root / "kernel", watch.env) as kernel:
        for number in range(5):
            assert kernel.run(kernel.python("'n' in globals()")).result == "False"
            kernel.run(kernel.python(f"n = {number}"))
            kernel.manager.restart_kernel(now=number % 2 == 0)
            kernel.client.wait_for_ready(timeout=60)
        assert kernel.run(kernel.python("6 * 7")).result == "42"
        for _ in range(100):
            if len(watch.containers()) == 1:
                break
            time.sleep(0.1)
        assert len(watch.containers()) == 1, watch.containers()
    watch.assert_nothing_left()


def test_a_shutdown_with_a_running_cell_is_quick_enough_for_clients(kernel):
    """jupyter_client sends SIGTERM after 2.5 s: the kernel has to be gone by itself before."""
    request = kernel.client.execute(kernel.python("print('shown', flush=True)\nwhile True: pass"))
    kernel.until(request, lambda ran: "shown" in ran.stdout)
    kernel.client.shutdown()
    assert kernel.manager.provisioner.process.wait(timeout=30) == 0, kernel.said()


def test_the_workspace_holds_what_cells_wrote_and_nothing_else(kernels, watch):
    with Kernel("cellblock", watch.root / "kernel", watch.env) as kernel:
        kernel.run(fence("open('mine.txt', 'w').write('x');"))
        kernel.run(fence("echo y > shell.txt", "sh"))
    watch.assert_nothing_left()
    assert sorted(str(p.relative_to(watch.root / "kernel")) for p in (watch.root / "kernel").rglob("*")) == [
        "workspace", "workspace/mine.txt", "workspace/shell.txt",
    ]


def test_the_watch_sees_what_is_left(kernels, watch):
    """A test of absence is worth something only when presence is noticed."""
    with Kernel("cellblock-python", watch.root / "kernel", watch.env) as kernel:
        kernel.run("1")
        (watch.tmp / "forgotten").touch()
        left = watch.left()
        assert left["containers"] and left["processes"] and left["temporary files"], left
        (watch.tmp / "forgotten").unlink()
    watch.assert_nothing_left()
