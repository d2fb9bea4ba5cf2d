"""Finds the run that the scripts of a folder describe: the rows that the one training script among
them reads, and its limit.

Who checks a folder means its rows too. They are read where exactly one script of the folder trains and all its files
are known from the code, with the `max_length` that it sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from truetune.checks.read_training_script_for_its_settings import (
    find_only_config,
    read_training_module,
)
from truetune.checks.source.evidence.files_where_each_row_makes_one_example_at_most import (
    local_row_files_of_only_trainer,
)
from truetune.errors import TruetuneError
from truetune.settings.run_spec import RunSpec
from truetune.source.parsed_source_file import Module


def find_run_of_scripts(scripts: Iterable[Path]) -> RunSpec | None:
    """The rows and settings of the one script that trains; None without one, or where its rows are unknown."""
    trainings = []
    for script in scripts:
        try:
            module = read_training_module(script)
        except (TruetuneError, OSError):
            continue  # who lints it says what is wrong with it
        files = local_row_files_of_only_trainer(module)
        if files:
            trainings.append((module, files))
    # Two scripts that train may be two stages: it is not known which one is meant.
    if len(trainings) != 1:
        return None
    module, files = trainings[0]
    return _settings_of_only_trainer(module).model_copy(
        update={"data": files, "model": None, "tokenizer": None}
    )


def _settings_of_only_trainer(module: Module) -> RunSpec:
    """The settings of the script's one trainer; those of nobody where it makes several, or none that can be read."""
    try:
        config = find_only_config(module)
    except TruetuneError:
        config = None
    return RunSpec() if config is None else config.spec
