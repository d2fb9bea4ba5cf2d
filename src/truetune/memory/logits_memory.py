"""Logits and what becomes of them, in bytes; the largest tensors of a run with a large vocabulary."""

from __future__ import annotations

from truetune.memory.architecture import Architecture
from truetune.memory.memory_settings import MemorySettings

TILE_SIZE = (4096, 32_768)
"""Tokens and vocabulary of a tile of TRL's fused head"""


def forward_logits(architecture: Architecture, settings: MemorySettings, tokens: int) -> float:
    """As they come from the head, in float32, and their log-softmax."""
    first = settings.compute if settings.compute < 4 else 0
    return float(
        tokens * architecture.vocabulary * (first + 8 + _softcap_bytes(architecture, settings))
    )


def backward_logits(architecture: Architecture, settings: MemorySettings) -> float:
    """At the start of the backward pass: the log-softmax, and two gradients as large.

    Tiled and chunked losses never hold all of them: a tile, the gradient of the hidden states, and in float32 (TRL) or
    in the dtype of the weight (Liger) the gradient of a head that is trained.
    """
    vocabulary, hidden, size, tokens = (
        architecture.vocabulary,
        architecture.hidden,
        settings.compute,
        settings.tokens,
    )
    trained = vocabulary * hidden * (settings.lora is None)
    if settings.head == "none":
        return 0.0
    if settings.head == "tiles":
        return float(
            size * min(tokens, TILE_SIZE[0]) * TILE_SIZE[1]
            + (4 + 2 * size) * tokens * hidden
            + 4 * trained
        )
    if settings.head == "liger":
        chunks = 1 << max(0, -(-vocabulary // hidden) - 1).bit_length()
        rows = -(-tokens // chunks)
        return float((size + 8) * rows * vocabulary + size * tokens * hidden + size * trained)
    return float(tokens * vocabulary * (12 + _softcap_bytes(architecture, settings)))


def evaluation_logits(architecture: Architecture, settings: MemorySettings) -> float:
    """A forward pass of the evaluation: Liger's loss is for training only, TRL's tiles are for both."""
    tokens = settings.eval_batch * settings.length * (settings.sequences // settings.batch)
    if settings.head == "none":
        return 0.0
    if settings.head == "tiles":
        return float(
            settings.compute
            * (min(tokens, TILE_SIZE[0]) * TILE_SIZE[1] + tokens * architecture.hidden)
        )
    return forward_logits(architecture, settings, tokens)


def kept_evaluation_logits(architecture: Architecture, length: int, rows: int) -> float:
    """Logits of all rows in float32, as an evaluation keeps them that computes metrics from logits."""
    return 4.0 * rows * length * architecture.vocabulary


def kv_cache(
    architecture: Architecture, settings: MemorySettings, length: int, rows: int = 1
) -> float:
    """Keys and values of `rows` sequences; a sliding window bounds them."""
    each = (
        (b.key + b.value if not b.ranks else b.ranks[-1]) * min(length, b.window or length)
        for b in architecture.blocks
    )
    return float(rows * settings.compute * sum(each))


def _softcap_bytes(architecture: Architecture, settings: MemorySettings) -> int:
    return settings.compute if architecture.softcap else 0
