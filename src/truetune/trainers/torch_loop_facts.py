"""A training loop of one's own in PyTorch: what is learned is what its code labels, of which nothing is known.

Rules that depend on a trainer's masking then name both cases; `truetune rehearse` and the audit look at the batches.
"""

from __future__ import annotations

from dataclasses import replace

from truetune.trainers.trainer_fact_types import UNKNOWN

FACTS = replace(
    UNKNOWN,
    name="torch",
    family="a PyTorch loop of your own",
    title="a PyTorch loop of your own",
    package="torch",
    # An optimizer or a loader of torch, and no trainer above it: `checks.whose` asks for trainers
    # first.
    calls=("torch.optim.*", "torch.utils.data.DataLoader"),
)
