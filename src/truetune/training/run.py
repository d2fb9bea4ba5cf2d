"""A run, from its settings to its record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import PrinterCallback, ProgressCallback

from truetune.checks.findings import Finding
from truetune.spec.run import RunSpec
from truetune.training import preflight
from truetune.training.listen import Listener, Plain, Silent, Telling
from truetune.training.prepare import Prepared, prepare
from truetune.training.recipe import Recipe, recipe
from truetune.training.rows import Data, load
from truetune.training.supervised import supervised

Builder = Callable[[Recipe, Prepared, Data], Any]
BUILDERS: Mapping[str, Builder] = {"sft": supervised}
"""Method -> what makes its trainer"""


@dataclass(frozen=True)
class Trained:
    """A run that has ended."""

    folder: Path
    steps: int
    loss: float | None
    """Of the held-out rows, in nats a token; None where there are none"""
    findings: tuple[Finding, ...]
    """Of all that was looked at before and meanwhile"""
    seconds: float


def train(spec: RunSpec, *, force: bool = False, listener: Listener | None = None,
          callbacks: Sequence[Any] = ()) -> Trained:  # fmt: skip
    """Train what `spec` says. Raises FindingsError where a look before the first step finds an error, unless forced.

    Also raises SpecError, UsageError, TokenizerError, TemplateError or DataError.
    """
    started = time.perf_counter()
    state = PartialState()
    listener = (listener or Plain()) if state.is_main_process else Silent()
    gpu = torch.cuda.is_available()
    machine = {"gpu": gpu, "bf16": gpu and torch.cuda.is_bf16_supported()}
    first = recipe(spec, rows=None, **machine)
    looks = preflight.Looks(listener, force=force)
    with state.main_process_first():
        looks.take("the check", preflight.check_data(first.spec))
        data = load(first.spec)
    made = recipe(spec, rows=len(data.train), **machine)
    ready = prepare(made.spec, made.training)
    for choice in (*made.choices, *data.choices, *ready.choices):
        listener.say(str(choice))
    trainer = BUILDERS[made.method](made, ready, data)
    looks.take("the audit", preflight.audit_run(trainer, made.spec, data.train))
    if spec.rehearsal:
        looks.take("the rehearsal", preflight.rehearse_run(trainer, made.spec, data.train))
    else:
        listener.say("no rehearsal: it is switched off")
    for kind in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(kind)
    for callback in (Telling(listener, data.tokens * made.effective / len(data.train)), *callbacks):
        trainer.add_callback(callback)
    trainer.train()
    trainer.save_model()
    metrics = trainer.evaluate() if data.held_out else {}
    return Trained(Path(trainer.args.output_dir), trainer.state.global_step, metrics.get("eval_loss"),
                   tuple(looks.findings), time.perf_counter() - started)  # fmt: skip
