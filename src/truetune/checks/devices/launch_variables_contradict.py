"""WORLD_SIZE, RANK, LOCAL_RANK and the GPUs contradict each other.

## What it does
Compares the variables that a launcher sets: each rank must be below the number of processes, each process needs its own
GPU, and the settings should ask for as many processes as there are.

## Why it is bad
A process with a rank out of range waits for the others until a timeout of 30 minutes. Two processes on one GPU fail in
NCCL or run out of memory. The usual cause is values left over from another shell.

## Example
```yaml
config: {}
machine: {gpus: 2, memory: 24, environment: {WORLD_SIZE: "2", RANK: "2", LOCAL_RANK: "0"}}
```

## Use instead
```yaml
config: {}
machine: {gpus: 2, memory: 24, environment: {WORLD_SIZE: "2", RANK: "1", LOCAL_RANK: "1"}}
```

## Fix safety
Let torchrun or accelerate set them, and unset old values.

## References
- PyTorch documentation, torchrun: "Environment Variables"
- huggingface/accelerate#2536
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule

COUNTS = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
BOUNDS = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("LOCAL_RANK", "WORLD_SIZE"))


class LaunchVariablesContradict(DeviceRule):
    code = "DEV003"
    fault = Fault.LAUNCH_SETTINGS_CONTRADICT
    symptoms = ("several-gpus",)
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        environment = self.machine.environment
        contradictions = [
            *self._variables_without_number(),
            *self._ranks_out_of_range(),
            *self._excess_processes_and_ranks(),
        ]
        if contradictions:
            values = [f"{name}={environment[name]}" for name in COUNTS if name in environment]
            yield self.finding(
                contradictions[0],
                "unset them and start the training with torchrun or accelerate launch, which set them",
                evidence=[", ".join(values), *contradictions[1:]],
            )

    def _variables_without_number(self) -> Iterator[str]:
        """Faults: variables that hold no number. transformers itself takes -1 for "no launch"."""
        for name in COUNTS:
            value = self.machine.environment.get(name, "")
            if (
                value.strip() not in ("", "-1")
                and self.machine.environment_variable_as_int(name) is None
            ):
                yield f"{name}={value!r} is not a number"

    def _ranks_out_of_range(self) -> Iterator[str]:
        """Faults: ranks at or above the number of processes that they count through."""
        for name, size in BOUNDS:
            rank, processes = (
                self.machine.environment_variable_as_int(name),
                self.machine.environment_variable_as_int(size),
            )
            if rank is not None and processes is not None and rank >= max(1, processes):
                yield (
                    f"{name} is {rank}, but {size} is {processes}: ranks go from 0 to"
                    f" {max(1, processes) - 1}"
                )

    def _excess_processes_and_ranks(self) -> Iterator[str]:
        """Faults: more processes on this machine than in all, and a local rank for which there is
        no GPU.
        """
        number = self.machine.environment_variable_as_int
        local, world = number("LOCAL_WORLD_SIZE"), number("WORLD_SIZE")
        if local is not None and world is not None and local > world:
            yield f"LOCAL_WORLD_SIZE is {local}, more than the {world} processes of WORLD_SIZE"
        rank, visible = number("LOCAL_RANK"), len(self.machine.visible_gpu_indices)
        # Without a visible GPU the run uses the CPU, where ranks need no device of their own.
        if self.machine.gpus and rank is not None and visible and rank >= visible:
            yield f"LOCAL_RANK is {rank}, but this process sees {visible} GPU{'s' * (visible > 1)}"
