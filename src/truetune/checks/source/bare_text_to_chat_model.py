"""A chat model is asked with a bare text.

## What it does
Looks at texts in the file that a tokenizer encodes as they are and that a chat model generates from. Chat models are
recognised by the name that is loaded (instruct, chat, it). Not reported: files that apply a chat template, write its
special tokens, or train.

## Why it is bad
The model was tuned on chat turns. Without them it continues the text as a base model would, and often does not stop.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
inputs = tokenizer("What is the capital of France?", return_tensors="pt")
out = model.generate(**inputs, max_new_tokens=64)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
chat = [{"role": "user", "content": "What is the capital of France?"}]
inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
out = model.generate(**inputs, max_new_tokens=64)
```

## Fix safety
There is no automatic fix: a system prompt and earlier turns may belong to the chat. Answers change, so earlier scores
can't be compared with new ones.

## References
- https://huggingface.co/docs/transformers/main/en/chat_templating
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.chat_model_and_turn_mark_patterns import (
    CHAT_MODEL_NAME,
    TURN_MARKS,
)
from truetune.checks.source.evidence.generate_call_inputs import (
    GENERATE_CALLS,
    encoding_calls_of_dictionary,
    generate_calls,
    input_ids_argument,
)
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import variable_of_indexed_or_attribute

TURN_WRITERS = ("apply_chat_template", "chat_template", "build_prompt", "get_prompt")


class BareTextToChatModel(SourceRule):
    code = "SRC075"
    fault = Fault.CHAT_MODEL_ASKED_WITHOUT_TEMPLATE
    symptoms = ("garbage-output", "odd-metrics", "good-here-bad-there")
    severity = "warning"
    looks_at = GENERATE_CALLS

    def findings(self) -> Iterator[Finding]:
        """Findings on bare texts that a chat model is asked with."""
        module = self.subject
        if any(word in module.text for word in TURN_WRITERS) or _trains_anything(module):
            return
        for call in generate_calls(module):
            names = _written_model_names(module, call.receiver)
            if not names or not all(CHAT_MODEL_NAME.search(name) for name in names):
                continue
            for encoded in _encodings_for_generate(module, call):
                text = _bare_question_text(module, encoded)
                if text is not None:
                    yield self.finding(
                        f"{names[0]} gets a bare text as its prompt, without its chat template",
                        "use tokenizer.apply_chat_template([{'role': 'user', 'content': text}], "
                        "add_generation_prompt=True, return_tensors='pt', return_dict=True)",
                        cases=[case_of_node(module, encoded.node), case_of_node(module, call.node)],
                    )
                    return


def _trains_anything(module: Module) -> bool:
    """Does the file train anything?"""
    return any(module.methods("backward", "train")) or any(
        "trainer" in module.flow.types(call.node) for call in module.all_calls
    )


def _encodings_for_generate(module: Module, call: Call) -> Iterator[Call]:
    """The calls of a tokenizer that made what a `generate` is given."""
    given = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    given += [ids for ids in (input_ids_argument(call),) if ids is not None]
    for value in given:
        yield from encoding_calls_of_dictionary(module, variable_of_indexed_or_attribute(value))


def _bare_question_text(module: Module, encoded: Call) -> str | None:
    """The text that is encoded, where it stands in the file and is a question or a request of one line."""
    text_argument = encoded.argument(0, "text")
    value = module.flow.value(text_argument) if text_argument is not None else None
    texts: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not texts or not all(
        isinstance(text, str) and text.strip() and not TURN_MARKS.search(text) for text in texts
    ):
        return None
    asks = all(text.strip()[-1] in ".?!" and len(text.split()) > 2 for text in texts)
    return str(texts[0]) if asks else None


def _written_model_names(module: Module, model: ast.expr | None) -> list[str]:
    """The names that the model is loaded under, where all are written in the file."""
    made = [origin.node for origin in module.flow.origins(model)] if model is not None else []
    calls = [module.flow.call(node) for node in made if isinstance(node, ast.Call)]
    named = [
        call.argument(0, "pretrained_model_name_or_path")
        for call in calls
        if call.named("*.from_pretrained")
    ]
    return (
        [text for node in named for text in possible_texts(module, node)]
        if len(named) == len(made)
        else []
    )
