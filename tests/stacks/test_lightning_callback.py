"""The Lightning callback on a small module, with Lightning's own trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq

from tests.auditing import tiny
from truetune.errors import TruetuneError, UsageError

lightning = pytest.importorskip("lightning", reason="Lightning is not installed")

from truetune.lightning import AuditCallback  # noqa: E402  needs Lightning


class Tuner(lightning.LightningModule):  # type: ignore[name-defined]  # Lightning may be absent
    """Trains the small model, logs as users do, and counts its steps."""

    def __init__(self, shifted: bool = True, manual: bool = False) -> None:
        super().__init__()
        self.model = tiny.model(attention_dropout=0.1)
        self.shifted, self.steps_seen = shifted, 0
        self.losses: list[float] = []
        self.automatic_optimization = not manual

    def training_step(self, batch: dict[str, Any], index: int) -> Any:
        self.steps_seen += 1
        batch = dict(batch)
        labels = batch["labels"]
        out = self.model(**batch)
        logits = out.logits.flatten(0, 1)
        loss = (
            out.loss
            if self.shifted
            else torch.nn.functional.cross_entropy(logits, labels.flatten())
        )
        self.log("loss", loss, on_step=True, prog_bar=True)
        if not self.automatic_optimization:
            self.optimizers().step()
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
        self.losses.append(float(outputs["loss"] if outputs else 0))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def fit(module: Any, *callbacks: Any, logger: Any = False) -> Any:
    rows: Any = tiny.encoded(tiny.chats())
    collate = DataCollatorForSeq2Seq(tiny.tokenizer())
    torch.manual_seed(3)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=2,
        logger=logger,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
    )
    trainer.fit(module, DataLoader(rows, batch_size=2, shuffle=True, collate_fn=collate))
    return trainer


def test_a_run_is_audited_and_not_changed(capsys: pytest.CaptureFixture[str]) -> None:
    plain, audited = Tuner(), Tuner()
    fit(plain)
    callback = AuditCallback(batches=2, laws=["loss-targets"])
    fit(audited, callback)
    assert "training run" in capsys.readouterr().err
    assert not callback.report.failed()
    assert callback.report.ledger.supervised > 0
    assert audited.losses == plain.losses
    assert audited.steps_seen == 2
    assert "log" not in vars(audited)


def test_labels_that_are_not_shifted_stop_the_run() -> None:
    module = Tuner(shifted=False)
    callback = AuditCallback(batches=2, laws=["loss-targets"])
    with pytest.raises(TruetuneError, match="stopped the run"):
        fit(module, callback)
    assert module.losses == []
    assert "LAW011" in [finding.code for finding in callback.report.findings]


def test_manual_optimization_takes_no_step(capsys: pytest.CaptureFixture[str]) -> None:
    module = Tuner(manual=True)
    callback = AuditCallback(batches=1)
    fit(module, callback)
    assert module.steps_seen == 2
    assert "optimizes by hand" in capsys.readouterr().err
    assert callback.report.ledger.supervised > 0


def test_a_module_with_two_models_asks_which() -> None:
    module = Tuner()
    module.other = tiny.model()
    with pytest.raises(UsageError, match="2 transformers models"):
        fit(module, AuditCallback())


def test_tensorboard_gets_the_findings(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from lightning.pytorch.loggers import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    callback = AuditCallback(on_error="warn", batches=1, laws=["loss-targets"])
    fit(Tuner(shifted=False), callback, logger=TensorBoardLogger(tmp_path))
    (events,) = tmp_path.rglob("events.out.tfevents.*")
    found = EventAccumulator(str(events), size_guidance={"tensors": 0})
    found.Reload()
    assert found.Scalars("audit/errors")[0].value == 1
    (text,) = found.Tensors("audit/findings/text_summary")
    assert "LAW011" in text.tensor_proto.string_val[0].decode()
