"""A prompt in Gemma's chat format is encoded without BOS, which Gemma needs.

## What it does
Follows texts that begin with `<start_of_turn>`, which only Gemma's templates write, to a tokenizer call with
`add_special_tokens=False`. It fires if nothing in the files adds a BOS: no `<bos>` in the text, no `bos_token`, no
`build_inputs_with_special_tokens`. Texts that `apply_chat_template` rendered already begin with it. They are not
reported, nor are models that are known to be of another family.

## Why it is bad
Gemma was trained with BOS at the start of every text. Without it the loss of the first step is far above that of random
guessing (10 to 15 and more), and answers are garbage, while a Llama or Qwen with the same script works.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("google/gemma-2-2b-it")
model = AutoModelForCausalLM.from_pretrained("google/gemma-2-2b-it")
prompt = f"<start_of_turn>user\\n{question}<end_of_turn>\\n<start_of_turn>model\\n"
inputs = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("google/gemma-2-2b-it")
model = AutoModelForCausalLM.from_pretrained("google/gemma-2-2b-it")
prompt = f"<start_of_turn>user\\n{question}<end_of_turn>\\n<start_of_turn>model\\n"
inputs = tokenizer(prompt, return_tensors="pt")
```

## Fix safety
Safe if the text does not already begin with `<bos>`: there has to be exactly one. Use the same in training and
generation.

## References
- unslothai/unsloth, "Fixing Gemma bugs"; huggingface/transformers#29250
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    likely_model_names,
    normalized_model_name,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

OPENS = re.compile(r"\s*<start_of_turn>\s*(?:user|system|\{|$)")
"""How the first turn of a text begins; a piece that begins with the model's turn stands after others"""
ENDS = "<end_of_turn>"
WRITES_BOS = ("bos_token", "<bos>", "build_inputs_with_special_tokens", "bos_id")
OTHER_FAMILIES = re.compile(r"(?:meta-)?llama|qwen|mistral|mixtral|phi|smollm|gpt")
"""How the names of published models begin that are not Gemma's"""
ENCODING_METHODS = ("encode", "encode_plus", "batch_encode_plus", "__call__")


def _encodings_without_special_tokens(module: Module) -> Iterator[Call]:
    """The calls that encode a text and are told to add no special tokens."""
    for call in module.all_calls:
        add_special_tokens_argument = call.keywords.get("add_special_tokens")
        if (
            add_special_tokens_argument is None
            or module.flow.value(add_special_tokens_argument) is not False
            or not call.args
        ):
            continue
        if "tokenizer" in module.flow.types(_tokenizer_of(call)):
            yield call


def _tokenizer_of(call: Call) -> ast.expr | None:
    """The tokenizer that a call encodes with: `tokenizer(...)`, `tokenizer.encode(...)`."""
    return call.receiver if call.method in ENCODING_METHODS else call.node.func


class GemmaBosLeftOut(SourceRule):
    code = "SRC281"
    fault = Fault.BOS_MISSING
    symptoms = ("garbage-output", "loss-does-not-fall")
    severity = "error"
    looks_at = CodePlaces(
        "texts that are encoded without special tokens", _encodings_without_special_tokens
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on prompts with Gemma's marks that are encoded without BOS."""
        module = self.subject
        if module.mentions(*WRITES_BOS):
            return
        for call in _encodings_without_special_tokens(module):
            written = _text_opening_first_turn(module, call)
            if written is None or _names_only_non_gemma_models(module, call):
                continue
            yield self.finding(
                "the text begins with <start_of_turn>, is encoded with add_special_tokens=False, and nothing adds"
                " <bos>: without it Gemma's answers are garbage, and its loss starts above that of random guessing",
                "remove add_special_tokens=False, so that the tokenizer adds <bos>, or begin the text with"
                " tokenizer.bos_token; use exactly one, both in training and in generation",
                cases=[case_of_node(module, call.node), case_of_node(module, written)],
            )


def _text_opening_first_turn(module: Module, call: Call) -> ast.AST | None:
    """The text that an encoding begins with, where it opens the first turn; None where it may be rendered otherwise."""
    parts = list(backward_slice(module, call.args[0]))
    attributes = {part.attr for part in parts if isinstance(part, ast.Attribute)}
    texts = _text_constants(parts)
    # A turn that nothing ends is a marker that labels are searched by.
    is_ended = any(ENDS in str(text.value) for text in texts)
    if "apply_chat_template" in attributes or not is_ended:
        return None
    openings = (text for text in texts if OPENS.match(str(text.value)))
    return next((text for text in openings if _begins_whole_text(module, text)), None)


def _text_constants(nodes: Iterable[ast.AST]) -> list[ast.Constant]:
    """The nodes that are texts written in the code."""
    constants = (node for node in nodes if isinstance(node, ast.Constant))
    return [node for node in constants if isinstance(node.value, str)]


def _begins_whole_text(module: Module, text: ast.Constant) -> bool:
    """Does a text begin what it is a part of: nothing stands before it in its f-string or sum?"""
    inner: ast.AST = text
    for around in module.parents(text):
        if isinstance(around, ast.JoinedStr) and around.values[0] is not inner:
            return False
        if isinstance(around, ast.BinOp) and around.left is not inner:
            return False
        if isinstance(around, ast.stmt):
            return not isinstance(around, ast.AugAssign)
        inner = around
    return True


def _names_only_non_gemma_models(module: Module, call: Call) -> bool:
    """Is every model that the file names of a family that is not Gemma? A folder of one's own says nothing."""
    names = [
        normalized_model_name(name) for name in likely_model_names(module, _tokenizer_of(call))
    ]
    return any(map(OTHER_FAMILIES.match, names)) and not any("gemma" in name for name in names)
