"""An encoder whose pooler nothing reads trains all that it should; one whose layer nothing reads does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from datasets import Dataset

import truetune
from tests.auditing import tiny

SIDES = ("anchor", "positive")
ROWS = [{"anchor": f"Is box {n} open?", "positive": f"Box {n} is open."} for n in range(8)]


class MeansOfTokens(transformers.Trainer):
    """Compares the means of the tokens of both texts, each with all others of the batch."""

    layer = -1

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        one, other = (
            model(input_ids=inputs[f"{side}_input_ids"], output_hidden_states=True)
            .hidden_states[self.layer]
            .mean(1)
            for side in SIDES
        )
        scores = 20 * torch.nn.functional.cosine_similarity(one[:, None], other[None], dim=-1)
        return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))


class MeansOfAnEarlierLayer(MeansOfTokens):
    layer = -2


def collate(rows: Any) -> dict[str, Any]:
    tokenizer = tiny.tokenizer()
    made = {
        side: tokenizer([row[side] for row in rows], padding=True, return_tensors="pt")
        for side in SIDES
    }
    return {
        f"{side}_{name}": made[side][name]
        for side in SIDES
        for name in ("input_ids", "attention_mask")
    }


@pytest.mark.parametrize(("kind", "found"), [(MeansOfTokens, 0), (MeansOfAnEarlierLayer, 1)])
def test_only_a_layer_that_is_not_read_is_found(kind: type[MeansOfTokens], found: int) -> None:
    size = len(tiny.tokenizer())
    config = transformers.BertConfig(
        vocab_size=size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    args = tiny.arguments(remove_unused_columns=False)
    run = kind(
        transformers.BertModel(config),
        args,
        data_collator=collate,
        train_dataset=Dataset.from_list(ROWS),
    )
    report = truetune.audit(
        run, laws=("gradient-flow",), select=["trained-tensors-without-gradient"]
    )
    assert len(report.findings) == found
    assert not any("pooler" in line for one in report.findings for line in one.evidence)
