"""Handles a run that ran out of memory: where it was, what filled the memory, and what to change.

The batch is noted before each forward pass, the parts are measured after the error, and all of it is kept as plain
numbers, so that no tensor survives. With --fit the first remedy is applied and the run starts again.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils.memory import should_reduce_batch_size

from truetune.checkpoint.read_run_and_check_checkpoints import list_checkpoints
from truetune.errors import OutOfMemoryError
from truetune.memory.estimate_memory import GIB
from truetune.memory.plan_memory import Plan
from truetune.training.change_settings_until_memory_fits import (
    MemoryChange,
    MemoryFitting,
    changes_after_out_of_memory,
    changes_as_yaml_lines,
)
from truetune.training.tell_files_of_run_from_other_files import first_free_path

# Chosen, not measured: each retry loads the model again. The plan has about ten remedies; after
# four that did not help, its figures are wrong for this model and guessing on is waste.
MAX_RETRIES = 4
"""Times that a run is changed and started again after it ran out of memory"""


@dataclass(frozen=True, slots=True)
class OutOfMemoryFacts:
    """Where and how memory ran out. Holds no tensor, so that what the run took is free."""

    step: int
    """The step that was being made, from 1"""
    evaluating: bool
    rows: int
    """Of the batch on this device; 0 where no batch had come yet"""
    tokens: int
    """Of each row, with its padding"""
    held: Mapping[str, float]
    """Bytes by part, as measured"""
    error: str
    """What torch said"""

    def __str__(self) -> str:
        where = (
            f"in an evaluation after step {self.step - 1:,}"
            if self.evaluating
            else f"in step {self.step:,}"
        )
        batch = f", with a batch of {self.rows:,} x {self.tokens:,} tokens" if self.rows else ""
        parts = ", ".join(f"{part} {size / GIB:.2f}" for part, size in self.held.items())
        return f"memory ran out {where}{batch} (GiB: {parts}; {self.error})"


class RanOutOfMemory(Exception):
    """Raised where an attempt ran out of memory."""

    def __init__(self, trouble: OutOfMemoryFacts, plan: Plan | None, folder: Path) -> None:
        super().__init__(str(trouble))
        self.trouble, self.plan, self.folder = trouble, plan, folder

    def without_traceback(self) -> RanOutOfMemory:
        """The same error without its traceback, so that what those functions held is free."""
        return RanOutOfMemory(self.trouble, self.plan, self.folder)


def run_and_catch_out_of_memory(trainer: Any, run: Callable[[], Any]) -> OutOfMemoryFacts | None:
    """Run; gives what happened where memory ran out, and None where it did not. Afterwards only the
    trainer holds anything of the attempt.
    """
    # Noted before each forward pass, since after the error nothing tells the batch's shape any
    # more.
    seen = _LastBatch()
    # On the model and not on the trainer: an evaluation takes another path through the trainer.
    handle = trainer.model.register_forward_pre_hook(seen, with_kwargs=True)
    trouble = None
    try:
        run()
    except Exception as error:
        if not is_out_of_memory_error(error):
            raise
        # Plain numbers and text. The traceback of the error holds every frame with its tensors, and
        # the next attempt would find the memory still full.
        trouble = OutOfMemoryFacts(
            trainer.state.global_step + 1,
            seen.evaluating,
            seen.rows,
            seen.tokens,
            _memory_bytes_by_part(trainer),
            _first_line_of_error(error),
        )
    finally:
        handle.remove()
    return trouble


def is_out_of_memory_error(error: BaseException) -> bool:
    """Does an error say that memory ran out, that of a GPU or of the machine?"""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        # accelerate's list of messages: cuBLAS and cuDNN say "no memory" by other exceptions than
        # torch's.
        isinstance(error, Exception) and should_reduce_batch_size(error)
    )


def reduce_next_attempt_or_give_up(error: RanOutOfMemory, fitting: MemoryFitting) -> None:
    """Make the next attempt take less. Raises OutOfMemoryError where that was not asked for, or nothing is left."""
    changes = (
        changes_after_out_of_memory(error.plan, evaluating=error.trouble.evaluating)
        if error.plan is not None
        else []
    )
    # With several processes one may run out and the others not, and they would wait for each other
    # in a collective call.
    again = fitting.wanted and PartialState().num_processes == 1
    if not again or not changes or fitting.relieved >= MAX_RETRIES:
        raise OutOfMemoryError(
            "\n".join((str(error.trouble), *_out_of_memory_advice_lines(changes, again=again)))
        )
    fitting.say(str(error.trouble))
    fitting.changes.append(changes[0])
    fitting.relieved += 1
    # Renamed, never removed: they are the user's hours of training, and the other settings could
    # still take them up.
    if changes[0].restarts:
        for path in list_checkpoints(error.folder):
            path.rename(first_free_path(path.with_name(f"before-fit-{path.name}")))
    gc.collect()
    if torch.cuda.is_available():
        # Cached blocks of the old sizes would fragment the memory for the new ones.
        torch.cuda.empty_cache()


def _out_of_memory_advice_lines(changes: Sequence[MemoryChange], *, again: bool) -> Iterator[str]:
    """Lines on what to change, for a run that is not started again."""
    if changes:
        yield "in order, for truetune.yaml" + (":" if again else ", or by --fit in one process:")
        yield from changes_as_yaml_lines(changes)
    else:
        yield (
            "nothing is left to change: take a larger GPU, several with FSDP (docs/devices.md), or"
            " a smaller model"
        )


class _LastBatch:
    """A hook that keeps the shape of the last batch that the model was given."""

    def __init__(self) -> None:
        self.rows = self.tokens = 0
        self.evaluating = False

    def __call__(self, module: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        if isinstance(ids, torch.Tensor) and ids.dim() == 2:
            self.rows, self.tokens = ids.shape
        self.evaluating = not module.training


def _memory_bytes_by_part(trainer: Any) -> dict[str, float]:
    """Bytes of weights, gradients and optimizer as they are; what is left of the peak is
    activations and work.
    """
    parameters = list(trainer.model.parameters())
    # accelerate wraps the optimizer; before the first step there is none.
    states = getattr(getattr(trainer.optimizer, "optimizer", trainer.optimizer), "state", {})
    parts = {
        "weights": _total_bytes_of_tensors(parameters),
        "gradients": _total_bytes_of_tensors(p.grad for p in parameters if p.grad is not None),
        "optimizer": _total_bytes_of_tensors(
            value for state in states.values() for value in state.values()
        ),
    }
    if not torch.cuda.is_available():
        return parts | {
            "peak of the process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        }
    stats = torch.cuda.memory_stats()
    peak = float(stats.get("allocated_bytes.all.peak", 0))
    # Reserved and never allocated: what fragmentation took.
    lost = float(stats.get("reserved_bytes.all.peak", 0)) - peak
    return parts | {
        "activations and work": max(0.0, peak - sum(parts.values())),
        "fragments": max(0.0, lost),
    }


def _total_bytes_of_tensors(tensors: Any) -> float:
    """Bytes of all tensors among some values."""
    return float(sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor)))


def _first_line_of_error(error: BaseException) -> str:
    """What an error says in a line; the name of its class where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
