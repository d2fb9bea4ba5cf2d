"""Why a path is not judged: no rule reads settings of its kind alone, or it can't be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from truetune.checks.judgement import NotJudged
from truetune.errors import TruetuneError
from truetune.settings import located_document
from truetune.settings.recognise_input_kind import InputKind
from truetune.settings.stacks.read_config_of_any_stack import advise_how_to_identify

LAUNCH_KEYS = ("distributed_type", "num_machines", "num_processes")
"""Of a launch configuration: how many processes it starts"""


def not_judged_since_unreadable(path: str, error: TruetuneError, *, is_named: bool) -> NotJudged:
    """A path that could not be read as not judged, with the reason that its reader gives."""
    # The reason stands beside the path in the report: twice it would be too long for a line.
    why = str(error).removeprefix(f"{path}: ").partition("; expected data")[0]
    return NotJudged(
        path,
        why,
        unlock="name what truetune reads: data, settings, scripts, logs, models",
        asked=is_named,
    )


def _not_judged_deepspeed_file(path: str) -> NotJudged:
    """Settings of DeepSpeed as not judged: what they contradict stands in the script or the
    settings that name them.
    """
    return NotJudged(
        "the DeepSpeed configuration",
        "it is compared with the script or the settings that name it",
        place=path,
        unlock="name the script, or the settings, that train with it",
    )


def _not_judged_settings_of_unknown_program(path: str) -> NotJudged:
    """Settings of an unknown program as not judged: their keys are common words, and rules hold for
    one program only.
    """
    return NotJudged(
        "the settings",
        "none of their keys belongs to only one program: a script may read them",
        place=path,
        unlock=advise_how_to_identify(located_document.read_located_document(Path(path)).value),
    )


def _not_judged_launch_configuration(path: str) -> NotJudged:
    """accelerate's launch configuration as not judged: which GPUs its machine has is not in the
    file.
    """
    value = located_document.read_located_document(Path(path)).value
    settings = ", ".join(f"{key}: {value[key]}" for key in LAUNCH_KEYS if key in value)
    return NotJudged(
        "the accelerate launch configuration",
        f"no rule reads it ({settings}); each process uses one GPU, and further GPUs stay idle",
        place=path,
        unlock="compare num_processes with the number of GPUs",
    )


REASON_BY_UNJUDGED_KIND: Mapping[InputKind, Callable[[str], NotJudged]] = {
    "settings": _not_judged_settings_of_unknown_program,
    "accelerate": _not_judged_launch_configuration,
    "deepspeed": _not_judged_deepspeed_file,
}
"""Configurations that no rule reads alone"""
