from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.preloaded import libraries_python
from truetune.generation import sampling_pass_files

PROGRAM = Path(__file__).with_name("two_watched.py")


def test_two_processes_share_the_prompts_and_stop_together(tmp_path: Path) -> None:
    """And train the same weights as without a watcher."""
    python = libraries_python()
    launch = [
        python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHON_EXEC": python,
    }
    done = subprocess.run(
        [*launch, str(PROGRAM), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert first["same"]
    assert second["same"]
    assert first["steps"] == second["steps"] == 2
    assert first["stopped"]
    assert any(line.startswith("the run ends at step 2") for line in first["said"])
    assert second["said"] == []
    assert first["losses"] == second["losses"] == {"loss/stop token": 1.5, "loss/first token": 1.0}
    assert {found["spread"] for found in (first, second)} == {"FSDP"}
    assert first["together"]
    assert second["together"]
    looks = [
        look
        for look, _ in sampling_pass_files.read_passes_with_new_token_limits(tmp_path / "watched")
    ]
    assert [look.step for look in looks] == [0, 2]
    assert [[sample.prompt.line for sample in look.samples] for look in looks] == [
        list(range(1, 9))
    ] * 2
