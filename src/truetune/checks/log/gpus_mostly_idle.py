"""GPUs are mostly idle during training, or one of them is not used (nvidia-smi output beside the log).

## What it does
Reads files of nvidia-smi beside the log of a training (the table, or `--query-gpu` as CSV): utilization and memory of
each GPU, as the mean of several readings. It reports as info if all GPUs with a model in memory are below 30 %, or if
one of several is empty. It warns if, in 80 % of ten readings or more, only one GPU works at a time, and it is not
always the same one.

## Why it is bad
A run is only as fast as what its GPUs wait for: data, copies to CPU memory, evaluation, other processes. GPUs that work
one after another are together as fast as one: the layers were spread over them. Free memory shows that offloading,
gradient checkpointing or a tiny batch are not needed.

## Example
```yaml
output: |
  {'loss': 1.69, 'grad_norm': 0.67, 'learning_rate': 6.67e-06, 'epoch': 0.02}
  100%|██████████| 150/150 [1:43:55<00:00, 41.57s/it]
  {'train_runtime': 6235.5, 'train_samples_per_second': 0.38, 'train_loss': 1.31, 'epoch': 3.0}
gpus:
  - {index: 0, name: NVIDIA A100-SXM4-80GB, total: 81920, used: 12874, busy: 11}
  - {index: 1, name: NVIDIA A100-SXM4-80GB, total: 81920, used: 12790, busy: 8}
```

## Use instead
```yaml
output: |
  {'loss': 1.69, 'grad_norm': 0.67, 'learning_rate': 6.67e-06, 'epoch': 0.02}
  100%|██████████| 150/150 [05:21<00:00, 2.14s/it]
  {'train_runtime': 321.2, 'train_samples_per_second': 7.47, 'train_loss': 1.31, 'epoch': 3.0}
gpus:
  - {index: 0, name: NVIDIA A100-SXM4-80GB, total: 81920, used: 70874, busy: 97}
  - {index: 1, name: NVIDIA A100-SXM4-80GB, total: 81920, used: 70790, busy: 96}
```

## Fix safety
A single reading may fall between two steps, or into an evaluation: `nvidia-smi dmon` shows a minute. One process per
GPU makes steps larger: divide `gradient_accumulation_steps` by their number to keep the batch size.

## References
- docs.nvidia.com/deploy/nvidia-smi (utilization.gpu, memory.used)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import LogRule
from truetune.parsing.read_nvidia_smi_output import GpuReading

GIB = float(1 << 30)
IDLE_PERCENT = 30.0
"""Utilization. Chosen, not measured: trainings that are not held up by anything show 80 and more"""
UNUSED_BYTES = 1.5 * GIB
"""A context of CUDA alone takes half a GiB; weights of a model take more"""
FREE_SHARE = 0.5
"""Of the memory, from which on free memory is worth a word"""

BUSY_PERCENT, MIN_READINGS, MIN_ALONE = 50.0, 10, 0.8
"""Utilization of a GPU that works, readings in which one does, and the share of them in which it is alone.

Chosen, not measured: of two GPUs that each work half of the time by chance, one is alone in two of three."""


class GpuTurns(NamedTuple):
    """How often GPUs work one after another."""

    alone: int
    """Readings in which one works alone"""
    readings: int
    """Readings in which any works"""
    gpus: int
    """GPUs that were seen to work alone"""


class GpusMostlyIdle(LogRule):
    code = "LOG086"
    fault = Fault.GPUS_LEFT_UNUSED
    symptoms = ("slow-training", "several-gpus")
    severity = "info"

    def unmet(self) -> Unmet | None:
        """Unmet without an output of nvidia-smi beside the log, or where the log is of no training."""
        if not self.subject.files_beside.gpus:
            return Unmet(
                "no output of nvidia-smi lies beside the log",
                "nvidia-smi > gpu.txt, while it trains",
            )
        return None if self.subject.curve("loss") else Unmet("the log is of no training")

    def measurement_if_clean(self) -> str:
        """The GPUs with their used memory and utilization."""
        return describe_gpus(self.subject.files_beside.gpus)

    def findings(self) -> Iterator[Finding]:
        gpus = [gpu for gpu in self.subject.files_beside.gpus if gpu.busy is not None]
        working = [gpu for gpu in gpus if _may_hold_model(gpu)]
        if not working or not self.subject.curve("loss"):
            return
        unused = [gpu for gpu in gpus if not _may_hold_model(gpu) and _is_idle(gpu)]
        if unused:
            yield self._finding_on_unused_gpus(unused, gpus)
        yield from self._findings_on_working_gpus(working)

    def _findings_on_working_gpus(self, working: Sequence[GpuReading]) -> Iterator[Finding]:
        """Findings on the GPUs that hold the model: they take turns, or wait for something else."""
        turns = _measure_gpus_taking_turns(working)
        if turns is not None:
            yield self._finding_on_gpus_taking_turns(working, turns)
        elif all(_is_idle(gpu) for gpu in working) and not self._is_idle_after_the_run(working):
            yield self._finding_on_waiting_gpus(working)

    def _is_idle_after_the_run(self, working: Sequence[GpuReading]) -> bool:
        """Does a model wait at 0 % for requests that nobody sends, beside the log of a run that
        came to its end?
        """
        is_over = self.subject.fact_as_number("train_runtime") is not None
        return is_over and all(gpu.busy == 0 for gpu in working)

    def _finding_on_unused_gpus(
        self, unused: Sequence[GpuReading], gpus: Sequence[GpuReading]
    ) -> Finding:
        """The finding that some GPUs hold no model."""
        names = ", ".join(str(gpu.index) for gpu in unused)
        return self.finding(
            f"{len(unused)} of {len(gpus)} GPUs hold no model while the run trains: GPU {names}",
            "start one process per GPU (torchrun --nproc_per_node N, accelerate launch"
            " --num_processes N), or request fewer GPUs; check that CUDA_VISIBLE_DEVICES lists all of them",
            evidence=[describe_gpus(gpus)],
        )

    def _finding_on_gpus_taking_turns(
        self, working: Sequence[GpuReading], turns: GpuTurns
    ) -> Finding:
        """The finding that one GPU computes at a time."""
        return self.finding(
            f"the {len(working)} GPUs work one after another: in {turns.alone:,} of {turns.readings:,} readings only"
            f" one of them works, and {turns.gpus} of them take turns",
            "the layers of one model are spread over the GPUs: remove device_map and start one process per GPU"
            " (torchrun --nproc_per_node N, accelerate launch --num_processes N); if one GPU can't hold the model,"
            " shard it with FSDP or DeepSpeed ZeRO-3",
            severity="warning",
            evidence=[describe_gpus(working)],
        )

    def _finding_on_waiting_gpus(self, working: Sequence[GpuReading]) -> Finding:
        """The finding that GPUs hold the model and compute little."""
        return self.finding(
            f"the GPUs are at {_format_range([gpu.busy or 0 for gpu in working])}% utilization while the run trains",
            "find what they wait for: offloading to the CPU, evaluation and saving, tokenizing in"
            " the data loader (raise dataloader_num_workers), tiny batches, a slow disk or network",
            evidence=[describe_gpus(working), *_describe_free_memory(working)],
        )


def _measure_gpus_taking_turns(gpus: Sequence[GpuReading]) -> GpuTurns | None:
    """Measure how often one GPU alone works; None where the readings are few, or several work at
    once.
    """
    at_work = [one for one in _utilizations_by_reading(gpus) if max(one) >= BUSY_PERCENT]
    alone = [one for one in at_work if sorted(one)[-2] < IDLE_PERCENT]
    workers = {one.index(max(one)) for one in alone}
    if len(at_work) < MIN_READINGS or len(workers) < 2 or len(alone) < MIN_ALONE * len(at_work):
        return None
    return GpuTurns(len(alone), len(at_work), len(workers))


def _utilizations_by_reading(gpus: Sequence[GpuReading]) -> list[tuple[float, ...]]:
    """The utilization of several GPUs in each reading; none where some readings lack one of them."""
    samples = [gpu.samples for gpu in gpus]
    is_complete = len(gpus) > 1 and len(set(map(len, samples))) == 1
    return list(zip(*samples, strict=True)) if is_complete else []


def _may_hold_model(gpu: GpuReading) -> bool:
    """Is more of the GPU's memory used than a bare context takes? True also where the reading does
    not say it.
    """
    return gpu.used is None or gpu.used > UNUSED_BYTES


def _is_idle(gpu: GpuReading) -> bool:
    """Does the GPU compute little?"""
    return (gpu.busy or 0) < IDLE_PERCENT


def describe_gpus(gpus: Sequence[GpuReading]) -> str:
    """The GPUs in words, with memory and utilization: `4 x NVIDIA A100-SXM4-80GB: 12.5 to 12.6 of
    80 GiB used, utilization 8 to 13%`
    """
    names = " and ".join(sorted({gpu.name for gpu in gpus if gpu.name})) or "GPU"
    figures = ", ".join((*_describe_memory(gpus), *_describe_utilization(gpus)))
    return f"{len(gpus)} x {names}" + (f": {figures}" if figures else "")


def _describe_memory(gpus: Sequence[GpuReading]) -> Iterator[str]:
    """The used memory in words: `12.5 to 12.6 of 80 GiB used`"""
    used = [gpu.used / GIB for gpu in gpus if gpu.used is not None]
    total = [gpu.total / GIB for gpu in gpus if gpu.total]
    if used and total:
        yield f"{_format_range(used, 1)} of {min(total):.0f} GiB used"


def _describe_utilization(gpus: Sequence[GpuReading]) -> Iterator[str]:
    """The utilization in words: `utilization 8 to 13%`"""
    busy = [gpu.busy for gpu in gpus if gpu.busy is not None]
    if busy:
        yield f"utilization {_format_range(busy)}%"


def _describe_free_memory(gpus: Sequence[GpuReading]) -> Iterator[str]:
    """That most memory is free, where it is."""
    shares = [gpu.used / gpu.total for gpu in gpus if gpu.used is not None and gpu.total]
    if shares and max(shares) < 1 - FREE_SHARE:
        yield (
            f"at least {1 - max(shares):.0%} of their memory is free: offloading and gradient checkpointing may not be"
            " needed, and a larger batch fits"
        )


def _format_range(values: Sequence[float], digits: int = 0) -> str:
    """A range of values in words: `8 to 13`, or `8` where all are the same."""
    shown = [f"{value:.{digits}f}" for value in sorted(values)]
    return shown[0] if shown[0] == shown[-1] else f"{shown[0]} to {shown[-1]}"
