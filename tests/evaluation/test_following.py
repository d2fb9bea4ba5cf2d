"""The checkpoints of a run, asked as they appear, and asked no more than once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.auditing import tiny
from tests.evaluation.answering import LIMIT, written
from tests.evaluation.test_sample import ran
from truetune.errors import UsageError
from truetune.evaluation.sample_checkpoints_as_they_appear import follow_checkpoints
from truetune.evaluation.sample_report import SampleReport
from truetune.training.save_checkpoints import mark_checkpoint_whole


def checkpoint(run: Path, step: int, model: Path) -> Path:
    folder = shutil.copytree(model, run / f"checkpoint-{step}")
    mark_checkpoint_whole(folder, resumes=False)
    return folder


def record(run: Path, status: str, step: int) -> None:
    run.mkdir(exist_ok=True)
    (run / "run.json").write_text(
        json.dumps({"format": 1, "status": status, "step": step, "steps": 4})
    )


def followed(run: Path, rows: Path, said: list[str], **given: Any) -> SampleReport:
    return follow_checkpoints(
        str(run), [str(rows)], say=said.append, **{"max_new_tokens": LIMIT, "count": 8, **given}
    )


def test_checkpoints_are_asked_as_they_appear(
    right: Path, broken: Path, rows: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    said: list[Any] = []
    record(run, "training", 2)
    checkpoint(run, 2, right)
    waits = []

    def wait() -> None:
        """The run makes a checkpoint, and ends."""
        waits.append(len(said))
        checkpoint(run, 4, broken)
        record(run, "finished", 4)

    report = followed(run, rows, said, wait=wait, diagnose=False)
    assert waits == [1]
    assert [look.step for look in report.looks] == [2, 4]
    assert said[0].startswith("step 2: 8 of 8 answers are good")
    assert said[1].startswith("step 4: 0 of 8 answers are good")
    assert any("[ANS" in line for line in said[2:])
    assert report.failed()
    assert not list(run.glob("samples"))
    again: list[str] = []
    assert followed(run, rows, again, diagnose=False).findings == report.findings
    assert [line.partition("(")[2] for line in again] == ["asked before)"] * 2
    shutil.rmtree(run / "checkpoint-4")
    assert followed(run, rows, []).notes == (
        "the checkpoint of step 4 is gone: it can't be asked why",
    )
    with pytest.raises(UsageError, match=r"other questions.*max_new_tokens"):
        followed(run, rows, [], max_new_tokens=8)
    other = written(tmp_path / "rows.jsonl", tiny.chats(3, turns=2))
    asked = tmp_path / "run-sampled" / "asked.json"
    asked.write_text(asked.read_text().replace(str(rows), str(other)))
    with pytest.raises(UsageError, match="the rows have changed"):
        followed(run, other, [])


def test_min_p_is_among_the_questions(right: Path, rows: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    record(run, "finished", 2)
    checkpoint(run, 2, right)
    kept = tmp_path / "run-sampled" / "asked.json"
    given: dict[str, Any] = {"temperature": 5.0, "diagnose": False}
    followed(run, rows, [], **given)
    questions = json.loads(kept.read_text())
    assert questions["min_p"] == 0
    # As older releases wrote it.
    del questions["min_p"]
    kept.write_text(json.dumps(questions))
    again: list[str] = []
    followed(run, rows, again, **given)
    assert "asked before" in again[0]
    with pytest.raises(UsageError, match=r"other questions \(min_p differ\)"):
        followed(run, rows, [], min_p=0.1, **given)
    report = followed(run, rows, [], min_p=1.0, looks=str(tmp_path / "other"), **given)
    assert json.loads((tmp_path / "other" / "asked.json").read_text())["min_p"] == 1
    assert all(sample.scores.exact for sample in report.looks[0].samples)


def test_what_was_interrupted_goes_on(right: Path, rows: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    said: list[Any] = []
    record(run, "training", 2)
    checkpoint(run, 2, right)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        followed(run, rows, said, wait=interrupt)
    checkpoint(run, 4, right)
    report = followed(run, rows, said, once=True)
    assert [line.partition(":")[0] for line in said] == ["step 2", "step 2", "step 4"]
    assert report.findings == ()


def test_a_checkpoint_that_is_not_whole_is_said(right: Path, rows: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    record(run, "failed", 4)
    shutil.copytree(right, run / "checkpoint-4")
    with pytest.raises(UsageError, match=r"checkpoint-4 is not asked: it has no whole\.json"):
        followed(run, rows, [])
    checkpoint(run, 2, right)
    done = ran(
        "--watch",
        run,
        "--data",
        rows,
        "--once",
        "-n",
        2,
        "--max-new-tokens",
        LIMIT,
        "--looks",
        tmp_path / "x",
    )
    assert done.return_value == 0
    assert "checkpoint-4 is not asked" in done.stdout


def test_a_folder_that_is_no_run(right: Path, rows: Path) -> None:
    with pytest.raises(UsageError, match=r"run\.json"):
        followed(right, rows, [])
