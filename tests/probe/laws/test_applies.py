"""A law that needs something of the run says so where the run has it not: it neither holds nor is it broken."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from datasets import Dataset

import truetune
from tests.auditing import tiny

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 256,
}
COMPARED = ("gradient-accumulation", "process-count")


def texts() -> list[str]:
    return [
        f"{chat['messages'][1]['content']} {'And more. ' * (i % 3)}"
        for i, chat in enumerate(tiny.chats(8))
    ]


def pooled(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    hidden = model.model(input_ids=ids, attention_mask=mask).last_hidden_state * mask[..., None]
    return torch.nn.functional.normalize(hidden.sum(1) / mask.sum(1, keepdim=True), dim=-1)


def of_pairs(similarity: torch.Tensor) -> torch.Tensor:
    """In-batch negatives."""
    return torch.nn.functional.cross_entropy(similarity / 0.05, torch.arange(len(similarity)))


class OneTower(transformers.Trainer):
    """Each text is its own positive; the other rows are its negatives."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        found = pooled(model, inputs["input_ids"], inputs["attention_mask"])
        loss = of_pairs(found @ found.T)
        return (loss, {}) if return_outputs else loss


class TwoTowers(transformers.Trainer):
    """Queries and passages; the other rows' passages are negatives."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        one, other = (
            pooled(model, inputs[f"{side}_input_ids"], inputs[f"{side}_attention_mask"])
            for side in ("query", "passage")
        )
        loss = of_pairs(one @ other.T)
        return (loss, {}) if return_outputs else loss


def embedding(kind: type[transformers.Trainer]) -> transformers.Trainer:
    tokenizer = tiny.tokenizer()
    sides = ("",) if kind is OneTower else ("query_", "passage_")

    def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for side in sides:
            padded = tokenizer.pad(
                {"input_ids": [row[f"{side}input_ids"] for row in rows]}, return_tensors="pt"
            )
            made |= {f"{side}{key}": value for key, value in padded.items()}
        return made

    rows: Any = [
        {f"{side}input_ids": tokenizer(text + side)["input_ids"] for side in sides}
        for text in texts()
    ]
    arguments = tiny.arguments(remove_unused_columns=False)
    return kind(tiny.model(), arguments, collate, rows, processing_class=tokenizer)


def classes(labels: Any, count: int) -> transformers.Trainer:
    """A head that classifies rows into `count` classes, or gives each a number."""
    tokenizer = tiny.tokenizer()
    settings: dict[str, Any] = {
        **SHAPE,
        "vocab_size": len(tokenizer),
        "num_labels": count,
        "pad_token_id": tokenizer.pad_token_id,
    }
    config = transformers.LlamaConfig(**settings)
    rows = Dataset.from_list(
        [
            {"input_ids": tokenizer(text)["input_ids"], "labels": labels(i)}
            for i, text in enumerate(texts())
        ]
    )
    return transformers.Trainer(
        transformers.LlamaForSequenceClassification(config), tiny.arguments(),
        transformers.DataCollatorWithPadding(tokenizer), rows, processing_class=tokenizer,
    )  # fmt: skip


def masked() -> transformers.Trainer:
    """BERT, whose tokens are masked at random and which sees both sides."""
    tokenizer = tiny.tokenizer()
    tokenizer.mask_token = tokenizer.convert_ids_to_tokens(20)
    config = transformers.BertConfig(
        **SHAPE, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id
    )
    rows = Dataset.from_list([{"input_ids": tokenizer(text)["input_ids"]} for text in texts()])
    collator = transformers.DataCollatorForLanguageModeling(
        tokenizer, mlm=True, mlm_probability=0.4
    )
    return transformers.Trainer(
        transformers.BertForMaskedLM(config),
        tiny.arguments(),
        collator,
        rows,
        processing_class=tokenizer,
    )


@pytest.mark.parametrize("kind", [OneTower, TwoTowers])
def test_negatives_of_the_batch(kind: type[transformers.Trainer]) -> None:
    report = truetune.audit(
        embedding(kind), laws=[*COMPARED, "gradient-flow", "loss-targets", "loss-weights"]
    )
    assert not report.findings
    for law in COMPARED:
        assert "depends on the other rows" in report.laws[law]["untested"], report.laws
    assert (
        report.laws["gradient-flow"]["value"] == 0
    )  # the head over the vocabulary is not used, and is no fault
    assert "value" not in report.laws["loss-targets"]
    assert "value" not in report.laws["loss-weights"]


def test_masks_that_are_drawn() -> None:
    report = truetune.audit(masked(), laws=[*COMPARED, "loss-targets"])
    assert "at random" in report.laws["gradient-accumulation"]["untested"]
    assert "an encoder" in report.laws["loss-targets"]["untested"]


@pytest.mark.parametrize(("labels", "count"), [(lambda i: i % 3, 3), (float, 1)])
def test_classes_and_numbers_are_labels_of_rows(labels: Any, count: int) -> None:
    trainer = classes(labels, count)
    report = truetune.audit(trainer, laws=[*COMPARED, "loss-targets", "loss-weights", "loss-alive"])
    assert not [law for law in report.laws.values() if "raised" in law.get("untested", "")], (
        report.laws
    )
    assert "value" not in report.laws["loss-targets"]


def test_losses_of_single_rows_are_compared() -> None:
    report = truetune.audit(tiny.sft(), laws=COMPARED)
    assert all(law["value"] <= law["tolerance"] for law in report.laws.values()), report.laws
