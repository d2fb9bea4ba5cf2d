"""Faults put into a run's own batch: what its logs show, and what truetune's rules see."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from datasets import Dataset
from rich.console import Console
from transformers import DataCollatorForSeq2Seq, EvalPrediction, Trainer

import truetune
from tests.auditing import tiny
from truetune.errors import UsageError
from truetune.probe import faults_put_into_memorised_batch
from truetune.probe.compact_vocabulary_to_used_ids import compact_vocabulary
from truetune.probe.faults_put_into_memorised_batch import LABEL_FAULTS, Line, swap_preferences
from truetune.rehearsal.mutation_score import MutationTest, find_sign_of_fault_in_logs
from truetune.report.rehearsal_terminal import draw_rehearsal

CHATS = tiny.chats(6)


def mutated(trainer: Any, given: Any = CHATS, mutate: Any = True, rows: int = 4) -> MutationTest:
    report = truetune.rehearse(
        trainer, given=Dataset.from_list(given), laws="none", rows=rows, batches=2, mutate=mutate
    )
    assert report.mutation is not None
    return report.mutation


def test_the_loss_does_not_show_a_masked_stop() -> None:
    rows = [{"prompt": row["messages"][:1], "completion": row["messages"][1:]} for row in CHATS]
    trainer = tiny.sft(rows)
    trainer._set_signature_columns_if_needed()
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    held, state = dict(vars(trainer)), torch.get_rng_state()
    report = truetune.rehearse(
        trainer,
        given=Dataset.from_list(rows),
        laws="none",
        rows=2,
        batches=2,
        mutate=["stop-masked", "shifted-twice", "others-answers"],
    )
    found = report.mutation
    assert found is not None
    assert [finding for finding in report.findings if finding.code.startswith("REC")] == []
    stop, shift, swap = found.mutants
    assert (stop.shown, shift.shown, swap.shown) == ("", "", "")
    assert (stop.recited, stop.stopped, stop.rules) == (2, 0, ("recites-but-never-stops",))
    assert (shift.recited, shift.rules) == (0, ("memorised-but-not-recited",))
    assert (swap.recited, swap.stopped, swap.rules) == (0, 2, ("memorised-but-not-recited",))
    assert found.describe_score() == "your logs would have shown 0 of 3 faults; truetune found 3"
    assert {name for name, value in vars(trainer).items() if held.get(name) is not value} == set()
    assert torch.equal(state, torch.get_rng_state())
    assert all(
        torch.equal(before[name], value) for name, value in trainer.model.state_dict().items()
    )
    console = Console(record=True, width=140)
    draw_rehearsal(report, console, False)
    assert found.describe_score() in console.export_text()


def test_pairs() -> None:
    (swap,) = mutated(tiny.dpo(), tiny.pairs(), rows=2).mutants
    assert (swap.name, swap.shown, swap.recited, swap.stopped) == ("pairs-exchanged", "", 0, None)
    assert swap.rules == ("preference-margin-does-not-grow",)


class Own(Trainer):
    """A loss that does not look at labels, nor at their count, by which the trainer would divide it."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, *_: Any, **__: Any
    ) -> Any:
        labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
        return super().compute_loss(model, {**inputs, "labels": labels}, return_outputs)


def right(prediction: EvalPrediction) -> dict[str, float]:
    """Share of the labels that are predicted right."""
    logits: Any = prediction.predictions
    label_ids: Any = prediction.label_ids
    predictions, labels = logits.argmax(-1)[:, :-1], label_ids[:, 1:]
    return {"right": float((predictions == labels)[labels != -100].mean())}


def trainer_of(kind: type[Trainer] = Trainer, **settings: Any) -> Trainer:
    tokenizer = tiny.tokenizer()
    return kind(
        tiny.model(),
        tiny.arguments(),
        DataCollatorForSeq2Seq(tokenizer),
        Dataset.from_list(tiny.encoded(CHATS)),
        processing_class=tokenizer,
        **settings,
    )


def test_a_loss_without_labels() -> None:
    found = mutated(trainer_of(Own), mutate=["stop-masked"], rows=2)
    assert found.mutants == ()
    assert found.skipped == (
        ("stop-masked", "the loss is the same with it: it does not use these labels"),
    )


def test_own_metrics_are_asked() -> None:
    trainer: Any = trainer_of(
        eval_dataset=Dataset.from_list(tiny.encoded(CHATS)), compute_metrics=right
    )
    model = copy.deepcopy(trainer.model)
    batch = dict(trainer.data_collator(tiny.encoded(CHATS)))
    with torch.no_grad():
        best = model(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
        ).logits.argmax(-1)
    batch["labels"] = torch.cat([best[:, :1], best[:, :-1]], 1)
    compact_vocabulary(model, batch["input_ids"].unique().tolist() + best.unique().tolist())
    notes: list[str] = []
    assert faults_put_into_memorised_batch.metrics_user_would_read(
        trainer, model, batch, notes
    ) == {"eval_right": 1.0}
    trainer.compute_metrics = lambda prediction: 1 / 0
    assert (
        faults_put_into_memorised_batch.metrics_user_would_read(trainer, model, batch, notes) == {}
    )
    assert notes == ["compute_metrics was not asked: ZeroDivisionError: division by zero"]


def test_an_unknown_fault() -> None:
    with pytest.raises(UsageError, match="no fault is called nothing"):
        truetune.rehearse(tiny.sft(), mutate=["nothing"])


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("stop-masked", ([1, 2, 3, 4, 9, 5], [-100, -100, 3, 4, -100, -100])),
        ("stop-dropped", ([1, 2, 3, 4], [-100, -100, 3, 4])),
        ("shifted-twice", ([1, 2, 3, 4, 9, 5], [-100, 3, 4, 9, -100, -100])),
        ("prompt-learned", ([1, 2, 3, 4, 9, 5], [1, 2, 3, 4, 9, 5])),
        ("prompt-alone", ([1, 2, 3, 4, 9, 5], [1, 2, -100, -100, -100, -100])),
        ("others-answers", ([1, 2, 8, 9], [-100, -100, 8, 9])),
        ("half-ignored", ([1, 2, 3, 4, 9, 5], [-100, -100, 3, 4, 9, -100])),
        ("answers-cut", ([1, 2, 3], [-100, -100, 3])),
    ],
)
def test_faults(name: str, first: tuple[list[int], list[int]]) -> None:
    lines = [
        Line([1, 2, 3, 4, 9, 5], [-100, -100, 3, 4, 9, -100], 2, 4),
        Line([7, 8, 9], [-100, 8, 9], 1, 2),
    ]
    made = LABEL_FAULTS[name][1](copy.deepcopy(lines), {9})
    assert (made[0].ids, made[0].labels) == first
    assert made != lines


def test_exchanged() -> None:
    ids = torch.arange(8).reshape(4, 2)
    made = swap_preferences({"input_ids": ids, "ref_chosen_logps": 1, "ref_rejected_logps": 2})
    assert made["input_ids"].tolist() == [[4, 5], [6, 7], [0, 1], [2, 3]]
    assert (made["ref_chosen_logps"], made["ref_rejected_logps"]) == (2, 1)
    assert swap_preferences({"input_ids": ids, "label": [True, False]})["label"] == [False, True]


def test_what_logs_show() -> None:
    clean = {"loss": [4.0, 0.05], "logs": {"accuracy": 1.0}}

    def seen(loss: float, accuracy: float = 0.9) -> str:
        return find_sign_of_fault_in_logs({"loss": [loss], "logs": {"accuracy": accuracy}}, clean)

    assert [seen(0.06), seen(0.29), seen(0.31), seen(0.0), seen(math.nan), seen(0.06, 0.4)] == [
        "",
        "",
        "loss",
        "loss is 0",
        "loss is not a number",
        "accuracy",
    ]
