"""A training loop of one's own in PyTorch: what is learned is what its code labels, of which nothing is known."""

from __future__ import annotations

from dataclasses import replace

from truetune.trainers.trainer_facts import UNKNOWN

FACTS = replace(
    UNKNOWN,
    name="torch",
    family="a PyTorch loop of your own",
    title="a PyTorch loop of your own",
    package="torch",
    calls=("torch.optim.*", "torch.utils.data.DataLoader"),
)
