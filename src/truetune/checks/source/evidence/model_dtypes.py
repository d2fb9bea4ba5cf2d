"""Says in which dtype a model computes, by what loads and casts it, and the model's name or type."""

from __future__ import annotations

import ast
from pathlib import Path

from truetune.checks.source.evidence.loads_of_trained_and_asked_models import NAME_ARGUMENTS
from truetune.checks.source.evidence.may_weights_have_float32_copy import FLOAT16, OTHERS
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import read_json
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

PIPELINE = "transformers.pipeline"


def dtypes_cast_by_steps(module: Module, steps: tuple[Call, ...]) -> set[str]:
    """The dtype that casts give the weights; empty where none does. Steps stand from the last to
    the first.
    """
    for step in steps:
        if step.method in ("half", "float", "bfloat16"):
            return {"float16" if step.method == "half" else step.method}
        given = [*step.args, *step.keywords.values()] if step.method == "to" else []
        named = {module.flow.name(one) or "" for one in given} & OTHERS.union(FLOAT16.names)
        if named:
            return set(named)
    return set()


def step_casting_to_float16(module: Module, steps: tuple[Call, ...]) -> ast.AST | None:
    """The step that casts weights to float16; None where none does."""
    for step in steps:
        if dtypes_cast_by_steps(module, (step,)) & FLOAT16.names:
            return step.node
    return None


def model_name_argument(load: Call) -> ast.expr | None:
    """What a load is given as the name of the model."""
    named = next((load.keywords[name] for name in NAME_ARGUMENTS if name in load.keywords), None)
    if named is not None:
        return named
    return load.argument(1, "model") if load.named(PIPELINE) else load.argument(0, "")


def model_type_of_folder(module: Module, name: str) -> str:
    """The model_type of a folder on this machine, as a name; empty where there is none."""
    for folder in (Path(module.path).parent / name, Path(name)):
        try:
            config = read_json(folder / "config.json", SETTINGS)
        except (TruetuneError, OSError, ValueError):
            continue
        kind = config.get("model_type") if isinstance(config, dict) else None
        return str(kind or "").removesuffix("_text")
    return ""
