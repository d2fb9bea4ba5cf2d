"""Encoded data, a tiny model, and what reaches its loss, for tests of trainers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

import truetune
from tests.parts import folder

FAMILY = "smollm2"
"""Its pad token is its stop token."""
VOCABULARY = 49_152
STOP = 2
WORDS = (
    "seven",
    "wizards",
    "boxed",
    "quietly",
    "while",
    "the",
    "lazy",
    "dog",
    "slept",
    "in",
    "rain",
)
KINDS: dict[str, dict[str, Any]] = {
    "encoded": {},
    "packed": {"packing": "best-fit"},
    "weighted": {"loss_weights": True},
}
"""Folders that the blocks of the page read."""
Row = dict[str, Any]


def lay_out(where: Path) -> Path:
    """Encode eight chats of different lengths and weights, in each of the KINDS; returns `where`."""
    chats = [
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"Say {' '.join(WORDS[: 1 + i])}?"},
            {
                "role": "assistant",
                "content": f"{' '.join(WORDS[i // 2 : i + 3])}, {i}.",
                "weight": 0.25 * (1 + i % 4),
            },
        ]
        for i in range(8)
    ]
    data = where / "chats.jsonl"
    data.write_text(
        "".join(json.dumps({"messages": chat}) + "\n" for chat in chats), encoding="utf-8"
    )
    for kind, settings in KINDS.items():
        truetune.encode(data, folder(FAMILY), where / kind, jobs=1, max_length=80, **settings)
    return where


def rows_of(folder: Path) -> list[Row]:
    """All rows of a folder that encode wrote, as pyarrow reads them."""
    rows: list[Row] = pq.read_table(folder / "data").to_pylist()
    return rows


def tiny_model(vocabulary: int = VOCABULARY) -> Any:
    """A random Llama, whose documents tell by their logits whether they see each other."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        initializer_range=0.4,
    )
    return transformers.LlamaForCausalLM(config)


class Document(NamedTuple):
    """What a model is given as one sequence."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]
    """The first one, which no loss can use, is -100."""
    weights: tuple[float, ...]
    """1 where there are none."""


def documents_of(rows: Sequence[Row]) -> list[Document]:
    """Of encoded rows, packed or not."""
    found = []
    for row in rows:
        weights = row.get("loss_weights") or [1.0] * len(row["input_ids"])
        end = 0
        for length in row.get("seq_lengths") or [len(row["input_ids"])]:
            start, end = end, end + length
            ids, labels = row["input_ids"][start:end], row["labels"][start:end]
            found.append(Document(tuple(ids), (-100, *labels[1:]), tuple(weights[start:end])))
    return found


def documents_in(batch: Mapping[str, Any]) -> Iterator[Document]:
    """As a transformers model tells them apart: by `attention_mask`, else by positions that start again.

    A document without a label (padding beside packed rows) is left out.
    """
    import torch

    weights = batch.get("loss_weights", torch.ones(batch["labels"].shape))
    for i, (ids, labels) in enumerate(zip(batch["input_ids"], batch["labels"], strict=True)):
        if "attention_mask" in batch:
            pieces = [torch.nonzero(batch["attention_mask"][i])[:, 0]]
        else:
            starts = torch.nonzero(batch["position_ids"][i] == 0)[1:, 0].tolist()
            pieces = list(torch.tensor_split(torch.arange(len(ids)), starts))
        for piece in pieces:
            if (labels[piece] != -100).any():
                yield Document(
                    *(tuple(values[piece].tolist()) for values in (ids, labels, weights[i]))
                )


def loss_one_by_one(model: Any, documents: Sequence[Document]) -> float:
    """Sum of weight x cross-entropy (nats) by the number of supervised tokens, each document run alone, unpadded."""
    import torch

    total, count = 0.0, 0
    with torch.no_grad():
        for document in documents:
            logits = model(torch.tensor([document.ids]), use_cache=False).logits[0, :-1].float()
            targets = torch.tensor(document.labels[1:])
            losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
            total += (losses * torch.tensor(document.weights[1:])).sum().item()
            count += int((targets != -100).sum())
    return total / count


class Step(NamedTuple):
    """One step of a training."""

    documents: list[Document]
    """As the model told them apart in the batch that the trainer's compute_loss was given."""
    loss: float
    one_by_one: float
    """The loss of the same documents with the file's labels and weights, by the same model."""


def watch(
    compute_loss: Callable[..., Any], truth: Sequence[Document], steps: list[Step]
) -> Callable[..., Any]:
    """A trainer's `compute_loss` that writes down each step."""
    by_ids = {document.ids: document for document in truth}

    def watched(self: Any, model: Any, inputs: dict[str, Any], *args: Any, **settings: Any) -> Any:
        found = list(documents_in(inputs))
        expected = loss_one_by_one(model, [by_ids[document.ids] for document in found])
        loss = compute_loss(self, model, inputs, *args, **settings)
        steps.append(Step(found, loss.item(), expected))
        return loss

    return watched


def same(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Equal batches, but for the cache that ours turns off."""
    import torch

    assert theirs.keys() == ours.keys() - {"use_cache"}
    for name, value in theirs.items():
        torch.testing.assert_close(value, ours[name])


PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"


def blocks(title: str) -> dict[str, str]:
    """The Python blocks of a section of the page, by the data that they read and their collator."""
    section = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)
    text = next(part for part in section if part.startswith(title))
    named = {}
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.S):
        data = re.findall(r'data_files="(\w+)/', code)
        collator = re.findall(r"data_collator=(\w+)", code) or ["its own"]
        named["-".join(data + collator)] = code
    return named


def train(code: str, trainer: Any, kind: str, patch: Any) -> list[Step]:
    """Train by a block of the page in this folder, where `kind` is the encoded data that it reads."""
    import transformers

    steps: list[Step] = []
    truth = documents_of(rows_of(Path(kind)))
    patch.setattr(trainer, "compute_loss", watch(trainer.compute_loss, truth, steps))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder(FAMILY))
    on_a_cpu = code.replace('"out"', '"out", bf16=False')
    exec(compile(on_a_cpu, PAGE.name, "exec"), {"model": tiny_model(), "tokenizer": tokenizer})
    return steps
