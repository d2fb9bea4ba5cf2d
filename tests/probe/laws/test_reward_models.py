"""Laws of reward models, on TRL's own trainer and on broken copies of it."""

from __future__ import annotations

from typing import Any

import peft
import pytest
import torch
import transformers
import trl
from datasets import Dataset
from trl.trainer.reward_trainer import DataCollatorForPreference

import truetune
from tests.auditing import tiny
from truetune.report.verdict_and_next_step import next_step_of_report

LAWS = ("reward-loss", "score-position", "reward-step")
TEXTS = [
    {"chosen": f"Is box {i} open? Yes, it is open.", "rejected": f"Is box {i} open? No"}
    for i in range(8)
]
IMPLICIT = [
    {
        "chosen": [*row["prompt"], *row["chosen"]],
        "rejected": [*row["prompt"], *row["rejected"]],
        "margin": 0.5,
    }
    for row in tiny.pairs()
]


class OneSideEach(trl.RewardTrainer):
    """Scores the sides in two passes, as trainers did before TRL's collator put both into one batch."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        half = len(inputs["input_ids"]) // 2
        chosen, rejected = (
            model(**{name: value[part] for name, value in inputs.items()}).logits.squeeze(-1)
            for part in (slice(half), slice(half, None))
        )
        loss = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
        return (loss, {}) if return_outputs else loss


class TowardsValues(trl.RewardTrainer):
    """Draws each score to a value: 1 for the chosen answer, 0 for the rejected one."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        chosen, rejected = model(**inputs).logits.squeeze(-1).chunk(2)
        loss = ((chosen - 1) ** 2 + rejected**2).mean()
        return (loss, {}) if return_outputs else loss


class NegatedGradient(trl.RewardTrainer):
    """Its loss is right, and is negated on its way to the backward pass."""

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        former = self.accelerator.backward
        self.accelerator.backward = lambda loss, **more: former(-loss, **more)
        try:
            return super().training_step(*args, **kwargs)
        finally:
            self.accelerator.backward = former


def reward(
    kind: Any = trl.RewardTrainer,
    *,
    rows: Any = None,
    model: Any = None,
    tokenizer: Any = None,
    collator: Any = None,
    lora: Any = None,
    **settings: Any,
) -> Any:
    return kind(
        model or tiny.reward_model(),
        args=tiny.arguments(trl.RewardConfig, **settings),
        train_dataset=Dataset.from_list(rows or tiny.pairs()),
        processing_class=tokenizer or tiny.tokenizer(),
        data_collator=collator,
        peft_config=lora,
    )


def laws_of(trainer: Any) -> dict[str, Any]:
    return dict(truetune.audit(trainer, laws=LAWS).laws)


def with_stop_as_pad() -> Any:
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def encoder() -> Any:
    """Sees all tokens at each, and reads its score at the first."""
    torch.manual_seed(0)
    config: Any = transformers.AutoConfig.for_model(
        "bert",
        vocab_size=len(tiny.tokenizer()),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_labels=1,
    )
    return transformers.BertForSequenceClassification(config)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="as it is"),
        pytest.param({"center_rewards_coefficient": 0.01}, id="scores kept near 0"),
        pytest.param({"rows": TEXTS}, id="texts"),
        pytest.param({"rows": IMPLICIT}, id="the prompt in both sides, and a margin"),
        pytest.param({"tokenizer": with_stop_as_pad()}, id="padded with the stop token"),
        pytest.param({"lora": peft.LoraConfig(target_modules="all-linear", task_type="SEQ_CLS")}, id="LoRA"),
        pytest.param({"gradient_accumulation_steps": 2, "activation_checkpointing": True}, id="accumulated"),
        pytest.param({"model": encoder()}, id="an encoder"),
        pytest.param({"bf16": True}, id="bf16"),
        pytest.param({"kind": OneSideEach}, id="a pass for each side"),
        pytest.param({"kind": TowardsValues}, id="drawn to values"),
    ],
)  # fmt: skip
def test_laws_hold_for_correct_trainers(settings: dict[str, Any]) -> None:
    laws = laws_of(reward(**settings))
    assert {name: law.get("value", law) for name, law in laws.items()} == dict.fromkeys(LAWS, 0.0)


def test_score_before_a_stop_token_that_is_the_pad_token_is_a_note() -> None:
    report = truetune.audit(reward(rows=TEXTS, tokenizer=with_stop_as_pad()), laws=LAWS)
    found = [finding for finding in report.findings if finding.code == "LAW030"]
    assert [(one.severity, one.count) for one in found] == [("info", 8)]
    assert "'<|im_end|>' left out" in found[0].evidence[0]


def test_only_what_is_broken_is_found() -> None:
    padded_with_another = DataCollatorForPreference(pad_token_id=5)
    by_trainer = {
        "negated": laws_of(reward(NegatedGradient)),
        "padding": laws_of(reward(collator=padded_with_another)),
    }
    broken = {
        name: [law for law in LAWS if laws[law]["value"] > laws[law]["tolerance"]]
        for name, laws in by_trainer.items()
    }
    assert broken == {"negated": ["reward-step"], "padding": ["score-position"]}


def test_what_is_no_reward_trainer_is_untested() -> None:
    laws = laws_of(tiny.dpo())
    assert {law["untested"] for law in laws.values()} == {"the trainer trains no reward model"}


def test_same_answer_in_two_rows_is_left_out() -> None:
    laws = laws_of(reward(rows=[tiny.pairs()[0]] * 8))
    assert "hold no ids" in laws["reward-loss"]["untested"]


def test_weights_are_as_before() -> None:
    trainer = reward()
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    laws_of(trainer)
    assert all(torch.equal(before[name], p) for name, p in trainer.model.named_parameters())
    assert trainer.optimizer is None
    assert all(p.grad is None for p in trainer.model.parameters())


def test_sides_with_two_prompts_are_found() -> None:
    rows = [
        {
            "chosen": [*row["prompt"], *row["chosen"]],
            "rejected": [{"role": "user", "content": f"Where is car {i}?"}, *row["rejected"]],
        }
        for i, row in enumerate(tiny.pairs())
    ]
    report = truetune.audit(reward(rows=rows), laws="none")
    assert [finding.code for finding in report.findings] == ["BAT034"]
    assert "8 of 8 pairs in the batches have different prompts" in report.findings[0].message


def test_sides_that_part_before_the_last_answer_are_no_fault() -> None:
    asked = [{"role": "user", "content": "And now?"}]
    rows = [
        {
            side: [*row["prompt"], *row[side], *asked, {"role": "assistant", "content": f"{side}."}]
            for side in ("chosen", "rejected")
        }
        for row in tiny.pairs()
    ]
    assert truetune.audit(reward(rows=rows), laws="none").findings == ()


def test_a_model_that_gives_scores_is_asked_for_no_answers() -> None:
    report = truetune.audit(reward(rows=TEXTS), laws=())
    assert next_step_of_report(report) == "let the run continue; then measure it on held-out rows"
