"""The border speaks vocabulary ids: a compacted model computes what the whole one does with other ids forbidden."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch.nn import functional
from trl.trainer.utils import entropy_from_logits, selective_log_softmax

from tests.auditing import tiny
from truetune.probe.compact_vocabulary_to_used_ids import (
    VocabMap,
    as_vocab_tensor,
    compact_vocabulary,
    vocab_map_of,
)
from truetune.probe.rehearse_by_memorising_and_reciting import rehearse_run

SIZE = 300


def values(
    ids: list[int], shape: tuple[int, ...], seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, VocabMap]:
    """Values over the whole vocabulary, those not in use forbidden; and the same as a border's."""
    border = VocabMap(ids, SIZE)
    kept = torch.randn(
        *shape, len(border.ids), generator=torch.Generator().manual_seed(seed), requires_grad=True
    )
    whole = torch.full((*shape, SIZE), float("-inf")).index_copy(-1, border.ids, kept)
    return whole, kept, border


SETS = st.sets(st.integers(0, SIZE - 1), min_size=4, max_size=40)


@given(SETS, st.data())
@settings(max_examples=25, deadline=None)
def test_losses_and_gradients(ids: set[int], data: st.DataObject) -> None:
    whole, kept, border = values(sorted(ids), (2, 5))
    labels = torch.tensor(
        data.draw(st.lists(st.sampled_from([-100, *sorted(ids)]), min_size=10, max_size=10))
    )
    labels[0] = min(ids)
    spoken = as_vocab_tensor(kept, border)
    expected = functional.cross_entropy(whole.view(-1, SIZE), labels)
    found = functional.cross_entropy(spoken.view(-1, SIZE), labels)
    other = functional.nll_loss(spoken.float().log_softmax(-1).view(-1, spoken.size(-1)), labels)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(other, expected)
    (wanted,) = torch.autograd.grad(expected, kept, retain_graph=True)
    (gradient,) = torch.autograd.grad(found, kept)
    torch.testing.assert_close(gradient, wanted)


@given(SETS, st.data())
@settings(max_examples=25, deadline=None)
def test_what_is_picked_by_id(ids: set[int], data: st.DataObject) -> None:
    whole, kept, border = values(sorted(ids), (2, 5))
    spoken = as_vocab_tensor(kept.detach(), border)
    whole = whole.detach()
    picked = torch.tensor(
        data.draw(st.lists(st.sampled_from(sorted(ids)), min_size=10, max_size=10))
    ).view(2, 5)
    chances, of_whole = spoken.log_softmax(-1), whole.log_softmax(-1)
    torch.testing.assert_close(
        chances.gather(-1, picked[..., None]), of_whole.gather(-1, picked[..., None])
    )
    torch.testing.assert_close(
        torch.gather(chances, 2, picked[..., None]), of_whole.gather(-1, picked[..., None])
    )
    torch.testing.assert_close(chances[..., int(picked[0, 0])], of_whole[..., int(picked[0, 0])])
    torch.testing.assert_close(chances[0, :, picked[0]], of_whole[0, :, picked[0]])
    torch.testing.assert_close(
        selective_log_softmax(spoken, picked), selective_log_softmax(whole, picked)
    )
    assert (spoken.argmax(-1) == whole.argmax(-1)).all()
    assert (spoken[:, -1].argmax(dim=-1) == whole[:, -1].argmax(dim=-1)).all()
    assert (spoken.topk(3).indices == whole.topk(3).indices).all()
    assert (spoken.max(dim=-1).indices == whole.max(dim=-1).indices).all()
    assert (
        torch.sort(spoken, dim=-1, descending=True).indices
        == whole.sort(-1, descending=True).indices[..., : len(ids)]
    ).all()


def test_what_is_as_wide_as_the_vocabulary() -> None:
    _, kept, border = values([3, 5, 299], (2,))
    spoken = as_vocab_tensor(kept.detach(), border)
    bias = torch.arange(SIZE).float()
    torch.testing.assert_close(
        torch.Tensor(spoken + bias), kept.detach() + torch.tensor([3.0, 5.0, 299.0])
    )
    one_hot = functional.one_hot(torch.tensor([5, 299]), SIZE).float()
    torch.testing.assert_close((spoken * one_hot).sum(-1), kept.detach()[[0, 1], [1, 2]])
    entropy = -(kept.softmax(-1) * kept.log_softmax(-1)).sum(-1)
    torch.testing.assert_close(entropy_from_logits(spoken), entropy.detach())


def test_ids_that_are_not_there() -> None:
    border = VocabMap([1, 2], 10)
    with pytest.raises(IndexError, match="beyond the vocabulary of 10"):
        border.to_slots(torch.tensor([1, 10]))
    with pytest.raises(KeyError, match="id 3 has no slot"):
        border.to_slots(torch.tensor([3]))
    assert border.to_slots(torch.tensor([-100, 2])).tolist() == [-100, 1]


@pytest.mark.parametrize("tied", [True, False])
def test_a_compacted_model(tied: bool) -> None:
    """Loss and gradients are those of the whole model whose other logits are forbidden."""
    whole: Any = tiny.model(tie_word_embeddings=tied)
    small = copy.deepcopy(whole)
    ids = torch.tensor([[5, 900, 17, 1999, 5]])
    border = compact_vocabulary(small, [5, 17, 900, 1999, 40])
    forbidden = torch.full((whole.config.vocab_size,), float("-inf")).index_fill(0, border.ids, 0.0)
    logits = whole(ids).logits + forbidden
    expected = functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    made = small(input_ids=ids, labels=ids)
    torch.testing.assert_close(made.loss, expected)
    assert made.logits.argmax(-1).tolist() == logits.argmax(-1).tolist()
    expected.backward()
    made.loss.backward()
    torch.testing.assert_close(
        small.get_input_embeddings().weight.grad,
        whole.get_input_embeddings().weight.grad[border.ids],
    )
    assert vocab_map_of(whole) is None
    assert vocab_map_of(small) is border
    assert small.config.vocab_size == whole.config.vocab_size
    said = small.generate(ids[:, :2], max_new_tokens=3, do_sample=False, pad_token_id=5)
    assert set(said[0].tolist()) <= set(border.ids.tolist())


@pytest.mark.parametrize("make", [tiny.sft, tiny.dpo, lambda: tiny.sft(model_=adapted())])
def test_laws_mean_ids_behind_the_border(make: Any, tmp_path: Path) -> None:
    record = rehearse_run(make(), {"laws": "all"}, tmp_path)
    assert record.facts["recitation"]["vocabulary"]["kept"] < tiny.model().config.vocab_size
    laws = record.facts["laws"]
    assert [law for law, outcome in laws.items() if outcome.get("failed")] == []
    assert laws["loss-targets"]["value"] == 0
    assert laws["save-load"]["untested"].startswith("a miniature's weights fit no file")


def adapted() -> Any:
    return get_peft_model(tiny.model(), LoraConfig(target_modules="all-linear"))


def test_log_probabilities_that_the_real_model_computed_are_not_compared_with_the_miniature(
    tmp_path: Path,
) -> None:
    trainer = tiny.dpo(precompute_ref_log_probs=True)
    laws = rehearse_run(trainer, {"laws": "quick"}, tmp_path).facts["laws"]
    assert {laws[law].get("untested") for law in ("dpo-start", "precomputed-reference")} == {
        "the reference's log-probabilities were computed before the miniature was made as it is"
    }
