"""How many positions a model knows by its config.json, and whether it scales them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def positions_of_model(config: Mapping[str, Any]) -> int | None:
    """The positions of a model, of its part for text if it has several; None where config.json does not say."""
    part = _text_part(config)
    positions = part.get("max_position_embeddings") or part.get("n_positions")
    return positions if isinstance(positions, int) else None


def does_model_scale_rotary_positions(config: Mapping[str, Any]) -> bool:
    """Does a model scale its rotary positions, so that it may reach beyond what config.json says?"""
    part = _text_part(config)
    rope = part.get("rope_parameters")
    return bool(part.get("rope_scaling")) or (
        isinstance(rope, Mapping) and rope.get("rope_type", "default") != "default"
    )


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = config.get("text_config")
    return inner if isinstance(inner, Mapping) else config
