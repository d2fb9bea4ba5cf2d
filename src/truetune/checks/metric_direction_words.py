"""The words in names of metrics that tell whether a lower or a higher value is better."""

from __future__ import annotations

import re

LOWER_IS_BETTER = frozenset(
    (
        "loss",
        "perplexity",
        "ppl",
        "wer",
        "cer",
        "ter",
        "mse",
        "mae",
        "rmse",
        "nll",
        "bpb",
        "bpc",
        "error",
    )
)
HIGHER_IS_BETTER = frozenset(
    (
        "accuracy",
        "accuracies",
        "acc",
        "f1",
        "bleu",
        "sacrebleu",
        "chrf",
        "rouge",
        "rouge1",
        "rouge2",
        "rougel",
    )
    + (
        "rougelsum",
        "meteor",
        "precision",
        "recall",
        "auc",
        "mcc",
        "reward",
        "margins",
        "pass",
        "exact",
        "em",
        "match",
    )
)


def words_with_known_direction(metric: str) -> list[str]:
    """The words of a metric's name whose better direction is known."""
    return [
        word
        for word in re.split(r"[^a-z0-9]+", metric.lower())
        if word in LOWER_IS_BETTER | HIGHER_IS_BETTER
    ]
