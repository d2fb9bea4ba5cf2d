"""The ids, labels and masks of batches, whatever a loop calls them: known by their values, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from truetune.errors import UsageError
from truetune.probe.recognise_ids_labels_and_mask import (
    IGNORED,
    SHIFTED_LABELS,
    name_batch,
    unreadable_reasons,
    unshift_labels,
)

VOCABULARY = 50
IDS = torch.tensor([[7, 9, 11, 4, 2], [8, 10, 2, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
LABELS = torch.tensor([[-100, -100, 11, 4, 2], [-100, 10, 2, -100, -100]])
NEXT = torch.tensor([[9, 11, 4, 2, -100], [10, 2, -100, -100, -100]])
"""Of a loop that shifts its labels itself"""
POSITIONS = torch.arange(5).expand(2, 5)


def named(batch: Any, **keys: str | int) -> dict[str, Any]:
    made = name_batch(batch, keys, VOCABULARY)
    assert not made.reason
    return made.inputs


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": IDS, "labels": LABELS},
        {"tokens": IDS, "labels": LABELS},  # torchtune
        {"tokens": IDS, "labels": LABELS, "mask": MASK.bool(), "input_pos": POSITIONS},
        {"x": IDS, "y": LABELS},
        {"y": LABELS, "x": IDS},
        {"input_ids": IDS, "targets": LABELS},
        {"ids": IDS, "target": LABELS, "lengths": torch.tensor([5, 3])},
        (IDS, LABELS),
        [IDS, LABELS],
        (LABELS, IDS),
        (IDS, MASK, LABELS),
        (IDS, LABELS, MASK),
    ],
)
def test_labels_that_hold_the_ids_are_theirs(batch: Any) -> None:
    inputs = named(batch)
    assert torch.equal(inputs["input_ids"], IDS)
    assert torch.equal(inputs["labels"], LABELS)
    if isinstance(batch, tuple) and len(batch) == 3:
        assert torch.equal(inputs["attention_mask"], MASK)


@pytest.mark.parametrize(
    "batch", [(IDS, NEXT), {"x": IDS, "y": NEXT}, {"input_ids": IDS, "targets": NEXT}]
)
def test_labels_that_stand_one_place_earlier_are_told(batch: Any) -> None:
    inputs = named(batch)
    assert "labels" not in inputs
    assert torch.equal(unshift_labels(inputs[SHIFTED_LABELS])[:, 1:], NEXT[:, :-1])


def test_pairs_of_unmasked_text_are_told_by_their_shift() -> None:
    """nanoGPT: x and y are the same text, y one token on."""
    text = torch.tensor([[5, 6, 7, 8, 9, 10, 11], [21, 22, 3, 24, 25, 26, 27]])
    x, y = text[:, :-1], text[:, 1:]
    inputs = named((x, y))
    assert torch.equal(inputs["input_ids"], x)
    assert torch.equal(inputs[SHIFTED_LABELS], y)


def test_classes_are_no_labels_of_tokens() -> None:
    inputs = named((IDS, torch.tensor([1, 0])))
    assert "labels" not in inputs
    assert torch.equal(inputs["input_ids"], IDS)


@pytest.mark.parametrize(
    "batch",
    [
        {"x": IDS, "y": IDS.flip(1)},
        (IDS, IDS.flip(0)),
        (torch.rand(2, 5), torch.rand(2, 5)),
        {"a": IDS + VOCABULARY},
        {
            "pixel_values": torch.rand(2, 3, 4, 4),
            "label": torch.tensor([1, 2])[:, None].expand(2, 1)[:, 0:0],
        },
    ],
)
def test_a_doubt_is_a_reason_and_no_guess(batch: Any) -> None:
    made = name_batch(batch, {}, VOCABULARY)
    assert "input_ids" not in made.inputs
    assert "name them, as in keys=" in made.reason
    assert list(unreadable_reasons([made])) == [made.reason]


def test_a_doubt_is_settled_by_keys() -> None:
    other = IDS.flip(1)
    inputs = named({"x": IDS, "y": other}, input_ids="x", labels="y")
    assert torch.equal(inputs["input_ids"], IDS)
    assert torch.equal(inputs["labels"], other)
    assert torch.equal(named((other, IDS), input_ids=1)["input_ids"], IDS)
    assert torch.equal(named((IDS, NEXT), input_ids=0, labels=1)[SHIFTED_LABELS], NEXT)


def test_keys_that_are_not_there_are_an_error() -> None:
    with pytest.raises(UsageError, match="token: not in the batch, which has x, y"):
        name_batch({"x": IDS, "y": LABELS}, {"input_ids": "token"}, VOCABULARY)
    with pytest.raises(UsageError, match="2: not in the batch, which has 0, 1"):
        name_batch((IDS, LABELS), {"input_ids": 2}, VOCABULARY)


@pytest.mark.parametrize(
    "batch",
    [
        [{"prompt": "a"}, {"prompt": "b"}],  # GRPO, RLOO
        {"prompt": ["a", "b"], "prompt_input_ids": IDS, "prompt_attention_mask": MASK},  # OnlineDPO
    ],
)
def test_prompts_alone_are_no_lines(batch: Any) -> None:
    assert "sampled from the model" in name_batch(batch, {}, VOCABULARY).reason


@pytest.mark.parametrize(
    "batch",
    [
        {"prompt_input_ids": IDS, "chosen_input_ids": IDS, "rejected_input_ids": IDS},
        {"chosen_input_ids": IDS, "rejected_input_ids": IDS},
        {"input_ids": IDS, "attention_mask": MASK, "completion_mask": MASK},
        {"query_input_ids": IDS, "positive_input_ids": IDS},
        {
            "input_ids": IDS,
            "KL_input_ids": IDS,
            "completion_mask": MASK,
        },  # KTO, whose mismatch is the row itself
    ],
)
def test_batches_of_known_names_are_left_as_they_are(batch: dict[str, Any]) -> None:
    made = name_batch(batch, {}, VOCABULARY)
    assert not made.reason
    assert made.inputs.keys() == batch.keys()
    assert not made.names


@pytest.mark.parametrize(
    "batch", [(IDS, LABELS, "other"), [IDS, LABELS], {"tokens": IDS, "labels": LABELS}, IDS]
)
def test_a_batch_is_given_back_as_it_was(batch: Any) -> None:
    made = name_batch(batch, {}, VOCABULARY)
    back = made.inputs_in_layout_of_user_batch(made.inputs)
    assert type(back) is type(batch)
    if isinstance(batch, dict):
        assert back.keys() == batch.keys()
        assert all(back[key] is batch[key] for key in batch)
    elif not isinstance(batch, torch.Tensor):
        assert all(one is other for one, other in zip(back, batch, strict=True))
    assert IGNORED == -100
