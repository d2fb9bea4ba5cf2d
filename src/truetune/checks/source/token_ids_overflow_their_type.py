"""Token ids are stored in an integer type that is too small for the vocabulary.

## What it does
Looks at token ids that are cast to a small type of numpy or torch (`uint16`, `int16`, `uint8`, ...), or written into an
array or memmap of that type, if the tokenizer's vocabulary is known to be larger.

## Why it is bad
There is no error: each id that is too large wraps around to another one (modulo 65,536 for `uint16`). The model then
learns other words, and the end of a text, which has one of the highest ids, becomes an ordinary word.

## Example
```python
import numpy as np
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
ids = []
for text in texts:
    ids += tokenizer(text)["input_ids"] + [tokenizer.eos_token_id]
np.array(ids, dtype=np.uint16).tofile("train.bin")
```

## Use instead
```python
import numpy as np
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
ids = []
for text in texts:
    ids += tokenizer(text)["input_ids"] + [tokenizer.eos_token_id]
np.array(ids, dtype=np.uint32).tofile("train.bin")
```

## Fix safety
There is no automatic fix: the code that reads the file must use the same type. Write the file again and train again.

## References
- https://github.com/princeton-nlp/LLM-Shearing/issues/65
- https://github.com/huggingface/datatrove/issues/118, https://github.com/urvashik/knnlm/issues/6
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.shared_vocabularies import vocabulary_group
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import likely_model_names
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

HIGHEST_BY_TYPE = {"uint16": 65_535, "int16": 32_767, "short": 32_767, "uint8": 255, "int8": 127}
"""The last part of a type's name in numpy and torch -> the highest number that it holds"""
TOKENS_BY_VOCABULARY = {
    "Llama 3": 128_256,
    "Qwen": 151_643,
    "Gemma": 256_000,
    "Gemma 3": 262_144,
    "BLOOM": 250_680,
    "mT5": 250_100,
    "XLM-R": 250_002,
    "gpt-oss": 199_998,
    "Llama 2": 32_000,
    "Mistral": 32_000,
    "GPT-2": 50_257,
    "GPT-NeoX": 50_254,
    "SmolLM": 49_152,
}
"""Tokens of the published tokenizers (`shared_vocabularies`): at least so many"""
TOKENS_BY_ENCODING = {
    "o200k_base": 200_019,
    "cl100k_base": 100_277,
    "p50k_base": 50_281,
    "gpt2": 50_257,
}
"""Tokens of tiktoken's encodings"""
TOKENIZER_LOADS = ("transformers.*Tokenizer*.from_pretrained",)
TIKTOKEN_LOADS = ("tiktoken.get_encoding",)
MAKERS_OF_ARRAYS = (
    "numpy.array",
    "numpy.asarray",
    "numpy.fromiter",
    "torch.tensor",
    "torch.as_tensor",
)
EMPTY_ARRAYS = ("numpy.memmap", "numpy.zeros", "numpy.empty", "torch.zeros", "torch.empty")
CASTS = ("astype", "to", "type", "short")
MAKES_IDS = ("encode", "encode_ordinary", "encode_batch", "encode_ordinary_batch")


class SmallVocabularyType(NamedTuple):
    """A place where token ids become numbers of a small type."""

    node: ast.AST
    name: str
    """Of the type: uint16"""


class TokenIdsOverflowTheirType(SourceRule):
    code = "SRC480"
    fault = Fault.TOKEN_IDS_EXCEED_EMBEDDING
    symptoms = ("garbage-output", "nothing-is-learned", "never-stops")
    severity = "error"
    looks_at = CodePlaces(
        "token ids of a small type", lambda module: (one.node for one in ids_of_small_types(module))
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        known = _name_and_size_of_only_tokenizer(module)
        if known is None:
            return
        name, tokens = known
        for place in ids_of_small_types(module):
            highest = HIGHEST_BY_TYPE[place.name]
            if tokens - 1 <= highest:
                continue
            yield self.finding(
                f"token ids are stored as {place.name}, whose maximum is {highest:,}, but {name} has"
                f" {tokens:,} tokens: higher ids turn into other tokens",
                "use numpy.uint32 (or torch.int64) in the code that writes the ids and in the code that reads them",
                cases=[case_of_node(module, place.node)],
            )


def ids_of_small_types(module: Module) -> Iterator[SmallVocabularyType]:
    """The casts of token ids to a small type, and the arrays of such a type that ids are written into."""
    for call in module.all_calls:
        name = _small_type_of_call(module, call)
        if name is None:
            continue
        if call.method in CASTS and call.receiver is not None:
            is_of_ids = _holds_token_ids(module, call.receiver)
        elif call.named(*MAKERS_OF_ARRAYS) and call.args:
            is_of_ids = _holds_token_ids(module, call.args[0])
        else:
            is_of_ids = call.named(*EMPTY_ARRAYS) and _are_ids_written_into(module, call)
        if is_of_ids:
            yield SmallVocabularyType(call.node, name)


def _small_type_of_call(module: Module, call: Call) -> str | None:
    """The small type that a call casts to or makes; None for any other call."""
    if call.method == "short":
        return "short"
    expression = _type_given_to_call(call)
    if expression is None:
        return None
    written = module.flow.value(expression)
    name = written if isinstance(written, str) else (module.flow.name(expression) or "")
    last = name.rpartition(".")[2]
    return last if last in HIGHEST_BY_TYPE else None


def _type_given_to_call(call: Call) -> ast.expr | None:
    """The type that a call which casts, or makes an array, is given; None where it is given none."""
    is_cast = call.method in CASTS
    if not is_cast and not call.named(*MAKERS_OF_ARRAYS, *EMPTY_ARRAYS):
        return None
    given = call.keywords.get("dtype")
    if given is None and is_cast and call.args:
        given = call.args[0]
    if given is None and call.named("numpy.array", "numpy.asarray", *EMPTY_ARRAYS):
        given = call.argument(1, "dtype")
    return given


def _holds_token_ids(module: Module, node: ast.expr) -> bool:
    """Is an expression computed from the ids that a tokenizer makes?"""
    for part in backward_slice(module, node):
        if isinstance(part, ast.Attribute) and part.attr == "input_ids":
            return True
        if isinstance(part, ast.Constant) and part.value == "input_ids":
            return True
        is_method = isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)
        if is_method and isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            if part.func.attr in MAKES_IDS:
                return True
    return False


def _are_ids_written_into(module: Module, made: Call) -> bool:
    """Are token ids written into an array that a call makes: `array[start:end] = ids`?"""
    for target in module.nodes(ast.Subscript):
        holder = module.scopes.parent.get(target)
        if not isinstance(holder, ast.Assign) or target not in holder.targets:
            continue
        origins = [origin.node for origin in module.flow.origins(target.value)]
        if made.node in origins and _holds_token_ids(module, holder.value):
            return True
    return False


def _name_and_size_of_only_tokenizer(module: Module) -> tuple[str, int] | None:
    """(name, tokens) of the one tokenizer that a script loads; None where it is not known, or there are several."""
    known: set[tuple[str, int]] = set()
    for call in module.calls(*TIKTOKEN_LOADS):
        written = module.flow.value(call.argument(0, "encoding_name"))
        tokens = TOKENS_BY_ENCODING.get(written) if isinstance(written, str) else None
        if tokens is None:
            return None
        known.add((str(written), tokens))
    for call in module.calls(*TOKENIZER_LOADS):
        groups = {name: vocabulary_group(name) for name in likely_model_names(module, call.node)}
        for name, group in groups.items():
            tokens = TOKENS_BY_VOCABULARY.get(group or "")
            if tokens is None:
                return None
            known.add((name, tokens))
    return known.pop() if len(known) == 1 else None
