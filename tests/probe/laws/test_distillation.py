"""Laws of distillation, on TRL's own trainers and on broken copies of them."""

from __future__ import annotations

from typing import Any

import peft
import pytest
import torch
import trl
from datasets import Dataset
from trl.experimental.gkd import GKDConfig, GKDTrainer

import truetune
from tests.auditing import tiny
from tests.auditing.tiny_rollouts import rollouts_of
from truetune.checks.judge_rollouts import judge_rollouts

LAWS = ("distillation", "distilled-samples", "gradient-accumulation", "optimizer-step")
PROMPTS = [{"prompt": row["prompt"]} for row in tiny.pairs()]


class WithCrossEntropy(GKDTrainer):
    """Adds the model's own loss: no single way of comparing explains its gradient."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        loss = super().compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
        own = model(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            labels=inputs["labels"],
        ).loss
        return (loss + own, {}) if return_outputs else loss + own


class Negated(GKDTrainer):
    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        loss = -super().compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
        return (loss, {}) if return_outputs else loss


class NoisyTeacher(trl.DistillationTrainer):
    """Puts its teacher back into training mode."""

    def _compute_loss(self, *args: Any) -> Any:
        teacher = self.teacher_model
        teacher.train()
        teacher.eval = lambda: teacher
        return super()._compute_loss(*args)


class LearnsPrompts(trl.DistillationTrainer):
    """Its mask is one place off, so that the last token of the completion is left out."""

    def _compute_loss(self, student: Any, inputs: Any, items: Any) -> Any:
        former = inputs["completion_mask"]
        inputs["tool_mask"] = torch.nn.functional.pad(former[:, 1:], (0, 1))
        return super()._compute_loss(student, inputs, items)


class OtherCompletions(GKDTrainer):
    """The teacher is given the rows in another order."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        read = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        student = model(**read).logits
        with torch.no_grad():
            teacher = self.teacher_model(
                **{name: value + 0 for name, value in read.items()}
                | {"input_ids": (read["input_ids"] + 1) % 1000}
            ).logits
        loss = self.generalized_jsd_loss(
            student[:, :-1], teacher[:, :-1], inputs["labels"][:, 1:], beta=self.beta
        )
        return (loss, {}) if return_outputs else loss


class StopCutOff(trl.DistillationTrainer):
    """Trains completions without the last token that was sampled."""

    def _generate(self, prompts: Any) -> Any:
        prompt_ids, completions, *rest = super()._generate(prompts)
        return (prompt_ids, [ids[:-1] or ids for ids in completions], *rest)


def gkd(kind: Any = GKDTrainer, *, model: Any = None, teacher: Any = None, **settings: Any) -> Any:
    return kind(
        model or tiny.model(),
        teacher or tiny.model(seed=1),
        args=tiny.arguments(GKDConfig, max_new_tokens=12, **settings),
        train_dataset=Dataset.from_list(tiny.chats()),
        processing_class=tiny.tokenizer(),
    )


def on_policy(kind: Any = trl.DistillationTrainer, *, teacher: Any = None, **settings: Any) -> Any:
    return kind(
        tiny.model(),
        teacher or tiny.model(seed=1),
        args=tiny.arguments(trl.DistillationConfig, max_completion_length=12, **settings),
        train_dataset=Dataset.from_list(PROMPTS),
        processing_class=tiny.tokenizer(),
    )


def audit(trainer: Any) -> Any:
    return truetune.audit(trainer, laws=LAWS)


def codes(report: Any) -> list[str]:
    return sorted(finding.code for finding in report.findings)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="as it is"),
        pytest.param({"lmbda": 0.0, "beta": 0.0}, id="off policy, forward KL"),
        pytest.param({"lmbda": 1.0, "beta": 1.0}, id="on policy, reverse KL"),
        pytest.param({"seq_kd": True, "lmbda": 0.0, "beta": 0.1}, id="answers of the teacher"),
        pytest.param({"temperature": 0.7, "bf16": True}, id="temperature, bf16"),
        pytest.param({"gradient_accumulation_steps": 2, "activation_checkpointing": True}, id="accumulated"),
    ],
)  # fmt: skip
def test_nothing_is_found_in_gkd(settings: dict[str, Any]) -> None:
    report = audit(gkd(**settings))
    assert codes(report) == []
    assert report.laws["distillation"]["value"] == 0
    sampled = report.laws["distilled-samples"]
    assert sampled.get("value", sampled) == 0 or settings.get("lmbda") == 0.0
    # Two steps that sample can't be compared, and are not.
    if settings.get("lmbda") == 1.0:
        assert "samples the answers" in report.laws["gradient-accumulation"]["untested"]


def test_nothing_is_found_with_lora() -> None:
    lora = peft.LoraConfig(target_modules="all-linear", init_lora_weights=False)
    report = audit(gkd(model=peft.get_peft_model(tiny.model(), lora)))
    assert codes(report) == []
    assert report.laws["distillation"]["value"] == 0


@pytest.mark.parametrize("settings", [{}, {"beta": 0.5, "temperature": 0.7}, {"beta": 0.0}])
def test_nothing_is_found_in_distillation(settings: dict[str, Any]) -> None:
    report = audit(on_policy(**settings))
    assert codes(report) == []
    assert report.laws["distillation"]["value"] == 0


@pytest.mark.parametrize(
    ("trainer", "code"),
    [
        (lambda: gkd(Negated), "LAW034"),
        (lambda: gkd(OtherCompletions), "LAW033"),
        (lambda: on_policy(LearnsPrompts), "LAW032"),
        (lambda: on_policy(NoisyTeacher, teacher=tiny.model(seed=1, attention_dropout=0.1)), "LAW035"),
    ],
    ids=["negated", "other tokens", "mask off by one", "noisy teacher"],
)  # fmt: skip
def test_what_is_broken_is_found(trainer: Any, code: str) -> None:
    assert codes(audit(trainer())) == [code]


def test_other_losses_are_untested() -> None:
    report = audit(gkd(WithCrossEntropy, lmbda=0.0))
    # The model's own loss is a mean of each micro-batch, which LAW015 rightly says.
    assert codes(report) == ["LAW015"]
    assert "no divergence between" in report.laws["distillation"]["untested"]


def test_certainty_of_a_teacher_is_no_weight_of_a_token() -> None:
    report = truetune.audit(gkd(lmbda=0.0), laws=["loss-weights"])
    assert "no cross-entropy" in report.laws["loss-weights"]["untested"]


def test_teacher_of_the_same_weights_is_untested() -> None:
    report = audit(gkd(teacher=tiny.model()))
    assert codes(report) == []
    assert "predict the same" in report.laws["distillation"]["untested"]


def test_run_is_as_before() -> None:
    trainer = gkd()
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    training, config = trainer.teacher_model.training, trainer.generation_config
    audit(trainer)
    assert all(torch.equal(before[name], p) for name, p in trainer.model.named_parameters())
    assert (trainer.lmbda, trainer.generation_config) == (0.5, config)
    assert "compute_loss" not in vars(trainer)
    assert trainer.teacher_model.training == training


def test_sampled_completions_of_distillation_are_judged() -> None:
    report = judge_rollouts(rollouts_of(on_policy()))
    assert report.findings == ()
    judged = {part.rule for part in report.examined}
    assert {"sampled-ids-are-not-trained", "prompt-is-not-the-templates"} <= judged
    reasons = {part.what: part.reason for part in report.not_judged}
    assert "has no rewards" in reasons["advantages-are-not-of-their-rewards"]
    assert "laws ask its loss" in reasons["loss-weighs-tokens-otherwise"]


def test_cut_completions_of_distillation_are_found() -> None:
    report = judge_rollouts(rollouts_of(on_policy(StopCutOff)))
    assert "ROL001" in codes(report)
