"""Answers are those of one prompt at a time, and the model does not know that it was asked."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
)

from tests.auditing import tiny
from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.generate_answers import generate_answers

STOP, PAD = 7, 0
LIMIT = 12


def prompt(ids: list[int], reference: tuple[int, ...] = (5, 6, STOP)) -> Prompt:
    return Prompt(tuple(ids), "", "", reference, "a.jsonl", 1)


def prompts(count: int = 6) -> list[Prompt]:
    """Of unequal length."""
    draw = random.Random(0)
    return [
        prompt([draw.randrange(8, 90) for _ in range(3 + 5 * (i % 4))], (9,) * i + (STOP,))
        for i in range(count)
    ]


def said(model: Any, asked: list[Prompt], **given: Any) -> list[Answer | None]:
    settings: dict[str, Any] = {
        "stops": [STOP],
        "pad": PAD,
        "max_new_tokens": LIMIT,
        "decode": str,
        **given,
    }
    return generate_answers(model, asked, **settings)


def llama() -> Any:
    return tiny.model(97, seed=1, initializer_range=0.4)


def gpt2() -> Any:
    torch.manual_seed(1)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.4
        )
    )


def gemma3() -> Any:
    """Its window of 4 tokens is shorter than the padding of a batch."""
    torch.manual_seed(1)
    return Gemma3ForCausalLM(
        Gemma3TextConfig(
            vocab_size=97,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            sliding_window=4,
            layer_types=["sliding_attention", "full_attention"],
            max_position_embeddings=64,
            initializer_range=0.4,
        )
    )


def lora() -> Any:
    model = get_peft_model(
        llama(), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    )
    return model


def slowly(model: Any, one: Prompt) -> list[int]:
    """As many tokens as may be, by whole forward passes, without a cache or padding."""
    ids = list(one.ids)
    model.eval()
    with torch.no_grad():
        for _ in range(LIMIT):
            ids.append(
                int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())
            )
    return ids[len(one.ids) :]


@pytest.mark.parametrize("make", [llama, gpt2, gemma3, lora])
def test_a_batch_says_what_each_prompt_gets_alone(make: Callable[[], Any]) -> None:
    model, asked = make(), prompts()
    whole = [slowly(model, one) for one in asked]
    stop = next(
        id for ids in whole for id in ids if 0 < sum(id in other for other in whole) < len(whole)
    )
    unsaid = next(id for id in range(97) if not any(id in ids for ids in whole))
    found = said(model, asked, stops=[stop, unsaid], decode=lambda ids: "-".join(map(str, ids)))
    cut = [ids.index(stop) if stop in ids else None for ids in whole]
    expected = [
        (tuple(ids[:at]), None if at is None else stop) for ids, at in zip(whole, cut, strict=True)
    ]
    assert [(answer.ids, answer.stop) for answer in found if answer] == expected
    assert [answer.text for answer in found if answer] == [
        "-".join(map(str, ids)) for ids, _ in expected
    ]


@pytest.mark.parametrize("make", [llama, gemma3])
def test_the_chance_to_stop_behind_the_reference(make: Callable[[], Any]) -> None:
    model, asked, stops = make(), [*prompts(), prompt([3, 4], ())], [STOP, 11]
    found = said(model, asked, stops=stops)
    for one, answer in zip(asked[:-1], found, strict=False):
        with torch.no_grad():
            ids = torch.tensor([[*one.ids, *one.reference_ids[:-1]]])
            logits = model.eval()(input_ids=ids).logits[0, -1]
        chances = logits.softmax(-1)
        assert answer
        assert answer.stop_probability == pytest.approx(float(chances[stops].sum()), rel=1e-4)
        assert answer.stop_rank == int((chances > chances[stops].max()).sum())
    assert found[-1]
    assert found[-1].stop_probability is None is found[-1].stop_rank


def test_no_stop_is_known() -> None:
    (found,) = said(llama(), prompts(1), stops=[])
    assert found
    assert (len(found.ids), found.stop, found.stop_probability) == (LIMIT, None, None)


def test_the_models_own_generation_settings_are_not_asked() -> None:
    model, asked = llama(), prompts(2)
    plain = said(model, asked)
    model.generation_config.update(
        repetition_penalty=5.0, do_sample=True, temperature=9.0, eos_token_id=3
    )
    assert said(model, asked) == plain
    assert model.generation_config.repetition_penalty == 5.0


def snapshot(model: Any) -> dict[str, Any]:
    inner = model
    found: dict[str, Any] = {
        name: {key: id(value) for key, value in vars(module).items()}
        for name, module in inner.named_modules()
    }
    found["modes"] = {name: module.training for name, module in inner.named_modules()}
    found["buffers"] = {name: value.clone().tolist() for name, value in inner.named_buffers()}
    found["weights"] = {
        name: (value.sum().item(), value.grad) for name, value in inner.named_parameters()
    }
    found["config"] = inner.config.to_dict() if hasattr(inner, "config") else None
    return found


def test_nothing_of_the_model_or_the_random_states_is_changed() -> None:
    model = lora()
    model.gradient_checkpointing_enable()
    model.config.use_cache = False
    model.train()
    model.get_submodule("base_model.model.model.layers.0").eval()
    before = snapshot(model)
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    drawn = torch.rand(1).item(), np.random.rand(), random.random()
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    said(model, prompts())
    assert (torch.rand(1).item(), np.random.rand(), random.random()) == drawn
    assert snapshot(model) == before


def test_rope_that_grows_is_put_back() -> None:
    model = tiny.model(
        97,
        max_position_embeddings=16,
        rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4},
    )
    model.config.max_position_embeddings = 64
    before = snapshot(model)
    said(model, [prompt([5] * 30)])
    assert snapshot(model) == before


def trained(looks: bool, **settings: Any) -> tuple[list[float], dict[str, Any]]:
    """The losses and weights of a run with dropout, with or without a look after each step."""
    torch.manual_seed(0)
    model = tiny.model(attention_dropout=0.2)
    model.config.use_cache = False
    seen: list[Any] = []

    class Look(TrainerCallback):
        def on_step_end(
            self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
        ) -> None:
            if looks:
                seen.append(said(model, prompts(3)))

    trainer = Trainer(
        model,
        tiny.arguments(max_steps=4, gradient_checkpointing=True, seed=1, **settings),
        train_dataset=tiny.encoded(tiny.chats()),
        data_collator=_collate,
        callbacks=[Look()],
    )
    trainer.train()
    assert len(seen) == 4 * looks
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, {name: value.clone() for name, value in model.state_dict().items()}


def _collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": 0, "labels": -100}
    return {
        name: torch.tensor([row[name] + [value] * (longest - len(row[name])) for row in rows])
        for name, value in fill.items()
    }


@pytest.mark.parametrize("bf16", [False, True])
def test_training_with_looks_is_bit_for_bit_training_without(bf16: bool) -> None:
    losses, weights = trained(False, bf16=bf16)
    again, other = trained(True, bf16=bf16)
    assert losses == again
    assert all(torch.equal(weights[name], other[name]) for name in weights)


def test_trls_model_with_its_fused_head() -> None:
    trainer = tiny.sft()
    trainer.model.train()
    expected = said(tiny.model(), prompts())
    before = snapshot(trainer.model)
    assert said(trainer.model, prompts()) == expected
    assert snapshot(trainer.model) == before


@contextmanager
def group() -> Iterator[None]:
    torch.distributed.init_process_group(
        "gloo", store=vars(torch.distributed)["HashStore"](), rank=0, world_size=1
    )
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def test_a_model_in_wrappers() -> None:
    expected = said(llama(), prompts())
    with group():
        wrapped = DistributedDataParallel(llama())
        assert said(wrapped, prompts()) == expected
        assert wrapped.training
    assert said(torch.compile(llama()), prompts()) == expected


def test_batches_are_of_like_length_and_bounded() -> None:
    model, asked, shapes = llama(), prompts(8), []
    model.get_input_embeddings().register_forward_pre_hook(
        lambda _, inputs: shapes.append(tuple(inputs[0].shape))
    )
    found = said(model, asked, batch_tokens=40)
    prefills = [(rows, tokens) for rows, tokens in shapes if tokens > 1]
    assert max(rows * (tokens + 1) for rows, tokens in prefills) <= 40
    assert _close(found, [said(llama(), [one])[0] for one in asked])


def _close(found: list[Answer | None], expected: list[Answer | None]) -> bool:
    """Equal but for the last bits of the probability."""
    return all(
        a
        and b
        and a.ids == b.ids
        and a.stop_probability == pytest.approx(b.stop_probability, rel=1e-4)
        for a, b in zip(found, expected, strict=True)
    )


def test_a_batch_that_memory_does_not_hold_is_halved() -> None:
    model, asked = llama(), prompts(5)

    def full(_: Any, inputs: Any) -> None:
        if inputs[0].shape[0] > 1:
            raise torch.OutOfMemoryError("full")

    expected = said(model, asked)
    model.get_input_embeddings().register_forward_pre_hook(full)
    assert _close(said(model, asked), expected)

    def never(_: Any, inputs: Any) -> None:
        raise torch.OutOfMemoryError("full")

    model.get_input_embeddings().register_forward_pre_hook(never)
    with pytest.raises(torch.OutOfMemoryError):
        said(model, asked)


def test_a_deadline_leaves_prompts_unanswered_and_cuts_none() -> None:
    model, asked = llama(), prompts(4)
    assert said(model, asked, deadline=time.monotonic()) == [None] * 4
    assert None not in said(model, asked, deadline=time.monotonic() + 600)
    steps: list[int] = []

    def late(_: Any, inputs: Any) -> None:
        steps.append(1)
        if len(steps) == 3:
            time.sleep(max(0.0, deadline - time.monotonic()))

    model.get_input_embeddings().register_forward_pre_hook(late)
    deadline = time.monotonic() + 2
    assert said(model, asked, deadline=deadline) == [None] * 4
    assert len(steps) == 3


def test_positions_end() -> None:
    model = gpt2()
    long, full, short = prompt([5] * 60), prompt([5] * 64), prompt([5, 9])
    alone, cut, none = said(model, [short, long, full], stops=[96])
    assert alone
    assert cut
    assert (len(alone.ids), len(cut.ids), none) == (LIMIT, 4, None)
    assert said(model, [prompt([])]) == [None]


def test_rows_that_have_ended_leave_the_batch() -> None:
    model, asked, steps = llama(), prompts(8), []
    alone = [slowly(model, one) for one in asked]
    stop = next(
        id for ids in alone for id in ids if 4 <= sum(id in other[:-1] for other in alone) < 8
    )
    hook = model.get_input_embeddings().register_forward_pre_hook(
        lambda _, inputs: steps.append(tuple(inputs[0].shape))
    )
    told: list[tuple[int, int]] = []
    found = said(model, asked, stops=[stop], progress=lambda done, of: told.append((done, of)))
    hook.remove()
    cut = [ids.index(stop) if stop in ids else None for ids in alone]
    assert [answer.ids for answer in found if answer] == [
        tuple(ids[:at]) for ids, at in zip(alone, cut, strict=True)
    ]
    decoding = [rows for rows, tokens in steps if tokens == 1]
    assert decoding[0] == 8
    assert decoding[LIMIT - 2] <= 4
    assert told == sorted(told)
    assert told[-1] == (8, 8)


def test_long_and_short_prompts_are_not_padded_to_one_length() -> None:
    model, shapes = tiny.model(97, max_position_embeddings=4096), []
    model.get_input_embeddings().register_forward_pre_hook(
        lambda _, inputs: shapes.append(tuple(inputs[0].shape))
    )
    asked = [prompt([5] * length, ()) for length in (4, 5, 6, 7, 900, 901)]
    said(model, asked, max_new_tokens=2)
    assert [shape for shape in shapes if shape[1] > 1] == [(4, 7), (2, 901)]
