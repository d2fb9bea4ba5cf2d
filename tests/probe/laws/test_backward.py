"""Laws that need gradients: silent on healthy trainers, far off on broken ones, and nothing is changed by them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import peft
import pytest
import torch
import transformers
import trl
from datasets import Dataset
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

import truetune
from tests.auditing import tiny
from truetune.auditing.record_trainer_run_in_this_process import record_run

LAWS = (
    "loss-targets",
    "loss-weights",
    "gradient-accumulation",
    "process-count",
    "gradient-flow",
    "update-rounding",
    "loss-alive",
    "dpo-start",
    "precomputed-reference",
    "reference-still",
    "adapter-effect",
    "activation-range",
    "optimizer-step",
)
COMPLETIONS = [
    {"prompt": row["messages"][:1], "completion": row["messages"][1:]} for row in tiny.chats()
]
UNPAIRED = [
    {"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"}
    for row in tiny.pairs()
    for side in ("chosen", "rejected")
]


def measured(run: Any, *laws: str, **asked: Any) -> dict[str, dict[str, Any]]:
    """What each law gives, `value` and all."""
    given: dict[str, Any] = {
        "loader": None,
        "tokenizer": None,
        "loss": None,
        "given": None,
        "batches": 4,
        **asked,
    }
    loader, tokenizer = given.pop("loader"), given.pop("tokenizer")
    found: dict[str, dict[str, Any]] = record_run(
        run, loader, tokenizer, laws=laws or LAWS, **given
    ).facts["laws"]
    return found


def trainer(
    model: Any = None, kind: Any = transformers.Trainer, rows: Any = None, **settings: Any
) -> Any:
    """A Trainer on rows with labels."""
    tokenizer = tiny.tokenizer()
    collator = transformers.DataCollatorForSeq2Seq(tokenizer)
    rows = tiny.encoded(tiny.chats()) if rows is None else rows
    return kind(
        model or tiny.model(),
        tiny.arguments(**settings),
        collator,
        rows,
        processing_class=tokenizer,
    )


def lora(model: Any = None, **settings: Any) -> Any:
    """A model with a fresh LoRA."""
    return peft.get_peft_model(
        model or tiny.model(), peft.LoraConfig(task_type="CAUSAL_LM", **settings)
    )


def preference(
    kind: Any = trl.DPOTrainer, args: Any = trl.DPOConfig, rows: Any = None, **settings: Any
) -> Any:
    """A trainer of preferences whose reference is the policy at its start."""
    model = settings.pop("model", None) or tiny.model()
    own = (
        {"ref_model": settings.pop("ref_model", copy.deepcopy(model))}
        if kind is not ORPOTrainer
        else {}
    )
    own |= {name: settings.pop(name) for name in ("peft_config",) if name in settings}
    data = Dataset.from_list(rows or tiny.pairs())
    given = tiny.arguments(args, **settings)
    return kind(model, args=given, train_dataset=data, processing_class=tiny.tokenizer(), **own)


def experts() -> Any:
    """A small mixture of experts."""
    shape: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_experts": 8,
        "num_experts_per_tok": 2,
    }
    config = transformers.Qwen3MoeConfig(
        vocab_size=len(tiny.tokenizer()), moe_intermediate_size=16, **shape
    )
    return transformers.Qwen3MoeForCausalLM(config)


def capped() -> Any:
    """A model that caps its logits."""
    shape: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "final_logit_softcapping": 5.0,
    }
    return transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(vocab_size=len(tiny.tokenizer()), **shape)
    )


HEALTHY: dict[str, Callable[[], Any]] = {
    "sft": lambda: tiny.sft(),
    "sft of completions, dropout": lambda: tiny.sft(COMPLETIONS, tiny.model(attention_dropout=0.1)),
    "sft packed": lambda: tiny.sft(packing=True, max_length=64),
    "sft without padding, bf16": lambda: tiny.sft(padding_free=True, max_length=None, bf16=True),
    "sft with capped logits": lambda: tiny.sft(COMPLETIONS, capped()),
    "trainer": lambda: trainer(),
    "trainer in bf16 with checkpointing": lambda: trainer(bf16=True, gradient_checkpointing=True),
    "trainer with smoothed labels": lambda: trainer(label_smoothing_factor=0.1),
    "bfloat16 weights, large steps": lambda: trainer(
        tiny.model().to(torch.bfloat16), learning_rate=1e-3
    ),
    "experts": lambda: trainer(experts()),
    "lora": lambda: trainer(lora()),
    "lora with dropout and whole modules": lambda: trainer(
        lora(lora_dropout=0.1, modules_to_save=["lm_head"])
    ),
    "lora on bfloat16": lambda: trainer(lora(tiny.model().to(torch.bfloat16))),
    "new tokens alone": lambda: trainer(lora(trainable_token_indices=[5, 6])),
    "dpo": lambda: preference(),
    "dpo with lora": lambda: preference(
        ref_model=None, peft_config=peft.LoraConfig(task_type="CAUSAL_LM")
    ),
    "dpo in bf16, computed beforehand": lambda: preference(
        precompute_ref_log_probs=True, bf16=True
    ),
    "kto": lambda: preference(trl.KTOTrainer, trl.KTOConfig, UNPAIRED),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_trainers_keep_every_law(name: str) -> None:
    found = measured(HEALTHY[name]())
    broken = {
        law: one["value"]
        for law, one in found.items()
        if "value" in one and not one["value"] <= one["tolerance"]
    }
    assert broken == {}
    assert not [one["untested"] for one in found.values() if "raised" in one.get("untested", "")]
    assert "value" in found["loss-targets"] or "value" in found["gradient-flow"]


def weights(run: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in run.model.state_dict().items()}


def switches(run: Any) -> list[Any]:
    """All else that a law may have touched."""
    model = run.model
    return [
        [(name, p.grad is None, p.requires_grad) for name, p in model.named_parameters()],
        [module.training for module in model.modules()],
        [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        torch.get_rng_state().tolist(),
        str(getattr(run, "_metrics", None)) + str(getattr(run, "_total_train_tokens", None)),
        [sorted(vars(holder)) for holder in (run, run.accelerator, model)],
        (run.accelerator.num_processes, run.args.world_size, run.optimizer),
    ]


@pytest.mark.parametrize(
    "name", ["sft packed", "lora with dropout and whole modules", "dpo with lora", "kto"]
)
def test_nothing_is_changed(name: str) -> None:
    run = HEALTHY[name]()
    before, tensors = switches(run), weights(run)
    measured(run)
    assert switches(run) == before
    torch.testing.assert_close(weights(run), tensors, rtol=0, atol=0)


def losses(run: Any) -> list[Any]:
    run.train()
    return [
        (entry["loss"], entry["grad_norm"])
        for entry in run.state.log_history
        if "grad_norm" in entry
    ]


def test_a_run_is_the_same_with_and_without() -> None:
    found = []
    for look in (False, True):
        torch.manual_seed(0)
        run = tiny.sft(COMPLETIONS, tiny.model(attention_dropout=0.2), max_steps=2)
        if look:
            measured(run)
        found.append(losses(run))
    assert found[0] == found[1]


class Mean(transformers.Trainer):
    """A mean for each micro-batch."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, *_: Any, **__: Any
    ) -> Any:
        logits = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[:, :-1]
        return torch.nn.functional.cross_entropy(logits.transpose(1, 2), inputs["labels"][:, 1:])


def test_the_accumulated_gradient_is_that_of_a_real_step() -> None:
    """The ratio that the law finds is the one between the gradient norms that the Trainer logs."""
    rows = tiny.encoded(tiny.chats(4))
    found = measured(trainer(kind=Mean, rows=rows), "gradient-accumulation")[
        "gradient-accumulation"
    ]
    real = []
    for size in (4, 1):
        settings = {
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": 4 // size,
            "max_steps": 1,
        }
        real.append(losses(trainer(kind=Mean, rows=rows, max_grad_norm=1e9, **settings))[0][1])
    assert found["evidence"]["ratio"] == pytest.approx(real[1] / real[0], rel=1e-4)
    assert found["value"] > 100 * found["tolerance"]


def test_broken_in_bfloat16_is_far_beyond_its_tolerance() -> None:
    found = measured(trainer(kind=Mean, bf16=True), "gradient-accumulation", "process-count")
    assert (
        found["gradient-accumulation"]["value"]
        > 20 * found["gradient-accumulation"]["tolerance"]
        == 1.0
    )
    assert found["process-count"]["value"] > 2 * found["process-count"]["tolerance"]
    other = preference(
        ref_model=None,
        model=lora(tiny.model().to(torch.bfloat16), init_lora_weights=False),
        bf16=True,
    )
    other.ref_model = tiny.model(seed=3).to(torch.bfloat16)
    trl.trainer.utils.add_fused_lm_head(other.ref_model)
    assert measured(other, "dpo-start")["dpo-start"]["value"] > 0.05


def test_one_fault_is_one_finding() -> None:
    class MeanOfMeans(transformers.Trainer):
        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, *_: Any, **__: Any
        ) -> Any:
            logits = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[
                :, :-1
            ]
            labels = inputs["labels"][:, 1:]
            each = torch.nn.functional.cross_entropy(
                logits.transpose(1, 2), labels, reduction="none"
            )
            return (each.sum(1) / (labels != -100).sum(1)).mean()

    laws = ("gradient-accumulation", "process-count", "loss-weights", "loss-targets")
    rules = [
        "accumulated-gradient-differs",
        "gradient-depends-on-process-count",
        "tokens-weigh-unequally",
        "loss-target-is-not-next-token",
    ]
    found = truetune.audit(trainer(kind=MeanOfMeans), laws=laws, select=rules).findings
    assert [finding.rule for finding in found] == ["accumulated-gradient-differs"]


def test_each_mask_of_the_loss_is_seen_through_a_fused_head() -> None:
    """TRL's SFT loss makes no logits; the labels of completions alone reach it."""
    found = measured(tiny.sft(COMPLETIONS), "loss-targets", "loss-weights")
    targets = found["loss-targets"]["evidence"]
    assert targets["positions with gradient"] == targets["labelled"] == targets["looked at"] > 0
    lines = found["loss-weights"]["evidence"]["by line"]
    assert lines[0]["weight"] == pytest.approx(1 / sum(line["tokens"] for line in lines), rel=1e-4)


def test_weights_that_were_asked_for_are_told() -> None:
    found = measured(tiny.sft(COMPLETIONS, loss_type="dft"), "loss-targets", "loss-weights")
    assert found["loss-targets"]["value"] == 0
    assert found["loss-weights"]["value"] > 0.1
    assert found["loss-weights"]["evidence"]["asked for"]


def test_orpo_learns_its_prompts() -> None:
    found = measured(
        preference(ORPOTrainer, ORPOConfig), "loss-targets", "loss-alive", "gradient-accumulation"
    )
    assert found["loss-targets"]["evidence"]["without a label"] > 0
    assert found["loss-alive"]["value"] == 0
    assert "untested" in found["gradient-accumulation"]


def test_a_loop_of_ones_own() -> None:
    tokenizer, rows = tiny.tokenizer(), tiny.encoded(tiny.chats())
    collate = transformers.DataCollatorForSeq2Seq(tokenizer)
    loader: Any = torch.utils.data.DataLoader(rows, batch_size=2, collate_fn=collate)

    def unshifted(model: Any, inputs: Any) -> Any:
        logits = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), inputs["labels"].flatten())

    asked = {"loader": loader, "tokenizer": tokenizer}
    model = tiny.model()
    assert measured(model, "loss-targets", **asked)["loss-targets"]["value"] == 0
    broken = measured(model, "loss-targets", "gradient-accumulation", **asked, loss=unshifted)
    assert max(broken["loss-targets"]["evidence"]["other targets"], key=len) != "the next token"
    assert broken["loss-targets"]["value"] == 1
    assert "untested" in broken["gradient-accumulation"]


def test_labels_that_are_shifted_beforehand_are_no_fault() -> None:
    """A loop whose data set holds the next ids as labels, and whose loss does not shift."""
    tokenizer = tiny.tokenizer()
    rows: Any = [
        {"input_ids": r["input_ids"], "labels": [*r["labels"][1:], -100]}
        for r in tiny.encoded(tiny.chats())
    ]
    collate = transformers.DataCollatorForSeq2Seq(tokenizer)
    loader: Any = torch.utils.data.DataLoader(rows, batch_size=2, collate_fn=collate)

    def loss(model: Any, inputs: Any) -> Any:
        logits = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), inputs["labels"].flatten())

    found = measured(tiny.model(), "loss-targets", loader=loader, tokenizer=tokenizer, loss=loss)
    assert found["loss-targets"]["value"] == 0


def test_names_without_a_gradient() -> None:
    class Model(transformers.LlamaForCausalLM):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.unused = torch.nn.Linear(4, 4)

    found = measured(trainer(Model(tiny.model().config)), "gradient-flow")["gradient-flow"]
    assert found["evidence"]["names"] == ["unused.weight", "unused.bias"]
    frozen = tiny.model().requires_grad_(False)
    assert measured(trainer(frozen), "gradient-flow")["gradient-flow"]["evidence"]["trained"] == 0


@pytest.mark.parametrize(
    "loss_type", ["hinge", "ipo", "robust", "nca_pair", "apo_zero", "sigmoid_norm", "discopop"]
)
def test_first_losses_of_preference_trainers(loss_type: str) -> None:
    found = measured(preference(loss_type=loss_type), "dpo-start")["dpo-start"]
    expected = found["evidence"]["expected"]
    assert found["value"] == 0
    assert expected is None or found["evidence"]["rows"][0]["loss"] == pytest.approx(
        expected, abs=1e-4
    )


def test_a_resumed_run_has_no_start() -> None:
    run = preference(ref_model=tiny.model(seed=1))
    assert measured(run, "dpo-start")["dpo-start"]["value"] > 0.05
    run.state.global_step = 10
    assert "untested" in measured(run, "dpo-start")["dpo-start"]


def test_rounding_counts_what_a_step_leaves() -> None:
    """What is predicted is what happens to weights that are stepped."""
    from truetune.probe.laws.update_rounding import count_weights_stuck_by_rounding

    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        weights = (torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 0.02).to(dtype)
        for rate in (1e-3, 1e-5, 1e-9):
            up, down = weights + rate, weights - rate
            same = int(((up == weights) & (down == weights)).sum())
            assert abs(count_weights_stuck_by_rounding(weights, rate) - same) <= 0.02 * len(weights)


class TakesOwnSteps(transformers.Trainer):
    """A trainer whose step changes the weights by an optimizer of its own, which no trainer knows of."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        loss: Any = self.compute_loss(model, self._prepare_inputs(inputs))
        self.accelerator.backward(loss)
        own = torch.optim.SGD(model.parameters(), lr=1.0)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        own.step()
        return loss.detach()


def test_a_step_of_the_users_own_changes_no_weight() -> None:
    run = trainer(kind=TakesOwnSteps)
    before = copy.deepcopy(run.model.state_dict())
    laws = measured(run, "gradient-accumulation", "process-count", "optimizer-step")
    assert all(torch.equal(before[name], value) for name, value in run.model.state_dict().items())
    assert any("optimizer step of its own" in str(law) for law in laws.values())
