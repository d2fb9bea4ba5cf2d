"""Weights are stored as a Python pickle, which truetune does not open.

## What it does
Lists the `.bin`, `.pt`, `.pth` and `.ckpt` files with weights, with their sizes. A pickle runs code when it is loaded,
so no rule reads it. It is info if there are safetensors files beside it, else a warning.

## Why it is bad
No rule can tell whether these weights are intact. Loading them runs whatever code their author put in, and newer
releases refuse to.

## Example
```yaml
adapter_config: {peft_type: LORA, r: 4, target_modules: [q_proj]}
files: {adapter_model.bin: "a long file"}
```

## Use instead
```yaml
lora: [q_proj]
```

## Fix safety
If you trust the author, load it once and save it with `safe_serialization=True` (the default). The values stay the
same.

## References
- tloen/alpaca-lora#293, https://huggingface.co/docs/hub/security-pickle
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule


class WeightsArePickle(CheckpointRule):
    code = "CKP002"
    fault = Fault.WEIGHTS_IN_UNSUITABLE_FORMAT
    severity = "warning"
    since = "0.1.0"
    changes_answers = False
    opens = False

    def unmet(self) -> Unmet | None:
        return None if self.subject.weights.files else Unmet("there is no file with weights")

    def measurement_if_clean(self) -> str:
        """How many files with weights are safetensors."""
        count = len(self.subject.weights.files)
        return f"{count:,} of {count:,} files with weights are safetensors"

    def findings(self) -> Iterator[Finding]:
        weights = self.subject.weights
        if not weights.pickled:
            return
        total = sum(weights.pickled.values())
        yield self.finding(
            f"{len(weights.pickled):,} weight file{'s are pickles' if len(weights.pickled) > 1 else ' is a pickle'}"
            f" ({total:,} bytes) and {'were' if len(weights.pickled) > 1 else 'was'} not opened",
            "if you trust the author, load it and save it as safetensors (model.save_pretrained(FOLDER)), and check"
            " that folder",
            severity="info" if weights.files else "warning",
            cases=[Case(f"{size:,} bytes", file=name) for name, size in weights.pickled.items()],
            count=len(weights.pickled),
        )
