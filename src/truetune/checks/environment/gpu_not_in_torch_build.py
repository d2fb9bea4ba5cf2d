"""The installed torch has no kernels for this GPU.

## What it does
Compares the compute capability of each GPU with the architectures for which torch's kernels were compiled.

## Why it is bad
torch.cuda.is_available() is True, but the first operation ends with "no kernel image is available for execution on the
device". New GPUs need a newer torch, old ones an older build.

## Example
```yaml
packages: {torch: 2.5.1+cu121}
gpus: 1
torch: {cuda: "12.1", available: true, devices: [[NVIDIA GeForce RTX 5090, [12, 0]]], architectures: [sm_80, sm_90]}
```

## Use instead
```yaml
packages: {torch: 2.8.0+cu128}
gpus: 1
torch: {cuda: "12.8", available: true, devices: [[NVIDIA GeForce RTX 5090, [12, 0]]], architectures: [sm_90, sm_120]}
```

## Fix safety
There is no automatic fix. Another build of torch needs other builds of flash-attn, xformers and torchvision too.

## References
- pytorch/pytorch#150733, pytorch/pytorch#167244, Comfy-Org/ComfyUI#16438
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import HIP, NO_GPU
from truetune.checks.rule import EnvironmentRule


class GpuNotInTorchBuild(EnvironmentRule):
    code = "ENV005"
    fault = Fault.PROGRAM_RUNS_ON_CPU
    symptoms = ("several-gpus", "slow-generation")
    severity = "error"
    since = "0.1.0"
    of_torch = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        torch = self.subject.torch
        if torch is None or not torch.devices:
            return NO_GPU
        if not torch.architectures:
            return Unmet("torch does not say what it was compiled for")
        return HIP if torch.hip is not None else None

    def measurement_if_clean(self) -> str:
        """For how many of the GPUs torch has kernels."""
        torch = self.subject.torch
        assert torch is not None
        return f"torch has kernels for {len(torch.devices):,} of {len(torch.devices):,} GPUs"

    def findings(self) -> Iterator[Finding]:
        torch = self.subject.torch
        if torch is None or torch.hip is not None or not torch.architectures:
            return
        for device in dict.fromkeys(torch.devices):
            if not has_kernels_for(device.capability, torch.architectures):
                major, minor = device.capability
                yield self.finding(
                    f"torch {self.subject.packages.get('torch', '')} has no kernels for the {device.name}"
                    f" (sm_{major}{minor}): the first operation fails",
                    f"install a torch build that supports sm_{major}{minor} (this one is for CUDA {torch.cuda});"
                    " pytorch.org lists the builds",
                    evidence=[f"compiled for {', '.join(torch.architectures)}"],
                )


def has_kernels_for(capability: tuple[int, int], architectures: Iterable[str]) -> bool:
    """Has torch kernels for a GPU?

    Machine code runs on its own major version from its minor one up, PTX (`compute_`) on all that
    are newer.
    """
    for name in architectures:
        # The last digit is the minor version (sm_120 is 12.0). `a` and `f` mark code for one chip or family: it counts
        # as the plain name, so that a doubtful build is not called unusable.
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)[af]?", name)
        if match is None:
            continue
        kind, major, minor = match[1], int(match[2]), int(match[3])
        if kind == "sm" and major == capability[0] and minor <= capability[1]:
            return True
        if kind == "compute" and (major, minor) <= capability:
            return True
    return False
