"""Counts the bytes of logits and of what the loss makes of them: the largest tensors of a run with
a large vocabulary.

A vocabulary of 150,000 makes 600 kB of float32 logits for each token, more than the model keeps of it; so each kind of
loss (all logits at once, tiles, chunks) is counted by itself, and the cache of keys and values beside them. The
trade-off: sizes of tiles and chunks are those of the releases that were read, and change with them.
"""

from __future__ import annotations

from truetune.memory.matrices_and_parameters_from_config import Architecture
from truetune.memory.memory_settings import MemorySettings

# Read in the source of TRL's chunked cross-entropy; a tile of another size moves the peak by its own bytes alone.
TILE_SIZE = (4096, 32_768)
"""Tokens and vocabulary of a tile of TRL's fused head"""


def forward_logits_bytes(
    architecture: Architecture, settings: MemorySettings, tokens: int
) -> float:
    """Bytes of the logits in a forward pass: as they come from the head, in float32, and their
    log-softmax.
    """
    # A head of 16 bits gives logits of 16 bits, which are cast; one of float32 gives them at once.
    as_computed = settings.compute if settings.compute < 4 else 0
    per_logit = as_computed + 4 + 4 + _logits_bytes_before_softcap(architecture, settings)
    return float(tokens * architecture.vocabulary * per_logit)


def backward_logits_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the logits at the start of the backward pass: the log-softmax, and two gradients as
    large.

    Tiled and chunked losses never hold all of them: a tile, the gradient of the hidden states, and in float32 (TRL) or
    in the dtype of the weight (Liger) the gradient of a head that is trained.
    """
    vocabulary, hidden = architecture.vocabulary, architecture.hidden
    size, tokens = settings.compute, settings.tokens_per_forward_pass
    trained_head = vocabulary * hidden if settings.lora is None else 0
    if settings.head == "none":
        return 0.0
    if settings.head == "tiles":
        tile = min(tokens, TILE_SIZE[0]) * TILE_SIZE[1]
        # The hidden states, their gradient, and its sum in float32.
        return float(size * tile + (4 + 2 * size) * tokens * hidden + 4 * trained_head)
    if settings.head == "liger":
        # Liger chooses chunks whose logits are about as large as the hidden states, by powers of two.
        chunks = 1 << max(0, -(-vocabulary // hidden) - 1).bit_length()
        rows = -(-tokens // chunks)
        return float((size + 8) * rows * vocabulary + size * tokens * hidden + size * trained_head)
    # Three float32 tensors.
    scored = settings.scored_tokens_per_forward_pass
    return float(scored * vocabulary * (12 + _logits_bytes_before_softcap(architecture, settings)))


def evaluation_logits_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the logits in a forward pass of the evaluation: Liger's loss is for training only,
    TRL's tiles are for both.
    """
    tokens = (
        settings.eval_batch
        * settings.length
        * (settings.sequences_per_forward_pass // settings.batch)
    )
    if settings.head == "none":
        return 0.0
    if settings.head == "tiles":
        return float(
            settings.compute
            * (min(tokens, TILE_SIZE[0]) * TILE_SIZE[1] + tokens * architecture.hidden)
        )
    return forward_logits_bytes(architecture, settings, tokens)


def kept_evaluation_logits_bytes(architecture: Architecture, length: int, rows: int) -> float:
    """Bytes of the logits of all rows in float32, as an evaluation keeps them that computes metrics
    from logits.
    """
    return 4.0 * rows * length * architecture.vocabulary


def generation_logits_bytes(
    architecture: Architecture, settings: MemorySettings, rows: int
) -> float:
    """Bytes of the logits of the next token of each row: as the head gives them, in float32, and as probabilities.

    transformers' generate asks the head for the last position alone, of the prompt too.
    """
    return float(rows * architecture.vocabulary * (settings.compute + 4 + 4))


def kv_cache_bytes(
    architecture: Architecture, settings: MemorySettings, length: int, rows: int = 1
) -> float:
    """Bytes of the keys and values of `rows` sequences; a sliding window bounds them."""
    per_row = 0
    for block in architecture.blocks:
        # Latent attention caches the narrow projection alone.
        width = block.ranks[-1] if block.ranks else block.key + block.value
        per_row += width * min(length, block.window or length)
    return float(rows * settings.compute * per_row)


def working_kv_bytes(
    architecture: Architecture, settings: MemorySettings, length: int, rows: int
) -> float:
    """Bytes that attention works with beside the cache, when one token of each row is sampled.

    The widest layer's keys and values lie in memory twice while a token is appended (`torch.cat`), and then once for
    each query head that shares them (`repeat_kv`, since the rows of a batch are padded and have a mask).
    """
    per_token = 0
    for block in architecture.blocks:
        cached = block.ranks[-1] if block.ranks else block.key + block.value
        group = 1 if block.ranks else block.heads // block.kv_heads
        per_token = max(per_token, group * cached)
    return float(rows * settings.compute * per_token * length)


def _logits_bytes_before_softcap(architecture: Architecture, settings: MemorySettings) -> int:
    """Bytes of the logits before tanh, which its gradient needs."""
    return settings.compute if architecture.softcap else 0
