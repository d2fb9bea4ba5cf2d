"""How many updates a training by rewards makes on the answers of one rollout, before it samples new ones.

verl divides the prompts of a step by `ppo_mini_batch_size` and repeats that `ppo_epochs` times; TRL and ms-swift take
`steps_per_generation` micro batches, `gradient_accumulation_steps` of them for each update, `num_iterations` times;
OpenRLHF and NeMo RL divide the answers by the batch of the training. All but the first update train a policy that is
no longer the one that sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from truetune.checks.config.evidence.settings_of_reward_training import (
    RewardTrainingSetting,
    reward_training_setting,
    setting_or_default,
)
from truetune.settings.config import Config
from truetune.settings.stacks.read_nested_rl_settings import ACTOR

GENERATION_BATCH = "generation_batch_size"


class UpdatesOnRollout(NamedTuple):
    """The updates on one rollout, and the settings that make them."""

    number: float
    """Not rounded: a last batch that is not full is an update too"""
    settings: tuple[RewardTrainingSetting, ...]


def updates_on_one_rollout(config: Config) -> UpdatesOnRollout | None:
    """The updates on the answers of one rollout; None where they are not known."""
    count = COUNTS.get(config.stack)
    return count(config) if count is not None else None


def _updates_of_verl(config: Config) -> UpdatesOnRollout | None:
    """Prompts of a step by prompts of an update, times the epochs; the defaults are those of verl 0.8."""
    sampled = setting_or_default(config, "data.train_batch_size", 1024)
    updated = setting_or_default(config, f"{ACTOR}.ppo_mini_batch_size", 256)
    return _quotient((sampled,), (updated,), setting_or_default(config, f"{ACTOR}.ppo_epochs", 1))


def _updates_of_trl(config: Config) -> UpdatesOnRollout | None:
    """Micro batches of a generation by those of an update, times the iterations."""
    # The batch is in answers of all processes, whose number a launch may set.
    if setting_or_default(config, GENERATION_BATCH).is_written:
        return None
    accumulation = _setting_or_value(
        config, "gradient_accumulation_steps", config.spec.training.gradient_accumulation_steps
    )
    steps = _setting_or_value(config, "steps_per_generation", accumulation.value)
    iterations = _setting_or_value(config, "num_iterations", 1)
    if not steps.is_written and not accumulation.is_written:
        # Whatever the accumulation is by default, a generation lasts for one of it.
        return _quotient((), (), iterations)
    return _quotient((steps,), (accumulation,), iterations)


def _setting_or_value(config: Config, key: str, value: object) -> RewardTrainingSetting:
    """A setting, or what it is where the file does not set it: of a script too, which may set no default itself."""
    setting = setting_or_default(config, key)
    return setting if setting.is_written else setting._replace(value=value)


def _updates_of_openrlhf(config: Config) -> UpdatesOnRollout | None:
    """Answers of a rollout by answers of an update, times the epochs."""
    prompts = setting_or_default(config, "rollout_batch_size")
    updated = setting_or_default(config, "train_batch_size")
    group = reward_training_setting(config, "answers per prompt")
    return _quotient((prompts, group), (updated,), setting_or_default(config, "max_epochs", 1))


def _updates_of_nemo_rl(config: Config) -> UpdatesOnRollout | None:
    """Answers of a step by answers of an update."""
    prompts = setting_or_default(config, "grpo.num_prompts_per_step")
    updated = setting_or_default(config, "policy.train_global_batch_size")
    group = reward_training_setting(config, "answers per prompt")
    return _quotient((prompts, group), (updated,), None)


COUNTS: Mapping[str, Callable[[Config], UpdatesOnRollout | None]] = {
    "verl": _updates_of_verl,
    "trl": _updates_of_trl,
    "ms-swift": _updates_of_trl,
    "openrlhf": _updates_of_openrlhf,
    "nemo-rl": _updates_of_nemo_rl,
}
"""Stack -> how its updates are counted"""


def _quotient(
    sampled: tuple[RewardTrainingSetting, ...],
    updated: tuple[RewardTrainingSetting, ...],
    repetitions: RewardTrainingSetting | None,
) -> UpdatesOnRollout | None:
    """The product of what is sampled by that of an update, times the repetitions; None if one is not known or 0."""
    factors = (*sampled, repetitions) if repetitions is not None else sampled
    count = 1.0
    for one in factors:
        if one.number is None or one.number <= 0:
            return None
        count *= one.number
    for one in updated:
        if one.number is None or one.number <= 0:
            return None
        count /= one.number
    written = [one for one in (*factors, *updated) if one.is_written]
    return UpdatesOnRollout(count, tuple(written))
