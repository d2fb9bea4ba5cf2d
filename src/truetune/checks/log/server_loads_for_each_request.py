"""A server loads its weights again for each request.

## What it does
Counts in the log of a server the requests, and how often weights are loaded (`Loading checkpoint shards: 100%`) before
one is answered. It warns from three loads on, if there is one for every second request or more.

## Why it is bad
Loading the weights takes seconds to minutes, in which the GPU is idle; the answer itself takes a fraction of that.
Users wait for the disk, and two requests at once need two copies in memory.

## Example
```yaml
output: |
  INFO:     Uvicorn running on http://0.0.0.0:8080 (Press CTRL+C to quit)
  Loading checkpoint shards: 100%|##########| 3/3 [00:13<00:00,  3.57s/it]
  INFO:     10.0.3.33:47135 - "POST /ask HTTP/1.1" 200 OK
  Loading checkpoint shards: 100%|##########| 3/3 [00:10<00:00,  3.59s/it]
  INFO:     10.0.3.7:42864 - "POST /ask HTTP/1.1" 200 OK
  Loading checkpoint shards: 100%|##########| 3/3 [00:12<00:00,  3.99s/it]
  INFO:     10.0.3.36:49896 - "POST /ask HTTP/1.1" 200 OK
```

## Use instead
```yaml
output: |
  Loading checkpoint shards: 100%|##########| 3/3 [00:13<00:00,  3.57s/it]
  INFO:     Uvicorn running on http://0.0.0.0:8080 (Press CTRL+C to quit)
  INFO:     10.0.3.33:47135 - "POST /ask HTTP/1.1" 200 OK
  INFO:     10.0.3.7:42864 - "POST /ask HTTP/1.1" 200 OK
  INFO:     10.0.3.36:49896 - "POST /ask HTTP/1.1" 200 OK
```

## Fix safety
Loading the model once when the process starts is safe if one process serves one model. Several workers load one copy
each.

## References
- fastapi documentation, "Lifespan events": a model that is loaded once and shared by requests
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import OutputRule


class ServerLoadsForEachRequest(OutputRule):
    code = "LOG037"
    fault = Fault.MODEL_LOADED_AGAIN_AND_AGAIN
    severity = "warning"

    def measurement_if_clean(self) -> str:
        """The number of requests, and of loads of weights."""
        output = self.subject.output
        served = output.served if output is not None else None
        return f"{served.requests:,} requests, {served.loads:,} loads of weights" if served else ""

    def findings(self) -> Iterator[Finding]:
        output = self.subject.output
        if output is None or not output.served.loads_weights_for_each_request:
            return
        served = output.served
        yield self.finding(
            f"the weights are loaded again for each request: {served.loads:,} loads before"
            f" {served.requests:,} requests",
            "load the model once when the process starts (at module level, or in a FastAPI lifespan), and use that"
            " object in the handler (`truetune lint APP` names the line: model-loaded-for-each-answer)",
            cases=(
                Case(f"{served.loads:,} loads, {served.requests:,} requests", file=output.file),
            ),
        )
