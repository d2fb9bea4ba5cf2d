"""A script should generate with the tuned model, but the base answers: the adapter is missing, new or switched off.

## What it does
In a script that generates and does not train, looks for what leaves the training out:

- `get_peft_model` (of PEFT or Unsloth), `add_adapter` or `PeftModel(base, config)`, which create a new adapter
- vLLM with `enable_lora=True` (also through `**kwargs`) and no `lora_request`, SGLang's `Engine(lora_paths=...)`
  without `lora_path`, LMDeploy's `adapters` without `adapter_name`
- a function that loads or asks a model, takes an adapter as an argument, and never reads it
- answers under `disable_adapter()`, or from what `unload()` returns
- a second adapter that `load_adapter` adds, without `set_adapter`
- an adapter's file loaded into a plain model with `strict=False`
- a plain base together with a tokenizer from the output folder of a training script of the project, or from a folder
  that is named like an adapter
- the base model that a script takes from the Axolotl or LLaMA-Factory settings that trained an adapter on it

## Why it is bad
Nothing fails. The base answers, and it looks as if nothing had been learned.

## Example
```python
from vllm import LLM, SamplingParams

engine = LLM(model="meta-llama/Llama-3.1-8B-Instruct", enable_lora=True)
print(engine.generate(["Where is my parcel?"], SamplingParams(max_tokens=100)))
```

## Use instead
```python
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

engine = LLM(model="meta-llama/Llama-3.1-8B-Instruct", enable_lora=True)
adapter = LoRARequest("parcels", 1, "adapters/parcels")
print(engine.generate(["Where is my parcel?"], SamplingParams(max_tokens=100), lora_request=adapter))
```

## Fix safety
Scripts that use both the base and the tuned model, to compare them, are not reported. Scores that were measured without
the adapter are those of the base: evaluate again.

## References
- https://docs.vllm.ai/en/latest/features/lora.html; PEFT's documentation of `PeftModel.from_pretrained`
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
from truetune.checks.source.evidence.engine_requests_without_adapter import (
    adapter_engines,
    engine_whose_requests_lack_adapter,
    first_answer_if_all_by_unloaded_model,
)
from truetune.checks.source.evidence.functions_ignoring_model_or_adapter_argument import (
    ADAPTER_NAME,
    unread_adapter_parameters,
)
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.prompt_forms import (
    asks_model_and_trains_none,
    is_model_in_written_folders,
    model_folders_written,
    training_scripts_beside,
)
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import family_of_model
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

ENGINES = ("vllm.LLM",)
LOADS_ADAPTER = (
    "load_adapter",
    "set_adapter",
    "load_state_dict",
    "load_lora_weights",
    "add_lora",
    "load_checkpoint",
    "load_state",
)
SETS_WEIGHTS = (
    "safetensors.torch.load_model",
    "peft.set_peft_model_state_dict",
    "*.load_peft_weights",
    "accelerate.load_checkpoint*",
)
NEW_ADAPTERS = (
    "peft.get_peft_model",
    "peft.PeftModel",
    "peft.PeftModelForCausalLM",
    "peft.PeftModelForSeq2SeqLM",
    "peft.inject_adapter_in_model",
)
ADAPTER_SWITCHES = (
    "set_adapter",
    "add_weighted_adapter",
    "active_adapter",
    "adapter_names",
    "merge_adapter",
    "merge_and_unload",
    "activate_adapter",
)
"""What makes another adapter than the first one answer, or may"""
TRAINING_PREPARATIONS = ("enable_input_require_grads", "gradient_checkpointing_enable")
"""What a part of a library does for a training that stands in another file"""
OF_UNSLOTH = ("unsloth.*.get_peft_model",)
"""Adds a new adapter to a base, and leaves one alone that already exists"""
UNSLOTH_LOADS = ("unsloth.*.from_pretrained",)
PLAIN_LOADS = ("transformers.AutoModel*.from_pretrained", "transformers.*For*LM.from_pretrained")
ADAPTED_LOADS = ("peft.*.from_pretrained", "unsloth.*.from_pretrained", "*.LoRARequest")
PIPELINE = "transformers.pipeline"
TOKENIZERS = (
    "transformers.*Tokenizer*.from_pretrained",
    "transformers.AutoProcessor.from_pretrained",
)


ADAPTER_METHODS = frozenset(("lora", "qlora", "dora"))
"""How settings of Axolotl (`adapter`) and LLaMA-Factory (`finetuning_type`) name the training of an adapter"""


class BaseInstead(NamedTuple):
    """Where the base is asked, why, and what to write."""

    node: ast.AST
    why: str
    remedy: str


def _generating_calls(module: Module) -> Iterator[Call]:
    """The calls that generate in a file that asks a model."""
    if asks_model_and_trains_none(module):
        yield from generate_calls(module)
        yield from module.calls(*ENGINES, PIPELINE)
    yield from (made for _, made in adapter_engines(module) if not made.named(*ENGINES))


class BaseAskedInstead(SourceRule):
    code = "SRC036"
    fault = Fault.BASE_ANSWERS_INSTEAD_OF_TUNED_MODEL
    severity = "error"
    looks_at = CodePlaces("models that a script asks", _generating_calls)

    def findings(self) -> Iterator[Finding]:
        """Findings on scripts that mean to ask the tuned model and ask its base."""
        module = self.subject
        if not asks_model_and_trains_none(module) and not any(adapter_engines(module)):
            return
        for look in (
            _question_to_untrained_new_adapter,
            _adapter_given_and_not_read,
            _engine_without_adapter_request,
            _questions_all_with_adapter_off,
            _adapter_loaded_not_strictly,
            _second_adapter_left_inactive,
            _plain_model_beside_trained_tokenizer,
            _adapter_read_for_tokenizer_alone,
            _base_named_in_training_settings,
        ):
            found = look(module)
            if found is not None:
                yield self.finding(
                    found.why, found.remedy, cases=[case_of_node(module, found.node)]
                )
                return


def _question_to_untrained_new_adapter(module: Module) -> BaseInstead | None:
    """A question to a new adapter in a script that trains nothing, and gives the adapter no
    weights; None without one.
    """
    if any(module.methods(*LOADS_ADAPTER, *TRAINING_PREPARATIONS)) or any(
        module.calls(*SETS_WEIGHTS)
    ):
        return None
    call = next(_calls_putting_untrained_adapter_on(module), None)
    if call is None:
        return None
    name = call.method or str(call.names[0]).rpartition(".")[2]
    return BaseInstead(
        call.node,
        f"{name} creates a new, untrained adapter: the answers are those of the base",
        _loading_remedy(module, call),
    )


def _calls_putting_untrained_adapter_on(module: Module) -> Iterator[Call]:
    """Calls that put an adapter on a model whose weights nothing has trained."""
    yield from module.calls(*NEW_ADAPTERS)
    for call in module.methods("add_adapter"):
        # The second argument of transformers' method is a name; PeftModel's takes the name first.
        if call.receiver is not None and "model" in module.flow.types(call.receiver):
            yield call
    if all(_is_published_model(name) for name in _names_loaded_by_unsloth(module)):
        yield from module.calls(*OF_UNSLOTH)


def _names_loaded_by_unsloth(module: Module) -> list[str]:
    """The names that Unsloth loads; one unpublished name where the file does not say it all."""
    names: list[str] = []
    for call in module.calls(*UNSLOTH_LOADS):
        texts = possible_texts(module, call.argument(0, "model_name"))
        names += texts or [""]
    return names or [""]


def _is_published_model(name: str) -> bool:
    """Is it a model of a hub, which holds no adapter of one's own?"""
    is_local = name.startswith((".", "/", "~")) or name.count("/") != 1
    return not is_local and family_of_model(name) is not None


def _loading_remedy(module: Module, made: Call) -> str:
    """The remedy: how the trained adapter is loaded by the library that made the new one."""
    if made.named(*OF_UNSLOTH):
        return 'load the trained adapter: FastLanguageModel.from_pretrained("ADAPTER_FOLDER")'
    if made.named("peft.get_peft_model") and any(module.calls("peft.PeftModel*.from_pretrained")):
        return "remove get_peft_model, so that PeftModel.from_pretrained gets the plain base"
    return 'load the trained adapter: PeftModel.from_pretrained(base, "ADAPTER_FOLDER")'


def _second_adapter_left_inactive(module: Module) -> BaseInstead | None:
    """A question to a model with a second adapter that `load_adapter` put beside the active one,
    and that is not switched to.
    """
    if module.mentions(*ADAPTER_SWITCHES):
        return None
    for call in module.methods("load_adapter"):
        receiver, name = call.receiver, call.argument(1, "adapter_name")
        if receiver is None or name is None or "peft-model" not in module.flow.types(receiver):
            continue
        first = next(module.calls("peft.PeftModel*.from_pretrained"), None)
        adapter_name_argument = first.keywords.get("adapter_name") if first is not None else None
        active = (
            module.text_of(adapter_name_argument)
            if adapter_name_argument is not None
            else "'default'"
        )
        if module.flow.value(name) == (
            module.flow.value(adapter_name_argument)
            if adapter_name_argument is not None
            else "default"
        ):
            # It loads onto the adapter that is active: its weights are those that answer.
            continue
        return BaseInstead(
            call.node,
            f"load_adapter does not activate the adapter that it loads: {active} stays active and gives the answers",
            f"call set_adapter({module.text_of(name)}) after it, or load only that adapter",
        )
    return None


def _adapter_given_and_not_read(module: Module) -> BaseInstead | None:
    """A function that takes an adapter, or the name of a model, and answers without it."""
    unread = next(unread_adapter_parameters(module), None)
    if unread is None:
        return None
    return BaseInstead(
        unread.parameter,
        f"{unread.function} takes {unread.parameter.arg} but never uses it: the answers are the same for every"
        " adapter or model",
        f"use {unread.parameter.arg}: {unread.remedy}",
    )


def _engine_without_adapter_request(module: Module) -> BaseInstead | None:
    """vLLM with adapters, of which no question names one."""
    unnamed = engine_whose_requests_lack_adapter(module)
    if unnamed is not None:
        return BaseInstead(
            unnamed.requests[0].node,
            f"the engine is set up for adapters ({unnamed.engine.switch} in line"
            f" {module.place(unnamed.made.node)[0]}), but no request has a {unnamed.engine.argument}: the base answers",
            f"name the adapter in each request: {unnamed.engine.remedy}",
        )
    engine = next(module.calls(*ENGINES), None)
    if engine is None or module.flow.value(engine.keywords.get("enable_lora")) is not True:
        return None
    if "lora_request" in module.text or "LoRARequest" in module.text:
        return _request_made_and_not_sent(module)
    if any(call.open for call in module.methods("generate", "chat")):
        return None  # a caller may hand a request on
    return BaseInstead(
        engine.node,
        "the engine is set up for adapters, but no request has a lora_request: the base answers",
        'add lora_request=LoRARequest("tuned", 1, "ADAPTER_FOLDER") to each call of generate and chat',
    )


def _request_made_and_not_sent(module: Module) -> BaseInstead | None:
    """A `LoRARequest` that nothing reads, in a file whose questions all go without one."""
    for made in module.calls("*.LoRARequest"):
        kept = module.statement(made.node)
        # A call around it, or another kind of target, may hand it on.
        if not isinstance(kept, ast.Assign) or kept.value is not made.node:
            continue
        target = kept.targets[0]
        if isinstance(target, ast.Name) and target.id not in module.name_reads:
            return BaseInstead(
                made.node,
                f"{target.id} is created but never passed to a request: the base answers",
                f"add lora_request={target.id} to each call of generate and chat",
            )
    return None


def _questions_all_with_adapter_off(module: Module) -> BaseInstead | None:
    """The questions of a script that are all asked under `disable_adapter()`; None where some are
    not.
    """
    unloaded = first_answer_if_all_by_unloaded_model(module)
    if unloaded is not None:
        return BaseInstead(
            unloaded.node,
            "unload() removes the adapter without merging it: the answers are those of the base",
            "replace unload() by merge_and_unload(), or generate with the model before unload()",
        )
    calls = list(generate_calls(module))
    off = [next(_disable_adapter_contexts(module, call), None) for call in calls]
    if not calls or off[0] is None or any(one is None for one in off):
        return None
    return BaseInstead(
        off[0],
        "all answers are generated under disable_adapter(): they are those of the base",
        "move generate out of the disable_adapter() block",
    )


def _disable_adapter_contexts(module: Module, call: Call) -> Iterator[ast.AST]:
    """The contexts `model.disable_adapter()` around a call."""
    for parent in module.parents(call.node):
        for item in parent.items if isinstance(parent, ast.With) else ():
            context = item.context_expr
            if isinstance(context, ast.Call) and ast.unparse(context.func).endswith(
                "disable_adapter"
            ):
                yield context


def _adapter_loaded_not_strictly(module: Module) -> BaseInstead | None:
    """A load of an adapter's file into a plain model, whose keys have other names; None without
    one.
    """
    for call in module.methods("load_state_dict"):
        if module.flow.value(call.keywords.get("strict")) is not False:
            continue
        made, state = module.flow.producing_call(call.receiver), call.argument(0, "state_dict")
        read = module.flow.producing_call(state)
        names = possible_texts(module, read.args[0]) if read is not None and read.args else []
        is_adapter = bool(names) and all("adapter_model" in name for name in names)
        if is_adapter and made is not None and made.named(*PLAIN_LOADS):
            return BaseInstead(
                call.node,
                "strict=False skips every weight of the adapter, because the plain model has none of their"
                " names: the base answers",
                'load it as an adapter: PeftModel.from_pretrained(model, "ADAPTER_FOLDER")',
            )
    return None


def _plain_model_beside_trained_tokenizer(module: Module) -> BaseInstead | None:
    """A plain model from elsewhere that is asked, beside a tokenizer from the folder that a
    training of the project wrote.
    """
    if _loads_or_mentions_adapter(module):
        return None
    models = _plain_model_loads_with_names(module)
    names = [text for _, given in models for text in possible_texts(module, given)]
    tokenizers = [
        text for given in _tokenizer_names(module) for text in possible_texts(module, given)
    ]
    if len(names) != 1 or not tokenizers:
        return None
    for training in training_scripts_beside(module):
        folders = model_folders_written(training)
        if is_model_in_written_folders(names[0], folders):
            continue
        if all(is_model_in_written_folders(text, folders) for text in tokenizers):
            trained = tokenizers[0]
            return BaseInstead(
                models[0][0],
                f"the tokenizer is the trained one ({trained}), but the model is {names[0]}: the base"
                " answers",
                f'load the trained model: AutoPeftModelForCausalLM.from_pretrained("{trained}") if that is an'
                f' adapter, AutoModelForCausalLM.from_pretrained("{trained}") if it is a whole model',
            )
    return None


def _adapter_read_for_tokenizer_alone(module: Module) -> BaseInstead | None:
    """A tokenizer from what is named an adapter, a plain model from what is named its base, and no adapter loaded."""
    if _loads_adapter_or_weights(module):
        return None
    models = [
        one
        for part in module.self_and_files_run_together
        for one in _plain_model_loads_with_names(part)
    ]
    if not models or any(_may_be_trained_model(module, given) for _, given in models):
        return None
    for given in _tokenizer_names(module):
        named = _last_name_or_key(given) if given is not None else ""
        if given is not None and ADAPTER_NAME.search(named):
            return BaseInstead(
                models[0][0],
                f"{named} is only used for the tokenizer, and the model is its base without an adapter: the base"
                " answers",
                f"load the adapter onto the base: model = PeftModel.from_pretrained(model, {ast.unparse(given)})",
            )
    return None


def _base_named_in_training_settings(module: Module) -> BaseInstead | None:
    """What is asked is the base model that a training's settings name, and they train an adapter."""
    if _loads_adapter_or_weights(module):
        return None
    engines = [(call.node, call.argument(0, "model")) for call in module.calls(*ENGINES)]
    models = [*engines, *_plain_model_loads_with_names(module)]
    # A second model may be the trained one, which is compared with its base.
    for node, given in models if len(models) == 1 else ():
        for origin in module.flow.origins(given) if given is not None else ():
            entry = _settings_entry_of(module, origin.node)
            if entry is not None and entry.trains_adapter:
                return BaseInstead(
                    node,
                    f"the model is {entry.key} of the training settings, which is the base, and the adapter that"
                    " they train is not loaded: the base answers",
                    "load the adapter from the settings' output_dir: PeftModel.from_pretrained(model, output_dir), in"
                    ' vLLM lora_request=LoRARequest("tuned", 1, output_dir); or load the merged model',
                )
    return None


class SettingsEntry(NamedTuple):
    """The name of a model in a file of settings."""

    key: str
    trains_adapter: bool
    """The settings train an adapter on it"""


def _settings_entry_of(module: Module, node: ast.AST) -> SettingsEntry | None:
    """The entry of a file of settings that a value is; None for any other value."""
    around = module.scopes.parent.get(node)
    if module.flow.settings_files.settings_file_of_node(node) is None or not isinstance(
        around, ast.Dict
    ):
        return None
    entries = {
        key.value: value
        for key, value in zip(around.keys, around.values, strict=True)
        if isinstance(key, ast.Constant)
    }
    key = next((name for name, value in entries.items() if value is node), None)
    methods = {module.flow.value(entries.get(name)) for name in ("adapter", "finetuning_type")}
    is_base = key in ("base_model", "model_name_or_path")
    is_trained = not methods.isdisjoint(ADAPTER_METHODS) and "output_dir" in entries
    return SettingsEntry(str(key), is_base and is_trained)


def _loads_adapter_or_weights(module: Module) -> bool:
    """Does the file, or one that runs with it, load an adapter or weights?"""
    return any(
        any(part.calls(*ADAPTED_LOADS, *SETS_WEIGHTS)) or any(part.methods(*LOADS_ADAPTER))
        for part in module.self_and_files_run_together
    )


def _last_name_or_key(node: ast.expr) -> str:
    """The last name or key of an expression: `adapter_path` of `adapter_path`, `args.adapter_path`
    and `config["adapter_path"]`.
    """
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _may_be_trained_model(module: Module, expression: ast.expr | None) -> bool:
    """May the loaded model be the trained one: is it neither named a base nor a published model?"""
    if expression is None:
        return True
    names = possible_texts(module, expression)
    is_published = bool(names) and all(_is_published_model(name) for name in names)
    return not is_published and "base" not in _last_name_or_key(expression).lower()


def _loads_or_mentions_adapter(module: Module) -> bool:
    """Does a file load an adapter, or speak of one?"""
    if any(module.calls(*ADAPTED_LOADS)) or any(module.methods(*LOADS_ADAPTER)):
        return True
    return "adapter" in module.text.lower().replace("load_adapter", "")


def _plain_model_loads_with_names(module: Module) -> list[tuple[ast.Call, ast.expr | None]]:
    """The calls that load a model without an adapter, pipelines last, each with what names the model."""
    loads = [
        (call.node, call.argument(0, "pretrained_model_name_or_path"))
        for call in module.calls(*PLAIN_LOADS)
    ]
    pipelines = [(call.node, call.argument(1, "model")) for call in module.calls(PIPELINE)]
    return [*loads, *pipelines]


def _tokenizer_names(module: Module) -> Iterator[ast.expr | None]:
    """What names the tokenizers of a file, those of pipelines last."""
    for call in module.calls(*TOKENIZERS):
        yield call.argument(0, "pretrained_model_name_or_path")
    for call in module.calls(PIPELINE):
        yield call.keywords.get("tokenizer")
