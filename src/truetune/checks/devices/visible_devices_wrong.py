"""CUDA_VISIBLE_DEVICES hides GPUs that the run needs.

## What it does
Reads CUDA_VISIBLE_DEVICES as CUDA and torch do, on a machine that has GPUs: an empty value or -1 hides all GPUs, an
index that does not exist ends the list, and a repeated index empties it.

## Why it is bad
There is no warning: the run starts on the CPU, or on fewer GPUs than named, and takes days instead of hours.

## Example
```yaml
config: {}
machine: {gpus: 2, memory: 24, environment: {CUDA_VISIBLE_DEVICES: "0,0"}}
```

## Use instead
```yaml
config: {}
machine: {gpus: 2, memory: 24, environment: {CUDA_VISIBLE_DEVICES: "0,1"}}
```

## Fix safety
Unset it to use all GPUs; on a shared machine, name only yours.

## References
- CUDA programming guide, "CUDA environment variables"; torch.cuda._parse_visible_devices
- pytorch/examples#115, pytorch/pytorch#1040
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule


class VisibleDevicesWrong(DeviceRule):
    code = "DEV002"
    fault = Fault.PROCESSES_USE_WRONG_GPUS
    symptoms = ("out-of-memory", "several-gpus")
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        value, have = self.machine.environment.get("CUDA_VISIBLE_DEVICES"), len(self.machine.gpus)
        # Names of single GPUs and their slices (`GPU-3f2...`) cannot be compared with indices.
        if value is None or not have or value.startswith(("GPU-", "MIG-")):
            return
        indices = [item.strip() for item in value.split(",")]
        visible = len(self.machine.visible_gpu_indices)
        evidence = [
            (
                f"the machine has {have} GPUs (0 to {have - 1})"
                if have > 1
                else "the machine has 1 GPU (0)"
            )
        ]
        # It may be meant, hence no error.
        if indices in ([""], ["-1"]):
            yield self.finding(
                f"CUDA_VISIBLE_DEVICES={value!r} hides all {have} GPUs; the run would use the CPU",
                "unset it, or set it to the GPUs to use, such as 0,1",
                severity="warning",
                evidence=evidence,
            )
        elif len(set(indices)) < len(indices):
            yield self.finding(
                f"CUDA_VISIBLE_DEVICES={value} names a GPU twice, so CUDA uses none at all",
                "list each GPU once",
                evidence=evidence,
            )
        elif visible < len(indices):
            yield self.finding(
                f"CUDA_VISIBLE_DEVICES={value} names {len(indices)} GPUs, but only {visible} can be used:"
                f" {indices[visible]} does not exist, and CUDA ignores the rest",
                "only list GPUs that exist (`nvidia-smi -L` lists them)",
                evidence=evidence,
            )
