"""Laws that need forward passes: far below their tolerance on real architectures, far above it on broken ones."""

from __future__ import annotations

import copy
import random
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers

from tests.auditing import tiny
from tests.probe.laws.zoo import ARCHITECTURES, TOKENIZER, build, pack, packed, padded
from truetune.checks.rule import LawRule
from truetune.checks.rule_catalogue import all_rules
from truetune.probe.laws import law_modules, measure_laws
from truetune.probe.measuring.law_input_and_result_types import Trial, Untested
from truetune.probe.measuring.packed_documents import document_spans
from truetune.probe.measuring.rounding_tolerance import coarsest_precision
from truetune.probe.peek_batches import peek_batches
from truetune.probe.temporary_data_loader import temporary_data_loader_and_tokenizer

PADDED = (
    "padding-invariance",
    "batch-composition",
    "attention-implementation",
    "cache",
    "checkpointing",
    "save-load",
)
PACKED = ("packing-isolation", "packed-alone")
MARGIN = {torch.float32: 20.0, torch.bfloat16: 1.5}
"""How many times a clean value is below its tolerance, at least"""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def outcomes(model: Any) -> dict[str, dict[str, Any]]:
    return measure_laws(padded(model), PADDED) | measure_laws(packed(model), PACKED)


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_clean_models_are_far_below(name: str, lora: bool) -> None:
    dtype = torch.bfloat16 if lora else torch.float32
    model = build(name, dtype, lora)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for law, found in outcomes(model).items():
        assert "value" in found, (law, found)
        assert found["value"] * MARGIN[dtype] <= found["tolerance"], (law, found)


def mean_of_rows(model: Any) -> None:
    model.model.norm.register_forward_hook(
        lambda module, args, out: out - out.mean(0, keepdim=True)
    )


def batch_statistics_in_training(model: Any) -> None:
    def hook(module: Any, args: Any, out: torch.Tensor) -> torch.Tensor:
        return (
            out / out.std(0, keepdim=True, correction=0).clamp_min(1e-3)
            if module.training and len(out) > 1
            else out
        )

    model.model.norm.register_forward_hook(hook)


def experts_with_a_capacity(model: Any) -> None:
    """An expert takes 45 tokens of a batch and drops those behind."""

    def hook(module: Any, args: Any, out: torch.Tensor) -> torch.Tensor:
        scores = args[0].reshape(-1, args[0].shape[-1])[:, 0]
        chosen = scores > scores.median()
        kept = ~chosen | (chosen.cumsum(0) <= 45)
        return out * kept.reshape(*out.shape[:-1], 1)

    model.model.layers[0].mlp.register_forward_hook(hook)


def positions_count_pads(model: Any) -> None:
    def late(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        mask = kwargs.pop("attention_mask", None)
        count = (mask == 0).sum(-1, keepdim=True) if mask is not None and mask.dim() == 2 else 0
        kwargs["position_ids"] = torch.arange(kwargs["input_ids"].shape[1])[None] * (1 + count)
        return args, kwargs | {"attention_mask": mask}

    model.register_forward_pre_hook(late, with_kwargs=True)


def documents_forgotten(model: Any) -> None:
    def drop(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {key: value for key, value in kwargs.items() if key != "position_ids"}

    model.register_forward_pre_hook(drop, with_kwargs=True)


def positions_of_the_line(model: Any) -> None:
    """Documents do not see each other, but their embeddings know where in the line they stand."""

    def shift(module: Any, args: Any, out: torch.Tensor) -> torch.Tensor:
        return out * (1 + torch.arange(out.shape[1])[None, :, None] / 100).to(out.dtype)

    model.model.embed_tokens.register_forward_hook(shift)


def scale_left_out(model: Any) -> None:
    def kernel(module: Any, query: Any, key: Any, value: Any, mask: Any, **settings: Any) -> Any:
        sdpa = transformers.AttentionInterface()["sdpa"]
        return sdpa(module, query, key, value, mask, **{**settings, "scaling": 4.0})

    transformers.AttentionInterface.register("scale_left_out", kernel)
    transformers.AttentionMaskInterface.register(
        "scale_left_out", transformers.AttentionMaskInterface()["sdpa"]
    )
    model.set_attn_implementation("scale_left_out")


def nan_at_pads(model: Any) -> None:
    def kernel(module: Any, query: Any, key: Any, value: Any, mask: Any, **settings: Any) -> Any:
        out, weights = transformers.AttentionInterface()["sdpa"](
            module, query, key, value, mask, **settings
        )
        if mask is None:
            return out, weights
        hidden = ~mask[:, 0].diagonal(dim1=-2, dim2=-1)
        return out.masked_fill(hidden[..., None, None], float("nan")), weights

    transformers.AttentionInterface.register("nan_at_pads", kernel)
    transformers.AttentionMaskInterface.register(
        "nan_at_pads", transformers.AttentionMaskInterface()["sdpa"]
    )
    model.set_attn_implementation("nan_at_pads")


def keys_from_the_cache_alone(model: Any) -> None:
    def late(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if kwargs.get("past_key_values") is None:
            kwargs["hidden_states"] = torch.zeros_like(kwargs["hidden_states"])
        return args, kwargs

    model.model.layers[1].self_attn.register_forward_pre_hook(late, with_kwargs=True)


def positions_begin_anew_in_each_step(model: Any) -> None:
    def late(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, kwargs | {"position_ids": torch.arange(kwargs["input_ids"].shape[1])[None]}

    model.register_forward_pre_hook(late, with_kwargs=True)


def checkpoint_forgets_the_random_state(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.3
    model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})


def checkpoint_cuts_the_graph(model: Any) -> None:
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.disable_input_require_grads()
    model.get_input_embeddings().requires_grad_(False)


def head_left_out_of_the_file(model: Any) -> None:
    model._keys_to_ignore_on_save = {"lm_head.weight"}


BROKEN: tuple[tuple[str, Callable[[Any], None]], ...] = (
    ("padding-invariance", positions_count_pads),
    ("batch-composition", mean_of_rows),
    ("batch-composition", batch_statistics_in_training),
    ("batch-composition", experts_with_a_capacity),
    ("packing-isolation", documents_forgotten),
    ("packed-alone", documents_forgotten),
    ("packed-alone", positions_of_the_line),
    ("attention-implementation", scale_left_out),
    ("attention-implementation", nan_at_pads),
    ("cache", keys_from_the_cache_alone),
    ("cache", positions_begin_anew_in_each_step),
    ("checkpointing", checkpoint_forgets_the_random_state),
    ("checkpointing", checkpoint_cuts_the_graph),
    ("save-load", head_left_out_of_the_file),
)


@pytest.mark.parametrize(
    ("law", "fault"), BROKEN, ids=lambda x: x if isinstance(x, str) else x.__name__
)
def test_broken_models_are_far_above(law: str, fault: Callable[[Any], None]) -> None:
    model = build("llama", initializer_range=0.2)
    fault(model)
    found = measure_laws(packed(model) if law in PACKED else padded(model), [law])[law]
    assert "value" in found, found
    assert not found["value"] <= 20 * found["tolerance"], found


def test_precision_that_is_cut_when_saved() -> None:
    model = build("llama", initializer_range=0.2)
    whole = copy.deepcopy(model)
    model.save_pretrained = lambda folder, **more: _halved(model, whole).save_pretrained(
        folder, **more
    )
    found = measure_laws(padded(model), ["save-load"])["save-load"]
    assert found["value"] > found["tolerance"]


def _halved(model: Any, whole: Any) -> Any:
    whole.load_state_dict(model.state_dict())
    return whole.to(torch.bfloat16)


def test_a_head_beside_the_adapter_is_not_saved() -> None:
    adapted = peft.get_peft_model(build("llama"), peft.LoraConfig(target_modules=["q_proj"]))
    assert measure_laws(padded(adapted), ["save-load"])["save-load"]["value"] < 1e-5
    adapted.get_output_embeddings().weight.requires_grad_(True)
    found = measure_laws(padded(adapted), ["save-load"])["save-load"]
    assert found["value"] > 20 * found["tolerance"]
    assert any("lm_head" in name for name in found["evidence"]["differ"])


@pytest.mark.parametrize(
    "keys",
    [
        ("position_ids",),
        ("mask_numbers",),
        ("seq_idx",),
        ("cu_seqlens",),
        ("mask_4d",),
        ("mask_4d_float",),
        ("position_ids", "mask_of_ones"),
    ],
    ids="+".join,
)
def test_documents_by_each_key(keys: tuple[str, ...]) -> None:
    rows = tiny.encoded(tiny.chats(3))
    ends = np.cumsum([len(row["input_ids"]) for row in rows]).tolist()
    assert document_spans(pack(rows, *keys), 0) == list(zip([0, *ends], ends, strict=False))


def test_padding_is_no_document() -> None:
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    for pads in (0, 1):
        positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, pads)
        batch = {"input_ids": mask + 4, "attention_mask": mask, "position_ids": positions}
        assert [document_spans(batch, line) for line in (0, 1)] == [[(2, 5)], [(0, 5)]]


def test_a_mask_of_blocks_isolates() -> None:
    found = measure_laws(packed(build("llama"), "mask_4d", "position_ids"), PACKED)
    assert all(one["value"] < 1e-5 for one in found.values())


def test_packs_that_no_key_tells_apart() -> None:
    trainer = tiny.sft(packing=True, packing_strategy="wrapped", max_length=64)
    rows = [dict(trainer.train_dataset[i]) for i in range(2)]
    batch = {
        key: torch.tensor([row["input_ids"] for row in rows]) for key in ("input_ids", "labels")
    }
    found = measure_laws(
        Trial(trainer.model, [batch], [rows], trainer, tokenizer=TOKENIZER), PACKED
    )
    assert found["packing-isolation"]["value"] > 20 * found["packing-isolation"]["tolerance"]
    assert found["packing-isolation"]["evidence"]["separated by"] == []
    assert "untested" in found["packed-alone"]


def test_everything_is_as_before() -> None:
    trainer = tiny.sft(
        tiny.chats(4), gradient_checkpointing=True, model_=build("llama", attention_dropout=0.1)
    )
    trainer.eval_dataset = trainer.train_dataset
    model = trainer.model
    model.model.layers[0].eval()
    weight = next(model.parameters())
    weight.grad = torch.ones_like(weight)

    def state() -> Any:
        return (
            {name: tensor.clone() for name, tensor in model.state_dict().items()},
            [module.training for module in model.modules()],
            [(p.grad is not None, p.requires_grad) for p in model.parameters()],
            model.config.to_dict(), model.config._attn_implementation, model.is_gradient_checkpointing,
            [len(module._forward_hooks) for module in model.modules() if isinstance(module, torch.nn.Embedding)],
            copy.deepcopy(dict(trainer._metrics)), copy.deepcopy(trainer.state), len(trainer.accelerator._dataloaders),
            torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist(),
        )  # fmt: skip

    before = state()
    found = measure_laws(padded(model, trainer=trainer), [*PADDED, "evaluation-loss"])
    assert all("value" in one for one in found.values()), found
    after = state()
    torch.testing.assert_close(after[0], before[0], rtol=0, atol=0)
    assert after[1:10] == before[1:10]
    assert torch.equal(after[10], before[10])
    assert after[11:] == before[11:]


class Measuring(transformers.TrainerCallback):
    """Measures laws when training is about to begin."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.trainer: Any = None

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        with temporary_data_loader_and_tokenizer(self.trainer) as (loader, _):
            batch = peek_batches(loader, 1)[0].inputs
        trial = Trial(self.trainer.model, [batch], [[]], self.trainer, tokenizer=TOKENIZER)
        self.found = measure_laws(trial, [law for law in PADDED if law != "save-load"])


def test_losses_are_the_same_to_the_last_bit() -> None:
    """In mixed precision, with dropout and checkpointing."""
    histories = []
    callback: Measuring | None
    for callback in (None, Measuring()):
        model = build("llama", attention_dropout=0.2)
        trainer = tiny.sft(
            tiny.chats(4), model, gradient_checkpointing=True, bf16=True, max_steps=3, seed=1
        )
        if callback is not None:
            callback.trainer = trainer
            trainer.add_callback(callback)
        state = torch.get_rng_state()
        trainer.train()
        torch.set_rng_state(state)
        histories.append(
            [(one.get("loss"), one.get("grad_norm")) for one in trainer.state.log_history]
        )
    assert histories[0] == histories[1]
    assert callback is not None
    for law, found in callback.found.items():
        assert found["tolerance"] >= 0.05, (law, found)
        assert found["value"] * 1.5 <= found["tolerance"], (law, found)


def test_evaluation_loss_by_tokens() -> None:
    rows = tiny.encoded(tiny.chats(6))
    model = build("llama", initializer_range=0.2)
    arguments = tiny.arguments(per_device_eval_batch_size=3)
    collate = transformers.DataCollatorForSeq2Seq(TOKENIZER)
    trainer = transformers.Trainer(
        model, arguments, collate, rows, rows, processing_class=TOKENIZER
    )
    found = measure_laws(padded(model, trainer=trainer), ["evaluation-loss"])["evaluation-loss"]
    evidence = found["evidence"]
    assert evidence["batches of 3"] == pytest.approx(trainer.evaluate()["eval_loss"], rel=1e-5)
    assert evidence["labels"] == [sum(label != -100 for label in row["labels"][1:]) for row in rows]
    for row in rows[::2]:
        first = next(i for i, label in enumerate(row["labels"]) if label != -100)
        row["labels"][first + 1 :] = [-100] * len(row["labels"][first + 1 :])
    torch.nn.init.normal_(model.lm_head.weight, std=5.0)
    uneven = measure_laws(padded(model, trainer=trainer), ["evaluation-loss"])["evaluation-loss"]
    assert uneven["value"] > 2 * uneven["tolerance"] > 2 * found["value"]


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("adapter", [False, True])
def test_dropout_in_the_reference(adapter: bool, noisy: bool) -> None:
    model = build(
        "llama", attention_dropout=0.3 if noisy else 0.0, initializer_range=0.2, lora=adapter
    )
    trainer = types.SimpleNamespace(ref_model=None if adapter else copy.deepcopy(model).train())
    found = measure_laws(padded(model, trainer=trainer, kind="dpo"), ["reference-dropout"])[
        "reference-dropout"
    ]
    assert (found["value"] > 20 * found["tolerance"]) is noisy
    assert bool(found["evidence"]["rates"]) is noisy


class Own(torch.nn.Module):
    """A model of a user's own, that returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build("llama")

    def forward(
        self, input_ids: Any, attention_mask: Any = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return (
            torch.zeros(()),
            self.inner(input_ids=input_ids, attention_mask=attention_mask).logits,
        )


def test_models_that_return_tuples() -> None:
    found = measure_laws(padded(Own()), PADDED)
    assert found["padding-invariance"]["value"] < 1e-5
    assert found["batch-composition"]["value"] == 0
    assert found["cache"]["untested"] == "the model takes no use_cache"
    assert (
        found["attention-implementation"]["untested"]
        == "the model has no attention implementation to set"
    )
    assert found["save-load"]["untested"] == "the model has no save_pretrained"


def test_what_can_not_be_tested() -> None:
    shape: dict[str, Any] = {
        "d_model": 16,
        "d_kv": 4,
        "d_ff": 16,
        "num_layers": 1,
        "num_heads": 4,
        "vocab_size": len(TOKENIZER),
    }
    both = transformers.T5ForConditionalGeneration(transformers.T5Config(**shape))
    for law in ("padding-invariance", "batch-composition", "attention-implementation", "save-load"):
        assert "untested" in measure_laws(padded(both), [law])[law]
    sharded = build("llama")
    sharded.model.norm.weight.data = torch.empty(0)
    assert "sharded" in measure_laws(padded(sharded), ["cache"])["cache"]["untested"]
    model = build("llama")
    assert (
        "one row"
        in measure_laws(padded(model, 1), ["batch-composition"])["batch-composition"]["untested"]
    )
    assert (
        "input_ids"
        in measure_laws(Trial(model, [{"features": torch.ones(1)}], [[]]), ["cache"])["cache"][
            "untested"
        ]
    )
    assert (
        "does not checkpoint"
        in measure_laws(padded(model), ["checkpointing"])["checkpointing"]["untested"]
    )
    trial = padded(model)
    trial.batches[0]["pixel_values"] = torch.ones(2, 3)
    assert "more than text" in measure_laws(trial, ["cache"])["cache"]["untested"]
    assert measure_laws(trial, ["batch-composition"])["batch-composition"]["value"] == 0


def test_a_law_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(trial: Trial) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def odd(trial: Trial) -> Any:
        torch.rand(3)
        raise ValueError("odd shape")

    own = {
        name: types.SimpleNamespace(COST="quick", measure_law=law)
        for name, law in (("full", full), ("odd", odd))
    }
    known = {**law_modules(), **own}
    monkeypatch.setattr("truetune.probe.laws.law_modules", lambda: known)
    state = torch.get_rng_state()
    found = measure_laws(padded(build("llama")), ["full", "odd", "cache"])
    assert found["full"]["untested"] == "the device ran out of memory"
    assert "ValueError: odd shape" in found["odd"]["untested"]
    assert found["cache"]["value"] < 1e-5
    assert torch.equal(torch.get_rng_state(), state)


def test_no_quick_law_after_the_limit() -> None:
    found = measure_laws(padded(build("llama")), ["cache", "save-load"], seconds=0.0)
    assert "limit" in found["cache"]["untested"]
    assert "value" in found["save-load"]


def test_precision() -> None:
    assert coarsest_precision(build("llama")) == torch.float32
    assert coarsest_precision(build("llama", torch.bfloat16)) == torch.bfloat16
    mixed = build("llama", torch.bfloat16, lora=True)
    for name, parameter in mixed.named_parameters():
        parameter.data = parameter.data.float() if "lora" in name else parameter.data
    assert coarsest_precision(mixed) == torch.bfloat16
    automatic = build("llama")
    automatic._original_forward = automatic.forward
    assert coarsest_precision(automatic) == torch.bfloat16
    assert issubclass(Untested, Exception)


def test_every_law_stands_in_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "laws.md").read_text(encoding="utf-8")
    assert {law for law in law_modules() if f"`{law}`" not in page} == set()
    assert {
        rule.code for rule in all_rules() if issubclass(rule, LawRule) and rule.code not in page
    } == set()
