"""DeepSpeed's engine trains at the learning rate of its settings, and nothing reads the rate of the script.

## What it does
Looks at calls of `deepspeed.initialize` without an optimizer: the engine makes one from the `optimizer` block of its
settings. They are followed to a dictionary of the code or to the JSON file that the code or its command names. It
speaks where the script has a rate of its own (an option, a field, a constant) that no code reads, and the settings say
another. Silent where code writes a key of that block, where the options are handed to code that is not seen, and where
both say the same.

## Why it is bad
The command says one rate and the run trains at another, often a hundred times as high: the loss climbs and never comes
back, or no change of `--lr` changes the curve.

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
There is no automatic fix: which of the two rates is meant is the writer's. DeepSpeed's lines (`lr=[...]`) show the rate
in force.

## References
- deepspeed.readthedocs.io, "Training Initialization"; www.deepspeed.ai/docs/config-json/, "Optimizer Parameters"
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
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
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "garbage-output")
    severity = "warning"
    looks_at = CodePlaces(
        "engines of DeepSpeed that make their own optimizer", engines_without_optimizer
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on DeepSpeed's engines that train at the rate of their settings and not at that of the script."""
        for found in find_engines_with_other_rate(self.subject):
            yield self._finding_on_engine(found)

    def _finding_on_engine(self, found: EngineRate) -> Finding:
        """The finding on one engine."""
        taken, unread = found.taken, found.unread
        where = taken.file or "the settings of deepspeed.initialize"
        factor = taken.value / unread.value
        is_far = not 1 / MIN_FACTOR < factor < MIN_FACTOR
        times = f", {factor:.3g} times as high" if factor > 1 else ""
        return self.finding(
            f"the run trains at the learning rate {taken.value:g} of {where}{times}, and not at {unread.name}"
            f" {unread.value:g}: deepspeed.initialize is given no optimizer and makes its own from the settings, and no"
            f" code reads {unread.name}",
            f"set optimizer.params.lr to {unread.value:g} in {where}, or write it from {unread.name} before"
            " deepspeed.initialize; or give deepspeed.initialize an optimizer",
            severity="error" if is_far else None,
            cases=[taken.case, case_of_node(self.subject, found.call.node), unread.case],
        )
