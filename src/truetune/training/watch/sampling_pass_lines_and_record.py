"""A sampling pass in a line, and the record of all passes of a run (watch.json)."""

from __future__ import annotations

from typing import Any

from truetune.checks.findings import Finding
from truetune.generation.answer_samples import SamplingPass
from truetune.training.watch.experiment_trackers import average_scores_of_pass_as_curves

# The five that move when something goes wrong; the rest stands in the files and trackers.
SHOWN_SCORES = {
    "answers/stopped": "stopped",
    "answers/stop_probability": "P(stop)",
    "answers/overlap": "overlap",
    "answers/looped": "looped",
    "answers/parsed": "parsed",
}


def describe_pass(look: SamplingPass) -> str:
    """A sampling pass in a line: `step 100: 8 prompts, stopped 0.88, P(stop) 0.93, overlap 0.41
    (3.2 s)`
    """
    scores = average_scores_of_pass_as_curves(look)
    shown_scores = [
        f"{text} {scores[name]:.2g}" for name, text in SHOWN_SCORES.items() if name in scores
    ]
    return (
        f"step {look.step:,}: {', '.join([f'{len(look.samples)} prompts', *shown_scores])}"
        f" ({look.seconds:.1f} s)"
    )


def finding_line(finding: Finding) -> str:
    """A finding in a line."""
    return f"{finding.severity} {finding.code} {finding.rule}: {finding.message}; {finding.remedy}"


def values_of_watch_json(
    looks: list[SamplingPass],
    limit: int,
    budget: float,
    share: float,
    notes: list[str],
    stopped: Finding | None,
) -> dict[str, Any]:
    """The values of watch.json: the settings and the scores of all passes."""
    return {
        "prompts": len(looks[-1].samples) if looks else 0,
        "max_new_tokens": limit,
        "looks": [
            {
                "step": look.step,
                "seconds": round(look.seconds, 3),
                **average_scores_of_pass_as_curves(look),
            }
            for look in looks
        ],
        "budget": budget,
        "share_of_the_time": round(share, 4),
        "notes": notes,
        "stopped_by": stopped.rule if stopped else None,
    }
