"""A server that answers many requests together was asked one at a time.

## What it does
Reads the reports of vLLM (`Running: 1 reqs, Waiting: 0 reqs`). It gives a note where ten of them or more show a
request, and none shows two, running or waiting.

## Why it is bad
Each token of one answer reads all weights, and so does each token of 32 answers together: a server that works on one
request at a time gives a tenth of the tokens that it could. Nothing is wrong with the server: the client waits for each
answer before it sends the next request.

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
Answers that are sampled differ between batches by rounding.

## References
- Kwon et al. 2023, Efficient Memory Management for Large Language Model Serving with PagedAttention, arXiv 2309.06180
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Case, Finding
from truetune.checks.rule import OutputRule


class ServerAskedOneByOne(OutputRule):
    code = "LOG040"
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
            f"the server is asked one request at a time: {served.reports:,} reports say Running: 1, and none"
            " says 2",
            "send some 32 requests at once, with AsyncOpenAI or a ThreadPoolExecutor: the server puts them into"
            " one batch (`truetune lint CLIENT` names the loop: generation-row-by-row)",
            cases=(Case(f"Running: 1 in {served.reports:,} reports", file=output.file),),
        )
