"""An audit that is killed in the middle of its laws leaves what it had measured, and the report says what is lost."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.auditing.running import run_training

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
KILLED = """
import os, signal
from truetune.probe import laws
from tests.auditing import tiny

measured = laws._measure_law_catching_errors
DONE = []

def outcome(law, trial):
    if len(DONE) == {whole}:
        os.kill(os.getpid(), signal.SIGKILL)
    DONE.append(law)
    return measured(law, trial)

laws._measure_law_catching_errors = outcome
trainer = tiny.sft(tiny.chats(4), max_steps=1)
trainer.train()
print("trained")
"""


@pytest.mark.parametrize("whole", [1, 3])
def test_the_laws_that_were_measured_are_judged(whole: int, tmp_path: Path) -> None:
    script, written = tmp_path / "train.py", tmp_path / "report.json"
    script.write_text(KILLED.format(whole=whole))
    done = run_training(
        str(script),
        options=["--on-error", "stop", "--ignore", "BAT", "--ignore", "LAW", "-o", str(written)],
    )
    assert "trained" in done.stdout, done.stderr
    assert f"ended early (signal {int(signal.SIGKILL)})" in done.stderr
    value = json.loads(written.read_text())
    assert len(value["audit"]["laws"]) == whole
    assert all("value" in law or "untested" in law for law in value["audit"]["laws"].values())
    assert value["audit"]["lines"], "the batches were kept as well"
    lost = [part for part in value["not_judged"] if part["asked"]]
    assert [part["what"] for part in lost][:1] == ["the rest of the audit"]
    assert "process 0" in lost[0]["place"]
    assert value["outcome"] == "not judged"
    assert done.returncode == 3


def test_allow_unjudged_takes_the_command_s_own_code(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(KILLED.format(whole=1))
    assert (
        run_training(
            str(script), options=["--ignore", "BAT", "--ignore", "LAW", "--allow-unjudged"]
        ).returncode
        == 0
    )
