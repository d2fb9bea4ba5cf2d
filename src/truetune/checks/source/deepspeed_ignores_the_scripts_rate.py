"""DeepSpeed's engine trains at the learning rate of its settings, and the script's own is never read.

## What it does
Looks at calls of `deepspeed.initialize` without an optimizer: the engine creates one from the `optimizer` block of its
settings, which are a dictionary in the code or a JSON file that the code or its command names. It fires if the script
has its own learning rate (an option, a field, a constant) that no code reads, and the settings have another value. It
is an error if the two are 10 times or more apart. Not reported: code that writes a key of that block, options that are
passed to unknown code, and equal values.

## Why it is bad
The command states one learning rate and the run uses another, often a hundred times higher: the loss rises and never
recovers, or no change of `--lr` changes the curve.

## Example
```python
import argparse

import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-5)
args = parser.parse_args()
settings = {"optimizer": {"type": "AdamW", "params": {"lr": 0.001}}, "train_micro_batch_size_per_gpu": 2}
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
```

## Use instead
```python
import argparse

import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-5)
args = parser.parse_args()
settings = {"optimizer": {"type": "AdamW", "params": {"lr": args.lr}}, "train_micro_batch_size_per_gpu": 2}
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
```

## Fix safety
There is no automatic fix: only you know which learning rate is right. DeepSpeed's log lines (`lr=[...]`) show the one
in use.

## References
- deepspeed.readthedocs.io, "Training Initialization"; www.deepspeed.ai/docs/config-json/, "Optimizer Parameters"
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.script_learning_rate_ignored_by_deepspeed import (
    EngineRate,
    engines_without_optimizer,
    find_engines_with_other_rate,
)

# Chosen, not measured: rates of one kind of training differ by five at most (1e-5 to 5e-5 for all weights); at half of
# it a usual choice would be called an error, at double a rate that destroys the model a warning.
MIN_FACTOR = 10.0
"""How far the two rates are apart, as a factor, where the run is surely not the one that was meant"""


class DeepspeedIgnoresTheScriptsRate(SourceRule):
    code = "SRC420"
    fault = Fault.ANOTHER_LEARNING_RATE_APPLIES
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "garbage-output")
    severity = "warning"
    looks_at = CodePlaces(
        "engines of DeepSpeed that make their own optimizer", engines_without_optimizer
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on DeepSpeed's engines that train at the rate of their settings and not at that of the script."""
        for engine_rate in find_engines_with_other_rate(self.subject):
            yield self._finding_on_engine(engine_rate)

    def _finding_on_engine(self, engine_rate: EngineRate) -> Finding:
        """The finding on one engine."""
        taken, unread = engine_rate.taken, engine_rate.unread
        where = taken.file or "the settings of deepspeed.initialize"
        factor = taken.value / unread.value
        is_far = not 1 / MIN_FACTOR < factor < MIN_FACTOR
        times = f" ({factor:.3g} times as high)" if factor > 1 else ""
        return self.finding(
            f"the run trains at the learning rate {taken.value:g} of {where}{times}, not at {unread.name}"
            f" {unread.value:g}: deepspeed.initialize gets no optimizer and creates one from the settings, and no"
            f" code reads {unread.name}",
            f"set optimizer.params.lr to {unread.value:g} in {where}, or set it from {unread.name} before"
            " deepspeed.initialize; or pass deepspeed.initialize an optimizer",
            severity="error" if is_far else None,
            cases=[taken.case, case_of_node(self.subject, engine_rate.call.node), unread.case],
        )
