"""The newest checkpoint is picked by alphabetical order, in which 900 comes after 1000.

## What it does
Looks at names of checkpoints from `glob`, `os.listdir` or `iterdir` that are sorted, or given to `max` or `min`,
without a key, if the last one is used. It fires if their pattern ends in a number without leading zeros:
`checkpoint-*`, `step_*`, `epoch*`. Code that compares the numbers in the names is not reported.

## Why it is bad
Alphabetically, `checkpoint-900` comes after `checkpoint-1000`. A run is resumed from the wrong step and overwrites
later checkpoints, or an older model is evaluated and published.

## Example
```python
import glob

from transformers import AutoModelForCausalLM

checkpoints = sorted(glob.glob("out/checkpoint-*"))
model = AutoModelForCausalLM.from_pretrained(checkpoints[-1])
```

## Use instead
```python
import glob

from transformers import AutoModelForCausalLM

checkpoints = sorted(glob.glob("out/checkpoint-*"), key=lambda path: int(path.rsplit("-", 1)[1]))
model = AutoModelForCausalLM.from_pretrained(checkpoints[-1])
```

## Fix safety
Safe if every name ends in its number. `transformers.trainer_utils.get_last_checkpoint("out")` does the same.

## References
- https://huggingface.co/docs/transformers/main_classes/trainer (`resume_from_checkpoint=True` picks by number)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.parsed_source_file import Module

PICKS = ("sorted", "max", "min")
LISTINGS = frozenset(("glob", "iglob", "rglob", "listdir", "iterdir", "scandir"))
NUMBERED = re.compile(
    r"(checkpoint|ckpt|step|iter|epoch|global_step|model|adapter)s?[-_]?(\*|\{\})(?!\w)(/|\.\w+)?$",
    re.I,
)
"""Patterns of names that end in a number"""
PARTS_OF_MODEL = re.compile(r"model-\*\.(safetensors|bin)$")
"""Patterns of the files of one model, whose numbers transformers fills up with zeros"""
KEEPS_NAMES = frozenset(("join", "str", "Path", "basename", "abspath", "fspath"))
"""Calls that make another text or path of a name, and no number"""
FILLED_UP = re.compile(r":0\d+d?\}|zfill\(|%0\d+d|rjust\(")
"""In files: numbers that are filled up with zeros, whose texts are in order"""
PREFIX = re.compile(r"^(checkpoint|ckpt|step|epoch|global_step|iter)[-_]?$", re.I)
"""Beginnings that a listing is filtered by"""


class PickedByText(NamedTuple):
    """A checkpoint that is picked by the order of names as texts."""

    order: Call
    listing: ast.AST


def calls_ordering_without_key(module: Module) -> Iterator[Call]:
    """The calls that sort names, or take the greatest, without a key."""
    for call in module.calls(*PICKS):
        if "key" not in call.keywords and len(call.args) == 1 and not call.open:
            yield call


def checkpoints_picked_by_text(module: Module) -> Iterator[PickedByText]:
    """The checkpoints of a file that are picked by the order of their names as texts."""
    if any(FILLED_UP.search(part.text) for part in module.self_and_files_run_together):
        return
    for order in calls_ordering_without_key(module):
        listing = _listing_of_checkpoints(module, order.args[0])
        if listing is not None and _is_last_or_extreme_name_picked(module, order):
            yield PickedByText(order, listing)


def _listing_of_checkpoints(module: Module, names: ast.expr) -> ast.AST | None:
    """The listing of numbered checkpoints that names come from."""
    for origin in module.flow.origins(names):
        if not _does_expression_keep_names(origin.node):
            continue
        for part in ast.walk(origin.node):
            if not isinstance(part, ast.Call):
                continue
            is_pattern = last_name_of_called(
                part
            ) in LISTINGS and _does_listing_pattern_end_in_number(module, part)
            if is_pattern or (_is_prefix_test(module, part) and _lists_files(origin.node)):
                return part
    return None


def _does_expression_keep_names(node: ast.AST) -> bool:
    """Does an expression keep the names that it lists: does it make no numbers or pairs of them?"""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and last_name_of_called(part) == "map":
            return False
        if isinstance(part, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            calls = (one for one in ast.walk(part.elt) if isinstance(one, ast.Call))
            if isinstance(part.elt, ast.Tuple):
                return False
            if any(last_name_of_called(call) not in KEEPS_NAMES for call in calls):
                return False
    return True


def _does_listing_pattern_end_in_number(module: Module, listing: ast.Call) -> bool:
    """Does the pattern of a listing end in a number that is not filled up with zeros?"""
    pattern = " ".join(_last_text_of_pattern(module, one) for one in listing.args)
    return NUMBERED.search(pattern) is not None and PARTS_OF_MODEL.search(pattern) is None


def _last_text_of_pattern(module: Module, node: ast.expr) -> str:
    """The last text that a pattern is written with: `checkpoint-*` of `f"{folder}/checkpoint-*"`."""
    nodes = [origin.node for origin in module.flow.origins(node)]
    texts = [
        one.value
        for part in nodes
        for one in ast.walk(part)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
    return texts[-1] if texts else ""


def _is_prefix_test(module: Module, call: ast.Call) -> bool:
    """Is it `name.startswith("checkpoint-")`?"""
    if last_name_of_called(call) != "startswith" or not call.args:
        return False
    return PREFIX.match(_last_text_of_pattern(module, call.args[0])) is not None


def _lists_files(node: ast.AST) -> bool:
    """Does an expression list the files of a folder?"""
    return any(
        isinstance(part, ast.Call) and last_name_of_called(part) in LISTINGS
        for part in ast.walk(node)
    )


def _is_last_or_extreme_name_picked(module: Module, order: Call) -> bool:
    """Is the last of the sorted names taken, or the greatest or smallest of all?"""
    if order.named("max", "min"):
        return True
    around = module.scopes.parent.get(order.node)
    if isinstance(around, ast.Subscript):
        return _is_last_index(around.slice)
    reads = (
        read
        for reads in module.name_reads.values()
        for read in reads
        if any(origin.node is order.node for origin in module.flow.origins(read))
    )
    for read in reads:
        taken = module.scopes.parent.get(read)
        if isinstance(taken, ast.Subscript) and _is_last_index(taken.slice):
            return True
    return False


def _is_last_index(index: ast.expr) -> bool:
    """Is an index the last one?"""
    return ast.unparse(index) == "-1"


class CheckpointsSortedAsTexts(SourceRule):
    code = "SRC473"
    fault = Fault.WRONG_CHECKPOINT_CHOSEN
    symptoms = ("odd-metrics",)
    severity = "error"
    looks_at = CodePlaces("names that are sorted without a key", calls_ordering_without_key)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for picked in checkpoints_picked_by_text(module):
            yield self.finding(
                "the checkpoints are ordered alphabetically: checkpoint-900 counts as newer than checkpoint-1000",
                'sort by number: key=lambda path: int(path.rsplit("-", 1)[1]) (of a pathlib path: path.name.rsplit)',
                cases=[
                    case_of_node(module, picked.order.node),
                    case_of_node(module, picked.listing),
                ],
            )
