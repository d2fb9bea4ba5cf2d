"""DeepSpeed's gradient buffers take gigabytes of each GPU.

## What it does
Reads the DeepSpeed file of a launch. `reduce_bucket_size` is a number of elements, and ZeRO allocates a gradient buffer
of that size (two with `overlap_comm` at stages 1 and 2). It fires from 4 GiB on. It does not fire for `auto`, for the
default (5e8), or without `contiguous_gradients`, where there is no such buffer.

## Why it is bad
The buffer is allocated in full, however small the model is: 5e9 elements in 16 bits are 9.3 GiB on each GPU, or 18.6
GiB with `overlap_comm`. Estimates of weights and optimizer states don't include it, and above about 5e8 communication
gets no faster.

## Example
```yaml
files:
  run.sh: deepspeed --num_gpus 8 train.py --deepspeed ds.json
  ds.json:
    bf16: {enabled: true}
    zero_optimization: {stage: 2, overlap_comm: true, reduce_bucket_size: 5000000000}
```

## Use instead
```yaml
files:
  run.sh: deepspeed --num_gpus 8 train.py --deepspeed ds.json
  ds.json:
    bf16: {enabled: true}
    zero_optimization: {stage: 2, overlap_comm: true, reduce_bucket_size: 500000000}
```

## Fix safety
Safe: it changes how many gradients are sent together, not their sum.

## References
- deepspeed/runtime/zero/stage_1_and_2.py (`ipg_buffer`), deepspeed/runtime/zero/stage3.py (`ipg_bucket_flat_buffer`)
- https://huggingface.co/docs/transformers/deepspeed
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.read_settings_in_launch_files import (
    LaunchFiles,
    LocatedValue,
    find_launches_with_files,
    first_set_value,
)
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile

ZERO = "zero_optimization"
GIB = 1 << 30
"""Bytes"""
BYTES_OF_GRADIENT = 2
"""In 16 bits, the least: gradients of a float32 run take four"""
MIN_GIB = 4.0
"""On each GPU. Chosen, not measured: twice what the default takes with overlap_comm"""
SPLITTING_STAGES = (1, 2)
"""Stages at which overlap_comm makes a second buffer"""


class GradientBuffers(NamedTuple):
    """The buffers for gradients of a launch."""

    place: LocatedValue
    buffers: int
    gib: float
    """Of all together"""


class DeepspeedBucketsFillTheGpu(CommandRule):
    code = "CMD131"
    fault = Fault.RUN_EXCEEDS_GPU_MEMORY
    symptoms = ("out-of-memory",)
    severity = "warning"
    stability = "preview"
    what = "launches by DeepSpeed that set a bucket's size"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[LaunchFiles]:
        """The places that the rule looks at: the launches by DeepSpeed that set a bucket's size."""
        for launch in find_launches_with_files(file):
            if _gradient_buffers(launch) is not None:
                yield launch

    def findings(self) -> Iterator[Finding]:
        for launch in self.examined_places(self.subject):
            buckets = _gradient_buffers(launch)
            if buckets is None or buckets.gib < MIN_GIB:
                continue
            place, several = buckets.place, "s" if buckets.buffers > 1 else ""
            yield self.finding(
                f"DeepSpeed allocates {buckets.buffers} gradient buffer{several} of {float(place.value):,.0f}"
                f" elements: {buckets.gib:.1f} GiB on each GPU, in addition to weights and optimizer states",
                (
                    "set reduce_bucket_size and allgather_bucket_size to 5e8 (with the transformers Trainer also:"
                    ' "auto")'
                ),
                cases=[
                    Case(place.text, file=place.file, line=place.line),
                    self.case_of_command(launch.command, launch.command.text[:300]),
                ],
            )


def _gradient_buffers(launch: LaunchFiles) -> GradientBuffers | None:
    """The buffers that a launch makes; None where its file sets no size, or gradients are not laid side by side."""
    size = _deepspeed_zero_setting(launch, "reduce_bucket_size")
    if size is None or not isinstance(size.value, int | float):
        return None
    has_stage = _is_zero_setting_one_of(launch, "stage", *SPLITTING_STAGES, 3)
    if not has_stage or _is_zero_setting_one_of(launch, "contiguous_gradients", False):
        return None
    is_overlapped = _is_zero_setting_one_of(launch, "overlap_comm", True)
    is_doubled = is_overlapped and _is_zero_setting_one_of(launch, "stage", *SPLITTING_STAGES)
    count = 2 if is_doubled else 1
    return GradientBuffers(size, count, count * float(size.value) * BYTES_OF_GRADIENT / GIB)


def _is_zero_setting_one_of(launch: LaunchFiles, name: str, *values: object) -> bool:
    """Does the DeepSpeed file of a launch set ZeRO's setting to one of these values?"""
    located_value = _deepspeed_zero_setting(launch, name)
    return located_value is not None and located_value.value in values


def _deepspeed_zero_setting(launch: LaunchFiles, name: str) -> LocatedValue | None:
    """A setting of ZeRO, with its place in the DeepSpeed file of a launch; None where it is not
    set.
    """
    return first_set_value(launch.deepspeed, (ZERO, name))
