"""Finds hyperparameters among the arguments of a file's calls, and those that are out of range by
the table of limits.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.checks.findings import Case
from truetune.checks.hyperparameter_limits import (
    CLIPPED_TO,
    SCALE,
    SCALE_NAMES,
    SCALED_RATE,
    Breach,
    limit_breaches,
    lora_scale,
    parse_setting_number,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.parsed_source_file import Module
from truetune.source.settings_of_script_as_configs import extract_configs

OPTIMIZERS = tuple(
    f"{home}.*{name}*"
    for home in ("torch.optim", "bitsandbytes.optim", "transformers")
    for name in ("Adam", "Lion")
)
ADAPTERS = ("peft.LoraConfig", "unsloth.*.get_peft_model")
CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")
SAMPLERS = (
    "transformers.GenerationConfig",
    "vllm.SamplingParams",
    "vllm.sampling_params.SamplingParams",
)
PIPELINES = ("transformers.pipeline", "transformers.TextGenerationPipeline")
GENERATES = (
    "no_repeat_ngram_size",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "temperature",
    "top_p",
    "min_p",
    "min_new_tokens",
    "min_tokens",
    "ignore_eos",
    "do_sample",
    "num_beams",
)
SAME = {"min_tokens": "min_new_tokens"}
"""vLLM's name -> that of transformers"""
STRUCTURED = re.compile(
    r"\bJSON\b|json\.loads|json_schema|\bSQL\b|\bXML\b|\bYAML\b|source code", re.I
)
"""What a file says of answers in which keys, brackets or names are repeated"""


class HyperparameterCall(NamedTuple):
    """A call's arguments as settings."""

    call: Call
    values: dict[str, Any]
    nodes: dict[str, ast.expr]
    """Setting -> the argument that gives it"""
    names: dict[str, str]
    """Setting -> what the call calls it"""


class OutOfRangeArgument(NamedTuple):
    """An argument that is out of the range of the table, with the words that say so for a script."""

    breach: Breach
    text: str
    fix: str
    cases: list[Case]


def training_hyperparameter_calls(module: Module) -> Iterator[HyperparameterCall]:
    """Optimizers, clipping and adapters of a file, but for adapters that belong to a trainer's
    settings.
    """
    for call in module.calls(*OPTIMIZERS):
        yield _settings_of_optimizer(module, call)
    for call in _gradient_clipping_calls(module):
        yield _hyperparameter_record_of_call(
            module, call, {CLIPPED_TO: call.argument(1, "max_norm")}, "max_norm"
        )
    adapters = list(module.calls(*ADAPTERS))
    is_in_settings = len(adapters) == 1 and adapters[0].named("peft.LoraConfig")
    # The one LoraConfig of a script with trainer's settings is judged among those: told twice it would be two
    # findings.
    if is_in_settings and extract_configs(module):
        return
    for call in adapters:
        yield _settings_of_adapter(module, call)


def _gradient_clipping_calls(module: Module) -> Iterator[Call]:
    """Calls that clip gradients to a norm, of torch or of Accelerate."""
    yield from module.calls(*CLIPS)
    yield from module.methods("clip_grad_norm_")


def generation_hyperparameter_calls(module: Module) -> Iterator[HyperparameterCall]:
    """Calls that say how answers are generated: a model's generate, GenerationConfig,
    SamplingParams.
    """
    calls = [*module.calls(*SAMPLERS, *PIPELINES)]
    calls += [
        call
        for call in module.methods("generate")
        if call.receiver is not None and "model" in module.flow.types(call.receiver)
    ]
    for call in calls:
        nodes = {
            SAME.get(name, name): call.keywords[name] for name in GENERATES if name in call.keywords
        }
        named = _hyperparameter_record_of_call(module, call, nodes)
        named.names.update(
            {
                own_name: other_name
                for other_name, own_name in SAME.items()
                if other_name in call.keywords
            }
        )
        named.values["structured"] = STRUCTURED.search(module.text) is not None
        ignores = named.values.get("ignore_eos")
        # The table compares numbers: a switch that is on is 1.
        named.values["ignore_eos"] = int(ignores) if isinstance(ignores, bool) else None
        yield named


def _hyperparameter_record_of_call(
    module: Module, call: Call, nodes: Mapping[str, ast.expr | None], name: str = ""
) -> HyperparameterCall:
    """The record of a call with those of these settings that it gives.

    `name` is what all of them are called, where one name stands for them.
    """
    there = {setting: node for setting, node in nodes.items() if node is not None}
    values = {setting: _known_value(module, node) for setting, node in there.items()}
    return HyperparameterCall(call, values, there, {setting: name or setting for setting in there})


def _known_value(module: Module, node: ast.expr) -> Any:
    """The value of an expression; None where it is not known."""
    value = module.flow.value(node)
    return None if value is UNKNOWN else value


def _settings_of_optimizer(module: Module, call: Call) -> HyperparameterCall:
    """The settings of an optimizer of Adam's or Lion's kind."""
    nodes = {
        "training.learning_rate": call.argument(1, "lr"),
        "training.weight_decay": call.keywords.get("weight_decay"),
        "adam_epsilon": call.keywords.get("eps"),
    }
    named = _hyperparameter_record_of_call(module, call, nodes)
    named.names.update(
        {
            "training.learning_rate": "lr",
            "training.weight_decay": "weight_decay",
            "adam_epsilon": "eps",
        }
    )
    betas = _known_value(module, node) if (node := call.keywords.get("betas")) is not None else None
    if isinstance(betas, (tuple, list)) and len(betas) == 2 and node is not None:
        for place, setting in enumerate(("adam_beta1", "adam_beta2")):
            named.values[setting] = betas[place]
            named.nodes[setting] = node
            named.names[setting] = f"betas[{place}]"
    named.values["training.optim"] = call.names[0].rpartition(".")[2] if call.names else None
    return named


def _settings_of_adapter(module: Module, call: Call) -> HyperparameterCall:
    """The settings of a LoRA adapter, with the scale that they make."""
    nodes = {
        "training.lora.lora_alpha": call.keywords.get("lora_alpha"),
        "training.lora.lora_dropout": call.keywords.get("lora_dropout"),
        # unsloth's first places are those of the model: -1 means by name alone.
        "r": call.argument(-1 if call.named("unsloth.*") else 2, "r"),
    }
    named = _hyperparameter_record_of_call(module, call, nodes)
    named.names["training.lora.lora_dropout"] = "lora_dropout"
    stabilised = call.keywords.get("use_rslora")
    by_root = stabilised is not None and _known_value(module, stabilised) is True
    strength = lora_scale(
        named.values.get("training.lora.lora_alpha"), named.values.get("r"), rank_stabilised=by_root
    )
    if strength is not None:
        named.values[SCALE] = strength
        named.nodes[SCALE] = named.nodes["training.lora.lora_alpha"]
        named.names[SCALE] = SCALE_NAMES[by_root]
        named.values["training.lora.r"] = named.values.get("r")
        rate = _single_learning_rate(module)
        if rate is not None:
            named.values["training.learning_rate"] = rate
            named.values[SCALED_RATE] = strength * rate
    return named


def _single_learning_rate(module: Module) -> float | None:
    """The learning rate that a file gives its trainer or optimizer; None where it gives none, or
    several.
    """
    given = [
        parse_setting_number(_known_value(module, call.keywords[name]))
        for call in module.all_calls
        for name in ("learning_rate", "lr")
        if name in call.keywords
    ]
    return given[0] if given and given[0] is not None and len(set(given)) == 1 else None


def out_of_range_arguments(
    module: Module, named: HyperparameterCall, *rules: str
) -> Iterator[OutOfRangeArgument]:
    """The arguments of a call that are out of range, by the rows of these rules."""
    for breach in limit_breaches(named.values, *rules):
        setting = breach.limit.setting
        name = named.names.get(setting, setting)
        yield OutOfRangeArgument(
            breach,
            breach.text(breach.limit.says, named.values, name),
            breach.text(breach.limit.fix, named.values, name),
            [case_of_node(module, named.nodes[setting])],
        )


def has_judgeable_number(named: HyperparameterCall) -> bool:
    """Has the call a number that the table can judge?"""
    return any(parse_setting_number(value) is not None for value in named.values.values())
