"""Saves checkpoints that are proved whole, from which a run resumes as if it had never stopped.

transformers writes a checkpoint in place, and deletes older ones before it is known to be on the disk. Here whole.json
is written last, and older checkpoints go after that. It also forgets what it has summed since the last line of the log,
so that the first loss after a restart is another one: window_N.json keeps that for process N.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from safetensors import SafetensorError
from transformers import TrainerCallback, TrainerState

from truetune.checkpoint.base_fingerprint import FINGERPRINT_FILE as FINGERPRINT
from truetune.checkpoint.read_run_and_check_checkpoints import (
    RECORD_FORMAT,
    RUN_FILE,
    WHOLE_FILE,
    find_checkpoint_fault,
    list_checkpoints,
    list_files_with_digests,
    step_of_checkpoint_name,
)
from truetune.data import write_atomically
from truetune.data.guard_output_folder import ForeignFile, foreign_file_error
from truetune.errors import UsageError
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.training.claim_or_resume_run_folder import FolderClaim
from truetune.training.tell_files_of_run_from_other_files import (
    remove_checkpoint_and_name_remains,
    remove_unfinished_checkpoint,
)
from truetune.training.write_run_record import RunFile

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Private names, found by reading both libraries. One that a release drops is skipped (`hasattr`),
# and tests/training/test_resume.py compares the logs of a run that was stopped with one that was
# not.
LOGGED_SUMS = (
    "_tr_loss",
    "_globalstep_last_logged",
    "_total_train_tokens",
    "_metrics",
    "_stored_metrics",
)
"""Attributes of transformers' Trainer and TRL's in which they sum what the next line of the log says"""


class StoppedBySignal(KeyboardInterrupt):
    """Raised where a signal ended the run, after a checkpoint."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.signal = number


class CheckpointSaver(TrainerCallback):
    """A trainer's callback that saves its checkpoints whole and removes older ones. It must be the
    last callback: what others save is counted in.
    """

    def __init__(
        self, trainer: Any, claim: FolderClaim, record: RunFile, say: Callable[[str], None]
    ) -> None:
        self.trainer, self.claim, self.record, self.say = trainer, claim, record, say
        # transformers would rotate before the new checkpoint is known to be on the disk. So its
        # limit is taken away, and ours applied afterwards.
        self.keep, trainer.args.save_total_limit = trainer.args.save_total_limit, None
        self.signal: int | None = None
        self._write_checkpoint, trainer._save_checkpoint = (
            trainer._save_checkpoint,
            self._save_checkpoint,
        )
        trainer.add_callback(self)

    def _save_checkpoint(self, *arguments: Any, **named: Any) -> None:
        """Save by transformers' own function, after run.json says that this checkpoint is being
        written: so it is known to be ours.

        Raises UsageError where something of that name exists already.
        """
        folder = self.record.folder / f"checkpoint-{self.trainer.state.global_step}"
        if PartialState().is_main_process:
            if os.path.lexists(folder):
                raise foreign_file_error(ForeignFile(folder, "this run did not write it"))
            self.record.update(writing=folder.name)
        PartialState().wait_for_everyone()
        with _no_model_card(self.trainer):
            self._write_checkpoint(*arguments, **named)

    def train(self) -> None:
        """Train to the end, from the checkpoint where there is one.

        Raises StoppedBySignal after SIGINT or SIGTERM, UsageError where a checkpoint can't be written.
        """
        checkpoint = self.claim.checkpoint
        self.record.update(status="training")
        try:
            with self._catch_signals():
                # Killed between the last step and the end: only the saving is left to do.
                if checkpoint is not None and self._is_unsharded_checkpoint_of_last_step(
                    checkpoint
                ):
                    self._load_final_or_best_weights(checkpoint)
                else:
                    self.trainer.train(
                        resume_from_checkpoint=str(checkpoint) if checkpoint else None
                    )
        except KeyboardInterrupt:
            self.record.record_early_end("interrupted")
            raise
        except Exception as error:
            explained = self._error_of_failed_checkpoint_write(error)
            self.record.record_early_end("failed")
            # The explanation names disk and checkpoint; the chain of frames inside safetensors
            # helps nobody.
            raise explained or error from None
        if self._was_any_process_signalled():
            self.record.record_early_end("interrupted")
            message = (
                f"stopped after step {self.trainer.state.global_step:,}: the same command resumes"
                " from there"
            )
            self.say(message)
            raise StoppedBySignal(self.signal or signal.SIGTERM, message)

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Restore the sums of the log, in a run that resumes."""
        if self.claim.checkpoint is not None:
            path = self.claim.checkpoint / _log_sums_file_name_of_process(args.process_index)
            restore_log_sums(
                self.trainer, parse_json(path.read_bytes(), RESULT) if path.is_file() else {}
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """End after this step with a checkpoint, where a signal came."""
        if self._was_any_process_signalled():
            # Stopped between two steps, so that weights, optimizer and random numbers belong
            # together.
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Bring the checkpoint to the disk, say that it is whole, and remove older ones, in this order."""
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        write_atomically.write_atomically(
            folder / _log_sums_file_name_of_process(args.process_index),
            json.dumps(collect_sums_since_last_log(self.trainer)).encode(),
        )
        PartialState().wait_for_everyone()
        if PartialState().is_main_process:
            _write_base_fingerprint_beside_adapter(self.record, folder)
            mark_checkpoint_whole(folder, resumes=not args.save_only_model)
            self.record.update(writing=None)
            self._remove_all_but_last_and_best(state)
            self.record.record_checkpoint(state)

    def _remove_all_but_last_and_best(self, state: Any) -> None:
        """Remove all but the last checkpoints, as many as save_total_limit says, and the best one."""
        if not self.keep or self.keep < 0:
            return
        all_checkpoints = list_checkpoints(self.record.folder)
        best = state.best_model_checkpoint and Path(state.best_model_checkpoint).name
        kept = [path for path in all_checkpoints[-1:] if path.name != best] + [
            path for path in all_checkpoints if path.name == best
        ]
        others = [path for path in all_checkpoints if path not in kept]
        for path in others[: len(others) - max(0, self.keep - len(kept))]:
            # What the user put into a checkpoint, or edited there, is not ours to delete.
            left = remove_checkpoint_and_name_remains(path)
            if left:
                self.say(
                    f"{path} stays: this run did not write {', '.join(left)}, or it has changed"
                    " since"
                )

    def _was_any_process_signalled(self) -> bool:
        """Did a signal ask any process to end? All processes must call it."""
        if PartialState().num_processes == 1:
            return self.signal is not None
        # A launcher sends signals to each process at its own moment; a sum over all makes them stop
        # at the same step.
        flag = torch.tensor(int(self.signal is not None), device=self.trainer.args.device)
        return bool(self.trainer.accelerator.reduce(flag, "sum").item())

    @contextmanager
    def _catch_signals(self) -> Iterator[None]:
        """Catch signals while this lasts: the first asks for the end of the step, the second does
        what it always does.
        """
        # Python sets handlers in the main thread only; in a notebook's worker Ctrl-C keeps its own
        # meaning.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}

        def heard(number: int, frame: Any) -> None:
            self.signal = number
            put_back()
            if self.record.writes:
                # Not print: a handler may come while the same stream is being written, and print
                # would raise.
                os.write(
                    2, b"\nstopping after this step, with a checkpoint; once more ends at once\n"
                )

        def put_back() -> None:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

        for number in SIGNALS:
            signal.signal(number, heard)
        try:
            yield
        finally:
            put_back()

    def _is_unsharded_checkpoint_of_last_step(self, checkpoint: Path) -> bool:
        """Was this the last step, of a run without FSDP and DeepSpeed? transformers would make one more."""
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        sharded = self.trainer.is_fsdp_enabled or self.trainer.is_deepspeed_enabled
        return bool(state.global_step >= state.max_steps > 0 and not sharded)

    def _load_final_or_best_weights(self, checkpoint: Path) -> None:
        """Load a run's weights without making a step: the best ones where it asks for them."""
        self.trainer.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        best = (
            self.trainer.state.best_model_checkpoint
            if self.trainer.args.load_best_model_at_end
            else None
        )
        self.trainer._load_from_checkpoint(best or str(checkpoint))

    def _error_of_failed_checkpoint_write(self, error: Exception) -> UsageError | None:
        """The error to raise where `error` came while a checkpoint was written; what there is of it
        is removed. None for other errors.
        """
        folder = self.record.folder / f"checkpoint-{self.trainer.state.global_step}"
        if not isinstance(error, OSError | RuntimeError | SafetensorError):
            return None
        if isinstance(error, OSError) and error.filename == str(self.record.folder / RUN_FILE):
            return self._unwritten_checkpoint_error(
                folder, error
            )  # run.json comes first: there is nothing of the checkpoint yet
        if not folder.is_dir() or (find_checkpoint_fault(folder)) is None:
            return None
        if PartialState().is_main_process:
            with suppress(OSError):
                remove_unfinished_checkpoint(folder)
        return self._unwritten_checkpoint_error(folder, error)

    def _unwritten_checkpoint_error(self, folder: Path, error: Exception) -> UsageError:
        """The error that says that a checkpoint could not be written, with what there is to resume
        from.
        """
        whole = [
            path.name
            for path in list_checkpoints(self.record.folder)
            if (path / WHOLE_FILE).is_file()
        ]
        free = shutil.disk_usage(self.record.folder).free
        then = (
            f"{whole[-1]} is whole, and the same command resumes from it"
            if whole
            else "there is no earlier one"
        )
        return UsageError(
            f"{folder}: the checkpoint could not be written: {error} ({free:,} bytes are free);"
            f" {then}"
        )


@contextmanager
def _no_model_card(trainer: Any) -> Iterator[None]:
    """While this lasts, the trainer writes no README.md.

    TRL's trainers write one into the run's folder with each checkpoint. A run that resumes could not tell it from one
    of the user's, and would refuse the folder.
    """
    trainer.create_model_card = lambda *_, **__: None
    try:
        yield
    finally:
        del trainer.create_model_card


def measure_held_out_loss_before_training(trainer: Any, claim: FolderClaim) -> float | None:
    """The loss of the held-out rows before the first step; None where none are held out, or the weights are sharded."""
    if claim.checkpoint is not None:
        known: float | None = claim.before.get("held_out_before")
        return known
    if trainer.eval_dataset is None or trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        return None
    loss: float | None = trainer.evaluate().get("eval_loss")
    # transformers adds it at the first evaluation.
    vars(trainer).pop(
        "model_preparation_time", None
    )  # else each later evaluation logs it, but not in a run that resumes
    return loss


def held_out_loss_after_training(trainer: Any) -> float | None:
    """The loss of the held-out rows after the last step, from the log where it has one; None where
    none are held out.
    """
    if trainer.eval_dataset is None:
        return None
    last = trainer.state.log_history if not trainer.args.load_best_model_at_end else []
    known = [
        entry["eval_loss"]
        for entry in last
        if "eval_loss" in entry and entry["step"] == trainer.state.global_step
    ]
    loss: float | None = known[-1] if known else trainer.evaluate().get("eval_loss")
    return loss


def save_final_weights(
    trainer: Any, record: RunFile, *, loss: float | None, seconds: float
) -> None:
    """Write the weights of a run that has reached its end, and complete its record. Raises UsageError."""
    # Gradient checkpointing switches it off, and it would be saved so: each generated token would
    # then read the whole text again.
    trainer.accelerator.unwrap_model(trainer.model).config.use_cache = True
    try:
        record.update(saving=True)
        trainer.save_model()
        trainer.save_state()
        if record.writes:
            _write_base_fingerprint_beside_adapter(record, record.folder)
            defaults = getattr(
                trainer.accelerator.unwrap_model(trainer.model), "generation_config", None
            )
            # peft saves the adapter alone; the stop ids that were trained are in this file, and a
            # server without it runs on.
            if defaults is not None and not (record.folder / "generation_config.json").is_file():
                write_atomically.write_atomically(
                    record.folder / "generation_config.json", defaults.to_json_string().encode()
                )
    except (OSError, RuntimeError, SafetensorError) as error:
        record.record_early_end("failed")
        free = shutil.disk_usage(record.folder).free
        raise UsageError(
            f"{record.folder}: the weights could not be written: {error} ({free:,} bytes are free);"
            " the same command resumes from the last checkpoint"
        ) from error
    PartialState().wait_for_everyone()
    record.record_completion(trainer.state, seconds=seconds, loss=loss)


def _write_base_fingerprint_beside_adapter(record: RunFile, folder: Path) -> None:
    """Write the fingerprint of the base beside an adapter."""
    base = record.facts["base"]["fingerprint"]
    if base is not None and (folder / "adapter_config.json").is_file():
        write_atomically.write_atomically(folder / FINGERPRINT, json.dumps(base, indent=1).encode())


def mark_checkpoint_whole(folder: Path, *, resumes: bool) -> None:
    """Bring a checkpoint to the disk, then say that it is whole. Raises OSError."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                # whole.json must not be on the disk before what it vouches for.
                os.fsync(file.fileno())
        elif path.is_dir():
            write_atomically.sync_folder_to_disk(path)
    whole = {
        "format": RECORD_FORMAT,
        "step": step_of_checkpoint_name(folder),
        "resumes": resumes,
        "files": list_files_with_digests(folder),
    }
    write_atomically.write_atomically(folder / WHOLE_FILE, json.dumps(whole, indent=1).encode())
    write_atomically.sync_folder_to_disk(folder)
    write_atomically.sync_folder_to_disk(folder.parent)


def collect_sums_since_last_log(trainer: Any) -> dict[str, Any]:
    """The sums of a trainer since the last line of its log, for a checkpoint."""
    sums = {
        name: _tensors_as_plain_values(getattr(trainer, name))
        for name in LOGGED_SUMS
        if hasattr(trainer, name)
    }
    ledger = getattr(trainer, "ledger", None)
    return sums | ({"ledger": ledger.state()} if ledger is not None else {})


def restore_log_sums(trainer: Any, saved: Mapping[str, Any]) -> None:
    """Restore the sums that `collect_sums_since_last_log` gave.

    The loss that transformers says of the whole call stays one of this call alone.
    """
    for name in LOGGED_SUMS:
        if name not in saved:
            continue
        value, current = saved[name], getattr(trainer, name, None)
        if isinstance(current, torch.Tensor):
            current.fill_(value)
        elif isinstance(current, Mapping):
            for part, lists in value.items():
                for key, values in lists.items():
                    current[part][key].extend(values)
        else:
            setattr(trainer, name, value)
    # The restored sum will be added to the total at the next log, though its steps belong to the
    # earlier call.
    trainer._total_loss_scalar -= saved.get("_tr_loss", 0.0)
    if "ledger" in saved:
        trainer.ledger.restore(saved["ledger"])


def _tensors_as_plain_values(value: Any) -> Any:
    """Tensors as numbers and lists, which JSON can hold; float32 survives that to the bit."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, Mapping):
        return {name: _tensors_as_plain_values(item) for name, item in value.items()}
    return (
        [_tensors_as_plain_values(item) for item in value]
        if isinstance(value, list | tuple)
        else value
    )


def _log_sums_file_name_of_process(process: int) -> str:
    """The name of the file of a process's sums in a checkpoint: each process has sums of its own."""
    return f"window_{process}.json"
