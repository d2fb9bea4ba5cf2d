"""`truetune run` on loops that are no Trainer's: what reached the model is judged, and nothing is changed."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.auditing.running import plain, run, run_training
from tests.preloaded import libraries_python

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
LOOPS = "tests.auditing.own_loops"
ALIKE = "supervised-answers-all-alike"
AS_USERS_DO = "of_the_model"
"""This loop is audited in an interpreter that imports all itself; the others, in a preloaded one (tests/preloaded)."""


class Audited:
    """A loop run with the audit inside, and its report."""

    def __init__(self, kind: str, folder: Path, *options: str, **variables: str) -> None:
        file = folder / f"{kind}.json"
        given = ["-o", str(file), *options]
        arguments = ("-m", LOOPS, kind)
        self.done: subprocess.CompletedProcess[str] = (
            run(*arguments, options=given, launcher=sys.executable, **variables)
            if kind == AS_USERS_DO
            else run_training(*arguments, options=given, **variables)
        )
        self.report: dict[str, Any] = (
            json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        )

    @property
    def rules(self) -> set[str]:
        """Those with an error or a warning."""
        return {one["rule"] for one in self.report["findings"] if one["severity"] != "info"}


@cache
def printed_without_audit(kind: str) -> str:
    """What the loop prints without truetune."""
    done = plain("-m", LOOPS, kind, python=libraries_python())
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["of_the_model", "masked_in_the_loop", "accumulated"])
def test_a_sound_loop_is_as_without_the_audit(kind: str, tmp_path: Path) -> None:
    audited = Audited(kind, tmp_path)
    assert audited.rules == set()
    assert audited.report["audit"]["label_columns"] == "labels come from: reasons 100.0 %"
    assert audited.done.returncode == 0
    assert audited.done.stdout == printed_without_audit(kind)


@pytest.mark.parametrize("kind", ["constant", "adapter", "accelerated"])
def test_a_fault_ends_the_loop(kind: str, tmp_path: Path) -> None:
    audited = Audited(kind, tmp_path)
    assert audited.rules == {ALIKE}
    assert audited.done.returncode == 1
    assert audited.done.stdout.splitlines() == printed_without_audit(kind).splitlines()[:8]
    assert "Traceback" not in audited.done.stderr


def test_gradients_that_are_cleared_between_micro_batches_are_seen(tmp_path: Path) -> None:
    audited = Audited("cleared_at_each_batch", tmp_path, "--on-error", "warn")
    assert audited.rules == {"gradients-of-micro-batches-cleared"}
    printed = printed_without_audit("cleared_at_each_batch")
    assert audited.done.stdout == printed


def test_the_same_batch_at_each_step_is_seen(tmp_path: Path) -> None:
    audited = Audited("first_batch_at_every_step", tmp_path)
    assert audited.rules == {"rows-not-drawn-at-random"}
    assert audited.done.stdout == printed_without_audit("first_batch_at_every_step")


def test_a_fault_that_does_not_end_the_loop_changes_nothing(tmp_path: Path) -> None:
    audited = Audited("constant", tmp_path, "--on-error", "warn")
    assert audited.rules == {ALIKE}
    assert audited.done.stdout == printed_without_audit("constant")


def test_what_the_loop_masks_itself_is_judged_and_what_it_does_not(tmp_path: Path) -> None:
    """The loader gives both the same labels."""
    assert "prompt-supervised" in Audited("everything", tmp_path).rules
    assert "prompt-supervised" not in Audited("masked_in_the_loop", tmp_path).rules


def test_labels_that_the_model_is_not_given_are_found_in_the_loop(tmp_path: Path) -> None:
    audited = Audited("loss_outside", tmp_path)
    assert "prompt-supervised" in audited.rules
    # Read from the loop's own backward pass: its loss can't be called for the others.
    assert set(audited.report["audit"]["laws"]) == {"loss-targets"}


def test_what_an_own_loss_teaches_is_read_from_its_gradient(tmp_path: Path) -> None:
    """No variable holds the labels."""
    sound = Audited("shifted_outside", tmp_path)
    assert sound.rules == set()
    assert sound.report["audit"]["label_columns"] == "labels come from: reasons 100.0 %"
    assert sound.done.stdout == printed_without_audit("shifted_outside")
    assert Audited("unshifted_outside", tmp_path).rules == {"loss-target-is-not-next-token"}


def test_a_loss_on_whole_distributions_teaches_no_token(tmp_path: Path) -> None:
    audited = Audited("distilled_outside", tmp_path)
    assert audited.rules == set()
    assert "computes its loss outside of the model" in json.dumps(audited.report)
    assert audited.done.stdout == printed_without_audit("distilled_outside")


@pytest.mark.parametrize("kind", ["short", "constant"])
def test_without_a_copy_of_the_process(kind: str, tmp_path: Path) -> None:
    """A short loop is judged as it ends; where a device is in use the audit is made in the process itself."""
    code = (
        "import json, os, runpy, sys\n"
        "from truetune.probe import own_loop_hook\n"
        "own_loop_hook.can_fork = lambda: False\n"
        f"sys.argv = ['{LOOPS}', '{kind}']\n"
        f"runpy.run_module('{LOOPS}', run_name='__main__', alter_sys=True)\n"
    )
    file = tmp_path / "report.json"
    done = run_training("-c", code, options=["-o", str(file), "--on-error", "warn"])
    assert ALIKE in file.read_text(encoding="utf-8")
    assert done.stdout == printed_without_audit(kind)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("once", "nothing was audited: the script's own loop ended with its first step"),
        ("of_a_vision_model", "no loop of its own trained a model of transformers"),
        ("compiled", "not judged: the model is compiled"),
    ],
)
def test_what_was_not_judged_is_said(kind: str, said: str, tmp_path: Path) -> None:
    audited = Audited(kind, tmp_path)
    assert said in audited.done.stderr
    assert audited.done.returncode == 3
    assert audited.done.stdout == printed_without_audit(kind)
