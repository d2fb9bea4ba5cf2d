"""WORLD_SIZE, RANK, LOCAL_RANK and the GPUs contradict each other.

## What it does
Compares the variables that a launcher sets: each rank must be below its number of processes, each process needs a GPU
of its own, and the settings should ask for as many processes as there are.

## Why it is bad
A rank outside of the world waits forever for others (the time-out is 30 minutes); two processes on one GPU fail in NCCL
or run out of memory. Values left over from another shell are the usual cause.

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
Let torchrun or accelerate set them; unset what is left over.

## References
- PyTorch documentation, torchrun: "Environment Variables"
- huggingface/accelerate#2536
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule

COUNTS = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
BOUNDS = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("LOCAL_RANK", "WORLD_SIZE"))


class LaunchVariablesContradict(DeviceRule):
    code = "DEV003"
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        environment = self.machine.environment
        wrong = list(self._wrong())
        if wrong:
            set_ = [f"{name}={environment[name]}" for name in COUNTS if name in environment]
            yield self.finding(
                wrong[0],
                "unset them and start with torchrun or accelerate launch, which set them",
                evidence=[", ".join(set_), *wrong[1:]],
            )

    def _wrong(self) -> Iterator[str]:
        environment, number = self.machine.environment, self.machine.number
        for name in COUNTS:
            if (
                environment.get(name, "").strip()
                and number(name) is None
                and environment[name].strip() != "-1"
            ):
                yield f"{name}={environment[name]!r} is no number"
        for name, size in BOUNDS:
            first, second = number(name), number(size)
            if first is not None and second is not None and first >= max(1, second):
                yield (
                    f"{name} is {first}, but {size} is {second}: ranks go from 0 to"
                    f" {max(1, second) - 1}"
                )
        local, world = number("LOCAL_WORLD_SIZE"), number("WORLD_SIZE")
        if local is not None and world is not None and local > world:
            yield f"LOCAL_WORLD_SIZE is {local}, more than the {world} processes of WORLD_SIZE"
        rank, visible = number("LOCAL_RANK"), len(self.machine.visible)
        if self.machine.gpus and rank is not None and visible and rank >= visible:
            yield f"LOCAL_RANK is {rank}, but this process sees {visible} GPU{'s' * (visible > 1)}"
