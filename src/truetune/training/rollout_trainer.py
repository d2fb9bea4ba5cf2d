"""The trainer of GRPO: TRL's own, fed with our prompts, and with every answer that it samples kept.

Prompts reach it as ids that our template engine made, never as text that it would render again; the answers are sampled
by its own code, with transformers or with vLLM (`trainer: {use_vllm: true}`). What reaches the loss is judged by the
rules on rollouts while it trains (`audit_first_rollouts`). The trade-off: private methods of TRL are overridden, for a
range of its releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from packaging.specifiers import SpecifierSet

from truetune.errors import TruetuneError, UsageError
from truetune.training.load_encoded_held_out_and_packed_rows import TrainingData
from truetune.training.prepare_model import PreparedModel
from truetune.training.reward_functions import make_reward_functions
from truetune.training.rollout_rows import ROW_NUMBER, RolloutRows
from truetune.training.trainer_arguments import make_trainer_arguments
from truetune.training.training_recipe import Recipe, trainer_arguments_of_recipe
from truetune.training.turn_off_all_dropout import turn_off_all_dropout

# Tried with these. The rules on rollouts compare prompts, masks and losses at each start anyway.
SUPPORTED_TRL = SpecifierSet(">=1.16,<2")
"""Releases of TRL whose GRPOTrainer has the methods that are overridden here"""
TRL_NEEDED = f"GRPO needs trl{SUPPORTED_TRL}: pip install 'trl{SUPPORTED_TRL}'"

try:
    import trl
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer
except ImportError as error:
    raise UsageError(f"{TRL_NEEDED} ({error})") from None


@dataclass(frozen=True, slots=True)
class SampledAnswers:
    """What this process sampled in one generation of the training."""

    step: int
    """Steps of the optimizer before it"""
    rows: tuple[int, ...]
    """Of each answer the number of its row"""
    ids: tuple[tuple[int, ...], ...]
    """Of each answer, its stop token with it"""
    rewards: tuple[float | None, ...]
    """Weighted and summed; None where no reward function scored the answer"""
    advantages: tuple[float, ...]


KeepAnswers = Callable[[SampledAnswers], None]


class SamplerSeededByEpoch(torch.utils.data.Sampler[int]):
    """A sampler of TRL's whose order depends on the seed and the epoch alone.

    TRL's draws the order of each epoch from a generator that begins when the run begins: a run that resumes in the
    second epoch would have the order of the first one again.
    """

    def __init__(self, sampler: Any, trainer: Any) -> None:
        self.sampler, self.trainer = sampler, trainer

    def __iter__(self) -> Iterator[int]:
        # The epoch is a fraction of steps: a run that resumes is in the middle of one, and sums may lack a last digit.
        epoch = int((self.trainer.state.epoch or 0.0) + 1e-6)
        generator = getattr(self.sampler, "generator", None)
        if generator is not None:
            generator.manual_seed(self.trainer.args.seed + epoch)
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


class GRPOOnIds(GRPOTrainer):
    """TRL's GRPO on prompts of ids."""

    rollout_rows: RolloutRows
    keep_answers: KeepAnswers | None = None
    """Is given the answers of each generation of the training, and of no evaluation"""

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        """TRL's sampler, in an order that a run which resumes in a later epoch finds again."""
        return SamplerSeededByEpoch(super()._get_train_sampler(dataset), self)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Exchange the numbers of rows for the rows, before answers are sampled to them."""
        numbers = [row[ROW_NUMBER] for row in generation_batch]
        self._numbers = tuple(numbers)
        return super()._prepare_inputs(
            [self.rollout_rows.as_given_to_rewards(number) for number in numbers]
        )

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """The ids of the prompts as they were made beforehand; there are no images."""
        rows = self.rollout_rows.rows
        return [list(rows[number].prompt.ids) for number in self._numbers], None, {}

    def _calculate_rewards(
        self,
        inputs: Any,
        prompts: Any,
        completions: Any,
        completion_ids_list: Sequence[Sequence[int]],
    ) -> torch.Tensor:
        """The rewards of all processes, as TRL asks the functions for them; they are kept for the record."""
        rewards: torch.Tensor = super()._calculate_rewards(
            inputs, prompts, completions, completion_ids_list
        )
        self._sampled_ids, self._given_rewards = completion_ids_list, rewards
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """Sample and score by TRL's code; hand on what this process sampled."""
        output = super()._generate_and_score_completions(inputs)
        model: Any = self.model
        if self.keep_answers is not None and model.training:
            self.keep_answers(self._answers_of_generation(output))
        return output

    def _answers_of_generation(self, output: Mapping[str, Any]) -> SampledAnswers:
        """The answers of this process, with their rewards and advantages."""
        count = len(self._numbers)
        # The rewards are those of all processes, one after the other.
        first = self.accelerator.process_index * count
        own = self._given_rewards[first : first + count].float().cpu()
        sums = (own * self.reward_weights.cpu()).nansum(dim=1)
        is_scored = ~own.isnan().all(dim=1)
        return SampledAnswers(
            step=self.state.global_step,
            rows=self._numbers,
            ids=tuple(tuple(map(int, ids)) for ids in self._sampled_ids),
            rewards=tuple(
                float(value) if scored else None
                for value, scored in zip(sums.tolist(), is_scored.tolist(), strict=True)
            ),
            advantages=tuple(output["advantages"].float().cpu().tolist()),
        )


def make_rollout_trainer(recipe: Recipe, ready: PreparedModel, data: TrainingData) -> Any:
    """The trainer of a training by rewards.

    Args:
        recipe: the filled settings; the method is grpo.
        ready: tokenizer and model.
        data: rows of `rollout_rows`.

    Raises:
        UsageError: the installed TRL does not fit, or there are fewer prompts than a generation takes.
        SpecError: a reward that can't be loaded, or arguments that GRPOConfig does not know.
    """
    if trl.__version__ not in SUPPORTED_TRL:
        raise UsageError(f"{TRL_NEEDED} (here is {trl.__version__})")
    rows = data.train
    assert isinstance(rows, RolloutRows)
    rewards = make_reward_functions(recipe.training.rewards, rows)
    # With dropout the policy that learns differs from the one that sampled, and the ratio of both is noise.
    if recipe.training.disable_dropout is not False:
        turn_off_all_dropout(ready.model)
    arguments = make_trainer_arguments(
        GRPOConfig, trainer_arguments_of_recipe(recipe, evaluates=False)
    )
    _refuse_fewer_prompts_than_one_generation(arguments, rows)
    try:
        trainer = GRPOOnIds(
            model=ready.model,
            reward_funcs=list(rewards),
            args=arguments,
            train_dataset=rows.numbered(),
            processing_class=ready.tokenizer,
            peft_config=ready.peft,
        )
    except TruetuneError:
        raise
    # What TRL says of settings that contradict each other, that it does not have yet, and of an engine that is missing.
    except (ValueError, NotImplementedError, ImportError) as error:
        raise UsageError(f"training.method grpo: {error}") from None
    trainer.rollout_rows = rows
    return trainer


def describe_what_resuming_changes(trainer: Any, step: int) -> str:
    """Why a run that resumes after a step differs from one that was never interrupted; empty where it does not.

    A checkpoint holds no sampled answers. Where several steps learn from the same ones, and the run ended between those
    steps, answers are sampled again, by the weights as they are by then.
    """
    passes_per_sample = trainer.args.steps_per_generation * trainer.num_iterations
    steps_per_sample = max(1, passes_per_sample // trainer.args.gradient_accumulation_steps)
    if step % steps_per_sample == 0:
        return ""
    return (
        f"answers are sampled every {steps_per_sample} steps, and the run ended after step {step:,}:"
        " they are sampled again, so it differs from here on from a run that was not interrupted"
    )


def _refuse_fewer_prompts_than_one_generation(arguments: Any, rows: RolloutRows) -> None:
    """Raise UsageError where there are fewer prompts than answers are sampled to at once: TRL would make no step."""
    needed = arguments.generation_batch_size // arguments.num_generations
    if len(rows) < needed:
        raise UsageError(
            f"{needed} prompts are answered in one generation"
            f" ({arguments.generation_batch_size} answers, {arguments.num_generations} to each), and"
            f" the data has {len(rows)}: set training.gradient_accumulation_steps or"
            " per_device_train_batch_size lower, or give more rows"
        )
