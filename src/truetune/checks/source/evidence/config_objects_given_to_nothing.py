"""Finds objects that configure a training or a generation, and that a script builds and gives to
nothing.

How it works: a table of kinds says what builds such an object, which call would take it, and how
else a script may set the same. An object counts as left behind where nothing reads it
(`unread_values.py`), the call that would take it goes without one, and no other object of the kind
is used.

The trade-off: a file must hold both the object and the call. Configs that one file builds for
another are not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.unread_values import is_never_read

TRANSFORMERS_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
TRL_TRAINERS = ("trl.*Trainer",)
LIGHTNING_TRAINERS = (
    "lightning.Trainer",
    "lightning.pytorch.Trainer",
    "pytorch_lightning.Trainer",
)
TRAINERS = (*TRANSFORMERS_TRAINERS, *TRL_TRAINERS)
SHOWS = ("pprint.pprint", "IPython.display.display", "display", "repr", "str", "type")
"""Calls that only show what they are given"""


class ConfiguringKind(NamedTuple):
    """One kind of objects that configure something."""

    made_by: tuple[str, ...]
    taken_by: tuple[str, ...]
    """Calls that would take it, by their qualified names"""
    argument: str
    position: int
    effect: str
    """What happens without it"""
    method: str = ""
    """The method that would take it, where it is one"""
    set_otherwise: tuple[str, ...] = ()
    """Calls that bring about the same in another way"""
    never: tuple[str, ...] = ()
    """Classes of these names that are of another kind, or whose loss changes nothing"""
    is_adapter: bool = False


KINDS = (
    ConfiguringKind(
        ("peft.*Config",),
        TRAINERS,
        "peft_config",
        -1,
        "no adapter is created",
        method="backward",
        set_otherwise=(
            "*.get_peft_model",
            "peft.PeftModel*.from_pretrained",
            "peft.PeftModel*",
            "peft.*Model",
            "peft.AutoPeftModel*.from_pretrained",
            "peft.inject_adapter_in_model",
            "*.add_adapter",
            "*prepare_peft_model",
        ),
        never=("PeftConfig", "LoftQConfig", "EvaConfig", "CordaConfig", "LoraRuntimeConfig"),
        is_adapter=True,
    ),
    ConfiguringKind(
        ("transformers.*TrainingArguments", "trl.*Config"),
        TRAINERS,
        "args",
        1,
        "the trainer runs with its default settings (learning rate, epochs, batch size, output folder)",
        never=("ModelConfig",),
    ),
    ConfiguringKind(
        ("transformers.DataCollator*", "trl.*DataCollator*"),
        TRANSFORMERS_TRAINERS,
        "data_collator",
        2,
        "the trainer builds its batches and labels with its default collator",
        never=("DataCollatorWithPadding", "DefaultDataCollator"),
    ),
    ConfiguringKind(
        ("trl.DataCollatorForCompletionOnlyLM",),
        TRL_TRAINERS,
        "data_collator",
        -1,
        "the labels of the prompts are not masked by it",
    ),
    ConfiguringKind(
        ("transformers.*Callback", "trl.*Callback"),
        TRAINERS,
        "callbacks",
        -1,
        "the trainer never calls it",
    ),
    ConfiguringKind(
        (
            "lightning.pytorch.callbacks.*",
            "pytorch_lightning.callbacks.*",
            "lightning.callbacks.*",
        ),
        LIGHTNING_TRAINERS,
        "callbacks",
        -1,
        "the trainer never calls it",
    ),
    ConfiguringKind(
        ("transformers.GenerationConfig",),
        (),
        "generation_config",
        -1,
        "the answers are generated without it",
        method="generate",
    ),
    ConfiguringKind(
        ("transformers.StoppingCriteriaList",),
        (),
        "stopping_criteria",
        -1,
        "generation does not stop at its criteria",
        method="generate",
    ),
    ConfiguringKind(
        ("vllm.SamplingParams",),
        (),
        "sampling_params",
        1,
        "vLLM generates with the model's defaults, and at most 16 tokens",
        method="generate",
    ),
)


class SettingsLeftBehind(NamedTuple):
    """An object that is built and given to nothing."""

    kind: ConfiguringKind
    made: Call
    name: str
    """Its class"""
    variable: str
    taker: Call
    """A call that would take it, and goes without one"""
    taker_name: str
    takes_it: bool
    """Has that call a parameter for it? A loop of one's own, and transformers' Trainer for an adapter, have none"""
    effect: str


def settings_given_to_nothing(module: Module) -> Iterator[SettingsLeftBehind]:
    """The objects of a file that nothing takes."""
    for kind in KINDS:
        made = [
            call for call in module.calls(*kind.made_by) if _class_name_of(call) not in kind.never
        ]
        takers = _calls_lacking_object_of_kind(module, kind) if made else []
        if not takers or _is_set_otherwise(module, kind, made):
            continue
        lost = [call for call in made if is_never_read(module, call.node, SHOWS)]
        # Of several objects of a kind, one that is used may be what is meant.
        if len(lost) == len(made):
            yield _describe_object_left_behind(module, kind, lost[0], takers[0])


def _class_name_of(call: Call) -> str:
    """The class that a call makes an object of."""
    return call.names[0].rpartition(".")[2] if call.names else ""


def _calls_lacking_object_of_kind(module: Module, kind: ConfiguringKind) -> list[Call]:
    """The calls that would take an object of a kind; none where one of them is given another, or
    may be.
    """
    calls = [*module.calls(*kind.taken_by)] if kind.taken_by else []
    if kind.method and not calls:
        calls = [*module.methods(kind.method)]
    is_bare = all(_call_lacks_kind(call, kind) for call in calls)
    return calls if is_bare else []


def _call_lacks_kind(call: Call, kind: ConfiguringKind) -> bool:
    """Does a call go without an object of this kind? `generate(**inputs)` nearly always gives a
    tokenizer's ids.
    """
    is_open = call.open and kind.method != "generate"
    return not is_open and call.argument(kind.position, kind.argument) is None


def _is_set_otherwise(module: Module, kind: ConfiguringKind, made: list[Call]) -> bool:
    """Is the same set in another way in the file, or in one that runs with it?"""
    if kind.set_otherwise and any(
        call.node not in {one.node for one in made} for call in module.calls(*kind.set_otherwise)
    ):
        return True
    if not kind.is_adapter:
        return _is_set_by_method_or_attribute(module, kind)
    words = ("get_peft_model", "add_adapter", "PeftModel", "inject_adapter")
    others = (part for part in module.self_and_files_run_together if part is not module)
    return any(word in part.text for part in others for word in words) or any(
        module.methods("add_adapter", "load_adapter", "get_peft_model")
    )


def _is_set_by_method_or_attribute(module: Module, kind: ConfiguringKind) -> bool:
    """Are callbacks added by a method, or is an attribute of that name set
    (`model.generation_config = ...`)?
    """
    if kind.argument == "callbacks" and any(module.methods("add_callback")):
        return True
    return any(
        isinstance(target, ast.Attribute) and target.attr == kind.argument
        for node in module.nodes(ast.Assign)
        for target in node.targets
    )


def _describe_object_left_behind(
    module: Module, kind: ConfiguringKind, made: Call, taker: Call
) -> SettingsLeftBehind:
    """What is said of an object that nothing takes."""
    is_trl = taker.named(*TRL_TRAINERS)
    effect = kind.effect
    if kind.is_adapter and "requires_grad" not in module.text:
        effect += ", and all weights of the model are trained"
    return SettingsLeftBehind(
        kind,
        made,
        _class_name_of(made),
        _name_or_call_of_object(module, made.node),
        taker,
        _class_name_of(taker) or f"{taker.method}()",
        not kind.is_adapter or is_trl,
        effect,
    )


def _name_or_call_of_object(module: Module, expression: ast.expr) -> str:
    """The name that an object is kept under; its call where it has none."""
    around = module.scopes.parent.get(expression)
    if isinstance(around, ast.Assign) and isinstance(around.targets[0], ast.Name):
        return around.targets[0].id
    if isinstance(around, ast.AnnAssign) and isinstance(around.target, ast.Name):
        return around.target.id
    return "it"
