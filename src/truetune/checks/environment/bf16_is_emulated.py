"""The GPU has no native bf16, so torch emulates it.

## What it does
Looks for GPUs below compute capability 8.0 (T4, V100, P100, RTX 20xx), and for a bf16 matrix product that gives a wrong
result.

## Why it is bad
torch.cuda.is_bf16_supported() returns True there, because torch emulates bf16. A run with `bf16: true` is many times
slower than with fp16, and some kernels refuse it.

## Example
```yaml
packages: {torch: 2.8.0+cu126}
gpus: 1
torch: {cuda: "12.6", available: true, devices: [[Tesla T4, [7, 5]]], architectures: [sm_75, sm_80], bf16: true}
```

## Use instead
```yaml
packages: {torch: 2.8.0+cu126}
gpus: 1
torch: {cuda: "12.6", available: true, devices: [[NVIDIA A100, [8, 0]]], architectures: [sm_75, sm_80], bf16: true}
```

## Fix safety
fp16 has a smaller range than bf16: models that were trained in bf16 (Gemma, T5, Qwen) may overflow in it; `truetune
run` measures that.

## References
- unslothai/unsloth#2783, MakazhanAlpamys/Soup#387 (a T4 says that it supports bf16)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import HIP, NO_GPU
from truetune.checks.rule import EnvironmentRule

# Not a choice: Ampere is the first generation with bf16 units. A T4 (7.5) and a V100 (7.0) have none: torch
# takes slow paths there.
FIRST_CAPABILITY_WITH_BF16 = (8, 0)


class Bf16IsEmulated(EnvironmentRule):
    code = "ENV006"
    fault = Fault.PRECISION_SLOWER_THAN_NEEDED
    severity = "warning"
    since = "0.1.0"
    of_torch = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        torch = self.subject.torch
        if torch is None or not torch.devices:
            return NO_GPU
        # ROCm reports capabilities of AMD's own numbering, which say nothing about bf16.
        return HIP if torch.hip is not None else None

    def measurement_if_clean(self) -> str:
        """The number of GPUs, and their lowest compute capability."""
        devices = self.subject.torch.devices if self.subject.torch is not None else ()
        lowest = ".".join(map(str, min(device.capability for device in devices)))
        return (
            f"the compute capability of {len(devices):,} GPUs is {lowest} at least, and bf16 begins"
            " with 8.0"
        )

    def findings(self) -> Iterator[Finding]:
        torch = self.subject.torch
        if torch is None or torch.hip is not None:
            return
        # Eight equal GPUs are one finding, hence no repeats.
        old = [
            device
            for device in dict.fromkeys(torch.devices)
            if device.capability < FIRST_CAPABILITY_WITH_BF16
        ]
        for device in old:
            yield self.finding(
                f"the {device.name} (sm_{device.capability[0]}{device.capability[1]}) has no native bf16: torch"
                " emulates it, which is many times slower",
                "set fp16: true and bf16: false for runs on this GPU",
            )
        if torch.bf16 is False and not old:
            yield self.finding(
                "a bf16 matrix product on the first GPU failed or gave a wrong result",
                "check the driver and the GPU's health (nvidia-smi -q), and reinstall torch",
                severity="error",
            )
