"""Memory trouble: a run that ran out of memory, told as where it was, what filled the memory and what to change."""

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

from truetune.checkpoint.run_folder import list_checkpoints
from truetune.errors import OutOfMemoryError
from truetune.memory.estimate import GIB
from truetune.memory.plan import Plan
from truetune.training.fit import Change, Fitting, listed, relief
from truetune.training.run_files import free_name

TRIES = 4
"""Times that a run is changed and started again after it ran out of memory"""


@dataclass(frozen=True, slots=True)
class Trouble:
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


class RanOut(Exception):
    """An attempt ended so."""

    def __init__(self, trouble: Trouble, plan: Plan | None, folder: Path) -> None:
        super().__init__(str(trouble))
        self.trouble, self.plan, self.folder = trouble, plan, folder

    def without_frames(self) -> RanOut:
        """The same; what the functions on its way held is free."""
        return RanOut(self.trouble, self.plan, self.folder)


def attempt(trainer: Any, run: Callable[[], Any]) -> Trouble | None:
    """Run; what happened where memory ran out. Nothing of the attempt is held then but by the trainer."""
    seen = _Seen()
    handle = trainer.model.register_forward_pre_hook(seen, with_kwargs=True)
    trouble = None
    try:
        run()
    except Exception as error:
        if not ran_out(error):
            raise
        trouble = Trouble(
            trainer.state.global_step + 1,
            seen.evaluating,
            seen.rows,
            seen.tokens,
            _held(trainer),
            _first_line(error),
        )
    finally:
        handle.remove()
    return trouble


def ran_out(error: BaseException) -> bool:
    """Is this the end of the memory, of a GPU's or of the machine's?"""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, Exception) and should_reduce_batch_size(error)
    )


def relieve(error: RanOut, fitting: Fitting) -> None:
    """Make the next attempt take less. Raises OutOfMemoryError where that was not asked for, or nothing is left."""
    changes = (
        relief(error.plan, evaluating=error.trouble.evaluating) if error.plan is not None else []
    )
    again = fitting.wanted and PartialState().num_processes == 1
    if not again or not changes or fitting.relieved >= TRIES:
        raise OutOfMemoryError("\n".join((str(error.trouble), *_advice(changes, again=again))))
    fitting.say(str(error.trouble))
    fitting.changes.append(changes[0])
    fitting.relieved += 1
    if changes[0].anew:
        for path in list_checkpoints(error.folder):
            path.rename(free_name(path.with_name(f"before-fit-{path.name}")))
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _advice(changes: Sequence[Change], *, again: bool) -> Iterator[str]:
    if changes:
        yield "in order, for truetune.yaml" + (":" if again else ", or by --fit in one process:")
        yield from listed(changes)
    else:
        yield (
            "nothing is left to change: take a larger GPU, several with FSDP (docs/devices.md), or"
            " a smaller model"
        )


class _Seen:
    """The shape of the last batch that the model was given."""

    def __init__(self) -> None:
        self.rows = self.tokens = 0
        self.evaluating = False

    def __call__(self, module: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        if isinstance(ids, torch.Tensor) and ids.dim() == 2:
            self.rows, self.tokens = ids.shape
        self.evaluating = not module.training


def _held(trainer: Any) -> dict[str, float]:
    """Weights, gradients and optimizer as they are; what is left of the peak is activations and work."""
    parameters = list(trainer.model.parameters())
    states = getattr(getattr(trainer.optimizer, "optimizer", trainer.optimizer), "state", {})
    found = {
        "weights": _bytes(parameters),
        "gradients": _bytes(p.grad for p in parameters if p.grad is not None),
        "optimizer": _bytes(value for state in states.values() for value in state.values()),
    }
    if not torch.cuda.is_available():
        return found | {
            "peak of the process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        }
    stats = torch.cuda.memory_stats()
    peak = float(stats.get("allocated_bytes.all.peak", 0))
    lost = float(stats.get("reserved_bytes.all.peak", 0)) - peak
    return found | {
        "activations and work": max(0.0, peak - sum(found.values())),
        "fragments": max(0.0, lost),
    }


def _bytes(tensors: Any) -> float:
    return float(sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor)))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
