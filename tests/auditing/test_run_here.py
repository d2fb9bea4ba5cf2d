"""`truetune.audit` and the callback: trainers, loops of one's own, modules of Lightning's kind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import DataCollatorForSeq2Seq

import truetune
from tests.auditing import tiny
from truetune.errors import TruetuneError, UsageError


def loader(rows: Any = None, **settings: Any) -> DataLoader[Any]:
    tokenizer = tiny.tokenizer()
    settings = {"batch_size": 2, "collate_fn": DataCollatorForSeq2Seq(tokenizer), **settings}
    data: Any = rows if rows is not None else tiny.encoded(tiny.chats(8))
    return DataLoader(data, **settings)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(tiny.encoded(tiny.chats(8)))


class Once(Stream):
    def __init__(self) -> None:
        self.rows = iter(tiny.encoded(tiny.chats(8)))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self.rows)


class Module(torch.nn.Module):
    """What Lightning trains."""

    def __init__(self) -> None:
        super().__init__()
        self.model = tiny.model()

    def training_step(self, batch: dict[str, Any], index: int) -> Any:
        return self.model(**batch).loss


def audit(run: Any, *parts: Any, laws: Any = "none", **settings: Any) -> Any:
    return truetune.audit(run, *parts, laws=laws, batches=2, **settings)


def test_a_loop_of_ones_own() -> None:
    report = audit(tiny.model(), loader(), given=tiny.chats(8), laws="quick")
    assert not report.failed()
    assert len(report.samples) == 4
    assert report.ledger.supervised > 0
    assert report.subjects[0].path == "own loop"


def test_a_module_of_lightnings_kind() -> None:
    module, batches = Module(), loader(shuffle=True)
    before = random.getstate(), torch.get_rng_state()
    report = audit(
        module.model,
        batches,
        tiny.tokenizer(),
        loss=lambda model, batch: module.training_step(batch, 0),
        laws=["loss-targets"],
    )
    assert not report.failed()
    assert before[0] == random.getstate()
    assert torch.equal(before[1], torch.get_rng_state())
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize(
    "settings",
    [
        {
            "batch_size": None,
            "collate_fn": lambda row: {name: torch.tensor([ids]) for name, ids in row.items()},
        },
        {"drop_last": True},
        {},
    ],
)
@pytest.mark.parametrize("rows", [Stream, list])
def test_streams_and_rows_one_by_one(rows: Any, settings: Any) -> None:
    data = Stream() if rows is Stream else None
    report = audit(tiny.model(), loader(data, **settings), tiny.tokenizer())
    expected = [
        row["input_ids"]
        for row in tiny.encoded(tiny.chats(4 if settings.get("batch_size", 2) else 2))
    ]
    assert [
        sample.ids[: len(ids)].tolist()
        for sample, ids in zip(report.samples, expected, strict=True)
    ] == expected


def test_an_iterator_keeps_its_rows() -> None:
    data = Once()
    report = audit(tiny.model(), loader(data), tiny.tokenizer())
    assert report.samples == ()
    assert "iterator" in report.notes[0]
    assert len(list(data)) == 8


def test_a_model_alone_is_not_enough() -> None:
    with pytest.raises(UsageError, match="give its data loader"):
        audit(tiny.model())


def test_the_callback_stops_or_warns(capsys: pytest.CaptureFixture[str]) -> None:
    callback = truetune.AuditCallback(fail_on="warning", laws="none", batches=1)
    trainer = tiny.sft(max_steps=1)
    trainer.add_callback(callback)
    with pytest.raises(TruetuneError, match="stopped the run"):
        trainer.train()
    assert trainer.state.global_step == 0
    assert "prompt-supervised" in capsys.readouterr().err
    assert callback.report.failed()
    callback.report, callback.on_error = None, "warn"
    trainer.train()
    assert trainer.state.global_step == 1
