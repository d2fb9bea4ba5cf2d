"""The first token is taken for each answer letter, but it is the tokenizer's BOS: all letters get the same id.

## What it does
Looks for `tokenizer("A").input_ids[0]`, `tokenizer.encode("A")[0]` and the like, called for each of several texts, in a
file that reads logits. It fires with a tokenizer that puts a BOS before each text (Llama, Mistral, Gemma), and without
`add_special_tokens=False`. Whether the tokenizer adds a BOS is read from its files if they are available, else inferred
from the name of the model or of a folder in its path (`runs/llama31-quiz/merged`).

## Why it is bad
The first id is the BOS, whatever the letter. All options get the same score, `argmax` takes the first of them, and each
model scores the share of rows whose answer is A: about 25 % with four options.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
option_ids = [tokenizer(letter).input_ids[0] for letter in "ABCD"]
logits = model(**tokenizer(question, return_tensors="pt")).logits[0, -1]
guess = logits[option_ids].argmax()
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
option_ids = [tokenizer(" " + letter, add_special_tokens=False).input_ids[-1] for letter in "ABCD"]
logits = model(**tokenizer(question, return_tensors="pt")).logits[0, -1]
guess = logits[option_ids].argmax()
```

## Fix safety
There is no automatic fix. A letter after a space is a different token than the letter by itself: use the one that
follows the end of the prompt (`Answer:` is followed by ` A`). Scores change, so evaluate earlier models again.

## References
- EleutherAI/lm-evaluation-harness#443; hendrycks/test `evaluate_flan.py` (`tokenizer("A").input_ids[0]`, of T5, which
  has no BOS)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.tokenizers_that_add_bos import adds_bos_to_each_text
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


def _first_ids_and_encodings(module: Module) -> Iterator[tuple[ast.Subscript, Call]]:
    """The first ids of texts that are encoded one by one, with the calls that encode them."""
    if not module.mentions("logits"):
        return
    for node in module.nodes(ast.Subscript):
        if not isinstance(node.slice, ast.Constant) or node.slice.value != 0:
            continue
        encoding = _encoding_call(module, node.value)
        if encoding is not None:
            yield node, encoding


class AnswerOptionIdsAreAllBos(SourceRule):
    code = "SRC109"
    fault = Fault.METRIC_GETS_WRONG_INPUTS
    severity = "error"
    looks_at = CodePlaces("first ids of texts, in files that read logits", _first_ids_and_encodings)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        first_ids = [
            (node, call)
            for node, call in _first_ids_and_encodings(module)
            if _puts_bos_before_text(module, call)
            and not _is_first_id_compared_with_bos(module, node)
        ]
        is_repeated = any(_is_read_for_several_texts(module, node) for node, _ in first_ids)
        # One first id may be read to be dropped; options are compared by several of them, or in a loop.
        if len(first_ids) < 2 and not is_repeated:
            return
        yield self.finding(
            "the first id of each option is the tokenizer's BOS: all options get the same id, and the same score",
            "encode each letter with add_special_tokens=False and take the last id:"
            ' tokenizer(" " + letter, add_special_tokens=False).input_ids[-1] (without the " " if the prompt already'
            " ends in a space)",
            cases=[case_of_node(module, node) for node, _ in first_ids],
        )


def _is_first_id_compared_with_bos(module: Module, node: ast.AST) -> bool:
    """Is a first id read to learn whether it is the BOS?"""
    parent = next(iter(module.parents(node)), None)
    return isinstance(parent, ast.Compare) and "bos" in ast.unparse(parent).lower()


def _is_read_for_several_texts(module: Module, node: ast.AST) -> bool:
    """Is it read for each of several texts: in a comprehension, in a loop over texts that the file
    writes down, or as the result of a function that is called for several?
    """
    for around in module.parents(node):
        if isinstance(around, COMPREHENSIONS):
            return True
        if isinstance(around, ast.For) and _are_texts_written_in_file(module, around.iter):
            return True
        if isinstance(around, ast.FunctionDef):
            calls = [c for c in module.all_calls if ast.unparse(c.node.func) == around.name]
            return len(calls) > 1 or any(
                _is_read_for_several_texts(module, one.node) for one in calls
            )
    return False


def _are_texts_written_in_file(module: Module, texts: ast.expr) -> bool:
    """Are these texts written in the file: a string's letters, or a list of them?"""
    value = module.flow.value(texts)
    if isinstance(value, (list, tuple)):
        return len(value) > 1 and all(isinstance(one, str) for one in value)
    return isinstance(value, str) and len(value) > 1


def _encoding_call(module: Module, ids: ast.expr) -> Call | None:
    """The tokenizer's call in `tok(x).input_ids`, `tok(x)["input_ids"]` and `tok.encode(x)`."""
    if isinstance(ids, ast.Attribute) and ids.attr == "input_ids":
        ids = ids.value
    elif isinstance(ids, ast.Subscript) and isinstance(ids.slice, ast.Constant):
        if ids.slice.value != "input_ids":
            return None
        ids = ids.value
    elif not (isinstance(ids, ast.Call) and module.flow.call(ids).method == "encode"):
        return None
    return module.flow.call(ids) if isinstance(ids, ast.Call) else None


def _puts_bos_before_text(module: Module, call: Call) -> bool:
    """Does this call put a BOS before its one text?"""
    # return_tensors: `[0]` is then the row of a batch and not an id.
    if call.open or "add_special_tokens" in call.keywords or "return_tensors" in call.keywords:
        return False
    if module.mentions("add_bos_token"):
        return False
    tokenizer = call.receiver if call.method == "encode" else call.node.func
    return adds_bos_to_each_text(module, tokenizer)
