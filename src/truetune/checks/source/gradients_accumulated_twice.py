"""The loop accumulates gradients by hand, and its library accumulates them as well.

## What it does
Reads how many micro-batches the library accumulates: `gradient_accumulation_steps` of DeepSpeed's settings or of
`Accelerator`, or Lightning's `accumulate_grad_batches`. It fires if DeepSpeed's `engine.step()` or `engine.backward()`
is under a condition of the loop as well (`if micro % 8 == 0`), if such a condition steps Accelerate's optimizer just at
batches at which `accumulate` keeps it from stepping, and if the loss is divided by a number by which the library
divides it, too. Not reported: a library that accumulates one batch, or an unknown number.

## Why it is bad
DeepSpeed counts the calls of `step`. With 8 of its own and 8 of the loop, the weights change once in 64 micro-batches:
an eighth of the updates, an eightfold batch, and a schedule that stops near its beginning. A loss that is divided twice
gives gradients that are 8 times too small.

## Example
```python
import deepspeed

engine, _, _, _ = deepspeed.initialize(model=model, config={"gradient_accumulation_steps": 8})
for micro, batch in enumerate(loader, 1):
    loss = engine(**batch).loss
    engine.backward(loss)
    if micro % 8 == 0:
        engine.step()
```

## Use instead
```python
import deepspeed

engine, _, _, _ = deepspeed.initialize(model=model, config={"gradient_accumulation_steps": 8})
for micro, batch in enumerate(loader, 1):
    loss = engine(**batch).loss
    engine.backward(loss)
    engine.step()
```

## Fix safety
There is no automatic fix: `step` after each `backward` gives the batch size and the updates of the settings. The loop's
own step counts still count micro-batches.

## References
- DeepSpeed documentation, "Training API" (`engine.step()` after each `engine.backward()`, "Gradient Accumulation")
- huggingface/accelerate documentation, "Performing gradient accumulation"
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.accumulation_by_hand_and_by_engine import (
    DoubleAccumulation,
    EngineAccumulation,
    calls_that_may_accumulate_gradients,
    find_double_accumulation,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module


class GradientsAccumulatedTwice(SourceRule):
    code = "SRC268"
    fault = Fault.GRADIENT_ACCUMULATION_WRONG
    symptoms = ("loss-does-not-fall", "several-gpus", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces(
        "steps of engines that accumulate gradients", calls_that_may_accumulate_gradients
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for double_accumulation in find_double_accumulation(module):
            yield self.finding(
                _message(double_accumulation),
                _remedy(double_accumulation),
                cases=[
                    case_of_node(module, double_accumulation.node),
                    *_case_of_accumulation_setting(module, double_accumulation.engine),
                ],
            )


def _message(found: DoubleAccumulation) -> str:
    """The finding's message: what is counted twice, and what comes of it."""
    number = found.engine.number
    if found.kind == "loss":
        factor = found.by if number is None else number
        return (
            f"the loss is divided by {found.by} here, and {found.library} divides it by {found.engine.text} again:"
            f" gradients are {factor} times too small"
        )
    if found.kind == "never":
        return (
            f"optimizer.step() is called when the batch number, counted from 0, is a multiple of {found.by}, but"
            " accumulate() only lets it step one batch earlier: the weights never change"
        )
    product = ""
    if number is not None and found.times is not None:
        product = (
            f": {number} x {found.times} = {number * found.times} micro-batches make one update, so there are only"
            f" 1/{found.times} of the updates"
        )
    return (
        f"engine.{found.kind}() is called only every {found.times or found.by} micro-batches, and DeepSpeed itself"
        " waits"
        f" for {found.engine.text} calls of step() before it updates the weights{product}"
    )


def _remedy(found: DoubleAccumulation) -> str:
    """The remedy: the edit that leaves the counting to the library."""
    if found.kind == "loss":
        return f"remove `/ {found.by}`: {found.library} already divides the loss"
    if found.kind == "never":
        return (
            "remove the condition: inside accumulate(), call optimizer.step(), scheduler.step() and"
            " optimizer.zero_grad() for each batch"
        )
    return (
        "call engine.step() after every engine.backward(), without the condition (`if ... %"
        f" {found.times or found.by}`);"
        " the number of updates is engine.global_steps"
    )


def _case_of_accumulation_setting(
    module: Module, accumulation: EngineAccumulation
) -> Iterator[Case]:
    """The case of the line that sets the engine's number of batches."""
    if accumulation.node is not None:
        yield case_of_node(module, accumulation.node)
    elif accumulation.file:
        text = (
            f"gradient_accumulation_steps: {accumulation.text} ({PurePath(accumulation.file).name})"
        )
        yield Case(text, file=accumulation.file, line=accumulation.line)
