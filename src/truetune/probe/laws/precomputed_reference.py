"""Reference log-probabilities that came with the rows are those of the live reference."""

from __future__ import annotations

import torch

from truetune.probe.laws import Cost, Measured, Trial, Untested
from truetune.probe.laws.gradients import quiet
from truetune.probe.laws.preferences import (
    batches,
    of_a_start,
    reference_of,
    refuse_others_figures,
    tokens,
    tolerance,
)

COST: Cost = "quick"


def measure(trial: Trial) -> Measured:
    """Largest difference over some rows, in nats a token of the shorter side."""
    of_a_start(trial)
    refuse_others_figures(trial)
    if trial.kind != "dpo" or "ref_chosen_logps" not in trial.batches[0]:
        raise Untested("no reference log-probabilities were computed beforehand")
    worst, rows = 0.0, []
    with quiet(trial):
        for batch in batches(trial):
            given = torch.cat([batch["ref_chosen_logps"], batch["ref_rejected_logps"]]).float()
            live = reference_of(trial, batch)
            apart = float((given - live).abs().max()) / tokens(batch)
            worst = apart if not apart <= worst else worst
            rows.append({"given": given.tolist(), "live": live.tolist()})
    return Measured(
        worst,
        tolerance(trial),
        "largest difference of log-probabilities, in nats a token",
        {"rows": rows},
    )
