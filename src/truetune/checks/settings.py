"""The rules on the settings of a run, and on the machine where it starts."""

from __future__ import annotations

from functools import cache

from truetune.checks.catalogue import choose
from truetune.checks.judgement import Judgement, judge
from truetune.checks.rule import ConfigRule, DeviceRule
from truetune.memory.machine import Launch, Machine, machine
from truetune.spec.config import Config
from truetune.spec.run import RunSpec


def of_settings(config: Config, spec: RunSpec) -> Judgement:
    """What the rules that `spec` selects say of a run's settings, and of this machine as their place."""
    chosen = choose(spec.select, spec.ignore, "config", "devices")
    on_settings = [rule for rule in chosen if issubclass(rule, ConfigRule)]
    on_devices = [rule for rule in chosen if issubclass(rule, DeviceRule)]
    return Judgement.of([judge(on_settings, config), judge(on_devices, Launch(config, _here()))])


@cache
def _here() -> Machine:
    return machine()
