"""A broken copy of each kind of fault that a training by rewards can have is found before its fifth step.

The kinds are those that docs/rollouts.md lists. Each trainer is TRL's own, broken in one place as users break it; the
callback judges its rollouts while it trains, and another one notes the step at which the report was there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import trl
from trl.experimental.online_dpo import OnlineDPOTrainer

import truetune
from tests.auditing.tiny_rollouts import grpo, online_dpo, tiny_model

# Each trains for some seconds; the steps themselves take a tenth of one.
pytestmark = pytest.mark.slow
# As users break it, whatever the annotations of TRL's methods say.
GRPO: Any = trl.GRPOTrainer
OnlineDPO: Any = OnlineDPOTrainer
LAST_STEP = 5
PAGE = Path(__file__).parents[2] / "docs" / "rollouts.md"
OBSERVATION = " 42 is in it\n"


class WithoutGenerationPrompt(GRPO):
    """The prompt ends with the question."""

    def _tokenize_prompts(self, prompts: Any) -> Any:
        ids = self.processing_class.apply_chat_template(prompts, return_dict=True)["input_ids"]
        return ids, None, {}


class EncodedAgain(GRPO):
    """Answers are decoded, and encoded again."""

    def _generate_single_turn(self, *args: Any, **given: Any) -> Any:
        ids, logps = super()._generate_single_turn(*args, **given)
        texts = self.processing_class.batch_decode(ids, skip_special_tokens=True)
        again = self.processing_class(texts)["input_ids"]
        return [[*one, self.processing_class.eos_token_id] for one in again], logps


class Agent(GRPO):
    """After its first turn the model is told something, and writes a second one."""

    def _tool_call_loop(
        self, prompts: Any, prompt_ids: Any, ids: Any, completions: Any, logps: Any, *others: Any
    ) -> Any:
        told = self.processing_class(OBSERVATION, add_special_tokens=False)["input_ids"]
        first = [self._history_of(one) for one in ids]
        given = [prompt + one + told for prompt, one in zip(prompt_ids, first, strict=True)]
        more, _ = self._generate_single_turn(given, *others, 1)
        pairs = list(zip(first, more, strict=True))
        mask = [[1] * len(one) + [0] * len(told) + [1] * len(two) for one, two in pairs]
        whole = [one + told + two for one, two in pairs]
        return self._mask_of(mask), completions, whole, None, 0, 0, [[] for _ in ids]

    def _history_of(self, ids: list[int]) -> list[int]:
        return ids

    def _mask_of(self, mask: list[list[int]]) -> list[list[int]]:
        return mask


class LearnsObservations(Agent):
    """What a tool wrote is learned as if the model had."""

    def _mask_of(self, mask: list[list[int]]) -> list[list[int]]:
        return [[1] * len(one) for one in mask]


class ForgetsFirstTurn(Agent):
    """Only what follows the last observation is learned."""

    def _mask_of(self, mask: list[list[int]]) -> list[list[int]]:
        return [[0] * one.index(0) + one[one.index(0) :] for one in mask]


class HistoryEncodedAgain(Agent):
    """The first turn stands in the history of the second as it was decoded and encoded."""

    def _history_of(self, ids: list[int]) -> list[int]:
        text = self.processing_class.decode(ids, skip_special_tokens=True)
        return list(self.processing_class(text, add_special_tokens=False)["input_ids"])


class ChangedOutput(GRPO, ABC):
    """Changes what a generation gave, as a method that is overridden does."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        self.change(output)
        return output

    @abstractmethod
    def change(self, output: Any) -> None:
        """Change what the rollout gave, in place."""


class AllTokens(ChangedOutput):
    def change(self, output: Any) -> None:
        output["completion_mask"] = torch.ones_like(output["completion_ids"])


class MaskedById(ChangedOutput):
    def change(self, output: Any) -> None:
        stops = torch.tensor(self.eos_token_ids)
        output["completion_mask"] = output["completion_mask"] * ~torch.isin(
            output["completion_ids"], stops
        )


class CutOnesKept(ChangedOutput):
    """The setting says that cut completions are left out, and a mask that is built anew has them."""

    def change(self, output: Any) -> None:
        pad = self.processing_class.pad_token_id
        output["completion_mask"] = (output["completion_ids"] != pad).int()


class Reversed(ChangedOutput):
    def change(self, output: Any) -> None:
        output["advantages"] = -output["advantages"]


class AdvantagesOfOtherRows(ChangedOutput):
    """The advantages of groups that are every fourth row."""

    def change(self, output: Any) -> None:
        output["advantages"] = output["advantages"].view(2, 4).T.reshape(-1)


class OwnOrder(GRPO):
    """A group holds answers to several prompts."""

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


class DividedAgain(GRPO):
    def compute_loss(self, model: Any, inputs: Any, **others: Any) -> Any:
        loss = super().compute_loss(model, inputs, **others)
        return loss / self.args.gradient_accumulation_steps


class MeanOfSequences(GRPO):
    """The setting says one denominator, and the loss takes another."""

    def compute_loss(self, model: Any, inputs: Any, **others: Any) -> Any:
        self.loss_type = "grpo"
        loss = super().compute_loss(model, inputs, **others)
        self.loss_type = "dr_grpo"
        return loss


class OldWeights(GRPO):
    """The old log-probabilities are those of weights before the last change, as of a sampler that was not updated."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        weight = self.model.model.layers[0].mlp.up_proj.weight
        now = weight.detach().clone()
        with torch.no_grad():
            weight.mul_(3)
        output = super()._generate_and_score_completions(inputs)
        with torch.no_grad():
            weight.copy_(now)
        return output


class RowsTurnedRound(GRPO):
    """The reward functions are given the columns of other rows."""

    def _calculate_rewards(self, inputs: Any, *others: Any) -> Any:
        return super()._calculate_rewards(inputs[::-1], *others)


def colder_sampler(prompts: Any, trainer: Any) -> Any:
    """Samples at another temperature than the trainer thinks, and says with which log-probabilities."""
    ids = [
        trainer.processing_class.apply_chat_template(one, add_generation_prompt=True, return_dict=True)["input_ids"]
        for one in prompts
    ]  # fmt: skip
    logps = [[-0.5] * 6 for _ in prompts]
    return {"prompt_ids": ids, "completion_ids": [[40, 41, 42, 43, 44, 3]] * len(ids), "logprobs": logps}  # fmt: skip


def count_of(box: int) -> int:
    """
    Counts what is in a box.

    Args:
        box: Its number.
    """
    return 42 + box


def agent(kind: Any) -> Any:
    """A trainer that lets its model write two turns."""
    made = grpo(kind, max_steps=LAST_STEP, max_completion_length=64)
    made.tools = [count_of]  # That there is one makes TRL call the loop.
    return made


def other_reference() -> Any:
    made = grpo(beta=0.04, max_steps=LAST_STEP)
    made.ref_model.load_state_dict(tiny_model(seed=1).state_dict())
    return made


def other_reference_of_rloo() -> Any:
    made = grpo(trl.RLOOTrainer, beta=0.04, max_steps=LAST_STEP)
    made.ref_model.load_state_dict(tiny_model(seed=1).state_dict())
    return made


def broken(kind: Any = None, **settings: Any) -> Callable[[], Any]:
    return lambda: grpo(kind, max_steps=LAST_STEP, **settings)


class ChoosesTheWorse(OnlineDPO):
    def _calculate_rewards_from_functions(self, **given: Any) -> Any:
        return -super()._calculate_rewards_from_functions(**given)


MANY_STOPS = {
    "model": tiny_model(eos_token_id=3),
    "generation_kwargs": {"eos_token_id": tiny_model().generation_config.eos_token_id},
}
TWICE = {"num_iterations": 2}
KINDS: tuple[tuple[str, Callable[[], Any], str], ...] = (
    ("prompt ids: no generation prompt", broken(WithoutGenerationPrompt), "ROL002"),
    ("completion ids decoded and encoded again", broken(EncodedAgain), "ROL001"),
    ("an earlier turn encoded again", lambda: agent(HistoryEncodedAgain), "ROL001"),
    ("tool results in the mask", lambda: agent(LearnsObservations), "ROL003"),
    ("an earlier turn out of the mask", lambda: agent(ForgetsFirstTurn), "ROL004"),
    ("padding in the mask", broken(AllTokens), "ROL003"),
    ("stop tokens out of the mask", broken(MaskedById), "ROL004"),
    ("truncated completions kept", broken(CutOnesKept, mask_truncated_completions=True), "ROL005"),
    ("one stop id of several known", broken(**MANY_STOPS), "ROL006"),
    ("old log-probabilities of stale weights", broken(OldWeights, **TWICE), "ROL008"),
    ("dropout in the policy", broken(model=tiny_model(attention_dropout=0.3), **TWICE), "ROL008"),
    ("a sampler of another temperature", broken(rollout_func=colder_sampler), "ROL010"),
    ("KL not 0 at the start", other_reference, "ROL009"),
    ("KL of RLOO not 0 at the start", other_reference_of_rloo, "ROL009"),
    ("groups of several prompts", broken(OwnOrder), "ROL012"),
    ("advantages of mixed groups", broken(AdvantagesOfOtherRows), "ROL011"),
    ("advantages of the opposite sign", broken(Reversed), "ROL011"),
    ("one generation for eight steps", broken(Reversed, steps_per_generation=8), "ROL011"),
    ("the worse of two chosen", lambda: online_dpo(ChoosesTheWorse, max_steps=LAST_STEP), "ROL018"),
    ("another denominator than is set", broken(MeanOfSequences, loss_type="dr_grpo"), "ROL014"),
    ("divided by the accumulation twice", broken(DividedAgain, gradient_accumulation_steps=2), "ROL014"),
    ("reward columns of other rows", broken(RowsTurnedRound), "ROL016"),
)  # fmt: skip


class NotesTheStep(transformers.TrainerCallback):
    """The step after which the rollouts were judged."""

    def __init__(self, audit: Any) -> None:
        self.audit = audit
        self.step: int | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        if self.step is None and self.audit.rollout_report is not None:
            self.step = state.global_step


def judged(trainer: Any) -> tuple[Any, int | None]:
    """The report on the rollouts of a training, and the step after which it was there."""
    audit = truetune.AuditCallback(on_error="warn", laws="none")
    noting = NotesTheStep(audit)
    trainer.add_callback(audit)
    trainer.add_callback(noting)
    trainer.train()
    return audit.rollout_report, noting.step


@pytest.mark.parametrize(("kind", "make", "code"), KINDS, ids=[kind for kind, *_ in KINDS])
def test_found_before_the_fifth_step(kind: str, make: Callable[[], Any], code: str) -> None:
    report, step = judged(make())
    assert code in [finding.code for finding in report.findings]
    assert step is not None
    assert step < LAST_STEP
    assert f"| {kind} | {code} | {step} |" in PAGE.read_text(encoding="utf-8").splitlines()


def test_an_agent_that_is_right_is_clean() -> None:
    report, _ = judged(agent(Agent))
    assert report.findings == ()
    examined = {part.code: part.figure for part in report.examined}
    # Both turns were seen, and not the trainer's own mask compared with itself.
    assert {"ROL001", "ROL003", "ROL004"} <= set(examined)
