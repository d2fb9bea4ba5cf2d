"""DeepSpeed's settings in a script give another batch size than the number of processes allows.

## What it does
Reads the DeepSpeed settings that a script writes as a dictionary, with plain numbers for `train_batch_size`,
`train_micro_batch_size_per_gpu` and `gradient_accumulation_steps` (or defaults of the script's options). It compares
their product with the number of processes (one per GPU) in the command that starts the script. If no command is seen,
it reports batch sizes that no number of processes can give. Not reported: settings with a value that is not a plain
number, and scripts that are started with different numbers of processes.

## Why it is bad
DeepSpeed asserts that train_batch_size = rows per GPU x accumulation steps x processes, and stops if it is not. The
settings were written for another number of GPUs.

## Example
```python
import deepspeed

settings = {
    "train_batch_size": 100,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 4,
}
engine, *_ = deepspeed.initialize(model=model, config=settings)
```

## Use instead
```python
import deepspeed

settings = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 4,
}
engine, *_ = deepspeed.initialize(model=model, config=settings)
```

## Fix safety
Safe: DeepSpeed computes `train_batch_size` itself. The batch then changes with the number of GPUs, so the learning rate
may need another value.

## References
- www.deepspeed.ai/docs/config-json/: "Batch Size Related Parameters"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.possible_values_of_expressions import possible_numbers
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    launched_process_count_and_command,
)
from truetune.source.parsed_source_file import Module

KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def _deepspeed_dictionaries(module: Module) -> Iterator[ast.AST]:
    """Dictionaries with the rows of one GPU, which only DeepSpeed's settings have."""
    for node in (*module.nodes(ast.Dict), *module.nodes(ast.Call)):
        if KEYS[1] in _dictionary_entries(node):
            yield node


def _known_batch_settings(module: Module) -> Iterator[tuple[ast.AST, list[int]]]:
    """Dictionaries with all three numbers, where each has one value."""
    for node in _deepspeed_dictionaries(module):
        entries = _dictionary_entries(node)
        given = [possible_numbers(module, entries[key]) for key in KEYS if key in entries]
        # Two values are those of two runs, or of a default and of a command.
        if len(given) == len(KEYS) and all(map(_is_single_integer, given)):
            yield node, [int(numbers[0]) for numbers in given]


def _is_single_integer(numbers: Sequence[float]) -> bool:
    """Is there one number alone, and no fraction?"""
    return len(numbers) == 1 and numbers[0] == int(numbers[0])


def _dictionary_entries(node: ast.AST) -> dict[str, ast.expr]:
    """The entries of `{...}` and of `dict(...)`."""
    if isinstance(node, ast.Call):
        is_dict = isinstance(node.func, ast.Name) and node.func.id == "dict"
        return {one.arg: one.value for one in node.keywords if one.arg} if is_dict else {}
    if not isinstance(node, ast.Dict):
        return {}
    pairs = zip(node.keys, node.values, strict=True)
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


class DeepspeedBatchOfAnotherWorldSize(SourceRule):
    code = "SRC380"
    fault = Fault.LAUNCH_SETTINGS_CONTRADICT
    symptoms = ("several-gpus",)
    severity = "error"
    looks_at = CodePlaces("batch settings of DeepSpeed in a script", _deepspeed_dictionaries)

    def findings(self) -> Iterator[Finding]:
        """Findings on DeepSpeed's batch sizes in a script that the number of processes does not give."""
        module = self.subject
        started = launched_process_count_and_command(Path(module.path))
        for node, (whole, rows, steps) in _known_batch_settings(module):
            if started is not None and whole != rows * steps * started[0]:
                yield self._finding_on_dictionary(node, whole, (rows, steps), started)
            elif started is None and rows * steps and whole % (rows * steps):
                yield self._finding_on_dictionary(node, whole, (rows, steps), None)

    def _finding_on_dictionary(
        self,
        node: ast.AST,
        whole: int,
        of_process: tuple[int, int],
        started: tuple[int, str] | None,
    ) -> Finding:
        """The finding on one dictionary; without a command, no number of processes fits."""
        rows, steps = of_process
        if started is None:
            product = f"no number of processes x {rows} rows per GPU x {steps} accumulation steps gives that"
            value = f"a multiple of {rows * steps}"
        else:
            value = str(rows * steps * started[0])
            product = f"{started[0]} processes x {rows} rows per GPU x {steps} accumulation steps are {value}"
        return self.finding(
            f"train_batch_size is {whole}, but {product}: DeepSpeed stops with an AssertionError",
            f"remove train_batch_size, so that DeepSpeed computes it; or set it to {value}",
            evidence=[started[1]] if started is not None else [],
            cases=[case_of_node(self.subject, node)],
        )
