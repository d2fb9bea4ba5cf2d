"""Reads the settings that a trainer gets, by a symbolic run of the script, however they reach its
arguments.

The trade-off: what is set on the arguments after they are made counts as set before the trainer is
made, since scripts that set them between its creation and `train()` mean the same.
"""

from __future__ import annotations

from typing import Any

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import NO_CONSTANT, Result, Value

ARGUMENTS = ("transformers.*TrainingArguments", "trl.*Config")


def arguments_of_trainer(trainer: CallEvent) -> Result | None:
    """The arguments that a trainer is given; None where it is not seen where they were made."""
    args_argument = trainer.argument(1, "args")
    is_made_here = isinstance(args_argument, Result) and args_argument.call.named(*ARGUMENTS)
    return args_argument if is_made_here and isinstance(args_argument, Result) else None


def value_of_setting(arguments: Result, name: str) -> Value | None:
    """The value of a setting that the script gives; None where it gives none, or none is seen."""
    # What is set on the object comes after what its call was given.
    return arguments.attributes.get(name) or arguments.call.keywords.get(name)


def constant_of_setting(arguments: Result, name: str, default: Any) -> Any:
    """The plain value of a setting.

    Args:
        arguments: The arguments of a trainer.
        name: The setting.
        default: What the class takes where nothing is given.

    Returns:
        NO_CONSTANT where it is not known.
    """
    value = value_of_setting(arguments, name)
    if value is not None:
        return constant_of(value)
    return NO_CONSTANT if arguments.call.is_open else default
