"""Scalings: an adapter as it comes out where its scaling factor is read wrongly."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from truetune.checkpoint.files import read_object
from truetune.generation.backends.model_source import ModelSource

CONFIG = "adapter_config.json"
CLOSE = 4.0
"""How far, as a ratio, a scaling may be from the measured factor to be tried: log-probabilities do not grow evenly"""
LEAST = 0.05
"""Factors below it are those of a server without the adapter"""


def scalings(place: ModelSource, *, near: float) -> dict[str, float]:
    """Known mistakes, with what they multiply the adapter by, as far as they are near a measured factor (Kalajdzievski
    2023, rsLoRA: alpha/sqrt(r); Hu et al. 2021: alpha/r)."""
    config = read_object(place.folder / CONFIG, []) if place.folder else None
    r, alpha = ((config or {}).get(name) for name in ("r", "lora_alpha"))
    if (
        not isinstance(r, int)
        or not isinstance(alpha, (int, float))
        or r < 1
        or alpha <= 0
        or near < LEAST
    ):
        return {}
    root, rank_stabilised = math.sqrt(r), bool((config or {}).get("use_rslora"))
    scale = alpha / (root if rank_stabilised else r)
    found = {
        "alpha/r in place of alpha/sqrt(r): use_rslora was not read": (
            1 / root if rank_stabilised else 1.0
        ),
        "alpha/sqrt(r) in place of alpha/r: use_rslora was taken for set": (
            1.0 if rank_stabilised else root
        ),
        "alpha left out (a scaling of 1/r)": 1 / alpha,
        "no scaling at all (a factor of 1)": 1 / scale,
        "twice the scaling": 2.0,
        "half the scaling": 0.5,
    }
    return {name: k for name, k in found.items() if k != 1.0 and 1 / CLOSE <= k / near <= CLOSE}


@contextmanager
def scaled(place: ModelSource, scale: float) -> Iterator[ModelSource]:
    """The adapter with another lora_alpha, in a folder of its own."""
    assert place.folder is not None
    config = read_object(place.folder / CONFIG, []) or {}
    config["lora_alpha"] = config["lora_alpha"] * scale
    config["alpha_pattern"] = {
        name: alpha * scale for name, alpha in (config.get("alpha_pattern") or {}).items()
    }
    with tempfile.TemporaryDirectory(prefix="truetune-") as work:
        for file in place.folder.iterdir():
            if file.is_file() and file.name != CONFIG:
                (Path(work) / file.name).symlink_to(file.resolve())
        (Path(work) / CONFIG).write_text(json.dumps(config), encoding="utf-8")
        yield replace(place, folder=Path(work))
