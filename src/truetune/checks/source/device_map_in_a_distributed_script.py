"""A script that runs as several processes splits its model over all GPUs in each of them.

## What it does
Looks for `device_map="auto"` (or balanced, sequential) in a file that reads `LOCAL_RANK` or `WORLD_SIZE`, or starts
`torch.distributed` itself.

## Why it is bad
Each process spreads its model over all GPUs: they take each other's memory, layers sit on other processes' devices, and
data parallelism is lost. accelerate raises in some launches, and not in all.

## Example
```python
import os

from transformers import AutoModelForCausalLM, Trainer

rank = int(os.environ["LOCAL_RANK"])
model = AutoModelForCausalLM.from_pretrained("model", device_map="auto")
trainer = Trainer(model=model)
```

## Use instead
```python
import os

from transformers import AutoModelForCausalLM, Trainer

rank = int(os.environ["LOCAL_RANK"])
model = AutoModelForCausalLM.from_pretrained("model", device_map={"": rank})
trainer = Trainer(model=model)
```

## Fix safety
Without `device_map` the trainer places the model itself. `{"": rank}` is for quantized models.

## References
- huggingface/transformers#31557, huggingface/accelerate#2486, QwenLM/Qwen#900, QwenLM/Qwen#833
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at

SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")
PROCESSES = re.compile(
    r"environ[^\n]*(LOCAL_RANK|WORLD_SIZE)|getenv[^\n]*(LOCAL_RANK|WORLD_SIZE)|init_process_group|DistributedDataParallel"
)


class DeviceMapInADistributedScript(SourceRule):
    code = "TT757"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        sign = PROCESSES.search(module.text)
        trains = any({"trainer", "optimizer"} & module.flow.kinds(call.node) for call in module.all_calls)
        for call in module.all_calls if sign and trains else ():
            value = call.keywords.get("device_map")
            if value is not None and "model" in module.flow.kinds(call.node) and module.flow.value(value) in SPREADS:
                yield self.finding(
                    f'device_map="{module.flow.value(value)}" in a script that runs as several processes',
                    'leave device_map out, or give {"": local_rank}',
                    evidence=[f"several processes: {sign[0]}"] if sign else [],
                    cases=[at(module, call.node)],
                )
