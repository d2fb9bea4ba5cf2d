"""Requests wait although the server has room: a setting limits how many run at once.

## What it does
Reads what servers print about their queue: vLLM and SGLang print how many requests run and wait and how full the cache
is, TGI how long each request waited, Ollama when each ended and how long it took, llama.cpp when its slots are idle. It
fires if always the same small number runs, more than that wait, and the KV cache is less than half full. Below 64
running requests it is a warning, above it is info. It names the setting: by the log's own line (`non-default args`,
`server_args`, `server config`), else by the command, the compose file or the script beside the log. If the cache is
full, it is not reported: there, requests wait for memory.

## Why it is bad
A GPU answers 64 requests together in little more time than four. With a limit of four, the other requests wait for
whole answers of those before them, while most of the GPU is idle.

## Example
```yaml
output: |
  INFO 03-01 10:00:00 [utils.py:233] non-default args: {'model': 'm', 'max_num_seqs': 4}
  Engine 000: Avg generation throughput: 120.0 tokens/s, Running: 4 reqs, Waiting: 124 reqs, GPU KV cache usage: 0.9%
  Engine 000: Avg generation throughput: 121.0 tokens/s, Running: 4 reqs, Waiting: 122 reqs, GPU KV cache usage: 0.9%
  Engine 000: Avg generation throughput: 120.4 tokens/s, Running: 4 reqs, Waiting: 119 reqs, GPU KV cache usage: 0.8%
  Engine 000: Avg generation throughput: 120.2 tokens/s, Running: 4 reqs, Waiting: 117 reqs, GPU KV cache usage: 0.9%
  Engine 000: Avg generation throughput: 120.1 tokens/s, Running: 4 reqs, Waiting: 115 reqs, GPU KV cache usage: 1.0%
```

## Use instead
```yaml
output: |
  INFO 03-01 10:00:00 [utils.py:233] non-default args: {'model': 'm', 'max_num_seqs': 128}
  Engine 000: Avg generation throughput: 620.0 tokens/s, Running: 41 reqs, Waiting: 12 reqs, GPU KV cache usage: 97.9%
  Engine 000: Avg generation throughput: 621.0 tokens/s, Running: 42 reqs, Waiting: 10 reqs, GPU KV cache usage: 98.9%
  Engine 000: Avg generation throughput: 620.4 tokens/s, Running: 40 reqs, Waiting: 13 reqs, GPU KV cache usage: 97.8%
  Engine 000: Avg generation throughput: 620.2 tokens/s, Running: 42 reqs, Waiting: 11 reqs, GPU KV cache usage: 98.9%
  Engine 000: Avg generation throughput: 620.1 tokens/s, Running: 41 reqs, Waiting: 12 reqs, GPU KV cache usage: 98.0%
```

## Fix safety
In vLLM and SGLang a higher limit takes no memory by itself; CUDA graphs for more sizes take some. Ollama and llama.cpp
reserve a context for each slot.

## References
- vLLM documentation, engine arguments (max_num_seqs); SGLang documentation, server arguments
- ollama/ollama docs/faq.md (OLLAMA_NUM_PARALLEL); ggml-org/llama.cpp tools/server (-np)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import OutputRule
from truetune.checks.server_concurrency_caps import (
    HOW_TO_RAISE,
    SPELLED,
    concurrency_setting_of_server_log,
    find_setting_beside_with_cap,
    find_smallest_cap_in_server_log,
)
from truetune.logs.console.running_and_waiting_requests import RequestQueue
from truetune.logs.facts_in_files_beside_log import ADAPTERS_AT_ONCE, SettingBeside

FEW = 64
"""Requests at once below which a cap leaves most of a GPU idle. Chosen: generation gains up to about as many"""
MANY = 256
"""Requests at once from which a cap is no story: it is the default of vLLM's earlier releases"""
USABLE_CACHE = 0.9
"""Share of the cache that requests may fill. Chosen by hand: vLLM preempts requests when the cache runs full"""


class ServerCapMakesRequestsWait(OutputRule):
    code = "LOG064"
    fault = Fault.REQUESTS_NOT_BATCHED
    symptoms = ("slow-generation",)
    severity = "warning"

    def measurement_if_clean(self) -> str:
        """The most requests at once, none of which waits for a cap; empty where no server is seen."""
        output = self.subject.output
        if output is None or not self.subject.inference_server_name:
            return ""
        return f"at most {output.served.most_at_once:,} requests at once, none waits for a cap"

    def findings(self) -> Iterator[Finding]:
        output = self.subject.output
        queue = (
            output.served.queue
            if output is not None and self.subject.inference_server_name
            else None
        )
        if output is None or queue is None or queue.running >= MANY:
            return
        setting = concurrency_setting_of_server_log(self.subject)
        cause, cases = self._cap_setting_and_cases(queue)
        adapters = next(iter(self.subject.files_beside.settings_named(ADAPTERS_AT_ONCE)), None)
        if not cases and adapters is not None and self.subject.inference_server_name == "vLLM":
            yield self._finding_on_adapter_limit_of_batch(queue, adapters)
            return
        yield self.finding(
            f"a limit holds requests back although the server has room: it works on {queue.running:,} at a time, and"
            f" {_waiting_in_words(queue)}{cause}",
            HOW_TO_RAISE.get(
                setting, "raise the number of requests that the server works on at once"
            ),
            severity="warning" if queue.running < FEW else "info",
            evidence=tuple(_room_evidence(queue)),
            cases=cases or (Case(f"running: {queue.running}", file=output.file),),
        )

    def _finding_on_adapter_limit_of_batch(
        self, queue: RequestQueue, adapters: SettingBeside
    ) -> Finding:
        """The finding that requests wait because a batch mixes only so many adapters."""
        # Requests of other adapters wait, however few are worked on.
        return self.finding(
            f"requests wait although the server has room: it works on {queue.running:,} at a time, and"
            f" {_waiting_in_words(queue)}; most likely they need other adapters: {adapters.text}",
            "set --max-loras to the number of adapters that are requested at once (each takes memory by"
            " --max-lora-rank)",
            severity="warning" if queue.running < FEW else "info",
            evidence=tuple(_room_evidence(queue)),
            cases=(Case(adapters.text, file=adapters.file, line=adapters.line or None),),
        )

    def _cap_setting_and_cases(self, queue: RequestQueue) -> tuple[str, tuple[Case, ...]]:
        """The setting of the cap in words, and its places; empty where neither the log nor a file
        beside it says so.
        """
        output, setting = self.subject.output, concurrency_setting_of_server_log(self.subject)
        printed, beside = (
            find_smallest_cap_in_server_log(self.subject),
            find_setting_beside_with_cap(self.subject, queue.running),
        )
        cases: list[Case] = []
        if beside is not None:
            cases.append(Case(beside.text, file=beside.file, line=beside.line or None))
        if printed is not None and printed.value == queue.running and output is not None:
            cases.append(Case(printed.text, file=output.file, line=printed.line))
        if not cases:
            known = SPELLED.get(setting, "")
            return (f"; most likely the limit is {known}" if known else ""), ()
        name = Path(cases[0].file or "").name
        return f": {SPELLED[setting]} is {queue.running:,} ({name}:{cases[0].line})", tuple(cases)


def _waiting_in_words(queue: RequestQueue) -> str:
    """How many requests wait: `about 119 others wait`, or `others wait` where their number is not
    seen.
    """
    return f"about {round(queue.waiting):,} others wait" if queue.waiting > 1 else "others wait"


def _room_evidence(queue: RequestQueue) -> Iterator[str]:
    """Evidence that the server has room, and how much."""
    if queue.cache is not None:
        yield (
            f"{queue.seen:,} reports: always {queue.running:,} running, up to {queue.most_waiting:,} waiting, and"
            f" {queue.cache:.1%} of the KV cache in use"
        )
        if queue.cache > 0:
            room = int(queue.running * USABLE_CACHE / queue.cache)
            yield f"at that usage the cache has room for about {room:,} such requests"
    if queue.waited_s is not None and queue.worked_s is not None:
        yield (
            f"a request waits {queue.waited_s:.1f} s and is processed in {queue.worked_s:.1f} s, on average"
        )
    if queue.cache is None and queue.waited_s is None and queue.waiting:
        yield f"{queue.seen:,} requests began while the server worked on {queue.running:,} before them"
