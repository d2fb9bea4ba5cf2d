"""Dataset.map gets a function imported from another module, and its cache does not notice changes in that module.

## What it does
Looks for `dataset.map(function)` with a function that is imported from a module that is not a known library, if
`load_from_cache_file` is not off.

## Why it is bad
`datasets` hashes an imported function only by its name. If you edit the module and run again, the old rows come back,
and the change seems to have no effect.

## Example
```python
from datasets import load_dataset
from .preprocessing import encode

rows = load_dataset("json", data_files="chats.jsonl", split="train")
rows = rows.map(encode)
```

## Use instead
```python
from datasets import load_dataset
from .preprocessing import encode

rows = load_dataset("json", data_files="chats.jsonl", split="train")
rows = rows.map(encode, load_from_cache_file=False)
```

## Fix safety
Safe: the rows are computed again in each run, which takes time.

## References
- huggingface/datasets#3297, huggingface/datasets#6184, huggingface/datasets#8614
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import set_keyword
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import LIBRARIES_WITH_SHORT_NAMES

LIBRARIES = frozenset(
    (
        *LIBRARIES_WITH_SHORT_NAMES,
        "torch",
        "numpy",
        "pandas",
        "PIL",
        "torchvision",
        "torchaudio",
        "evaluate",
        "nltk",
        "tqdm",
    )
)


def _map_and_filter_calls_with_functions(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """Calls of a data set's `map` and `filter`, with the function that each is given."""
    for call in module.methods("map", "filter"):
        function = call.argument(0, "function")
        if (
            function is not None
            and call.receiver is not None
            and "dataset" in module.flow.types(call.receiver)
        ):
            yield call, function


class MapCacheIgnoresImportedFunction(SourceRule):
    code = "SRC059"
    fault = Fault.PREPARED_ROWS_OUT_OF_DATE
    symptoms = ("loss-does-not-fall",)
    severity = "info"
    since = "0.1.0"
    looks_at = CodePlaces(
        "functions that a data set is mapped or filtered by", _map_and_filter_calls_with_functions
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call, function in _map_and_filter_calls_with_functions(module):
            name = module.flow.imported_name(function)
            first = (name or "").lstrip(".").partition(".")[0]
            known = (
                first in LIBRARIES
                or first in sys.stdlib_module_names
                or first in sys.builtin_module_names
            )
            if name and "." in name and not known and call.lacks("load_from_cache_file"):
                yield self.finding(
                    f"the cache of datasets knows {name} only by its name: after a change in its module"
                    " you get the old rows",
                    "set load_from_cache_file=False in this call while you change that module",
                    cases=[case_of_node(module, call.node)],
                    fix=fix_of_changes(
                        module, set_keyword(module, call, "load_from_cache_file", "False")
                    ),
                )
