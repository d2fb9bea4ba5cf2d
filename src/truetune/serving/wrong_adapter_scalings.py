"""Rescales an adapter as it is where a server reads its scaling factor wrongly, to recognise such
mistakes.

Servers compute alpha/r or alpha/sqrt(r) by themselves, and some read neither. Each known mistake multiplies the adapter
by a known factor; the adapter is rescaled by it and scored, and the one that gives the served log-probabilities is the
cause. The trade-off: each trial loads a model, so only factors that are near the measured one are tried.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.generation.backends.model_source import ModelSource

ADAPTER_CONFIG = "adapter_config.json"
# Chosen, not measured: at double nearly all mistakes would be tried, at half those of strong adapters are missed.
MAX_RATIO_TO_MEASURED = 4.0
"""How far, as a ratio, a scaling may be from the measured factor to be tried: log-probabilities do not grow evenly"""
# Chosen, not measured: no known mistake weakens an adapter of a usual rank (4 to 256) so far and still shows.
MIN_FACTOR = 0.05
"""Factors below it are those of a server without the adapter"""


def list_wrong_scalings(source: ModelSource, *, near: float) -> dict[str, float]:
    """Known mistakes of the scaling, with the factor of each, where it is near the factor that was
    measured.

    The scalings are those of Hu et al. 2021 (alpha/r) and Kalajdzievski 2023 (rsLoRA: alpha/sqrt(r)).

    Args:
        source: an adapter; without a readable rank and alpha there is none.
        near: the measured factor (see `adapter_effect`).
    """
    config = (read_json_object(source.folder / ADAPTER_CONFIG, []) if source.folder else None) or {}
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or not isinstance(alpha, (int, float)):
        return {}
    if rank < 1 or alpha <= 0 or near < MIN_FACTOR:
        return {}
    root = math.sqrt(rank)
    if config.get("use_rslora"):
        scale, without_rslora, with_rslora = alpha / root, 1 / root, 1.0
    else:
        scale, without_rslora, with_rslora = alpha / rank, 1.0, root
    factors = {
        "alpha/r instead of alpha/sqrt(r): use_rslora was not read": without_rslora,
        "alpha/sqrt(r) instead of alpha/r: use_rslora was taken for set": with_rslora,
        "alpha left out (a scaling of 1/r)": 1 / alpha,
        "no scaling at all (a factor of 1)": 1 / scale,
        "twice the scaling": 2.0,
        "half the scaling": 0.5,
    }
    return {
        name: factor
        for name, factor in factors.items()
        # A factor of 1 is no mistake with this adapter (alpha equal to the rank, for one).
        if factor != 1.0 and 1 / MAX_RATIO_TO_MEASURED <= factor / near <= MAX_RATIO_TO_MEASURED
    }


@contextmanager
def make_rescaled_adapter(source: ModelSource, scale: float) -> Iterator[ModelSource]:
    """The adapter with another lora_alpha, in a folder of its own: the weights are linked, not copied."""
    assert source.folder is not None
    config = read_json_object(source.folder / ADAPTER_CONFIG, []) or {}
    config["lora_alpha"] = config["lora_alpha"] * scale
    # Modules with an alpha of their own do not read lora_alpha.
    config["alpha_pattern"] = {
        name: alpha * scale for name, alpha in (config.get("alpha_pattern") or {}).items()
    }
    with tempfile.TemporaryDirectory(prefix="truetune-") as work:
        for file in source.folder.iterdir():
            if file.is_file() and file.name != ADAPTER_CONFIG:
                (Path(work) / file.name).symlink_to(file.resolve())
        (Path(work) / ADAPTER_CONFIG).write_text(json.dumps(config), encoding="utf-8")
        yield replace(source, folder=Path(work))
