"""The arguments of a trainer, made of the recipe and of what the user passes through."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from truetune.errors import SpecError
from truetune.training.processes import one_gpu


def arguments(kind: type[Any], given: Mapping[str, Any]) -> Any:
    """An instance of `kind` (TrainingArguments, DPOConfig, ...). Raises SpecError for what it does not know."""
    known = {field.name for field in dataclasses.fields(kind) if field.init}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "see its documentation"
            raise SpecError(f"trainer: {kind.__name__} has no argument {name}; {hint}")
    try:
        made = kind(**given)
    except (TypeError, ValueError) as error:
        raise SpecError(f"trainer: {kind.__name__}: {error}") from None
    one_gpu(made)
    return made
