"""A run, from its settings to its record."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, ProgressCallback, set_seed

from truetune.checks.findings import RANK, Finding
from truetune.checks.judgement import NotJudged
from truetune.spec.run import RunSpec
from truetune.training import contract, preflight
from truetune.training.added import extended
from truetune.training.fit import Fitting, planned, room
from truetune.training.listen import Listener, Plain, Silent, Telling
from truetune.training.memory_trouble import RanOut, attempt, relieve
from truetune.training.prepare import Prepared, prepare
from truetune.training.processes import alone, idle, in_turn, join, shared_out
from truetune.training.recipe import Recipe, recipe
from truetune.training.record import Record, begun, inputs_of
from truetune.training.resume import Claim, check_same_run, claim, held
from truetune.training.rows import Data, highest
from truetune.training.run_files import EXTENDED, check_run_folder
from truetune.training.saving import Saving, held_out_loss, loss_before, save
from truetune.training.watch.ranks import sharded
from truetune.training.watch.watching import watcher

Load = Callable[..., Data]
Builder = Callable[[Recipe, Prepared, Data], Any]
OUT = "outputs"
"""Where a run is written that names no folder"""


@dataclass(frozen=True)
class Trained:
    """A run that has ended."""

    folder: Path
    steps: int
    loss: float | None
    """Of the held-out rows, in nats a token; None where there are none"""
    findings: tuple[Finding, ...]
    """Of all that was looked at before and meanwhile"""
    failed: bool
    """The answers have shown a finding at or above `fail_on`, or the held-out loss is no number"""
    seconds: float
    not_judged: tuple[NotJudged, ...] = ()
    """What was asked for before the first step and could not be judged"""
    allow_unjudged: bool = False

    @property
    def exit_code(self) -> int:
        """1 where it failed, 3 where something asked for was not judged, else 0."""
        return 1 if self.failed else 3 if self.not_judged and not self.allow_unjudged else 0


def train(
    spec: RunSpec,
    *,
    force: bool = False,
    fit: bool = False,
    gpu_memory: str | float | None = None,
    listener: Listener | None = None,
    callbacks: Sequence[Any] = (),
) -> Trained:
    """Train what `spec` says. Raises FindingsError where a look before the first step finds an error, unless forced.

    `fit`: settings are changed until the run goes into the memory of the GPU (or into `gpu_memory`).

    Also raises SpecError, UsageError, TokenizerError, TemplateError, DataError or OutOfMemoryError.
    """
    state = join(spec)
    listener = (listener or Plain()) if state.is_main_process else Silent()
    if note := idle():
        listener.say(note)
    fitting = Fitting(fit, room(gpu_memory), listener.say)
    while True:
        try:
            return _run(shared_out(spec, state), fitting, force, listener, callbacks)
        except RanOut as error:
            listener.end()
            trouble = error.without_frames()
        relieve(trouble, fitting)


def _run(
    spec: RunSpec, fitting: Fitting, force: bool, listener: Listener, callbacks: Sequence[Any]
) -> Trained:
    started = time.perf_counter()
    gpu = torch.cuda.is_available()
    machine = {"gpu": gpu, "bf16": gpu and torch.cuda.is_bf16_supported()}
    with in_turn():
        check_run_folder(Path(spec.training.output_dir or OUT), spec)
        spec = extended(spec, Path(spec.training.output_dir or OUT) / EXTENDED)
    first = recipe(spec, rows=None, **machine)
    looks = preflight.Looks(listener, force=force)
    with in_turn() as leads:
        if leads:
            looks.take("the check", preflight.check_data(fitting.unjudged(first.spec), listener))
        load, build = _parts(first.method)
        data = load(
            first.spec,
            progress=lambda what, done, total, rows, tokens: listener.busy(what, done, total),
        )
    made = recipe(spec, rows=len(data.train), **machine)
    folder = Path(made.training.output_dir or OUT)
    inputs = inputs_of(made, data, processes=spec.training.devices)
    with in_turn() as leads:
        if leads:
            check_same_run(folder, inputs)
    with held(folder):
        place = claim(folder, inputs)
        for note in place.notes:
            listener.say(note)
        if place.finished:
            listener.say(
                f"already trained: {folder} holds this run, which ended {place.before['ended']}"
            )
            return Trained(
                folder, place.before["step"], place.before["losses"].get("held_out"), (), False, 0.0
            )
        fitted = fitting.over(
            spec, made.spec, place.before.get("fitted", ()) if place.checkpoint else ()
        )
        if fitted.max_length != spec.max_length:
            data = load(recipe(fitted, rows=None, **machine).spec)
        made = recipe(fitted, rows=len(data.train), **machine)
        ready = prepared(made, data, listener)
        record = begun(place, inputs, made, ready, data)
        record.put(fitted=fitting.record())
        if record.writes:
            contract.write(folder, ready.probes, ready.tokenizer)
        trainer = build(made, ready, data)
        for kind in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(kind)
        look(trainer, made, data, place, looks, record)
        record.put(held_out_before=(before := loss_before(trainer, place)))
        watching = watcher(made.spec, ready, data, folder, listener)
        others = (
            Telling(listener, data.tokens * made.effective / len(data.train)),
            watching,
            *callbacks,
        )
        trouble = attempt(trainer, lambda: trained(trainer, made, place, record, listener, others))
        if trouble is not None:
            raise RanOut(trouble, planned(made.spec, fitting.memory), folder)
        if (loss := held_out_loss(trainer)) is not None:
            listener.say(
                f"held-out loss: {loss:.3f}"
                + (f" ({before:.3f} before)" if before is not None else "")
            )
            if note := _doubt(loss, before):
                listener.say(note)
        save(trainer, record, loss=loss, seconds=time.perf_counter() - started)
    least = RANK[spec.fail_on]
    failed = any(RANK[finding.severity] >= least for finding in watching.findings)
    failed = failed or (loss is not None and not isfinite(loss))
    findings = (*looks.findings, *watching.findings)
    return Trained(
        folder,
        trainer.state.global_step,
        loss,
        findings,
        failed,
        time.perf_counter() - started,
        tuple(looks.missing),
        spec.allow_unjudged,
    )


def _doubt(loss: float, before: float | None) -> str:
    """What a held-out loss says against the training; empty where it says nothing."""
    if not isfinite(loss):
        return (
            "the held-out loss is no number: the weights are spoiled, and truetune diagnose says"
            " from which step on"
        )
    if before is not None and loss > before:
        return (
            f"note: the held-out loss is {loss - before:.3f} nats a token above that of before;"
            " whether that is chance says truetune evaluate RUN --against base"
        )
    return ""


def prepared(made: Recipe, data: Data, listener: Listener) -> Prepared:
    """Tokenizer and model, the same in every process and every time, and what was chosen, said."""
    set_seed(made.seed)
    ready = prepare(
        made.spec,
        made.training,
        highest=max(map(highest, filter(None, (data.train, data.held_out)))),
    )
    listener.say(
        "chosen: " + ", ".join(f"{choice.setting} {choice.value}" for choice in made.choices)
    )
    for choice in (*data.choices, *ready.choices):
        listener.say(str(choice))
    return ready


def look(
    trainer: Any, made: Recipe, data: Data, place: Claim, looks: preflight.Looks, record: Record
) -> None:
    """Audit and rehearse a run that begins; one that goes on was looked at when it began."""
    if place.checkpoint is not None:
        looks.listener.say(f"going on from {place.checkpoint.name}")
        return
    if how := sharded(trainer.model):
        looks.listener.say(f"no audit and no rehearsal: {how} has shared out the weights")
        record.looked(looks.found, skipped=("the audit", "the rehearsal"))
        return
    with in_turn() as leads:
        if leads:
            with alone():
                looks.take("the audit", preflight.audit_run(trainer, made.spec, data.train))
                if made.spec.rehearsal:
                    looks.take(
                        "the rehearsal", preflight.rehearse_run(trainer, made.spec, data.train)
                    )
                else:
                    looks.listener.say("no rehearsal: it is switched off")
    record.looked(looks.found, skipped=() if made.spec.rehearsal else ("the rehearsal",))


def trained(
    trainer: Any,
    made: Recipe,
    place: Claim,
    record: Record,
    listener: Listener,
    callbacks: Sequence[Any],
) -> None:
    """Make the steps, watched and saved."""
    for callback in callbacks:
        trainer.add_callback(callback)
    set_seed(made.seed)
    Saving(trainer, place, record, listener.say).train()


def _parts(method: str) -> tuple[Load, Builder]:
    """What loads the rows of a method, and what makes its trainer."""
    if method == "sft":
        from truetune.training.rows import load
        from truetune.training.supervised import supervised

        return load, supervised
    from truetune.training import pairs, preference

    return pairs.load, preference.preferred
