"""Finds over how many steps a schedule of the learning rate is built, by the files beside a log.

A rate that came to its end at step 220 is explained by the line that says 220: `total_num_steps` in DeepSpeed's file,
`T_max` or `num_training_steps` in a script, an option of a command. Only plain numbers count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.make_setting_beside_log_from_code import setting_at_code_place
from truetune.checks.read_training_script_for_its_settings import read_training_module
from truetune.checks.source.evidence.possible_values_of_expressions import possible_numbers
from truetune.errors import TruetuneError
from truetune.logs.facts_in_files_beside_log import SCHEDULE_STEPS, SettingBeside
from truetune.settings.located_document import read_text_of_config_size
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SCRIPT_SUFFIXES = (".py", ".ipynb")
LENGTH_CALLS = (
    ("transformers.get_*_schedule_with_warmup", 2, "num_training_steps"),
    ("transformers.*.get_*_schedule_with_warmup", 2, "num_training_steps"),
    ("transformers.get_*_restarts_schedule_with_warmup", 2, "num_training_steps"),
    ("transformers.get_scheduler", 3, "num_training_steps"),
    ("transformers.*.get_scheduler", 3, "num_training_steps"),
    ("torch.optim.lr_scheduler.CosineAnnealingLR", 1, "T_max"),
    ("torch.optim.lr_scheduler.OneCycleLR", 2, "total_steps"),
    ("torch.optim.lr_scheduler.LinearLR", 3, "total_iters"),
    ("torch.optim.lr_scheduler.PolynomialLR", 1, "total_iters"),
    ("deepspeed.*.WarmupDecayLR", 1, "total_num_steps"),
    ("deepspeed.*.WarmupCosineLR", 1, "total_num_steps"),
)
"""Calls that make a schedule, with place and name of its length"""
# Not max_steps: the run itself ends there.
LENGTH_IN_TEXT = re.compile(
    r"""(?<![\w-])["']?-{0,2}(?P<name>total[_-]num[_-]steps|num[_-]training[_-]steps|total[_-]steps|t[_-]max"""
    r"""|lr[_-]decay[_-](?:steps|iters)|decay[_-](?:steps|iters)|lr[_-]total[_-]steps|total[_-]iters"""
    r"""|scheduler[_-]steps|schedule[_-]steps|training[_-]steps|total[_-]updates)["']?[ \t]{0,8}[:= ][ \t]{0,8}"""
    r"""["']?(?P<value>\d{1,9})(?![\w.])""",
    re.I,
)
"""A line that sets the length of a schedule, in settings, commands, or the dict of a script"""


def schedule_lengths_of_file(file: Path) -> list[SettingBeside]:
    """The lengths that a script, settings or commands set; nothing where the file can't be read."""
    try:
        if file.suffix in SCRIPT_SUFFIXES:
            return list(_lengths_of_script(read_training_module(file)))
        return list(_lengths_of_text(read_text_of_config_size(file), file))
    except (TruetuneError, OSError, ValueError):
        return []


def _lengths_of_text(text: str, file: Path) -> Iterator[SettingBeside]:
    """The lengths that the lines of a file set; comments are left out."""
    for number, line in enumerate(text.splitlines(), 1):
        # 1,000: a line of settings is shorter, and one of data is not searched.
        if len(line) > 1_000 or line.lstrip().startswith(("#", "//")):
            continue
        for match in LENGTH_IN_TEXT.finditer(line):
            value = int(match["value"])
            if value > 0:
                yield SettingBeside(
                    SCHEDULE_STEPS, value, str(file), number, f"{match['name']}: {value}"
                )


def _lengths_of_script(module: Module) -> Iterator[SettingBeside]:
    """The lengths that a script gives its schedules, by calls, and by lines of its own settings."""
    for pattern, position, name in LENGTH_CALLS:
        for call in module.calls(pattern):
            yield from _lengths_in_schedule_call(module, call, position, name)
    if module.path.endswith(".py"):
        yield from _lengths_of_text(module.text, Path(module.path))


def _lengths_in_schedule_call(
    module: Module, call: Call, position: int, name: str
) -> Iterator[SettingBeside]:
    """The numbers that the length of a schedule may be."""
    argument = call.argument(position, name)
    for value in possible_numbers(module, argument):
        if value > 0 and value == int(value):
            yield setting_at_code_place(
                module, argument or call.node, SCHEDULE_STEPS, int(value), f"{name}={int(value)}"
            )
