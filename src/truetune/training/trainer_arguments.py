"""Makes the arguments object of a trainer from the recipe and from what the user passes through.

The classes of transformers and TRL check themselves; here their faults become faults of the user's settings, named by
the argument. Nothing is filtered: an argument that a release does not know is an error, and not left out.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from truetune.errors import SpecError
from truetune.training.coordinate_processes_of_run import keep_off_data_parallel


def make_trainer_arguments(kind: type[Any], arguments: Mapping[str, Any]) -> Any:
    """An instance of `kind` (TrainingArguments, DPOConfig, ...). Raises SpecError for what it does not know."""
    known = {field.name for field in dataclasses.fields(kind) if field.init}
    for name in arguments:
        if name not in known:
            # A dataclass would raise a TypeError of Python's own for an unknown name; ours names
            # the nearest one, which is what a typing error needs.
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "see its documentation"
            raise SpecError(f"trainer: {kind.__name__} has no argument {name}; {hint}")
    try:
        instance = kind(**arguments)
    # transformers checks combinations of arguments in __post_init__ (fp16 on a CPU, an unknown
    # strategy), so its words are passed on as a fault of the settings.
    except (TypeError, ValueError) as error:
        raise SpecError(f"trainer: {kind.__name__}: {error}") from None
    keep_off_data_parallel(instance)
    return instance
