"""Generation runs without the key-value cache, so each token recomputes the whole text.

## What it does
Looks for `generation_config.use_cache = False` in a file that generates later (a training setting that is still on),
for `GenerationConfig(use_cache=False)`, and for the generation_config.json of a folder that the file loads and
generates with. A model that is loaded with `from_pretrained(..., use_cache=False)` generates without its cache as well,
until `use_cache` is switched on. `use_cache=False` in a call of `generate` counts in a loop without a `streamer`.

It also finds a model that generates while gradient checkpointing is on and the model is in training mode: after its
training without `eval()`, between the steps of a hand-written loop, or in a hook of a trainer (`on_step_end`,
Lightning's `on_train_batch_end`). Checkpointed layers in training mode drop the cache ("Caching is incompatible with
gradient checkpointing"). A hand-written decoding loop is reported if it calls a model of transformers on ids that it
extends with `torch.cat`, without `past_key_values`.

## Why it is bad
Each new token processes the whole text again: time grows with the square of the length, and an evaluation takes hours.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
model.generation_config.use_cache = False
out = model.generate(**tokenizer("Hi", return_tensors="pt"), max_new_tokens=512)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
model.generation_config.use_cache = True
out = model.generate(**tokenizer("Hi", return_tensors="pt"), max_new_tokens=512)
```

## Fix safety
Safe for models that keep a cache; the text stays the same up to rounding. `eval()` also switches dropout off: call
`train()` again before training continues.

## References
- turbo-llm/turbo-alignment#47, huggingface/transformers#28056, huggingface/trl#3891
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.generations_in_hooks_in_training_mode import (
    generations_in_training_hooks,
)
from truetune.checks.source.evidence.generations_with_cache_off_at_load import (
    generations_with_cache_off_at_load,
)
from truetune.checks.source.evidence.model_folder_settings import read_folder_settings
from truetune.checks.source.evidence.what_makes_code_run_again import repetitions_of
from truetune.checks.source.evidence.which_place_surely_runs_first import (
    Route,
    call_routes_to,
    route_runs_after,
    training_places,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import replace_expression
from truetune.source.parsed_source_file import Module

CHECKPOINTING = (
    "gradient_checkpointing",
    "activation_checkpointing",
    "use_gradient_checkpointing",
)
CHECKPOINTING_SWITCHES = ("gradient_checkpointing_enable", "activation_checkpointing_enable")
"""Arguments of trainers, of `prepare_model_for_kbit_training` and of Unsloth's adapters"""
ENDS_TRAINING_MODE = (
    "eval",
    "for_inference",
    "gradient_checkpointing_disable",
    "activation_checkpointing_disable",
    "evaluate",
    "predict",
    "unwrap_model_for_generation",
)
"""Methods after which checkpointed layers keep the cache: those of a trainer leave the model in eval mode"""
EVALUATING_SETTINGS = ("eval_strategy", "evaluation_strategy", "do_eval")
"""Settings by which a trainer ends in eval mode, with the evaluation of the last epoch or step"""
GENERATION_CONFIG = "transformers.GenerationConfig"
LOOPS = (ast.For, ast.While)
MODEL_PARAMETERS = ("model", "net", "policy", "student")
"""Names of parameters that hold a model of transformers where checkpointing is switched on and it generates"""
JOINING_CALLS = ("torch.cat", "torch.concat", "torch.concatenate", "torch.hstack")
MODEL_LOADS = ("transformers.*Model*.from_pretrained", "transformers.*For*LM.from_pretrained")
OTHER_MODELS = ("*.from_pretrained", "transformers.pipeline", "vllm.LLM")


class GenerationInTrainingMode(NamedTuple):
    """A generation in training mode, and what switched checkpointing on."""

    call: ast.AST
    switch: ast.AST
    in_loop: bool = False
    """It runs between two steps of a hand-written loop"""


def _generations_and_decoding_loops(module: Module) -> Iterator[object]:
    """What generates in a file: calls of `generate`, and calls of a model in a loop that makes its ids longer."""
    yield from _generate_calls_on_models(module)
    yield from _decoding_loops(module)
    yield from _callbacks_in_training_mode(module)


class KvCacheLeftOff(SourceRule):
    code = "SRC044"
    fault = Fault.GENERATION_OPTIONS_SLOW
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces(
        "calls of a model's generate, and decoding loops", _generations_and_decoding_loops
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for value in _false_values_of_use_cache(module):
            yield self._finding_on_switch(value)
        for generate, load in generations_with_cache_off_at_load(module):
            yield self.finding(
                "generation runs without the key-value cache, because the model was loaded with use_cache=False:"
                " each token"
                " recomputes the whole text",
                "remove use_cache=False from the load, or set model.generation_config.use_cache = True before generate",
                cases=[
                    case_of_node(generate.home, generate.node),
                    case_of_node(load.home, load.node),
                ],
            )
        for called, grown in _decoding_loops(module):
            yield self.finding(
                "a decoding loop runs the whole text through the model again for each token: it keeps no"
                " past_key_values",
                "call model.generate; or keep out.past_key_values, and pass it to the next call with only the new"
                " token",
                cases=[case_of_node(module, called), case_of_node(module, grown)],
            )
        yield from self._findings_on_callbacks()
        yield from self._findings_on_saved_configs()
        trained = _generation_after_checkpointed_training(module)
        if trained is not None:
            when = "between the steps of" if trained.in_loop else "after"
            yield self.finding(
                f"the model generates {when} its training with gradient checkpointing on and no eval(): layers in"
                " training mode do not use the key-value cache, and each token recomputes the whole text",
                "call model.eval() before generate, and model.train() before the next step"
                if trained.in_loop
                else "call model.eval() and model.gradient_checkpointing_disable() before generate",
                cases=[case_of_node(module, trained.call), case_of_node(module, trained.switch)],
            )

    def _finding_on_switch(self, value: ast.expr) -> Finding:
        """The finding on a cache that the code switches off; only a literal is replaced."""
        module = self.subject
        fix = None
        # A value of a file of settings is shown there.
        where = module.statement(value) if module.home(value) is module else value
        if isinstance(value, ast.Constant):
            fix = fix_of_changes(module, replace_expression(module, value, "True"))
        return self.finding(
            "generation runs without the key-value cache: each token recomputes the whole text",
            "set use_cache = True before generating; only training needs it off",
            cases=[case_of_node(module, where or value)],
            fix=fix,
        )

    def _findings_on_saved_configs(self) -> Iterator[Finding]:
        """Findings on folders beside the file that it generates with, whose generation config
        switches the cache off.
        """
        for load, path in _configs_without_cache(self.subject):
            yield self.finding(
                f"generation runs without the key-value cache: {path.name} of the loaded folder has"
                " use_cache: false, so each token recomputes the whole text",
                f'set "use_cache": true in {path.name}, or call generate(..., use_cache=True)',
                cases=[
                    case_of_node(self.subject, load),
                    Case('"use_cache": false', file=str(path)),
                ],
            )

    def _findings_on_callbacks(self) -> Iterator[Finding]:
        """Findings on callbacks that generate while the model trains."""
        module = self.subject
        for one in _callbacks_in_training_mode(module):
            yield self.finding(
                "a callback generates while the model trains with gradient checkpointing: layers in training mode"
                " do not"
                " use the key-value cache, and each token recomputes the whole text",
                "call model.eval() before generate and model.train() after it, or generate in a hook where the"
                " model is in eval"
                " mode: on_evaluate in transformers, the validation hooks in Lightning",
                cases=[
                    case_of_node(module, one.call),
                    case_of_node(module.home(one.switch), one.switch),
                ],
            )


def _false_values_of_use_cache(module: Module) -> Iterator[ast.expr]:
    """Where `use_cache` is False: in calls of `generate`, and in a generation config that one of them reads."""
    calls = list(generate_calls(module))
    values = [
        call.keywords["use_cache"]
        for call in calls
        if "use_cache" in call.keywords and _repeats_without_streaming(module, call)
    ]
    # A call that says nothing itself takes the value of the generation config.
    if any("use_cache" not in call.keywords for call in calls):
        values += [
            node.value for node in module.nodes(ast.Assign) if _is_cache_switch(node.targets[0])
        ]
        values += [
            config.keywords["use_cache"]
            for config in module.calls(GENERATION_CONFIG)
            if "use_cache" in config.keywords
        ]
    yield from (value for value in values if module.flow.value(value) is False)


def _configs_without_cache(module: Module) -> Iterator[tuple[ast.Call, Path]]:
    """The loads of models whose folder has a generation config without cache, in a file that generates by it."""
    if "use_cache" in module.text or not (
        any(generate_calls(module)) or _streams_from_thread(module)
    ):
        return
    for call in module.calls(*MODEL_LOADS):
        name = module.flow.value(call.argument(0, "pretrained_model_name_or_path"))
        path = Path(module.path).parent / str(name) / "generation_config.json"
        if isinstance(name, str) and read_folder_settings(path).get("use_cache") is False:
            yield call.node, path


def _streams_from_thread(module: Module) -> bool:
    """Does a thread run a model's `generate`, whose text a streamer shows?"""
    targets = (call.keywords.get("target") for call in module.all_calls)
    return any(isinstance(one, ast.Attribute) and one.attr == "generate" for one in targets)


def _callbacks_in_training_mode(module: Module) -> Iterator[GenerationInTrainingMode]:
    """Hooks that generate while the model trains, where checkpointing is on anywhere and nothing ends the mode.

    At `on_evaluate`, and in Lightning's hooks of the validation, the evaluation has just put the model into eval mode.
    """
    switch = next(
        (
            node
            for part in module.self_and_files_run_together
            for node in _checkpointing_switches(part)
        ),
        None,
    )
    if switch is None or module.this_or_linked_file_imports_unsloth:
        return
    for call in generations_in_training_hooks(module, ENDS_TRAINING_MODE):
        yield GenerationInTrainingMode(call, switch)


def _decoding_loops(module: Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Calls of a model on ids that their loop makes longer, each with the statement that adds to the ids."""
    for call in module.all_calls:
        input_ids_argument = call.argument(0, "input_ids")
        if (
            not isinstance(input_ids_argument, ast.Name)
            or "past_key_values" in call.keywords
            or call.open
        ):
            continue
        if "model" not in module.flow.types(call.node.func):
            continue
        loop = next((one for one in module.parents(call.node) if isinstance(one, LOOPS)), None)
        grown = (
            _lengthening_statement(module, loop, input_ids_argument.id)
            if loop is not None
            else None
        )
        if grown is not None:
            yield call.node, grown


def _lengthening_statement(module: Module, loop: ast.AST, name: str) -> ast.AST | None:
    """The statement of a loop that appends to the ids of that name: `ids = torch.cat([ids, new], dim=1)`."""
    for part in ast.walk(loop):
        if not isinstance(part, ast.Assign) or not isinstance(part.value, ast.Call):
            continue
        targets = [target.id for target in part.targets if isinstance(target, ast.Name)]
        joined = module.flow.call(part.value)
        parts = joined.argument(0, "tensors") if joined.named(*JOINING_CALLS) else None
        if name in targets and isinstance(parts, ast.List | ast.Tuple) and len(parts.elts) == 2:
            first = parts.elts[0]
            if isinstance(first, ast.Name) and first.id == name:
                return part
    return None


def _generation_after_checkpointed_training(module: Module) -> GenerationInTrainingMode | None:
    """A generation that runs after a training with checkpointing, where nothing ends the training mode."""
    switch = next(_checkpointing_switches(module), None)
    # Unsloth's generate puts the model into eval mode itself.
    if switch is None or module.this_or_linked_file_imports_unsloth:
        return None
    places = list(training_places(module))
    if not places or _may_end_in_eval_mode(module):
        return None
    start = min(getattr(place, "lineno", 0) for place in places)
    if any(call.node.lineno > start for call in module.calls(*OTHER_MODELS)):
        return None  # what generates may be loaded again
    return _generation_after_or_amid_training_steps(module, places, switch)


def _generation_after_or_amid_training_steps(
    module: Module, places: list[ast.AST], switch: ast.AST
) -> GenerationInTrainingMode | None:
    """The first generation after a training, or between the steps of a loop that switched the model to training."""
    early = [route for place in places for route in call_routes_to(module, place)]
    # A model is loaded in eval mode: in a hand-written loop, `train()` ends it.
    is_switched = any(
        call.receiver is not None and _may_be_model(module, call.receiver)
        for call in module.methods("train")
    )
    for call in _generate_calls_on_models(module):
        # A helper that is called before the training too is slow in the calls after it.
        for late in call_routes_to(module, call.node):
            if any(route_runs_after(late, one) for one in early):
                return GenerationInTrainingMode(call.node, switch)
            if is_switched and _route_passes_training_loop(module, late, places):
                return GenerationInTrainingMode(call.node, switch, in_loop=True)
    return None


def _generate_calls_on_models(module: Module) -> Iterator[Call]:
    """The calls of `generate` of what is a model, or may be one by its name."""
    for call in module.methods("generate"):
        if call.receiver is not None and _may_be_model(module, call.receiver):
            yield call


def _may_be_model(module: Module, node: ast.expr) -> bool:
    """May the expression be a model? Of a parameter that no call in sight fills, the name decides."""
    types = module.flow.types(node)
    if "model" in types:
        return True
    return not types and isinstance(node, ast.Name) and node.id in MODEL_PARAMETERS


def _route_passes_training_loop(module: Module, route: Route, places: list[ast.AST]) -> bool:
    """Does a route pass through a loop that trains?"""
    loops = {place for place in places if isinstance(place, LOOPS)}
    return any(around in loops for stop in route for around in module.parents(stop.node))


def _may_end_in_eval_mode(module: Module) -> bool:
    """May anything in the file, or in one that is judged with it, put the model into eval mode?"""
    if any(any(part.methods(*ENDS_TRAINING_MODE)) for part in module.self_and_files_run_together):
        return True
    if any(call.method == "train" and call.args for call in module.all_calls):
        return True  # model.train(False)
    return any(
        module.flow.value(call.keywords[name]) not in ("no", False)
        for call in module.all_calls
        for name in EVALUATING_SETTINGS
        if name in call.keywords
    )


def _checkpointing_switches(module: Module) -> Iterator[ast.AST]:
    """What surely switches gradient checkpointing on, where nothing switches it off."""
    yield from (call.node for call in module.methods(*CHECKPOINTING_SWITCHES))
    for call in module.all_calls:
        for name in CHECKPOINTING:
            if name in call.keywords and module.flow.value(call.keywords[name]) in (
                True,
                "unsloth",
            ):
                yield call.keywords[name]


def _repeats_without_streaming(module: Module, call: Call) -> bool:
    """Does a call run again, in a loop or for each request, and show no answer as it comes?"""
    if "streamer" in call.keywords:
        return False
    in_while = any(isinstance(around, ast.While) for around in module.parents(call.node))
    return in_while or any(True for _ in repetitions_of(module, call.node))


def _is_cache_switch(target: ast.expr) -> bool:
    """Is the target `....generation_config.use_cache`?"""
    return (
        isinstance(target, ast.Attribute)
        and target.attr == "use_cache"
        and isinstance(target.value, ast.Attribute)
        and target.value.attr == "generation_config"
    )
