"""The limit on shared memory or open files is too low for training.

## What it does
Looks at the size of /dev/shm, through which DataLoader workers and NCCL pass data, and at the limit on open files per
process (ulimit -n).

## Why it is bad
A container has 64 MB of shared memory by default: workers die with a bus error, often hours into a run. Too low a limit
on open files ends a run with many shards or workers.

## Example
```yaml
shared_mb: 64
```

## Use instead
```yaml
shared_mb: 16384
```

## Fix safety
Both are settings of the container or the shell, not of the run: `docker run --shm-size=16g` or `--ipc=host`; a
memory-backed volume at /dev/shm in Kubernetes; `ulimit -n 65536`.

## References
- pytorch/pytorch#5040, pytorch/pytorch#16979, mosaicml/streaming#493
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EnvironmentRule

# Chosen, not measured, between the 64 MiB that a container gets by default and the half of the memory that a machine
# without containers has. At half, two workers with batches of images still fail; at double, containers that were given
# 1 GB on purpose would be told.
MIN_SHARED_BYTES = 512 * 2**20
# The soft limit that Linux gives by default. Less was set by somebody; at double every plain machine would be told.
MIN_OPEN_FILES = 1024


class SharedMemoryOrFileLimitLow(EnvironmentRule):
    code = "ENV008"
    fault = Fault.HOST_MEMORY_TOO_SMALL
    symptoms = ("out-of-memory", "several-gpus")
    severity = "warning"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if self.subject.shared is not None or self.subject.files is not None:
            return None
        return Unmet("the system reports neither the size of /dev/shm nor a limit on open files")

    def measurement_if_clean(self) -> str:
        """The size of /dev/shm, and the number of files that a process may have open."""
        shared, files = self.subject.shared, self.subject.files
        room = (
            "there is no /dev/shm" if shared is None else f"/dev/shm has {shared / 2**20:,.0f} MiB"
        )
        limit = "any number of" if files is None else f"{files:,}"
        return f"{room}; a process may have {limit} files open"

    def findings(self) -> Iterator[Finding]:
        shared, files = self.subject.shared, self.subject.files
        if shared is not None and shared < MIN_SHARED_BYTES:
            yield self.finding(
                f"/dev/shm only has {shared / 2**20:,.0f} MiB: DataLoader workers and NCCL may die with a bus error",
                "start the container with --shm-size=16g or --ipc=host, or set dataloader_num_workers: 0",
            )
        if files is not None and files < MIN_OPEN_FILES:
            yield self.finding(
                f"a process may only open {files:,} files: a run with many shards or workers can fail",
                "run `ulimit -n 65536` in the shell before you start the training",
            )
