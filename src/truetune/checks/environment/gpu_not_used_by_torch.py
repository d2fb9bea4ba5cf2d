"""The machine has GPUs that torch can't use.

## What it does
Compares the GPUs that the driver reports with those that torch sees, and says why they differ: a CPU build of torch,
CUDA_VISIBLE_DEVICES, or a driver that is older than torch's CUDA.

## Why it is bad
Training runs on the CPU, a hundred times slower, or fails when the model is moved to the GPU.

## Example
```yaml
packages: {torch: 2.8.0+cpu}
gpus: 1
torch: {cuda: null, available: false}
```

## Use instead
```yaml
packages: {torch: 2.8.0+cu128}
gpus: 1
torch: {cuda: "12.8", available: true, devices: [[NVIDIA H100, [9, 0]]], architectures: [sm_90]}
```

## Fix safety
There is no automatic fix. Another build of torch needs other builds of flash-attn, xformers and torchvision too.

## References
- pytorch/pytorch#4546, pytorch/pytorch#28195, googlecolab/colabtools#1685
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EnvironmentRule
from truetune.doctor.environment_record_types import Torch


class GpuNotUsedByTorch(EnvironmentRule):
    code = "ENV004"
    fault = Fault.PROGRAM_RUNS_ON_CPU
    severity = "error"
    since = "0.1.0"
    of_torch = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        torch = self.subject.torch
        if self.subject.machine.gpus or (torch is not None and torch.available):
            return None
        return Unmet("the machine has no GPU", "run truetune doctor on the machine that trains")

    def measurement_if_clean(self) -> str:
        """How many GPUs torch uses, and how many the driver knows."""
        used = len(self.subject.torch.devices) if self.subject.torch is not None else 0
        return f"torch uses {used:,} GPUs; the driver knows {len(self.subject.machine.gpus):,}"

    def findings(self) -> Iterator[Finding]:
        torch, machine = self.subject.torch, self.subject.machine
        if torch is None or torch.available or not machine.gpus:
            return
        hidden = machine.environment.get("CUDA_VISIBLE_DEVICES")
        # Somebody may have hidden them on purpose, so it is no error; and no build of torch would help.
        if hidden is not None and not machine.visible_gpu_indices:
            yield self.finding(
                f"CUDA_VISIBLE_DEVICES={hidden!r} hides all GPUs",
                "unset it, or set it to the GPUs to use, such as 0,1",
                severity="warning",
                evidence=[f"the machine has {', '.join(gpu.name for gpu in machine.gpus)}"],
            )
            return
        why, remedy = self._explain_with_remedy(torch)
        yield self.finding(
            f"torch {self.subject.packages.get('torch', '')} can't use the {machine.gpus[0].name}:"
            f" {why}",
            remedy,
            evidence=[f"torch says: {torch.said}"] if torch.said else [],
        )

    def _explain_with_remedy(self, torch: Torch) -> tuple[str, str]:
        """(why torch can't use the GPU, what to do)."""
        if torch.cuda is None and torch.hip is None:
            return (
                "it is a CPU build",
                "install a CUDA build; pytorch.org gives the command for this machine",
            )
        # torch's own words: "The NVIDIA driver on your system is too old (found version ...)".
        if "too old" in torch.said:
            return (
                f"the driver is too old for CUDA {torch.cuda}, for which it was built",
                "update the GPU driver, or install a torch build for an older CUDA",
            )
        return (
            "CUDA fails to initialise",
            "see `nvidia-smi` and `dmesg`; after a driver update, restart the machine",
        )
