"""Judges the settings of a run by the rules on settings, and by the rules on the machine where it
starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from truetune.checks.detect_trainer_and_apply_facts import (
    older_pinned_release,
    trainer_facts_of_run,
    with_pinned_release,
)
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.rule import ConfigRule, DeviceRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.checks.why_settings_of_rewards_are_not_known import (
    why_settings_of_rewards_are_not_known,
)
from truetune.memory.read_machine import Launch, Machine, read_machine
from truetune.settings.config import Config, WeightUse
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.registry import config_readers
from truetune.trainers.trainer_fact_types import TrainerFacts, parse_trainer_name


def judge_settings(config: Config, spec: RunSpec, uses: tuple[WeightUse, ...] = ()) -> Judgement:
    """What the rules that `spec` selects say of a run's settings, and of this machine as their place.

    `uses` is what the files that are given together with the settings do with weights.
    """
    stages = tuple(use.stage for use in uses if use.stage is not None)
    others = tuple(use for use in uses if use.stage is None)
    config = replace(config, uses=(*config.uses, *others), stages=(*config.stages, *stages))
    # What the caller names takes the place of what the settings say, as it does for their rows.
    if spec.tokenizer is not None and "tokenizer" in spec.model_fields_set:
        named = config.spec.model_copy(update={"tokenizer": spec.tokenizer})
        config = replace(config, spec=named)
    trainer = _trainer_facts_of_config(config)
    unknown = Judgement(not_judged=tuple(_settings_parts_without_rules(config)))
    reader = config_readers().get(config.stack)
    if reader is not None and not reader.trains:
        about_it = [rule for rule in choose_rules(spec, ConfigRule) if config.stack in rule.stacks]
        return run_rules(config, about_it, trainer)
    of_config = run_rules(config, choose_rules(spec, ConfigRule), trainer)
    of_machine = run_rules(Launch(config, _this_machine()), choose_rules(spec, DeviceRule))
    return Judgement.of([of_config, of_machine, unknown])


def _settings_parts_without_rules(config: Config) -> Iterator[NotJudged]:
    """Parts of a run about whose settings there are no rules, or that settings don't hold."""
    method = config.spec.training.method
    what, unlock = f"training by {method}", _way_to_look_further(config)
    if method == "reward":
        yield NotJudged(what, LOSS_OF_REWARD_MODEL, place=config.path, unlock=unlock)
    if method not in ("grpo", "ppo"):
        return
    unknown = why_settings_of_rewards_are_not_known(config)
    if unknown:
        reason = f"{unknown}; the rest of its settings was judged"
        yield NotJudged(what, reason, place=config.path, unlock=unlock)
        return
    # Whoever gives settings asks about these alone, and they were judged. What else makes or breaks such a run is told.
    yield NotJudged(
        what,
        BEYOND_SETTINGS,
        place=config.path,
        unlock=unlock,
        asked=False,
        always_told=True,
    )


def _trainer_facts_of_config(config: Config) -> TrainerFacts:
    """What is known of the trainer that the settings are for, in the release that they are pinned to."""
    trained_by = config.spec.trained_by or parse_trainer_name(config.stack)
    training = config.spec.training
    if trained_by is not None:
        training = with_pinned_release(training, older_pinned_release(config.pins, trained_by))
    return trainer_facts_of_run(
        config.spec.model_copy(update={"trained_by": trained_by, "training": training})
    )


def _way_to_look_further(config: Config) -> str:
    """What shows the rest of a run: the run itself, where its trainer is one that `truetune run` judges."""
    by_rewards = config.spec.training.method in ("grpo", "ppo")
    return (
        JUDGE_PARTS
        if by_rewards and config.stack in STACKS_NOT_JUDGED_AS_THEY_RUN
        else LOOK_AT_BATCHES
    )


BEYOND_SETTINGS = "its settings were judged; they do not tell whether its rewards, its sampling and its loss are right"
LOSS_OF_REWARD_MODEL = (
    "no rule knows the loss of a reward model; the rest of its settings was judged"
)
LOOK_AT_BATCHES = "see what reaches the loss: truetune run -- YOUR COMMAND"
STACKS_NOT_JUDGED_AS_THEY_RUN = ("verl", "ms-swift", "openrlhf", "nemo-rl", "prime-rl")
"""Programs with loops of their own for trainings by rewards, of which `truetune run` sees no rollout. ms-swift's
trainer is made from TRL's, and replaces the methods that are noted."""
JUDGE_PARTS = (
    "try its reward: truetune reward FILE.py:FUNCTION --data ROWS; judge its rollouts: fill a RolloutStep"
    " (docs/rollouts.md)"
)


# The machine stays the same, and a folder may hold hundreds of settings.
@cache
def _this_machine() -> Machine:
    """The machine that truetune runs on, asked once."""
    return read_machine()
