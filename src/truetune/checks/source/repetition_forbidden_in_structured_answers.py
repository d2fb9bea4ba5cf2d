"""Generation forbids or penalises repetition, but the answers are JSON, whose keys and brackets repeat.

## What it does
Traces `no_repeat_ngram_size` and `repetition_penalty` (of 1.1 and more) to `generate`, through a GenerationConfig, a
dictionary or the model's own `generation_config`, and `repetition_penalty`, `frequency_penalty` and `presence_penalty`
of vLLM. It fires if the answers are structured: the decoded text is parsed (`json.loads`), or the instruction in the
file asks for JSON, XML, YAML, SQL or tool calls. `no_repeat_ngram_size` is an error, a penalty is a warning.

## Why it is bad
`no_repeat_ngram_size=4` forbids any token that would repeat four tokens in a row that already occurred, also in the
prompt. The second `", "quantity": "` of a list can't be written, nor a value that is in the prompt. A penalty lowers
each token that occurred before, so brackets and keys suffer first. The model knows the format, but can't write it.

## Example
```python
import json

from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
out = model.generate(**batch, max_new_tokens=512, no_repeat_ngram_size=4)
items = json.loads(tokenizer.decode(out[0, length:], skip_special_tokens=True))
```

## Use instead
```python
import json

from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
out = model.generate(**batch, max_new_tokens=512)
items = json.loads(tokenizer.decode(out[0, length:], skip_special_tokens=True))
```

## Fix safety
There is no automatic fix: a model that repeats itself without the setting has another fault (no stop token, a wrong
template), which the setting hides.

## References
- vllm-project/vllm#1257, leonickson1/Swiftlet#32
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.answers_parsed_or_requested_in_a_format import (
    ASKS,
    MIN_WORDS,
    signs_of_structured_answers,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SAMPLING = ("vllm.SamplingParams", "transformers.GenerationConfig")
NEUTRAL = {
    "no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
}
"""What each setting is where it does nothing"""
# Chosen on published settings: Qwen2.5 ships 1.05 and most others 1.0. At half it would be told of them.
SLACK = 0.1
"""Penalties this near to neutral (1.05 is the default of some published models) seldom change a token of a format"""


class RepetitionSetting(NamedTuple):
    """A setting that forbids or punishes repetition, and where it is set."""

    name: str
    value: float
    node: ast.AST
    call: Call | None = None
    """The call that it is an argument of"""


def _repetition_settings(module: Module) -> Iterator[RepetitionSetting]:
    """The settings on repetition that reach a generation."""
    for call in (*module.methods("generate", "update"), *module.calls(*SAMPLING)):
        for name, neutral in NEUTRAL.items():
            setting = call.keywords.get(name)
            value = module.flow.value(setting)
            if isinstance(value, int | float) and _is_far_above_neutral(name, value - neutral):
                yield RepetitionSetting(name, value, setting or call.node, call)
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and target.attr in NEUTRAL:
            value = module.flow.value(node.value)
            if isinstance(value, int | float) and _is_far_above_neutral(
                target.attr, value - NEUTRAL[target.attr]
            ):
                yield RepetitionSetting(target.attr, value, node)


def _is_far_above_neutral(name: str, above: float) -> bool:
    """Is a setting so far above neutral that it changes tokens of a format?"""
    # 1e-9: 1.1 - 1.0 is a little less than 0.1 in floating point.
    return above >= 1 if name == "no_repeat_ngram_size" else above >= SLACK - 1e-9


def _is_asked_without_format_instruction(
    module: Module, call: Call | None, structured: ast.AST
) -> bool:
    """Is this generation asked by an instruction in the file that asks for no format?

    Files of examples, and notebooks, generate several times. Where answers are parsed, no instruction counts.
    """
    if call is None or call.method != "generate" or not isinstance(structured, ast.Constant):
        return False
    instructions = [
        prompt
        for prompt in _texts_of_arguments(module, call.node)
        if len(prompt.split()) >= MIN_WORDS
    ]
    return bool(instructions) and not any(ASKS.search(prompt) for prompt in instructions)


def _texts_of_arguments(module: Module, call: ast.Call) -> set[str]:
    """The texts of the file that the arguments of a call are computed from."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    parts = (part for argument in arguments for part in backward_slice(module, argument))
    constants = (part.value for part in parts if isinstance(part, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def _generations_and_sampling_settings(module: Module) -> Iterator[Call]:
    """Calls that generate, and sampling settings."""
    yield from module.methods("generate")
    yield from module.calls(*SAMPLING)


class RepetitionForbiddenInStructuredAnswers(SourceRule):
    code = "SRC033"
    fault = Fault.SAMPLING_SETTINGS_DISTORT_ANSWERS
    severity = "warning"
    looks_at = CodePlaces("calls and settings of generation", _generations_and_sampling_settings)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if not any(_generations_and_sampling_settings(module)):
            return
        settings = list(_repetition_settings(module))
        structured = next(signs_of_structured_answers(module), None) if settings else None
        if structured is None:
            return
        for setting in settings:
            if _is_asked_without_format_instruction(module, setting.call, structured):
                continue
            forbids = setting.name == "no_repeat_ngram_size"
            yield self.finding(
                f"{setting.name}={setting.value:g} {'forbids' if forbids else 'penalises'} the keys and"
                " brackets that structured answers repeat",
                f"leave {setting.name} out for these answers (it is off by default)",
                severity="error" if forbids else "warning",
                cases=[case_of_node(module, setting.node), case_of_node(module, structured)],
            )
