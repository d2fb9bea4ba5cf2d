"""What autograd keeps for the backward pass, in bytes for each token.

Counted tensor by tensor, as Korthikanti et al. 2022 (arXiv:2205.05198, section 4.1) do for GPT, for the modules of
transformers: gated MLPs, grouped-query attention, RMSNorm in float32, frozen weights, adapters, experts. Tests compare
it with the tensors that autograd really saves.
"""

from __future__ import annotations

from dataclasses import replace

from truetune.memory.architecture import Architecture, Block, Matrix
from truetune.memory.memory_settings import MemorySettings


def kept_activations(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes for each token that all blocks keep, and the last norm and the head's input, without the logits."""
    blocks = architecture.blocks
    if settings.checkpointing:
        inside: float = len(blocks) * settings.stream * architecture.hidden
    else:
        inside = sum(block_activations(block, architecture, settings) for block in blocks)
    return inside + end_activations(architecture, settings)


def largest_block(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes for each token that the largest block keeps while its backward pass runs."""
    return max(
        (block_activations(block, architecture, settings) for block in set(architecture.blocks)),
        default=0.0,
    )


def working_gradients(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes for each token of the gradients of activations that live at once in a block's backward pass.

    The MLP's are the largest: those of its product and of what goes into its activation function, with one more for the
    sum; or the float32 gradients of a norm.
    """
    hidden, size = architecture.hidden, settings.compute
    wide = max((b.width + b.chosen * b.expert_width for b in architecture.blocks), default=0)
    scores = score_gradients(architecture, settings)
    return max(3 * size * wide, 12 * hidden, scores) + settings.stream * hidden


def score_gradients(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes for each token of the gradients of eager attention's scores, which live at once in a block's backward pass.

    The softmax's gradient is float32; where the scores are 16 bits, a copy of that size is made of it (counted in the
    storages of a Llama, a Qwen2 and a Gemma 2 on a CPU: 6.0 to 6.4 and 4.1 to 4.8 bytes a score).
    """
    if settings.attention != "eager":
        return 0.0
    heads = max((block.heads for block in architecture.blocks), default=0)
    return float(heads * settings.length * (4 + (2 if settings.compute == 2 else 0)))


def eager_scores(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes for each token that the scores of eager attention take at the peak: what blocks keep, and gradients."""
    if settings.attention != "eager":
        return 0.0
    without = replace(settings, attention="sdpa")
    held = largest_block(architecture, settings) - largest_block(architecture, without)
    if not settings.checkpointing:
        held = kept_activations(architecture, settings) - kept_activations(architecture, without)
    return max(0.0, held) + score_gradients(architecture, settings)


def end_activations(architecture: Architecture, settings: MemorySettings) -> float:
    """The last norm and the head's input."""
    hidden = architecture.hidden
    head = settings.compute * hidden if settings.lora is None else 0
    return _norm_inputs(hidden, architecture, settings) + head


def block_activations(block: Block, architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes for each token that one block keeps."""
    norms = architecture.family.norms * _norm_inputs(architecture.hidden, architecture, settings)
    norms -= settings.stream * architecture.hidden * architecture.family.parallel
    return (
        norms
        + _attention_activations(block, architecture, settings)
        + _mlp_activations(block, architecture, settings)
    )


def _norm_inputs(
    width: int, architecture: Architecture, settings: MemorySettings, size: int | None = None
) -> float:
    """Input, and what is multiplied by a weight that is trained."""
    size = settings.stream if size is None else size
    if architecture.family.norm == "layer" or settings.liger:
        return size * width + 8
    if settings.lora is not None:
        return 4 * width + 4
    return (8 if architecture.family.norm == "rms-fp32" else 4 + size) * width + 4


def _attention_activations(
    block: Block, architecture: Architecture, settings: MemorySettings
) -> float:
    family, size, hidden = architecture.family, settings.compute, architecture.hidden
    inner = [m for m in block.matrices if m.part == "attention" and m.name != family.out]
    first = [m for m in inner if m.inputs == hidden]
    total = _matrix_inputs(first, hidden, architecture, settings, cast=settings.stream != size)
    for rank in block.ranks:
        total += _norm_inputs(rank, architecture, settings, size)
        total += _matrix_inputs(
            [m for m in inner if m.inputs == rank][:1], rank, architecture, settings
        )
    out = [m for m in block.matrices if m.name == family.out and m.part == "attention"]
    expanded = settings.attention == "eager" or (settings.masked and block.kv_heads < block.heads)
    key, value = (block.query, block.mixed) if expanded else (block.key, block.value)
    if len(family.qkv) == 1 and not expanded:
        value = block.query + 2 * block.key
    whole = len(family.qkv) == 1 and family.positions is not None and not expanded
    total += size * (value if whole else block.query + key + value)
    if family.qk_norm and not block.ranks:
        total += _norm_inputs(block.query, architecture, settings, size) + _norm_inputs(
            block.key, architecture, settings, size
        )
        total += 4 * (block.heads + block.kv_heads - 2) * (family.qk_norm == "head")
    if settings.attention == "eager":
        softcap, dropout = size * architecture.softcap, (size + 1) * (architecture.dropout > 0)
        scores = (
            block.heads * settings.length * ((0 if family.sinks else 4) + size + softcap + dropout)
        )
        return total + scores + _matrix_inputs(out, block.mixed, architecture, settings)
    mask = size * settings.length * settings.masked
    again = _matrix_inputs(out, block.mixed, architecture, settings, int(family.concatenates))
    return total + size * block.mixed + 4 * block.heads + mask + again


def _mlp_activations(block: Block, architecture: Architecture, settings: MemorySettings) -> float:
    family, size, hidden = architecture.family, settings.compute, architecture.hidden
    dense = [m for m in block.matrices if m.part == "mlp"]
    up, down = [m for m in dense if m.inputs == hidden], [m for m in dense if m.name == family.down]
    total = 0.0
    if block.width:
        inner = (2 if settings.liger else 2 + family.kept) if family.gated else family.kept
        total += inner * size * block.width
        if family.norms > 1 or settings.lora:
            total += _matrix_inputs(
                up, hidden, architecture, settings, cast=settings.stream != size
            )
        total += max(
            _matrix_inputs(down, block.width, architecture, settings),
            size * block.width * (family.kept == 0),
        )
    if block.chosen:
        trained = settings.lora is None
        wide = (2 + family.kept + trained) * size * block.expert_width
        total += block.chosen * (wide + (1 + trained) * size * hidden + 24) + 4 * hidden * (
            settings.stream == 4
        )
        total += 0 if block.width else size * hidden * trained
    return total


def _matrix_inputs(
    matrices: list[Matrix],
    width: int,
    architecture: Architecture,
    settings: MemorySettings,
    once: int = 1,
    *,
    cast: bool = False,
) -> float:
    """The input of matrices that share it, where their weights or adapters need it.

    `once`: 0 where it is kept already; `cast`: autocast makes a copy for each matrix.
    """
    size = settings.compute
    if settings.lora is None:
        return size * width * ((len(matrices) if cast else once) if matrices else 0)
    adapted = sum(settings.adapts(matrix, architecture) for matrix in matrices)
    dropout = settings.lora.lora_dropout > 0
    wide = size if settings.autocast or settings.adapter == size else settings.adapter
    apart = cast or dropout or settings.adapter != size
    copies = adapted if apart else once * (adapted > 0)
    return copies * wide * width + adapted * (wide * settings.lora.r + dropout * width)
