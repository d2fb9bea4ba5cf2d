"""The whole output of a reasoning model is compared with the reference, including its reasoning.

## What it does
Looks at files that prompt a reasoning model (Qwen3 in its default mode, QwQ, DeepSeek-R1 and its distilled models) and
compare its text with a reference by `==`, after removing at most spaces and case. It does not fire if thinking is
switched off (`enable_thinking=False`, `/no_think`), cut off (`</think>`), or parsed by the server.

## Why it is bad
The text starts with `<think> ... </think>`, which no reference contains: exact match is 0, whatever the model answers.

## Example
```python
from transformers import AutoTokenizer
from vllm import LLM, SamplingParams

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-8B")
engine = LLM("Qwen/Qwen3-8B")
prompts = [tokenizer.apply_chat_template(row["messages"], tokenize=False, add_generation_prompt=True) for row in rows]
outputs = engine.generate(prompts, SamplingParams(temperature=0, max_tokens=1024))
hits = sum(output.outputs[0].text.strip() == row["label"] for output, row in zip(outputs, rows))
```

## Use instead
```python
from transformers import AutoTokenizer
from vllm import LLM, SamplingParams

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-8B")
engine = LLM("Qwen/Qwen3-8B")
prompts = [tokenizer.apply_chat_template(row["messages"], tokenize=False, add_generation_prompt=True) for row in rows]
outputs = engine.generate(prompts, SamplingParams(temperature=0, max_tokens=1024))
answers = [output.outputs[0].text.rpartition("</think>")[2].strip() for output in outputs]
hits = sum(answer == row["label"] for answer, row in zip(answers, rows))
```

## Fix safety
There is no automatic fix. If the model was tuned on answers without reasoning, use `enable_thinking=False`, as in
training. Otherwise cut the reasoning off, and allow enough tokens for it to end.

## References
- https://huggingface.co/Qwen/Qwen3-8B (enable_thinking is True by default); jundot/omlx#358
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.is_answer_compared_with_reference import (
    is_equality_with_reference,
)
from truetune.source.parsed_source_file import Module

THINKS = re.compile(
    r"(?:qwen/)?qwen3-[\d.]+b(?:-a\d+b)?(?:-thinking[-\d]*)?(?:-fp8|-awq)?"
    r"|(?:unsloth/)?qwen3-[\d.]+b(?:-unsloth)?(?:-bnb-4bit)?"
    r"|(?:qwen/)?qwq-32b(?:-preview)?|(?:deepseek-ai/)?deepseek-r1(?:-[\w.-]+)?",
    re.I,
)
"""Names of models whose template lets them think unless it is told not to; Qwen3's -Base and -Instruct do not"""
SWITCHED_OFF = ("thinking", "think>", "no_think", "reasoning")
"""Signs that the file knows of the thinking"""
BARE = ("strip", "lstrip", "rstrip", "lower", "upper", "casefold", "removesuffix")
"""Methods that leave a text whole but for blanks and case"""
ANSWERS = ("text", "content")
"""Attributes of a server's or an engine's answer"""
DECODES = ("decode", "batch_decode")
# Chosen: names and methods that one answer passes from the model to the comparison; a circle ends there.
DEPTH = 8


def _unhandled_reasoning_models(module: Module) -> Iterator[ast.Constant]:
    """Names of reasoning models, in a file that says nothing of their thinking."""
    if module.mentions(*SWITCHED_OFF):
        return
    for node in module.nodes(ast.Constant):
        if isinstance(node.value, str) and THINKS.fullmatch(node.value):
            yield node


class ReasoningScoredWithTheAnswer(SourceRule):
    code = "SRC108"
    fault = Fault.RIGHT_ANSWERS_COUNTED_WRONG
    severity = "warning"
    looks_at = CodePlaces(
        "names of models that think, in files that say nothing of their thinking",
        _unhandled_reasoning_models,
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        model = next(_unhandled_reasoning_models(module), None)
        # Without one of these the prompts are texts of the script's own, in which such a model may not think.
        if model is None or not module.mentions("apply_chat_template", ".chat(", "completions"):
            return
        for compare in module.nodes(ast.Compare):
            if not is_equality_with_reference(compare):
                continue
            sides = [compare.left, *compare.comparators]
            if any(_is_whole_answer(module, side) for side in sides):
                yield self.finding(
                    f"{model.value!r} thinks before it answers, and its whole text, with <think>...</think>, is"
                    " compared with the reference: it never matches",
                    "pass enable_thinking=False to apply_chat_template (Qwen3), or compare only what follows"
                    ' </think>: text.rpartition("</think>")[2].strip()',
                    cases=[case_of_node(module, compare), case_of_node(module, model)],
                )
                return


def _is_whole_answer(module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Is the expression all that a model wrote, but for blanks and case?"""
    if depth > DEPTH:
        return False
    return any(_is_answer_node(module, origin.node, depth) for origin in module.flow.origins(node))


def _is_answer_node(module: Module, node: ast.AST, depth: int) -> bool:
    """Is a node the whole text that a model, an engine or a server gave, also behind `strip` and `lower`?"""
    if isinstance(node, ast.Attribute) and node.attr in ANSWERS:
        text = ast.unparse(node)
        return "outputs[" in text or "message" in text or "choices" in text
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value == "generated_text"
    if not isinstance(node, ast.Call):
        return False
    call = module.flow.call(node)
    if call.method in BARE and call.receiver is not None:
        return _is_whole_answer(module, call.receiver, depth + 1)
    return call.method in DECODES and call.receiver is not None
