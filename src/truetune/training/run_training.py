"""Runs a training from its settings to its record.

`train_run` is the whole: it checks, encodes, claims the folder, prepares, audits, trains under watch, and saves. With
--fit it starts again after running out of memory. What is done in each step stands in the module that it calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, ProgressCallback, set_seed

from truetune.checkpoint.read_run_and_check_checkpoints import step_of_checkpoint_name
from truetune.checks.findings import RANK, Finding
from truetune.checks.judgement import NotJudged
from truetune.settings.run_spec import RunSpec
from truetune.training import preflight_checks, write_contract_of_trained_prompts
from truetune.training.change_settings_until_memory_fits import (
    MemoryFitting,
    plan_run_memory,
    usable_gpu_bytes,
)
from truetune.training.claim_or_resume_run_folder import (
    FolderClaim,
    inspect_folder_and_drop_partial_checkpoint,
    lock_folder,
    refuse_folder_with_other_run,
)
from truetune.training.coordinate_processes_of_run import (
    describe_idle_gpus,
    hide_other_processes_from_accelerate,
    join_processes_of_launcher,
    run_first_process_before_others,
    settings_for_number_of_processes,
)
from truetune.training.handle_out_of_memory_of_run import (
    RanOutOfMemory,
    reduce_next_attempt_or_give_up,
    run_and_catch_out_of_memory,
)
from truetune.training.load_encoded_held_out_and_packed_rows import TrainingData, highest_token_id
from truetune.training.prepare_model import PreparedModel, prepare_model
from truetune.training.progress_listeners import (
    Listener,
    ListenerCallback,
    PlainListener,
    SilentListener,
)
from truetune.training.save_checkpoints import (
    CheckpointSaver,
    held_out_loss_after_training,
    measure_held_out_loss_before_training,
    save_final_weights,
)
from truetune.training.tell_files_of_run_from_other_files import (
    EXTENDED_TOKENIZER,
    refuse_unsuitable_run_folder,
)
from truetune.training.training_recipe import Recipe, make_recipe
from truetune.training.watch.exchange_between_sampling_processes import describe_sharding
from truetune.training.watch.make_watcher import make_watcher
from truetune.training.write_extended_tokenizer import extend_tokenizer_and_give_settings
from truetune.training.write_run_record import (
    RunFile,
    collect_inputs_that_shape_weights,
    write_record_of_begun_run,
)

LoadRows = Callable[..., TrainingData]
BuildTrainer = Callable[[Recipe, PreparedModel, TrainingData], Any]
DEFAULT_OUTPUT = "outputs"
"""Where a run is written that names no folder"""


@dataclass(frozen=True)
class Trained:
    """The result of a run that has ended."""

    folder: Path
    steps: int
    loss: float | None
    """Of the held-out rows, in nats/token; None where there are none"""
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
        """The exit code of the command: 1 where the run failed, 3 where something asked for was not
        judged, else 0.
        """
        if self.failed:
            return 1
        return 3 if self.not_judged and not self.allow_unjudged else 0


def train_run(
    spec: RunSpec,
    *,
    force: bool = False,
    fit: bool = False,
    gpu_memory: str | float | None = None,
    listener: Listener | None = None,
    callbacks: Sequence[Any] = (),
) -> Trained:
    """Run the training that the settings describe.

    Args:
        spec: the settings of the run.
        force: continue where a check before the first step finds errors; the record says so.
        fit: change settings until the run goes into the memory of the GPU.
        gpu_memory: a size to go into, instead of the GPU's own.
        listener: is told how it goes; lines are printed where None.
        callbacks: for the trainer, after our own.

    Raises:
        FindingsError: a check before the first step has found an error.
        SpecError, UsageError, TokenizerError, TemplateError, DataError: what the user can correct.
        OutOfMemoryError: memory ran out, and nothing is left to change.
    """
    state = join_processes_of_launcher(spec)
    listener = (listener or PlainListener()) if state.is_main_process else SilentListener()
    idle_gpus = describe_idle_gpus()
    if idle_gpus:
        listener.say(idle_gpus)
    fitting = MemoryFitting(fit, usable_gpu_bytes(gpu_memory), listener.say)
    # Each attempt begins again, from the settings: a half-built trainer keeps references that no one
    # can drop from outside.
    while True:
        try:
            return _attempt_run(
                settings_for_number_of_processes(spec, state), fitting, force, listener, callbacks
            )
        except RanOutOfMemory as error:
            listener.end()
            # The exception's frames hold the model and the optimizer until it is dropped.
            trouble = error.without_traceback()
        reduce_next_attempt_or_give_up(trouble, fitting)


def _attempt_run(
    spec: RunSpec, fitting: MemoryFitting, force: bool, listener: Listener, callbacks: Sequence[Any]
) -> Trained:
    """One attempt, from the check to the saved weights. Raises RanOutOfMemory where memory ran out."""
    started = time.perf_counter()
    gpu = torch.cuda.is_available()
    machine = {"gpu": gpu, "bf16": gpu and torch.cuda.is_bf16_supported()}
    # The first process writes the tokenizer's folder; the others find it there, complete.
    with run_first_process_before_others():
        refuse_unsuitable_run_folder(_output_folder(spec), spec)
        spec = extend_tokenizer_and_give_settings(spec, _output_folder(spec) / EXTENDED_TOKENIZER)
    first = make_recipe(spec, rows=None, **machine)
    looks = preflight_checks.PreflightChecks(listener, force=force)
    # Checked before anything is encoded: a finding in the settings should not cost that time.
    with run_first_process_before_others() as leads:
        if leads:
            looks.keep_report_or_stop_on_findings(
                "the check",
                preflight_checks.check_settings_and_data(
                    fitting.without_memory_rule(first.spec), listener
                ),
            )
        load, build = _row_loader_and_trainer_builder(first.method)
        data = load(
            first.spec,
            progress=lambda what, done, total, rows, tokens: listener.busy(what, done, total),
        )
    # The recipe once more: batches, warmup and intervals follow from the number of rows, which is
    # known only now.
    filled = make_recipe(spec, rows=len(data.train), **machine)
    folder = _output_folder(filled.spec)
    inputs = collect_inputs_that_shape_weights(filled, data, processes=spec.training.devices)
    with run_first_process_before_others() as leads:
        if leads:
            refuse_folder_with_other_run(folder, inputs)
    with lock_folder(folder):
        place = inspect_folder_and_drop_partial_checkpoint(folder, inputs)
        for note in place.notes:
            listener.say(note)
        if place.finished:
            return _result_of_run_ended_before(place, listener)
        fitted = fitting.settings_that_fit(spec, filled.spec, _fit_changes_if_run_resumes(place))
        # Fitting may have shortened the rows: they are other examples then.
        if fitted.max_length != spec.max_length:
            data = load(make_recipe(fitted, rows=None, **machine).spec)
        filled = make_recipe(fitted, rows=len(data.train), **machine)
        ready = prepare_model_and_report(filled, data, listener)
        record = write_record_of_begun_run(place, inputs, filled, ready, data)
        record.update(fitted=fitting.changes_as_plain_values())
        if record.writes:
            write_contract_of_trained_prompts.write_trained_prompt_contract(
                folder, ready.probes, ready.tokenizer
            )
        trainer = build(filled, ready, data)
        # The listener draws; transformers' own bar and dictionaries would run through its lines.
        for kind in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(kind)
        if filled.method == "grpo":
            more = prepare_for_rollouts(trainer, filled, ready, data, place, looks, record)
        else:
            audit_and_rehearse(trainer, filled, data, place, looks, record)
            more = ()
        before = measure_held_out_loss_before_training(trainer, place)
        record.update(held_out_before=before)
        watching = make_watcher(filled.spec, ready, data, folder, listener)
        others = (
            ListenerCallback(listener, data.tokens * filled.effective_batch / len(data.train)),
            watching,
            *more,
            *callbacks,
        )
        # Raised from here and not from inside: what the failed step holds is in frames below.
        trouble = run_and_catch_out_of_memory(
            trainer, lambda: train_steps(trainer, filled, place, record, listener, others)
        )
        if trouble is not None:
            raise RanOutOfMemory(trouble, plan_run_memory(filled.spec, fitting.memory), folder)
        loss = held_out_loss_after_training(trainer)
        _say_held_out_loss_and_doubt(loss, before, listener)
        save_final_weights(trainer, record, loss=loss, seconds=time.perf_counter() - started)
    failed = _run_failed_by_answers_or_loss(watching.findings, spec, loss)
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


def _output_folder(spec: RunSpec) -> Path:
    """The folder that a run is written to."""
    return Path(spec.training.output_dir or DEFAULT_OUTPUT)


def _run_failed_by_answers_or_loss(
    findings: Sequence[Finding], spec: RunSpec, loss: float | None
) -> bool:
    """Have the answers at the end shown a finding at or above `fail_on`, or is the held-out loss no number?"""
    # A run with nan weights may end without an error, and its answers be empty rather than wrong.
    if loss is not None and not isfinite(loss):
        return True
    least = RANK[spec.fail_on]
    return any(RANK[finding.severity] >= least for finding in findings)


def _result_of_run_ended_before(place: FolderClaim, listener: Listener) -> Trained:
    """The result of a run that has ended in this folder before: nothing is trained, nothing judged again."""
    record = place.before
    listener.say(f"already trained: {place.folder} holds this run, which ended {record['ended']}")
    return Trained(place.folder, record["step"], record["losses"].get("held_out"), (), False, 0.0)


def _fit_changes_if_run_resumes(place: FolderClaim) -> Sequence[Mapping[str, Any]]:
    """What --fit changed when the run began. Only for a run that resumes: its checkpoint needs the same settings."""
    changes: Sequence[Mapping[str, Any]] = place.before.get("fitted", ())
    return changes if place.checkpoint else ()


def _say_held_out_loss_and_doubt(
    loss: float | None, before: float | None, listener: Listener
) -> None:
    """Say the held-out loss, where rows are held out, and what speaks against the training."""
    if loss is None:
        return
    change = f" ({before:.3f} before)" if before is not None else ""
    listener.say(f"held-out loss: {loss:.3f}{change}")
    doubt = _describe_held_out_loss_doubt(loss, before)
    if doubt:
        listener.say(doubt)


def _describe_held_out_loss_doubt(loss: float, before: float | None) -> str:
    """What a held-out loss says against the training; empty where it says nothing."""
    if not isfinite(loss):
        return (
            "the held-out loss is not a number: the weights are spoiled, and truetune diagnose says"
            " from which step on"
        )
    if before is not None and loss > before:
        return (
            f"note: the held-out loss is {loss - before:.3f} nats/token above that of before;"
            " whether that is chance says truetune evaluate RUN --against base"
        )
    return ""


def prepare_model_and_report(
    filled: Recipe, data: TrainingData, listener: Listener
) -> PreparedModel:
    """Prepare tokenizer and model, the same in every process and every time, and say what was
    chosen.
    """
    set_seed(filled.seed)
    ready = prepare_model(
        filled.spec,
        filled.training,
        highest=max(map(highest_token_id, filter(None, (data.train, data.held_out)))),
    )
    listener.say(
        "chosen: " + ", ".join(f"{choice.setting} {choice.value}" for choice in filled.choices)
    )
    for choice in (*data.choices, *ready.choices):
        listener.say(str(choice))
    return ready


def audit_and_rehearse(
    trainer: Any,
    filled: Recipe,
    data: TrainingData,
    place: FolderClaim,
    looks: preflight_checks.PreflightChecks,
    record: RunFile,
) -> None:
    """Audit and rehearse a run that begins; one that resumes was checked when it began.

    Args:
        trainer: as it will train; left as it is.
        filled: the recipe.
        data: what it trains on.
        place: the claim on the folder, with the checkpoint to resume from.
        looks: take the reports, and raise FindingsError where one forbids the run.
        record: is told what was found, and what was left out.
    """
    if place.checkpoint is not None:
        looks.listener.say(f"continuing from {place.checkpoint.name}")
        return
    # The audit compares gradients and logits of whole weights, and one process alone cannot run a
    # sharded model.
    how = describe_sharding(trainer.model)
    if how:
        looks.listener.say(f"no audit and no rehearsal: {how} has shared out the weights")
        record.record_checks(looks.findings_by_check, skipped=("the audit", "the rehearsal"))
        return
    with run_first_process_before_others() as leads:
        if leads:
            with hide_other_processes_from_accelerate():
                looks.keep_report_or_stop_on_findings(
                    "the audit",
                    preflight_checks.audit_first_batches_and_laws(trainer, filled.spec, data.train),
                )
                if filled.spec.rehearsal:
                    looks.keep_report_or_stop_on_findings(
                        "the rehearsal",
                        preflight_checks.rehearse_trainer(trainer, filled.spec, data.train),
                    )
                else:
                    looks.listener.say("no rehearsal: it is switched off")
    record.record_checks(
        looks.findings_by_check, skipped=() if filled.spec.rehearsal else ("the rehearsal",)
    )


def prepare_for_rollouts(
    trainer: Any,
    filled: Recipe,
    ready: PreparedModel,
    data: TrainingData,
    place: FolderClaim,
    looks: preflight_checks.PreflightChecks,
    record: RunFile,
) -> tuple[Any, ...]:
    """Try the reward functions of a training by rewards, rehearse it, and have its answers kept and its first rollouts
    judged.

    Args:
        trainer: as it will train.
        filled: the recipe.
        ready: tokenizer and model.
        data: what it trains on.
        place: the claim on the folder, with the checkpoint to resume from.
        looks: take the reports, and raise FindingsError where one forbids the run.
        record: is told what was found, and what was left out.

    Returns:
        The callbacks that the trainer needs for it.
    """
    from truetune.training import audit_first_rollouts, keep_sampled_answers, rollout_trainer
    from truetune.training.rollout_rows import RolloutRows

    assert isinstance(data.train, RolloutRows)
    say = looks.listener.say
    keeper = keep_sampled_answers.make_answer_keeper(
        filled.spec, data.train, ready.tokenizer, ready.stops, place.folder, say
    )
    trainer.keep_answers = keeper.keep
    if place.checkpoint is not None:
        say(f"continuing from {place.checkpoint.name}")
        step = step_of_checkpoint_name(place.checkpoint) or 0
        difference = rollout_trainer.describe_what_resuming_changes(trainer, step)
        if difference:
            say(difference)
        # A run that ended by what its rollouts showed must not train on because it was started again.
        return (audit_first_rollouts.RolloutAudit(looks, filled.spec, ready.probes),)
    with run_first_process_before_others() as leads:
        if leads:
            for report in audit_first_rollouts.try_own_reward_functions(filled.spec, say):
                looks.keep_report_or_stop_on_findings(
                    f"the trial of {report.subjects[0].path}", report
                )
            if filled.spec.rehearsal:
                with hide_other_processes_from_accelerate():
                    looks.keep_report_or_stop_on_findings(
                        "the rehearsal",
                        preflight_checks.rehearse_trainer_by_rewards(trainer, filled.spec),
                    )
            else:
                say("no rehearsal: it is switched off")
    # A batch holds prompts alone.
    skipped = ("the audit of batches", *(() if filled.spec.rehearsal else ("the rehearsal",)))

    def note() -> None:
        record.record_checks(looks.findings_by_check, skipped=skipped)

    note()
    audit = audit_first_rollouts.RolloutAudit(looks, filled.spec, ready.probes, note)
    return (audit,)


def train_steps(
    trainer: Any,
    filled: Recipe,
    place: FolderClaim,
    record: RunFile,
    listener: Listener,
    callbacks: Sequence[Any],
) -> None:
    """Make the steps of the training, with sampling passes and checkpoints."""
    for callback in callbacks:
        trainer.add_callback(callback)
    set_seed(filled.seed)
    # Seeded once more above: audit and rehearsal have drawn numbers, and a run with and without
    # them must be the same.
    CheckpointSaver(trainer, place, record, listener.say).train()


def _row_loader_and_trainer_builder(method: str) -> tuple[LoadRows, BuildTrainer]:
    """What loads the rows of a method, and what makes its trainer."""
    if method == "sft":
        from truetune.training.load_encoded_held_out_and_packed_rows import load_training_data
        from truetune.training.trainer_with_supervised_token_loss import make_supervised_trainer

        return load_training_data, make_supervised_trainer
    if method == "grpo":
        from truetune.training import rollout_rows, rollout_trainer

        return rollout_rows.load_rollout_data, rollout_trainer.make_rollout_trainer
    from truetune.training import preference_rows, preference_trainers

    return preference_rows.load_preference_data, preference_trainers.make_preference_trainer
