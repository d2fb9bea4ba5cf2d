"""Coordinates the processes of one run: what they share out, do once, and decide together.

accelerate and transformers start and connect them. Here is what they leave open: that the first does alone what must
be done once, that all wait for it without a time limit, and that each gets as many rows as the others.
"""

from __future__ import annotations

import atexit
import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

import datasets
import torch
import torch.distributed
import transformers
from accelerate import PartialState
from accelerate.data_loader import SeedableRandomSampler
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from torch.utils.data import RandomSampler, Sampler, SequentialSampler

from truetune.errors import FirstProcessFailed, SpecError, TokenizerError, UsageError
from truetune.memory.matrices_and_parameters_from_config import read_architecture
from truetune.render.find_tokenizer_folder import find_tokenizer_folder
from truetune.settings.run_spec import RunSpec

# Chosen, not measured: longer than any encoding. The processes wait without load, so that a large
# value costs nothing but a late end if the first one hangs.
MAX_WAIT = timedelta(days=7)
"""How long the other processes wait for what the first does alone; an encoding may take hours"""
# torch's and transformers' default for gloo. Half of it may end a run whose one process evaluates
# or saves for long; twice as long delays the end of a run in which one process has died.
STEP_TIMEOUT_S = 1800.0
"""Seconds that they wait for each other in a step, where `ddp_timeout` is not set"""


def join_processes_of_launcher(spec: RunSpec) -> PartialState:
    """Connect to the other processes of the run, where a launcher started some. Raises UsageError
    for a bad ddp_timeout.
    """
    try:
        timeout = timedelta(seconds=float(spec.trainer.get("ddp_timeout", STEP_TIMEOUT_S)))
    except (TypeError, ValueError):
        raise UsageError(
            f"trainer.ddp_timeout: {spec.trainer['ddp_timeout']}: expected seconds"
        ) from None
    # Made here, before transformers makes one: the first PartialState of a process sets the timeout
    # for all of its groups.
    state = PartialState(cpu=not torch.cuda.is_available(), timeout=timeout)
    if state.num_processes > 1:
        # At exit and not at the end of the run: an error may leave at any place.
        atexit.register(_leave_process_group)
    if not state.is_main_process:
        # One process speaks for all, or each line stands on the terminal N times.
        transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        for library in (transformers.logging, datasets):
            library.disable_progress_bar()
        warnings.simplefilter("ignore")
    return state


def settings_for_number_of_processes(spec: RunSpec, state: PartialState) -> RunSpec:
    """The settings of a run for the number of its processes; DDP need not look for unused weights
    where all are used.
    """
    devices = spec.training.model_copy(update={"devices": state.num_processes})
    trainer = (
        {"ddp_find_unused_parameters": False}
        if state.num_processes > 1 and _does_every_token_use_all_weights(spec)
        else {}
    )
    return spec.model_copy(update={"training": devices, "trainer": trainer | spec.trainer})


@contextmanager
def run_first_process_before_others() -> Iterator[bool]:
    """The first process goes before the others; True in it.

    Raises:
        FirstProcessFailed: in the others, where the first one fails.
    """
    state = PartialState()
    leads, several = state.is_main_process, state.num_processes > 1
    # Waits here until the first has finished (or failed); only then may a cache be read that the
    # first one writes.
    if several and not leads and _broadcast_failure(False):
        raise FirstProcessFailed
    try:
        yield leads
    # Interrupts too: the others would wait for a week.
    except BaseException:
        if several and leads:
            _broadcast_failure(True)
        raise
    if several and leads:
        _broadcast_failure(False)


@contextmanager
def hide_other_processes_from_accelerate() -> Iterator[None]:
    """In here accelerate takes this process for the only one: nothing is gathered, and nobody waited for."""
    held = [
        (known, dict(known))
        for known in (PartialState._shared_state, AcceleratorState._shared_state)
        if known
    ]
    try:
        for known, _ in held:
            # These two dictionaries are the state that every PartialState and Accelerator object
            # shares. A rehearsal in one process would otherwise wait in collectives for the others,
            # which are not in it.
            known.update(distributed_type=DistributedType.NO, num_processes=1, process_index=0)
        yield
    finally:
        for known, before in held:
            known.update(
                {
                    name: before[name]
                    for name in ("distributed_type", "num_processes", "process_index")
                }
            )


def keep_off_data_parallel(args: Any) -> None:
    """Keep a Trainer from nn.DataParallel, which takes the mean of unequal shares and gathers all logits on one GPU."""
    # The property is computed once and kept in this field; there is no argument for it.
    args._n_gpu = min(args.n_gpu, 1)


def describe_idle_gpus() -> str | None:
    """A note on GPUs that the run does not use; None where there are none."""
    count = torch.cuda.device_count()
    if count < 2 or PartialState().num_processes > 1:
        return None
    return (
        f"devices: 1 of {count} GPUs, for no launcher started this process; --launch {count}"
        " uses all"
    )


def make_even_sampler(sampler: Any, args: Any, batch: int, epoch: Callable[[], int]) -> Any:
    """A sampler that gives every process equally many batches; the given one where there is one
    process.

    accelerate would repeat the first rows at the end, and count them twice.

    Args:
        sampler: the trainer's own.
        args: its arguments (processes, seeds).
        batch: rows of one process in one batch.
        epoch: gives the epoch that the run is in.
    """
    if args.world_size == 1 or args.dataloader_drop_last:
        return sampler
    if isinstance(sampler, RandomSampler):
        # As accelerate would choose it, so that one process and two see the rows in the same order
        # (tests/training/test_two_processes.py).
        seed = args.seed if args.data_seed is None else args.data_seed
        sampler = SeedableRandomSampler(sampler.data_source, data_seed=seed)
    elif not isinstance(sampler, SequentialSampler):
        return sampler
    return EvenSampler(sampler, batch * args.world_size, epoch)


class EvenSampler(Sampler[int]):
    """Gives the numbers of a sampler, then of rows past the end of the data, which `TrainingRows`
    makes blank.

    In the epoch that the run is in: accelerate tells no sampler of it where batches are skipped on several processes.
    """

    def __init__(self, sampler: Any, multiple: int, epoch: Callable[[], int]) -> None:
        self.sampler, self.multiple, self.epoch = sampler, multiple, epoch

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.multiple) * self.multiple

    def __iter__(self) -> Iterator[int]:
        if hasattr(self.sampler, "set_epoch"):
            # Without it every epoch of a run on several processes has the order of the first one
            # after a resume.
            self.sampler.set_epoch(self.epoch())
        yield from self.sampler
        # Numbers past the end: rows of which nothing is supervised, which count for nothing in the
        # loss and let each process make as many steps.
        yield from range(len(self.sampler), len(self))


def _leave_process_group() -> None:
    """Leave the process group: gloo's threads end with the group, or with a crash of the process;
    models that are still held keep the group.
    """
    if torch.distributed.is_initialized() and torch.distributed.get_backend() == "gloo":
        gc.collect()
        torch.distributed.destroy_process_group()


def _does_every_token_use_all_weights(spec: RunSpec) -> bool:
    """Is each weight used for each token, so that DDP need not look which are not? Experts and towers are not."""
    try:
        architecture = read_architecture(find_tokenizer_folder(str(spec.model or spec.tokenizer)))
    except (SpecError, TokenizerError):
        return False
    # Experts that no token chose, and towers without an image, get no gradient, and DDP waits for
    # it unless it is told to look.
    return not architecture.other and not architecture.parameter_counts_by_part().get("experts")


def _broadcast_failure(failed: bool) -> bool:
    """Tell all processes whether the first one has failed."""
    flag = torch.tensor([int(failed)])
    torch.distributed.broadcast(flag, 0, group=_process_group_that_waits_on_cpu())
    return bool(flag.item())


@cache
def _process_group_that_waits_on_cpu() -> Any:
    """A process group that waits on the CPU: a GPU's would end the run after minutes, and spin
    meanwhile.
    """
    # Kept for the process: each new group takes threads and sockets.
    return torch.distributed.new_group(backend="gloo", timeout=MAX_WAIT)
