"""Generation with the chat template does not stop at the end-of-turn token.

## What it does
Inspects scripts that render chats with `apply_chat_template` (or vLLM's `chat`) for a model in a local folder, and
reads that folder's files: the token that the chat template writes at the end of a turn, its id, and the ids at which
generation_config.json stops (config.json if that has none). Scripts that set their own stop (`eos_token_id=`,
`stop_strings=`, `stopping_criteria=`, `stop=`) are not reported, unless it is only the end-of-text token
(`eos_token_id=128001` for a chat model of Llama 3, which ends turns with 128009); that is a warning.

## Why it is bad
The model ends its turn but nothing stops it: it writes the user's next turn and answers itself, up to the limit. This
is common if a base model was trained on chats: the base's files only stop at `<|endoftext|>`.

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
Safe: `eos_token_id` takes a list. In generation_config.json it applies to every engine.

## References
- vllm-project/vllm#4180, huggingface/open-r1#663
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.model_folder_settings import is_model_folder
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.stops_without_turn_end import stops_without_turn_end
from truetune.checks.source.evidence.turn_ends_missing_from_stop_tokens import unheeded_turn_end
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

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


def _generations_by_template(module: Module) -> Iterator[Call]:
    """The calls by which a file that renders chats has a model answer."""
    if module.mentions("apply_chat_template"):
        yield from generate_calls(module)
    for call in module.methods("chat"):
        engine = module.flow.producing_call(call.receiver)
        if engine is not None and engine.named("vllm.LLM"):
            yield call


class GenerationPassesTheTurnEnd(SourceRule):
    code = "SRC283"
    fault = Fault.GENERATION_PASSES_TRAINED_STOP
    symptoms = ("garbage-output", "never-stops")
    severity = "error"
    looks_at = CodePlaces("models that are asked by their chat template", _generations_by_template)

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_on_own_stops()
        module = self.subject
        calls = list(_generations_by_template(module))
        if not calls or _project_sets_own_stop(module):
            return
        for folder in _folders_loaded(module):
            end = unheeded_turn_end(folder)
            if end is None:
                continue
            stops = [end.id, *end.stops]
            yield self.finding(
                f"the chat template of {folder.name} ends turns with {end.token} ({end.id}), but {end.file.name}"
                f" only stops at {', '.join(map(str, end.stops))}: the model goes past its turn and writes the"
                " user's next turn",
                f'set "eos_token_id": {stops} in {folder.name}/generation_config.json, or pass eos_token_id={stops} to'
                " generate",
                cases=[
                    Case(f'"eos_token_id": {end.stops}', file=str(end.file)),
                    *(case_of_node(module, call.node) for call in calls),
                ],
            )
            return

    def _findings_on_own_stops(self) -> Iterator[Finding]:
        """Findings on stops that the script gives, and that are no end of a turn."""
        for stop in stops_without_turn_end(self.subject):
            family = stop.family
            ids = sorted(family.turn_ids, reverse=True)
            yield self.finding(
                f"generation only stops at {family.text} ({family.text_id}), but the chat template ends turns with"
                f" {family.turn} ({ids[0]}): the model goes past its turn and writes the user's next turn",
                "remove eos_token_id, since generation_config.json has the stops; or set"
                f" eos_token_id={[*ids, family.text_id]}",
                # A model of one's own may have been trained to end with the text's token all the same.
                severity="warning",
                cases=[case_of_node(self.subject, stop.node)],
            )


def _project_sets_own_stop(module: Module) -> bool:
    """Does the project set a stop of its own anywhere: by an argument, or by an attribute?"""
    if any(name in call.keywords for call in module.all_calls for name in OWN_STOPS):
        return True
    targets = (target for node in module.nodes(ast.Assign) for target in node.targets)
    return any(isinstance(target, ast.Attribute) and target.attr in OWN_STOPS for target in targets)


def _folders_loaded(module: Module) -> Iterator[Path]:
    """The folders beside a file that it loads models from, each once."""
    seen: set[Path] = set()
    for call in module.calls(*LOADS):
        model_name_argument = call.argument(
            0, "model" if call.named("vllm.LLM") else "pretrained_model_name_or_path"
        )
        for name in (
            possible_texts(module, model_name_argument) if model_name_argument is not None else ()
        ):
            folder = Path(module.path).parent / name
            if folder not in seen and is_model_folder(folder):
                seen.add(folder)
                yield folder
