"""A run with an audit inside is the run without it, to the last bit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from transformers import TrainerCallback

import truetune
from tests.auditing.running import run_training
from tests.auditing.still_life import life


class State(TrainerCallback):
    """What the model and optimizer are like just before and after the audit."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        control: Any,
        model: Any = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        self.seen.append(
            (
                [module.training for module in model.modules()],
                [
                    (p.grad is None, p.requires_grad, p.double().sum().item())
                    for p in model.parameters()
                ],
                len(optimizer.state),
                sum(
                    len(module._forward_hooks) + len(module._forward_pre_hooks)
                    for module in model.modules()
                ),
            )
        )


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("trainer", {}),
        ("sft", {"laws": "all", "canary": True}),
        ("packing", {}),
        ("dpo", {}),
        ("own loss", {}),
    ],
)
def test_losses_weights_and_random_states_are_the_same(kind: str, settings: dict[str, Any]) -> None:
    before, audit, after = State(), truetune.AuditCallback(on_error="warn", **settings), State()
    assert life(kind, before, audit, after) == life(kind)
    assert audit.report.samples
    assert before.seen == after.seen


def test_through_the_command_and_with_workers_too() -> None:
    done = run_training(
        "-m", "tests.auditing.still_life", "workers", options=["--on-error", "warn"]
    )
    assert "prompt-supervised" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == json.loads(json.dumps(life("workers")))
