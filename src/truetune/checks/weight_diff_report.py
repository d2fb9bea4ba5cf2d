"""Reports what moved between two sets of weights, tensor by tensor, with what the rules on movement
say about it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from truetune.checkpoint.load_checkpoint import Checkpoint, read_checkpoint
from truetune.checkpoint.weight_diff import MovementManifest, compare_weights
from truetune.checkpoint.weight_diff_json import manifest_json
from truetune.checks.inspect_checkpoint import checkpoint_facts
from truetune.checks.judgement import Judgement
from truetune.checks.reports import Report, Subject
from truetune.checks.rule import CheckpointRule
from truetune.checks.rule_runner import all_rules_of_classes, choose_rules, run_rules
from truetune.errors import UsageError
from truetune.settings.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True, repr=False)
class MovementReport(Report):
    """The manifest, and the findings."""

    manifest: MovementManifest

    def more(self) -> dict[str, Any]:
        """What moved in each tensor, as the JSON of the report has it besides."""
        return manifest_json(self.manifest)


def movement(
    after: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
    spec: RunSpec | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MovementReport:
    """Compare the weights in a folder with those before: a model with `base`, a merged model with `base` and the
    `adapter` that was merged, an adapter with its base (or alone, where that is not available).

    `progress` is told the values that are done, and those that there are. Raises UsageError where there is no
    checkpoint, or nothing to compare a model with.
    """
    started = time.perf_counter()
    spec = spec or RunSpec(select=weight_change_rule_names())
    checkpoint = read_checkpoint(after, base=base)
    if checkpoint.kind == "model" and checkpoint.base is None:
        raise UsageError(
            f"{after}: nothing to compare it with; name what it was before with --base"
        )
    if adapter is not None:
        other = read_checkpoint(adapter, base=checkpoint.base.folder if checkpoint.base else None)
        if checkpoint.kind != "model" or other.kind != "adapter":
            raise UsageError("--adapter names the adapter that was merged into a full model")
        checkpoint = replace(checkpoint, adapter=other)
    # A cached property, set here with progress: the rules that read it later find it made, and do not compare again.
    vars(checkpoint)["manifest"] = manifest = compare_weights(
        checkpoint, checkpoint.adapter, progress=progress
    )
    subject = Subject(
        checkpoint.kind, str(checkpoint.folder), tuple(checkpoint_facts(checkpoint).items())
    )
    judgement = judge_weights_of_checkpoint(checkpoint, spec)
    return MovementReport(
        spec=spec,
        subjects=(subject,),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        manifest=manifest,
        seconds=time.perf_counter() - started,
    )


def weight_change_rule_names() -> tuple[str, ...]:
    """Names of the rules on how weights moved."""
    return tuple(
        rule.name() for rule in all_rules_of_classes(CheckpointRule) if rule.judges_changes
    )


def judge_weights_of_checkpoint(checkpoint: Checkpoint, spec: RunSpec | None = None) -> Judgement:
    """What the rules on the weights of a checkpoint say; those that judge by signs are left out
    where the adapter is there to compare.
    """
    chosen = choose_rules(spec or RunSpec(), CheckpointRule)
    # Base and adapter tell exactly what a merge made of them; a sign would be a second, weaker word on it.
    if checkpoint.adapter:
        chosen = [rule for rule in chosen if not rule.goes_by_signs]
    return run_rules(checkpoint, chosen)
