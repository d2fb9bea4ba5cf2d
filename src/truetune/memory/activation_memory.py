"""Counts the activations that autograd keeps for the backward pass, in bytes for each token.

Counted tensor by tensor, as Korthikanti et al. 2022 (arXiv:2205.05198, section 4.1) do for GPT, for the modules of
transformers: gated MLPs, grouped-query attention, RMSNorm in float32, frozen weights, adapters, experts. Tests compare
it with the tensors that autograd really saves.
"""

from __future__ import annotations

from dataclasses import replace

from truetune.memory.matrices_and_parameters_from_config import Architecture, Block, Matrix
from truetune.memory.memory_settings import MemorySettings


def kept_activation_bytes_per_token(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes for each token that all blocks keep, and the last norm and the head's input, without the logits."""
    blocks = architecture.blocks
    # Checkpointing keeps the input of each block alone, and computes the rest once more.
    if settings.checkpointing:
        inside: float = len(blocks) * settings.hidden_state_item_bytes * architecture.hidden
    else:
        inside = sum(
            block_activation_bytes_per_token(block, architecture, settings) for block in blocks
        )
    return inside + end_activation_bytes_per_token(architecture, settings)


def kept_expert_copy_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the copies of experts that are kept until the backward pass, where an adapter is on their parameters.

    peft adds the adapter's change to all experts of a layer in each pass, and autograd keeps the sum.
    """
    if settings.checkpointing:
        return 0.0
    return sum(expert_copy_bytes(block, architecture, settings) for block in architecture.blocks)


def largest_expert_copy_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the copy of the experts of one layer."""
    return max(
        (expert_copy_bytes(block, architecture, settings) for block in set(architecture.blocks)),
        default=0.0,
    )


def expert_copy_bytes(block: Block, architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the sum of the experts of a layer and their adapter; 0 where they have none."""
    return float(
        sum(
            settings.base * matrix.weight_parameter_count
            for matrix in block.matrices
            if matrix.copies > 1 and settings.has_adapter_on(matrix, architecture)
        )
    )


def largest_block_bytes_per_token(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes for each token that the largest block keeps while its backward pass runs."""
    return max(
        (
            block_activation_bytes_per_token(block, architecture, settings)
            for block in set(architecture.blocks)
        ),
        default=0.0,
    )


def working_gradient_bytes_per_token(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes for each token of the gradients of activations that live at once in a block's backward pass.

    The MLP's are the largest: those of its product and of what goes into its activation function, with one more for the
    sum; or the float32 gradients of a norm.
    """
    hidden, size = architecture.hidden, settings.compute
    # Three tensors as wide as the MLP; 12 bytes are three float32 items as wide as the stream.
    wide = max((b.width + b.chosen * b.expert_width for b in architecture.blocks), default=0)
    scores = score_gradient_bytes_per_token(architecture, settings)
    return max(3 * size * wide, 12 * hidden, scores) + settings.hidden_state_item_bytes * hidden


def score_gradient_bytes_per_token(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes for each token of the gradients of eager attention's scores, which live at once in a block's backward pass.

    The softmax's gradient is float32; where the scores are 16 bits, a copy of that size is made of it (counted in the
    storages of a Llama, a Qwen2 and a Gemma 2 on a CPU: 6.0 to 6.4 and 4.1 to 4.8 bytes a score).
    """
    if settings.attention != "eager":
        return 0.0
    heads = max((block.heads for block in architecture.blocks), default=0)
    return float(heads * settings.length * (4 + (2 if settings.compute == 2 else 0)))


def eager_score_bytes_per_token(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes for each token that the scores of eager attention take at the peak: what blocks keep, and gradients."""
    if settings.attention != "eager":
        return 0.0
    without = replace(settings, attention="sdpa")
    held = largest_block_bytes_per_token(architecture, settings) - largest_block_bytes_per_token(
        architecture, without
    )
    if not settings.checkpointing:
        held = kept_activation_bytes_per_token(
            architecture, settings
        ) - kept_activation_bytes_per_token(architecture, without)
    return max(0.0, held) + score_gradient_bytes_per_token(architecture, settings)


def end_activation_bytes_per_token(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes for each token that are kept after the blocks: the last norm and the head's input."""
    hidden = architecture.hidden
    # A frozen head needs no input.
    head = settings.compute * hidden if settings.lora is None else 0
    return _norm_activation_bytes_per_token(hidden, architecture, settings) + head


def block_activation_bytes_per_token(
    block: Block, architecture: Architecture, settings: MemorySettings
) -> float:
    """Bytes for each token that one block keeps."""
    norms = architecture.family.norms * _norm_activation_bytes_per_token(
        architecture.hidden, architecture, settings
    )
    # Parallel branches read one stream: its input is kept once for two norms.
    norms -= settings.hidden_state_item_bytes * architecture.hidden * architecture.family.parallel
    attention = _attention_activation_bytes_per_token(block, architecture, settings)
    return norms + attention + _mlp_activation_bytes_per_token(block, architecture, settings)


def _norm_activation_bytes_per_token(
    width: int, architecture: Architecture, settings: MemorySettings, size: int | None = None
) -> float:
    """Bytes for each token that a norm keeps: its input, and what is multiplied by a weight that is
    trained.
    """
    size = settings.hidden_state_item_bytes if size is None else size
    # A fused kernel keeps its input and two float32 figures; one in Python keeps each of its steps.
    if architecture.family.norm == "layer" or settings.liger:
        return size * width + 8
    if settings.lora is not None:
        return 4 * width + 4
    return (8 if architecture.family.norm == "rms-fp32" else 4 + size) * width + 4


def _attention_activation_bytes_per_token(
    block: Block, architecture: Architecture, settings: MemorySettings
) -> float:
    """Bytes for each token that the attention of a block keeps."""
    family = architecture.family
    output = [m for m in block.matrices if m.name == family.out and m.part == "attention"]
    total = _projection_input_bytes_per_token(block, architecture, settings)
    total += _query_key_value_bytes_per_token(block, architecture, settings)
    if settings.attention == "eager":
        total += _eager_score_bytes_per_token_of_block(block, architecture, settings)
        return total + _matrix_input_bytes_per_token(output, block.mixed, architecture, settings)
    # SDPA keeps its output and a float32 sum for each head, and the mask that it was given.
    mask = settings.compute * settings.length * settings.masked
    # That output is the input of the next matrix: it is kept twice only where it is copied between.
    output_input = _matrix_input_bytes_per_token(
        output, block.mixed, architecture, settings, int(family.concatenates)
    )
    return total + settings.compute * block.mixed + 4 * block.heads + mask + output_input


def _projection_input_bytes_per_token(
    block: Block, architecture: Architecture, settings: MemorySettings
) -> float:
    """Bytes for each token of what goes into the projections of queries, keys and values, and into latent norms."""
    family, size, hidden = architecture.family, settings.compute, architecture.hidden
    inner = [m for m in block.matrices if m.part == "attention" and m.name != family.out]
    first = [m for m in inner if m.inputs == hidden]
    # Where the stream is wider than what is computed in, each matrix casts it for itself.
    total = _matrix_input_bytes_per_token(
        first, hidden, architecture, settings, cast=settings.hidden_state_item_bytes != size
    )
    for rank in block.ranks:
        total += _norm_activation_bytes_per_token(rank, architecture, settings, size)
        latent = [m for m in inner if m.inputs == rank][:1]
        total += _matrix_input_bytes_per_token(latent, rank, architecture, settings)
    return total


def _query_key_value_bytes_per_token(
    block: Block, architecture: Architecture, settings: MemorySettings
) -> float:
    """Bytes for each token of queries, keys and values as attention reads them, and of their norms."""
    family, size = architecture.family, settings.compute
    # Eager attention and a masked SDPA repeat keys and values for all query heads; else they stay grouped.
    repeats = settings.attention == "eager" or (settings.masked and block.kv_heads < block.heads)
    is_fused = len(family.qkv) == 1
    key, value = (block.query, block.mixed) if repeats else (block.key, block.value)
    if is_fused and not repeats:
        # A slice of one matrix: what is kept is all of it.
        value = block.query + 2 * block.key
    # Without rotation the queries and keys are slices as well, and nothing else is kept.
    only_fused = is_fused and family.positions is not None and not repeats
    total: float = size * (value if only_fused else block.query + key + value)
    if family.qk_norm and not block.ranks:
        total += _norm_activation_bytes_per_token(block.query, architecture, settings, size)
        total += _norm_activation_bytes_per_token(block.key, architecture, settings, size)
        if family.qk_norm == "head":
            # One float32 for each head, where `_norm_activation_bytes_per_token` counts one for queries
            # and one for keys.
            total += 4 * (block.heads + block.kv_heads - 2)
    return total


def _eager_score_bytes_per_token_of_block(
    block: Block, architecture: Architecture, settings: MemorySettings
) -> float:
    """Bytes for each token of eager attention's scores: one for each head and token."""
    size = settings.compute
    # The softmax in float32, and its cast; with sinks no float32 copy is kept.
    per_score = (0 if architecture.family.sinks else 4) + size
    if architecture.softcap:
        per_score += size
    if architecture.dropout > 0:
        # What was dropped out, and a byte of its mask.
        per_score += size + 1
    return float(block.heads * settings.length * per_score)


def _mlp_activation_bytes_per_token(
    block: Block, architecture: Architecture, settings: MemorySettings
) -> float:
    """Bytes for each token that the MLP of a block keeps, dense and experts."""
    total = 0.0
    if block.width:
        total += _dense_mlp_activation_bytes_per_token(block, architecture, settings)
    if block.chosen:
        total += _expert_activation_bytes_per_token(block, architecture, settings)
    return total


def _dense_mlp_activation_bytes_per_token(
    block: Block, architecture: Architecture, settings: MemorySettings
) -> float:
    """Bytes for each token that a dense MLP keeps."""
    family, size, hidden = architecture.family, settings.compute, architecture.hidden
    dense = [m for m in block.matrices if m.part == "mlp"]
    up = [m for m in dense if m.inputs == hidden]
    down = [m for m in dense if m.name == family.down]
    wide_tensors = family.kept
    if family.gated:
        # Gate and up; Liger's kernel computes the activation once more in the backward pass.
        wide_tensors = 2 if settings.liger else 2 + family.kept
    total: float = wide_tensors * size * block.width
    # With a single norm the attention has kept the same input already.
    if family.norms > 1 or settings.lora:
        total += _matrix_input_bytes_per_token(
            up, hidden, architecture, settings, cast=settings.hidden_state_item_bytes != size
        )
    # ReLU keeps its output, which is the input of the last matrix: it is counted once.
    of_relu = size * block.width * (family.kept == 0)
    return total + max(
        _matrix_input_bytes_per_token(down, block.width, architecture, settings), of_relu
    )


def _expert_activation_bytes_per_token(
    block: Block, architecture: Architecture, settings: MemorySettings
) -> float:
    """Bytes for each token that an MLP of experts keeps, of the experts that the token is given to."""
    size, hidden = settings.compute, architecture.hidden
    trained = settings.lora is None
    wide = (2 + architecture.family.kept + trained) * size * block.expert_width
    # Fitted to the tensors that autograd saves for models with experts (the test compares each).
    total = block.chosen * (wide + (1 + trained) * size * hidden + 24)
    if settings.hidden_state_item_bytes == 4:
        total += 4 * hidden
    # Shared experts have kept the input already.
    if not block.width:
        total += size * hidden * trained
    return total


def _matrix_input_bytes_per_token(
    matrices: list[Matrix],
    width: int,
    architecture: Architecture,
    settings: MemorySettings,
    once: int = 1,
    *,
    cast: bool = False,
) -> float:
    """Bytes for each token of the input of matrices that share it, where their weights or adapters need it.

    Args:
        matrices: that share the input.
        width: of the input.
        architecture: of the model.
        settings: of the run.
        once: 0 where the input is kept already.
        cast: autocast makes a copy for each matrix.
    """
    size = settings.compute
    if settings.lora is None:
        if not matrices:
            return 0
        return size * width * (len(matrices) if cast else once)
    # A frozen matrix needs no input for its gradient; its adapter does.
    adapted = sum(settings.has_adapter_on(matrix, architecture) for matrix in matrices)
    has_dropout = settings.lora.lora_dropout > 0
    item = size if settings.autocast or settings.adapter == size else settings.adapter
    # Each adapter has a copy of its own where it casts, or drops out other items.
    own_copies = cast or has_dropout or settings.adapter != size
    copies = adapted if own_copies else once * (adapted > 0)
    return copies * item * width + adapted * (item * settings.lora.r + has_dropout * width)
