"""A server of vLLM is started with options that make each answer slow.

## What it does
Reads the commands that start vLLM in shell scripts, job files and Dockerfiles, for options whose price is certain:
`--enforce-eager`, `--max-num-seqs 1`, `--dtype float32`, and `--cpu-offload-gb` above 0.

## Why it is bad
Without CUDA graphs (`--enforce-eager`) the CPU starts each kernel of each token by itself. With one sequence at a time
users wait for one another, where the GPU could answer dozens together in the same time. float32 doubles the bytes that
each token reads, and leaves half of the cache. Offloaded weights cross the bus once for every token.

## Example
```bash
#!/bin/bash
vllm serve ./merged --port 8000 --enforce-eager --max-num-seqs 1
```

## Use instead
```bash
#!/bin/bash
vllm serve ./merged --port 8000 --max-num-seqs 64
```

## Fix safety
CUDA graphs take 1 to 3 GiB: where the server does not start without `--enforce-eager`, lower
`--gpu-memory-utilization` or `--max-model-len` first. Sampled answers differ between batches by rounding.

## References
- vLLM documentation, engine arguments; vllm-project/vllm#4449
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_servers import Server, vllm_servers
from truetune.parsing.shell import CommandFile, option


class ServerGeneratesSlowly(CommandRule):
    code = "TT835"
    severity = "warning"
    what = "commands that start vLLM"

    @staticmethod
    def places(file: CommandFile) -> Iterator[Server]:
        return vllm_servers(file)

    def findings(self) -> Iterator[Finding]:
        for server in vllm_servers(self.subject):
            slow = list(_slow_options(server.options))
            if slow:
                yield self.finding(
                    f"this server answers slowly: {'; '.join(why for _, why, _ in slow)}",
                    "; ".join(instead for *_, instead in slow),
                    cases=[self.case(server.command, name) for name, *_ in slow],
                )


def _slow_options(options: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Option, why it is slow, what to do."""
    if option(options, "--enforce-eager") is not None:
        yield "--enforce-eager", "--enforce-eager leaves CUDA graphs out", "remove --enforce-eager"
    if option(options, "--max-num-seqs") in ("0", "1"):
        yield (
            "--max-num-seqs 1",
            "--max-num-seqs 1 answers one request after another",
            "remove --max-num-seqs 1 or set it to 64",
        )
    dtype = option(options, "--dtype")
    if dtype in ("float32", "float"):
        yield (
            f"--dtype {dtype}",
            f"--dtype {dtype} reads twice the bytes for each token",
            f"remove --dtype {dtype} or set it to bfloat16",
        )
    offloaded = option(options, "--cpu-offload-gb")
    if offloaded and offloaded.replace(".", "").isdecimal() and float(offloaded) > 0:
        yield (
            f"--cpu-offload-gb {offloaded}",
            "--cpu-offload-gb sends weights over the bus for each token",
            "remove --cpu-offload-gb, and serve quantized weights or more GPUs (--tensor-parallel-size)",
        )
