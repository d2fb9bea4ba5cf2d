"""An audit's findings reach the trackers that a trainer reports to, and a broken tracker ends no run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.integrations.integration_utils import TensorBoardCallback

import truetune
from tests.auditing import tiny
from tests.training.watched import trainer
from truetune.errors import TruetuneError
from truetune.training.findings_for_experiment_trackers import (
    ALERTED_FINDINGS,
    TABLE_COLUMNS,
    findings_for_trackers,
)


def unmasked_rows() -> Any:
    """Rows whose labels are their ids: prompts are learned, too."""
    return [{**row, "labels": list(row["input_ids"])} for row in tiny.encoded(tiny.chats())]


def audited(**settings: Any) -> truetune.AuditCallback:
    return truetune.AuditCallback(
        **{"laws": "none", "batches": 1, "fail_on": "warning", **settings}
    )


def stop_by_audit(report_to: str, folder: Path, callback: Any) -> None:
    """Start a run with a finding, which the audit stops."""
    settings: Any = {"report_to": report_to, "output_dir": str(folder / "out"), "max_steps": 1}
    with pytest.raises(TruetuneError, match="stopped the run"):
        trainer(unmasked_rows(), callback, **settings).train()


def test_tensorboard_gets_counts_and_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    stop_by_audit("tensorboard", tmp_path, audited())
    (events,) = (tmp_path / "out").rglob("events.out.tfevents.*")
    found = EventAccumulator(str(events), size_guidance={"tensors": 0})
    found.Reload()
    assert found.Scalars("train/audit/warnings")[0].value >= 1
    (text,) = found.Tensors("audit/findings/text_summary")
    table = text.tensor_proto.string_val[0].decode()
    assert table.startswith("| " + " | ".join(TABLE_COLUMNS) + " |")
    assert "prompt-supervised" in table
    assert "did not take" not in capsys.readouterr().err


def test_wandb_gets_a_table_and_an_alert(tmp_path: Path, monkeypatch: Any) -> None:
    wandb = pytest.importorskip("wandb")
    names = ("MODE=offline", f"DIR={tmp_path}", "SILENT=true", "CONSOLE=off", "DISABLE_GIT=true")
    for name, value in (pair.split("=") for pair in names):
        monkeypatch.setenv(f"WANDB_{name}", value)
    alerts: list[tuple[str, str]] = []
    kind = wandb.sdk.wandb_run.Run
    send = kind.alert

    def note_and_send(run: Any, title: str, text: str, **settings: Any) -> None:
        alerts.append((title, settings["level"]))
        send(run, title, text, **settings)

    monkeypatch.setattr(kind, "alert", note_and_send)
    stop_by_audit("wandb", tmp_path, audited())
    folder = Path(wandb.run.dir)
    wandb.finish()
    (path,) = folder.rglob("*.table.json")
    table = json.loads(path.read_text())
    assert table["columns"] == list(TABLE_COLUMNS)
    assert "prompt-supervised" in [row[2] for row in table["data"]]
    ((title, level),) = alerts
    assert title.startswith("truetune audit: ")
    assert level in ("WARN", "ERROR")


def test_mlflow_gets_a_table_and_a_tag(tmp_path: Path, monkeypatch: Any) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'runs.db'}")
    monkeypatch.chdir(tmp_path)
    stop_by_audit("mlflow", tmp_path, audited())
    run = mlflow.last_active_run()
    mlflow.end_run()
    assert run.data.tags["truetune"].startswith("truetune audit: ")
    found = mlflow.load_table("audit/findings.json", run_ids=[run.info.run_id])
    assert "prompt-supervised" in list(found["rule"])


def test_trackio_gets_a_table_and_an_alert(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trackio", reason="Trackio is not installed")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    stop_by_audit("trackio", tmp_path, audited())
    printed = capsys.readouterr()
    assert "did not take" not in printed.err
    assert "truetune audit: " in printed.out + printed.err


class LostConnection:
    """A writer of TensorBoard's that has lost its connection."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionError("no route to it")


def test_a_tracker_that_fails_ends_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    callback = audited(on_error="warn", report_to_trackers=True)

    class Tracker(TensorBoardCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.tb_writer = LostConnection()

        def on_log(
            self, args: Any, state: Any, control: Any, logs: Any = None, **parts: Any
        ) -> None:
            if state.global_step == 0:
                super().on_log(args, state, control, logs=logs, **parts)

        def on_train_end(self, *_: Any, **__: Any) -> None:
            pass

    Tracker.__module__ = TensorBoardCallback.__module__
    run = trainer(unmasked_rows(), Tracker(), callback, max_steps=1)
    run.train()
    assert run.state.global_step == 1
    assert "ConnectionError: no route to it; the run continues" in capsys.readouterr().err


def test_nothing_is_sent_where_it_is_off(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    stop_by_audit("tensorboard", tmp_path, audited(report_to_trackers=False))
    (events,) = (tmp_path / "out").rglob("events.out.tfevents.*")
    assert b"audit/" not in events.read_bytes()


def test_rows_of_the_data_are_not_sent() -> None:
    run = trainer(unmasked_rows())
    report = truetune.audit(run, laws="none", batches=2, fail_on="warning")
    assert any(case.text for finding in report.findings for case in finding.cases)
    tracked = findings_for_trackers(report, 3)
    assert tracked.alert is not None
    sent = json.dumps(tracked.table.rows) + tracked.alert.text
    assert not [fruit for fruit in tiny.FRUITS if fruit in sent]
    assert len(tracked.alert.text.splitlines()) <= ALERTED_FINDINGS + 1
    assert tracked.table.step == 3


def test_a_clean_run_alerts_nobody() -> None:
    report = truetune.audit(trainer(), laws="none", batches=1)
    assert not report.failed()
    assert findings_for_trackers(report, 0).alert is None
