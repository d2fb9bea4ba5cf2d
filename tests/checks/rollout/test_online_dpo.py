"""TRL's OnlineDPOTrainer and broken copies of it: what is judged of its first rollouts, and what is not."""

from __future__ import annotations

from typing import Any

import peft
import pytest
import torch
import transformers
from trl.experimental.online_dpo import OnlineDPOTrainer

import truetune
from tests.auditing import tiny
from tests.auditing.tiny_rollouts import length_reward, online_dpo, rollouts_of, tiny_model
from truetune.checks.judge_rollouts import judge_rollouts
from truetune.checks.reports import RolloutReport

JUDGED = {
    "sampled-ids-are-not-trained",
    "rollout-padding-in-loss",
    "sampled-tokens-left-out-of-loss",
    "group-holds-several-prompts",
    "reward-reads-other-rows",
    "preferred-completion-has-lower-reward",
}


class OtherOrder(OnlineDPOTrainer):
    """Puts the two rewards of a prompt beside each other, where the completions stand in two halves."""

    def _calculate_rewards_from_functions(self, *args: Any, **given: Any) -> Any:
        return (
            super()._calculate_rewards_from_functions(*args, **given).reshape(2, -1).T.reshape(-1)
        )


class StopLeftOut(OnlineDPOTrainer):
    """Masks the stop token by its id."""

    def _generate(self, *args: Any) -> Any:
        prompts, prompt_mask, ids, mask, vision = super()._generate(*args)
        stops = torch.isin(ids, torch.tensor(self.eos_token_ids))
        return prompts, prompt_mask, ids, mask * ~stops, vision


class EncodedAgain(OnlineDPOTrainer):
    """Trains what the decoded text is encoded to."""

    def _generate(self, *args: Any) -> Any:
        prompts, prompt_mask, ids, mask, vision = super()._generate(*args)
        tokenizer: Any = self.processing_class
        texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
        rows = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        again = ids.clone()
        for line, row in zip(again, rows, strict=True):
            kept = torch.tensor(row[: len(line)], dtype=ids.dtype)
            line[: len(kept)] = kept
        return prompts, prompt_mask, again, mask, vision


class ShapedByLength(OnlineDPOTrainer):
    """Rewards of its own design: what the trainer adds is no fault."""

    def _calculate_rewards_from_functions(self, *args: Any, **given: Any) -> Any:
        rewards = super()._calculate_rewards_from_functions(*args, **given)
        lengths = torch.tensor([float(len(ids)) for ids in given["completion_ids_list"]])
        return rewards - 3 * lengths - torch.arange(len(rewards))


def judged(trainer: Any) -> RolloutReport:
    return judge_rollouts(rollouts_of(trainer))


def _second_reward(completions: Any, **_: Any) -> list[float | None]:
    """None for some of the completions."""
    return [None if i % 3 == 0 else float(i) for i, _ in enumerate(completions)]


def _with_adapter() -> Any:
    lora = peft.LoraConfig(target_modules="all-linear", init_lora_weights=False)
    return peft.get_peft_model(tiny_model(), lora)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="as it is"),
        pytest.param({"loss_type": "ipo", "learning_rate": 1e-2}, id="ipo, far from the start"),
        pytest.param({"missing_eos_penalty": 50.0, "max_new_tokens": 8}, id="a penalty for cut answers"),
        pytest.param({"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}, id="accumulated"),
        pytest.param({"reward": [length_reward, _second_reward], "reward_weights": [1.0, 2.0]}, id="two rewards"),
        pytest.param({"model": _with_adapter()}, id="LoRA"),
        pytest.param({"kind": ShapedByLength}, id="shaped rewards"),
    ],
)  # fmt: skip
def test_nothing_is_found(settings: dict[str, Any]) -> None:
    report = judged(online_dpo(**settings))
    assert report.findings == ()
    assert {part.rule for part in report.examined} >= JUDGED


def test_reward_model_is_judged_too() -> None:
    scores = tiny.reward_model(seed=3, pad_token_id=tiny.tokenizer().pad_token_id)
    scores.config._name_or_path = str(tiny.TOKENIZER)
    report = judged(online_dpo(reward=scores))
    assert report.findings == ()
    assert JUDGED - {"reward-reads-other-rows"} <= {part.rule for part in report.examined}


@pytest.mark.parametrize(
    ("kind", "code"),
    [(OtherOrder, "ROL018"), (StopLeftOut, "ROL004"), (EncodedAgain, "ROL001")],
)
def test_what_is_broken_is_found(kind: Any, code: str) -> None:
    report = judged(online_dpo(kind))
    found = {finding.code for finding in report.findings}
    # An answer that is a stop token alone is left out whole, which ROL005 says too.
    assert found - {"ROL005"} == {code}


def test_what_is_not_known_is_not_judged() -> None:
    reasons = {part.what: part.reason for part in judged(online_dpo()).not_judged}
    assert "the loss of pairs" in reasons["advantages-are-not-of-their-rewards"]
    assert "online DPO sigmoid" in reasons["loss-weighs-tokens-otherwise"]


def test_callback_judges_and_changes_nothing() -> None:
    def weights(trainer: Any, *callbacks: Any) -> float:
        for callback in callbacks:
            trainer.add_callback(callback)
        transformers.set_seed(0)
        trainer.train()
        return sum(float(p.detach().double().sum()) for p in trainer.model.parameters())

    audit = truetune.AuditCallback(laws="quick")
    assert weights(online_dpo(), audit) == weights(online_dpo())
    assert audit.rollout_report.outcome == "no findings"
    assert audit.report.do_rollouts_follow
