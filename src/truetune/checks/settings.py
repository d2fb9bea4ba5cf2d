"""The rules on the settings of a run, and on the machine where it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from truetune.checks.catalogue import choose
from truetune.checks.judgement import Judgement, NotJudged, judge
from truetune.checks.rule import ConfigRule, DeviceRule
from truetune.checks.whose import trainer_of
from truetune.memory.machine import Launch, Machine, machine
from truetune.spec.config import Config, WeightUse
from truetune.spec.run import RunSpec
from truetune.trainers.trainer_facts import parse_trainer_name


def of_settings(config: Config, spec: RunSpec, uses: tuple[WeightUse, ...] = ()) -> Judgement:
    """What the rules that `spec` selects say of a run's settings, and of this machine as their place.

    `uses` is what the files that are given together with the settings do with weights.
    """
    config = replace(config, uses=(*config.uses, *uses))
    chosen = choose(spec.select, spec.ignore, "config", "devices")
    on_settings = [rule for rule in chosen if issubclass(rule, ConfigRule)]
    on_devices = [rule for rule in chosen if issubclass(rule, DeviceRule)]
    trained_by = config.spec.trained_by or parse_trainer_name(config.stack)
    trainer = trainer_of(config.spec.model_copy(update={"trained_by": trained_by}))
    unknown = Judgement(not_judged=tuple(_beyond_rules(config)))
    return Judgement.of(
        [judge(on_settings, config, trainer), judge(on_devices, Launch(config, _here())), unknown]
    )


def _beyond_rules(config: Config) -> Iterator[NotJudged]:
    """Parts of a run about whose settings there are no rules."""
    method = config.spec.training.method
    if method in WITHOUT_RULES:
        yield NotJudged(
            f"training by {method}",
            WITHOUT_RULES[method],
            place=config.path,
            unlock=LOOK_AT_BATCHES,
        )


WITHOUT_RULES = {
    "grpo": (
        "no rule knows its rewards, its sampling or its loss; the rest of its settings was judged"
    ),
    "ppo": (
        "no rule knows its rewards, its sampling or its loss; the rest of its settings was judged"
    ),
    "reward": "no rule knows the loss of a reward model; the rest of its settings was judged",
}
"""By training method: what of its settings nothing judges"""
LOOK_AT_BATCHES = "see what reaches the loss: truetune run -- YOUR COMMAND"


@cache
def _here() -> Machine:
    return machine()
