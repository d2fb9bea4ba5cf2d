"""The launch starts fewer processes than the machine has GPUs, so some stay idle.

## What it does
Inside a launch (WORLD_SIZE and LOCAL_RANK are set), compares the number of processes on this machine with the GPUs that
they see. A training normally starts one process per GPU.

## Why it is bad
GPUs that are paid for stay idle, and no message says so.

## Example
```yaml
config: {}
machine: {gpus: 8, memory: 80, environment: {WORLD_SIZE: "1", RANK: "0", LOCAL_RANK: "0", LOCAL_WORLD_SIZE: "1"}}
```

## Use instead
```yaml
config: {}
machine: {gpus: 8, memory: 80, environment: {WORLD_SIZE: "8", RANK: "3", LOCAL_RANK: "3", LOCAL_WORLD_SIZE: "8"}}
```

## Fix safety
More processes make the effective batch larger, unless you lower the gradient accumulation; the learning rate was chosen
for a certain effective batch. Hide GPUs that are meant for others with CUDA_VISIBLE_DEVICES.

## References
- huggingface/transformers#31557, huggingface/accelerate#2486
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule


class GpusIdle(DeviceRule):
    code = "DEV010"
    fault = Fault.GPUS_LEFT_UNUSED
    severity = "warning"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        visible = len(self.machine.visible_gpu_indices)
        # Launchers other than torchrun may not set LOCAL_WORLD_SIZE; on one machine both are the same number.
        processes = (
            self.machine.environment_variable_as_int("LOCAL_WORLD_SIZE")
            or self.machine.environment_variable_as_int("WORLD_SIZE")
            or 0
        )
        # With a device map one process uses several GPUs.
        is_alone = self.machine.is_started_by_launcher and self.training.device_map is None
        if is_alone and 0 < processes < visible:
            yield self.finding(
                f"only {processes} of {visible} visible GPUs are used: {processes} process{'es' * (processes > 1)}"
                " on this machine",
                f"start {visible} processes (torchrun --nproc_per_node {visible}), or hide the other GPUs with"
                " CUDA_VISIBLE_DEVICES",
                evidence=[
                    f"{name}={value}"
                    for name, value in self.machine.environment.items()
                    if "SIZE" in name
                ],
                count=visible - processes,
                total=visible,
            )
