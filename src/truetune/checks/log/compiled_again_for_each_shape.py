"""torch.compile recompiles the model again and again because shapes change.

## What it does
Reads what PyTorch prints about compilations: `[__recompiles] Recompiling function ...` with the guard that failed
(`size mismatch at index 1. expected 512, actual 640`), a recompile limit that is reached (`recompile_limit`,
`cache_size_limit`), and CUDA graphs that are recorded for each size. If the log times requests or steps, those after a
compilation are compared with the others.

## Why it is bad
A compilation takes seconds to minutes, and the request or step waits for it. If every batch has another length, the
model is compiled for each, up to the limit (8 by default). After that its code runs uncompiled.

## Example
```yaml
output: |
  [0/1] [__recompiles] Recompiling function forward in m.py:12
  [0/1] [__recompiles] - 0/0: tensor 'x' size mismatch at index 1. expected 512, actual 640
  [0/2] [__recompiles] Recompiling function forward in m.py:12
  [0/2] [__recompiles] - 0/1: tensor 'x' size mismatch at index 1. expected 640, actual 213
  [0/3] [__recompiles] Recompiling function forward in m.py:12
  [0/3] [__recompiles] - 0/2: tensor 'x' size mismatch at index 1. expected 213, actual 377
  {'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
```

## Use instead
```yaml
output: |
  [0/1] [__recompiles] Recompiling function forward in m.py:12
  [0/1] [__recompiles] - 0/0: tensor 'x' size mismatch at index 1. expected 512, actual 640
  {'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
```

## Fix safety
Padding to a few lengths does not change results if the attention mask covers the padding. `dynamic=True` compiles once
for all lengths, and gives somewhat slower code.

## References
- docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html (recompilation); torch/_dynamo/convert_frame.py
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import OutputRule
from truetune.logs.console.recompilations import Recompilations

MIN_COMPILED = 3
"""Compilations behind the first from which shapes change again and again: the second is often one with dynamic
shapes"""
MIN_GRAPHS = 20
"""Sizes with a CUDA graph each; PyTorch warns at 50, some releases at 9"""


class CompiledAgainForEachShape(OutputRule):
    code = "LOG065"
    fault = Fault.COMPILED_MODEL_RECOMPILES
    symptoms = ("slow-generation",)
    severity = "warning"

    def measurement_if_clean(self) -> str:
        """The number of compilations after the first; empty without an output."""
        output = self.subject.output
        return f"{output.recompiled.count:,} compilations after the first" if output else ""

    def findings(self) -> Iterator[Finding]:
        output = self.subject.output
        if output is None:
            return
        compiled = output.recompiled
        if not (
            compiled.count >= MIN_COMPILED
            or compiled.is_limit_reached
            or compiled.graphs >= MIN_GRAPHS
        ):
            return
        yield self.finding(
            _message(compiled),
            "pad to a few lengths (pad_to_multiple_of=64 in the collator, or length buckets), compile once for all"
            " lengths (torch.compile(model, dynamic=True)), or turn torch.compile off (torch_compile=False)"
            + (
                "; to see the reason of each compilation, set TORCH_LOGS=recompiles"
                if not compiled.count
                else ""
            ),
            evidence=tuple(_compile_wait_evidence(compiled)),
            cases=(Case(compiled.text, file=output.file, line=compiled.line),),
            count=compiled.count or None,
        )


def _message(compiled: Recompilations) -> str:
    """The finding's message: what is compiled, how often, and for which shapes."""
    function = f" {compiled.function}" if compiled.function else ""
    if compiled.count:
        message = f"torch.compile recompiled{function} {compiled.count:,} times"
    elif compiled.graphs:
        message = f"CUDA graphs were recorded for {compiled.graphs:,} different sizes"
    else:
        message = (
            f"torch.compile gave up{' on' * bool(function)}{function} after too many recompilations"
        )
    if compiled.index is not None and compiled.sizes:
        message += (
            f": dimension {compiled.index} of a tensor changes, with {len(compiled.sizes):,} sizes from"
            f" {compiled.sizes[0]:,} to {compiled.sizes[-1]:,}"
        )
    if compiled.is_limit_reached and compiled.count:
        limit = f" of {compiled.limit}" if compiled.limit else ""
        message += f"; the limit{limit} is reached, and the code runs uncompiled after that"
    return message


def _compile_wait_evidence(compiled: Recompilations) -> Iterator[str]:
    """Evidence how long the thing takes that waits for a compilation."""
    if compiled.slow_s is not None and compiled.quick_s is not None:
        if compiled.slow_s > compiled.quick_s:
            yield (
                f"requests or steps after a compilation take {compiled.slow_s:,.3g} s, others"
                f" {compiled.quick_s:,.3g} s (medians)"
            )
    if compiled.is_limit_reached and not compiled.count:
        yield f"the recompile limit{f' of {compiled.limit}' if compiled.limit else ''} is reached"
