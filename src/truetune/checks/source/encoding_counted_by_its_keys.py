"""`len()` of a tokenizer's result is used as the number of tokens, but it is the number of keys.

## What it does
Follows the results of a tokenizer's call in a script. It fires if `len(tokenizer(text))`, or the length of a list of
it, is taken: the result is a dictionary of `input_ids`, `attention_mask` and perhaps `token_type_ids`.
`list(tokenizer("x"))`, by which a script learns those names, is not reported.

## Why it is bad
The length is 2 or 3 for every text. A prompt mask of that length leaves nearly the whole prompt in the loss, a length
limit compared with it never cuts, and rows sorted by it are not sorted.

## Example
```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")

def encode(row):
    ids = tokenizer(row["prompt"] + row["answer"])["input_ids"]
    n = len(tokenizer(row["prompt"]))
    return {"input_ids": ids, "labels": [-100] * n + ids[n:]}

rows = rows.map(encode)
```

## Use instead
```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")

def encode(row):
    ids = tokenizer(row["prompt"] + row["answer"])["input_ids"]
    n = len(tokenizer(row["prompt"])["input_ids"])
    return {"input_ids": ids, "labels": [-100] * n + ids[n:]}

rows = rows.map(encode)
```

## Fix safety
There is no automatic fix. Rows that were masked by this length have to be built again, and the training repeated.

## References
- MakazhanAlpamys/Soup#430
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.training_protocol.find_acted_objects import (
    TOKENIZERS,
    is_made_by,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.values_of_run import Result, Value

ENCODING_METHODS = frozenset(("__call__", "encode_plus", "batch_encode_plus"))
MOVES = frozenset(("to", "copy"))


class EncodingCountedByItsKeys(SourceRule):
    code = "SRC534"
    fault = Fault.TOKENS_COUNTED_WRONGLY
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = places_of_calls("lengths that are taken", "len", "list")

    def findings(self) -> Iterator[Finding]:
        """Findings on lengths of what a tokenizer returned."""
        module = self.subject
        for node in _lengths_of_encodings(module):
            yield self.finding(
                "the tokenizer returns a dictionary: its length is the number of its keys, 2 or 3, not the number of"
                " tokens",
                'count the ids: len(tokenizer(text)["input_ids"])',
                cases=[case_of_node(module, node)],
            )


def _lengths_of_encodings(module: Module) -> Iterator[ast.AST]:
    """The places of a file that take the length of a tokenizer's result, each once."""
    if "okeniz" not in module.text:
        return
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.calls("len", "list"):
            if call.node in seen or call.home is not module or len(call.args) != 1:
                continue
            if not _is_encoding(call.args[0]):
                continue
            if not (call.named("list") and _is_encoding_of_text_in_script(call.args[0])):
                seen.add(call.node)
                yield call.node


def _is_encoding_of_text_in_script(encoding: Value) -> bool:
    """Is it what a tokenizer gave for a text in the script? Its list is asked for the names of the columns."""
    call = encoding.call if isinstance(encoding, Result) else None
    return call is not None and bool(call.args) and isinstance(constant_of(call.args[0]), str)


def _is_encoding(value: Value) -> bool:
    """Is a value what a tokenizer gave for a text, as a whole?"""
    if not isinstance(value, Result):
        return False
    call = value.call
    if call.method in MOVES and call.receiver is not None:
        return _is_encoding(call.receiver)
    return call.method in ENCODING_METHODS and is_made_by(call.receiver, TOKENIZERS)
