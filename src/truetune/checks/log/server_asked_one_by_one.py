"""A server that can batch requests gets only one request at a time.

## What it does
Reads the reports of vLLM (`Running: 1 reqs, Waiting: 0 reqs`). It reports as info if ten of them or more show one
request, and none shows two, running or waiting.

## Why it is bad
For each token of one answer the GPU reads all weights, and for 32 answers together it reads them only once. A server
that works on one request at a time gives a tenth of the tokens that it could. The server is not at fault: the client
waits for each answer before it sends the next request.

## Example
```yaml
output: |
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.1 tokens/s, Running: 1 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.2 tokens/s, Running: 1 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.3 tokens/s, Running: 1 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.4 tokens/s, Running: 1 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.5 tokens/s, Running: 1 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.6 tokens/s, Running: 1 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.7 tokens/s, Running: 1 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.8 tokens/s, Running: 1 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.9 tokens/s, Running: 1 reqs, Waiting: 0 reqs
```

## Use instead
```yaml
output: |
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.0 tokens/s, Running: 24 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.1 tokens/s, Running: 24 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.2 tokens/s, Running: 24 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.3 tokens/s, Running: 24 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.4 tokens/s, Running: 24 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.5 tokens/s, Running: 24 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.6 tokens/s, Running: 24 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.7 tokens/s, Running: 24 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.8 tokens/s, Running: 24 reqs, Waiting: 0 reqs
  Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.9 tokens/s, Running: 24 reqs, Waiting: 0 reqs
```

## Fix safety
Requests that are sent together are answered sooner. Sampled answers can differ because numbers are rounded differently
in larger batches.

## References
- Kwon et al. 2023, Efficient Memory Management for Large Language Model Serving with PagedAttention, arXiv 2309.06180
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import OutputRule


class ServerAskedOneByOne(OutputRule):
    code = "LOG040"
    fault = Fault.REQUESTS_NOT_BATCHED
    severity = "info"

    def measurement_if_clean(self) -> str:
        """The most requests that the server worked on at once."""
        output = self.subject.output
        served = output.served if output is not None else None
        return f"at most {served.most_at_once:,} requests at once" if served else ""

    def findings(self) -> Iterator[Finding]:
        output = self.subject.output
        if output is None or not output.served.gets_one_request_at_a_time:
            return
        served = output.served
        yield self.finding(
            f"the server gets only one request at a time: {served.reports:,} reports say Running: 1, and none"
            " says 2",
            "send about 32 requests at once, with AsyncOpenAI or a ThreadPoolExecutor: the server batches them"
            " (`truetune lint CLIENT` names the loop: generation-row-by-row)",
            cases=(Case(f"Running: 1 in {served.reports:,} reports", file=output.file),),
        )
