"""The rules on the settings of a run, and on the machine where it starts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from truetune.checks.by_trainer import judged
from truetune.checks.catalogue import choose
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule, DeviceRule
from truetune.checks.whose import trainer_of
from truetune.memory.machine import Launch, Machine, machine
from truetune.spec.config import Config
from truetune.spec.run import RunSpec


def of_settings(config: Config, spec: RunSpec) -> Iterator[Finding]:
    """What the rules that `spec` selects find in a run's settings, and in this machine as their place."""
    stack = config.spec.trained_by or config.stack
    trainer = trainer_of(config.spec.model_copy(update={"trained_by": stack}))
    for rule in choose(spec.select, spec.ignore, "config", "devices"):
        if issubclass(rule, ConfigRule):
            yield from judged(rule(config).findings(), rule.by_trainer, trainer)
        elif issubclass(rule, DeviceRule):
            yield from rule(Launch(config, _here())).findings()


@cache
def _here() -> Machine:
    return machine()
