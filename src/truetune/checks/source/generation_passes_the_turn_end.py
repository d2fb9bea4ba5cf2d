"""A model is asked by its chat template, and generation does not stop at the token that ends its turns.

## What it does
Inspects scripts that render chats by `apply_chat_template` (or vLLM's `chat`) for a model in a folder beside them, and
reads that folder's files: the token that the chat template writes at the end of a turn, its id, and the ids at which
generation_config.json stops (config.json where it names none). Scripts that give a stop of their own (`eos_token_id=`,
`stop_strings=`, `stopping_criteria=`, `stop=`) are left alone.

## Why it is bad
The model ends its turn, and nothing stops it: it writes the next turn of the user, and answers itself, up to the limit.
It is usual where a base model was trained on chats: the files of the base stop at `<|endoftext|>` only.

## Example
```python
# m/config.json: {"eos_token_id": 1}
# m/tokenizer_config.json: {"chat_template": "<|turn>..<turn|>", "added_tokens_decoder": {"7": {"content": "<turn|>"}}}
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("m")
model = AutoModelForCausalLM.from_pretrained("m")
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
out = model.generate(**inputs, max_new_tokens=400)
```

## Use instead
```python
# m/config.json: {"eos_token_id": 1}
# m/tokenizer_config.json: {"chat_template": "<|turn>..<turn|>", "added_tokens_decoder": {"7": {"content": "<turn|>"}}}
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("m")
model = AutoModelForCausalLM.from_pretrained("m")
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
out = model.generate(**inputs, max_new_tokens=400, eos_token_id=[7, 1])
```

## Fix safety
Safe: `eos_token_id` takes a list. In generation_config.json it holds for every engine.

## References
- vllm-project/vllm#4180, huggingface/open-r1#663
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.model_folder_settings import (
    is_model_folder,
    read_folder_settings,
)
from truetune.checks.source.evidence.possible_values import possible_texts
from truetune.parsing.bounded_files import read_bounded
from truetune.parsing.input_limits import MODEL_FILE
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

TURN_ENDS = (
    ("<|im_start|>", "<|im_end|>"),
    ("<start_of_turn>", "<end_of_turn>"),
    ("<|start_header_id|>", "<|eot_id|>"),
    ("<|turn>", "<turn|>"),
    ("<|assistant|>", "<|end|>"),
)
"""What opens a turn in published templates -> what ends it"""
OWN_STOPS = (
    "eos_token_id",
    "stop_strings",
    "stopping_criteria",
    "stop",
    "stop_token_ids",
    "eos_token",
)
"""Settings that give generation another stop"""
LOADS = ("*.from_pretrained", "vllm.LLM")


class UnheededEnd(NamedTuple):
    """The end of turns in a model's folder, at which nothing stops."""

    token: str
    id: int
    stops: list[int]
    file: Path


def _answers_by_template(module: Module) -> Iterator[Call]:
    """The calls by which a file that renders chats has a model answer."""
    if module.mentions("apply_chat_template"):
        yield from generate_calls(module)
    for call in module.methods("chat"):
        engine = module.flow.producing_call(call.receiver)
        if engine is not None and engine.named("vllm.LLM"):
            yield call


class GenerationPassesTheTurnEnd(SourceRule):
    code = "SRC283"
    symptoms = ("garbage-output", "never-stops")
    severity = "error"
    looks_at = CodePlaces("models that are asked by their chat template", _answers_by_template)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        calls = list(_answers_by_template(module))
        if not calls or _gives_own_stop(module):
            return
        for folder in _folders_loaded(module):
            end = _unheeded_end(folder)
            if end is None:
                continue
            stops = [end.id, *end.stops]
            yield self.finding(
                f"the chat template of {folder.name} ends turns with {end.token} ({end.id}), and {end.file.name}"
                f" stops at {', '.join(map(str, end.stops))} only: the model continues with a next turn of the user",
                f'write "eos_token_id": {stops} into generation_config.json of {folder.name}, or give it to generate:'
                f" eos_token_id={stops}",
                cases=[
                    Case(f'"eos_token_id": {end.stops}', file=str(end.file)),
                    *(case_at(module, call.node) for call in calls),
                ],
            )
            return


def _gives_own_stop(module: Module) -> bool:
    """Does the project set a stop of its own anywhere: by an argument, or by an attribute?"""
    if any(name in call.keywords for call in module.all_calls for name in OWN_STOPS):
        return True
    targets = (target for node in module.nodes(ast.Assign) for target in node.targets)
    return any(isinstance(target, ast.Attribute) and target.attr in OWN_STOPS for target in targets)


def _folders_loaded(module: Module) -> Iterator[Path]:
    """The folders beside a file that it loads models from, each once."""
    seen: set[Path] = set()
    for call in module.calls(*LOADS):
        given = call.argument(
            0, "model" if call.named("vllm.LLM") else "pretrained_model_name_or_path"
        )
        for name in possible_texts(module, given) if given is not None else ():
            folder = Path(module.path).parent / name
            if folder not in seen and is_model_folder(folder):
                seen.add(folder)
                yield folder


def _unheeded_end(folder: Path) -> UnheededEnd | None:
    """The end of turns at which a folder's files let no engine stop; None where they do, or it is not known."""
    tokenizer = read_folder_settings(folder / "tokenizer_config.json")
    end = _end_of_turns(tokenizer, folder)
    end_id = _id_of_token(tokenizer, end) if end is not None else None
    if end is None or end_id is None:
        return None
    for name in ("generation_config.json", "config.json"):
        value = read_folder_settings(folder / name).get("eos_token_id")
        given = value if isinstance(value, list) else [value]
        stops = [one for one in given if isinstance(one, int)]
        if stops and len(stops) == len(given):
            return None if end_id in stops else UnheededEnd(end, end_id, stops, folder / name)
    return None


def _end_of_turns(tokenizer: Mapping[str, Any], folder: Path) -> str | None:
    """The token that the chat template writes at the end of a turn; None where it is of no known kind."""
    template = tokenizer.get("chat_template")
    if template is None:
        try:
            template = read_bounded(folder / "chat_template.jinja", MODEL_FILE).decode("utf-8")
        except (OSError, ValueError):
            return None
    if not isinstance(template, str):
        return None
    ends = [end for opens, end in TURN_ENDS if opens in template and end in template]
    return ends[0] if len(ends) == 1 else None


def _id_of_token(tokenizer: Mapping[str, Any], token: str) -> int | None:
    """The id of an added token by the tokenizer's settings."""
    added = tokenizer.get("added_tokens_decoder")
    for number, entry in added.items() if isinstance(added, dict) else ():
        if isinstance(entry, dict) and entry.get("content") == token and number.isdecimal():
            return int(number)
    return None
