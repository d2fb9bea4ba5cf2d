"""The rules on the settings of a run, and on the machine where it starts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from truetune.checks.catalogue import choose
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule, DeviceRule
from truetune.memory.machine import Launch, Machine, machine
from truetune.spec.config import Config
from truetune.spec.run import RunSpec


def of_settings(config: Config, spec: RunSpec) -> Iterator[Finding]:
    """What the rules that `spec` selects find in a run's settings, and in this machine as their place."""
    for rule in choose(spec.select, spec.ignore, "config", "devices"):
        if issubclass(rule, ConfigRule):
            yield from rule(config).findings()
        elif issubclass(rule, DeviceRule):
            yield from rule(Launch(config, _here())).findings()


@cache
def _here() -> Machine:
    return machine()
