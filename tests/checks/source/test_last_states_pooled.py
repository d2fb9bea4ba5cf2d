"""Embeddings of the last position: of texts that are padded on the right, and of texts that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
import torch
from transformers import AutoModel, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B"{side})
model = AutoModel.from_pretrained("Qwen/Qwen2.5-0.5B")
def collate(rows):
    return tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
def pool(hidden, mask):
    return {pooled}
class Encoder(torch.nn.Module):
    def forward(self, inputs):
        return pool({states}, inputs["attention_mask"])
loader = torch.utils.data.DataLoader(rows, batch_size=8, collate_fn=collate)
vectors = [Encoder()(batch) for batch in loader]
"""
LAST = "model(**inputs).last_hidden_state"
RIGHT, LEFT = ', padding_side="right"', ', padding_side="left"'
PADS = (
    (RIGHT, "hidden[:, -1]", LAST),
    (RIGHT, "hidden[:, -1, :]", LAST),
    (RIGHT, "hidden[:, -1].float()", LAST),
    (RIGHT, "hidden[:, -1]", "model(**inputs, output_hidden_states=True).hidden_states[-1]"),
    (')\ntokenizer.padding_side = ("right"', "hidden[:, -1]", LAST),
)
TOKENS = (
    (LEFT, "hidden[:, -1]", LAST),
    (RIGHT, "hidden[:, 0]", LAST),
    (RIGHT, "hidden[torch.arange(len(hidden)), mask.sum(1) - 1]", LAST),
    (RIGHT, "hidden[:, -1] if mask[:, -1].all() else hidden[:, 0]", LAST),
    (RIGHT, "hidden[:, -1]", "inputs['features']"),
    (RIGHT, "hidden[:, -1].mean() if mask.all() else hidden[:, 0]", LAST),
)


def rules_of(tmp_path: Path, side: str, pooled: str, states: str) -> list[str]:
    path = tmp_path / "embed.py"
    path.write_text(HEAD.format(side=side, pooled=pooled, states=states), encoding="utf-8")
    return [one.rule for one in lint([str(path)], select=("SRC042",)).findings]


@pytest.mark.parametrize(("side", "pooled", "states"), PADS)
def test_states_of_pads(tmp_path: Path, side: str, pooled: str, states: str) -> None:
    assert rules_of(tmp_path, side, pooled, states) == ["right-padding-at-generation"]


@pytest.mark.parametrize(("side", "pooled", "states"), TOKENS)
def test_states_of_tokens(tmp_path: Path, side: str, pooled: str, states: str) -> None:
    assert rules_of(tmp_path, side, pooled, states) == []
