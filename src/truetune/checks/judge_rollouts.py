"""Judges rollouts: runs the rules on rollouts over what the processes of a training by rewards recorded."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.reports import RolloutReport, Subject
from truetune.checks.rule import RolloutRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.probe.rollout_step import RolloutStep
from truetune.probe.run_record import Record
from truetune.render.template_probes import Probes, make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec

MAX_NAMED_FUNCTIONS = 4
"""Reward functions whose rewards the head of a report names"""


def judge_rollouts(
    steps: Sequence[RolloutStep],
    spec: RunSpec | None = None,
    *,
    probes: Probes | None = None,
    name: str = "",
) -> RolloutReport:
    """Judge rollouts.

    Args:
        steps: of each process in turn.
        spec: which rules are asked, and what fails.
        probes: the tokenizer and template of the run; without it ids are shown as numbers.
        name: what the report calls the training.
    """
    started = time.perf_counter()
    spec = spec or RunSpec()
    run = RolloutRun(tuple(steps), probes)
    judgement = run_rules(run, choose_rules(spec, RolloutRule))
    return RolloutReport(
        spec=spec,
        subjects=(Subject("rollouts", name or "training by rewards", _facts(run)),),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        rollouts=len(run.steps),
        completions=sum(step.rows for step in run.steps),
        seconds=time.perf_counter() - started,
    )


def judge_recorded_rollouts(
    records: Sequence[Record], spec: RunSpec | None = None
) -> RolloutReport:
    """Judge the rollouts that the processes of a run recorded. Raises TokenizerError or TemplateError where theirs
    can't be read."""
    records = sorted(records, key=lambda record: int(record.facts["rank"]))
    folder = next((record.tokenizer for record in records if record.tokenizer), None)
    probes = make_probes(load_tokenizer(str(folder)), spec or RunSpec()) if folder else None
    steps = [step for record in records for step in record.rollouts]
    return judge_rollouts(
        steps, spec, probes=probes, name=str(records[0].facts["trainer"]["class"])
    )


def _facts(run: RolloutRun) -> tuple[tuple[str, str], ...]:
    """Short facts on rollouts, by name."""
    facts = {"micro-batches": f"{sum(1 for _ in run.passes()):,}"}
    if run.steps:
        settings = run.steps[0].settings
        facts["loss"] = settings.loss_type or "not known"
        facts["group"] = f"{settings.num_generations} completions"
    lengths = [one.length for one in run.completions() if one.length is not None]
    if lengths:
        facts["length"] = f"{min(lengths):,} to {max(lengths):,} tokens"
    rewards = _rewards_in_words(run)
    if rewards:
        facts["rewards"] = rewards
    return tuple(facts.items())


def _rewards_in_words(run: RolloutRun) -> str:
    """The range of the rewards of each function."""
    # The first process has the rewards of all of them.
    parts_by_step = [
        step.rewards for step in run.steps if step.rank == 0 and step.rewards is not None
    ]
    if not parts_by_step or len({part.shape[1] for part in parts_by_step}) != 1:
        return ""
    rewards = np.concatenate(parts_by_step)
    names = run.steps[0].reward_names or tuple(map(str, range(rewards.shape[1])))
    parts = []
    for name, values in zip(names[:MAX_NAMED_FUNCTIONS], rewards.T, strict=False):
        scored = values[~np.isnan(values)]
        between = f"{scored.min():.4g} to {scored.max():.4g}" if scored.size else "none"
        missing = f" (none for {values.size - scored.size:,})" if scored.size < values.size else ""
        parts.append(f"{name} {between}{missing}")
    return ", ".join(parts)
