"""Reads from config.json, before a run's model is loaded, its layers and how many positions it
knows.

Nothing but that file is read, so that settings can be proposed and planned in a moment, for models of any size.
"""

from __future__ import annotations

from typing import NamedTuple

from truetune.errors import SpecError
from truetune.memory.matrices_and_parameters_from_config import Architecture, read_architecture
from truetune.render.find_tokenizer_folder import find_tokenizer_folder, read_json
from truetune.settings.run_spec import RunSpec


class ModelShape(NamedTuple):
    """What config.json says of a model: its layers and its positions."""

    architecture: Architecture
    positions: int | None
    """Tokens that it knows places for; None where config.json does not say"""


def read_model_shape(spec: RunSpec) -> ModelShape:
    """Read the shape of the run's model from its config.json. Raises SpecError or TokenizerError
    where that is not on this machine or broken.
    """
    name = spec.model or spec.tokenizer
    if name is None:
        raise SpecError("no model is named")
    folder = find_tokenizer_folder(name)
    architecture = read_architecture(folder)
    values = read_json(folder / "config.json") or {}
    # Models of several modalities keep the language model's numbers one level below.
    inner = values.get("text_config") or values
    # GPT-2 and its kin call it n_positions.
    known = inner.get("max_position_embeddings") or inner.get("n_positions")
    return ModelShape(architecture, known if isinstance(known, int) and known > 0 else None)
