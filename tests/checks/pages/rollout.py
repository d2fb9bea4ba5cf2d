"""Blocks that set up a training by rewards: Python that ends with `run` (a trainer of TRL) in its names.

The names at hand are those of `tests.checks.pages.batch`, and of `tests.auditing.tiny_rollouts`. The trainer is trained
for two steps, and its rollouts are judged.
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

from tests.auditing import tiny_rollouts
from tests.checks.pages import batch
from truetune.checks.findings import Finding
from truetune.checks.judge_rollouts import judge_rollouts
from truetune.checks.reports import Report
from truetune.checks.rule import Rule
from truetune.demo import TOKENIZER
from truetune.probe.rollout_step import RolloutStep
from truetune.render.template_probes import make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec

NAMES = "from tests.auditing.tiny_rollouts import *\nimport random; random.seed(0)\n"


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """What this rule alone finds in the training that a block sets up."""
    return audited(rule, text).findings


def audited(rule: type[Rule[Any]], text: str) -> Report:
    """What this rule alone says of the training that a block sets up."""
    spec = RunSpec(select=(rule.name(),))
    probes = make_probes(load_tokenizer(str(TOKENIZER)), spec)
    return judge_rollouts(_trained(text), spec, probes=probes)


# Most rules have the same healthy trainer.
@cache
def _trained(text: str) -> tuple[RolloutStep, ...]:
    names = batch.run(NAMES + text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tiny_rollouts.rollouts_of(names["run"])
