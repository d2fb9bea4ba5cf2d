"""Counts the bytes of weights, gradients and optimizer states on one GPU.

Sharding divides as in Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, section 3 and figure 1). Quantized weights are
those of Dettmers et al. 2023 (QLoRA, arXiv:2305.14314, section 3): a constant for each 64 weights, quantized again to 8
bits with one float32 for each 256 constants.
"""

from __future__ import annotations

from truetune.memory.matrices_and_parameters_from_config import Architecture
from truetune.memory.memory_settings import MemorySettings
from truetune.memory.optimizer_state_bytes import state_of_optimizer

# Half a byte for a weight of 4 bits, and a float32 constant for each 64; with double quantization a byte for each
# constant, and a float32 for each 256 of them.
NF4_BYTES = 0.5 + 4 / 64
NF4_NESTED_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
# The default of DeepSpeed's JSON and of accelerate; a larger one would be paid for with as many bytes.
BUCKET_ITEMS = 500_000_000
"""Items in a bucket of DeepSpeed (reduce_bucket_size, allgather_bucket_size)"""
HEADS = ("lm_head", "embed_out", "score")
EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "embed_in")


def count_adapter_parameters(architecture: Architecture, settings: MemorySettings) -> int:
    """The number of parameters of the adapter: r (inputs + outputs) for each matrix, for each of its
    copies, and a magnitude for each output with DoRA.
    """
    lora = settings.lora
    if lora is None:
        return 0
    # Rows of the embedding that are trained by themselves.
    total = len(lora.trainable_token_indices) * architecture.hidden
    for matrix in architecture.matrices():
        rank = settings.adapter_rank_on(matrix, architecture)
        if rank:
            total += rank * matrix.copies * (matrix.inputs + matrix.outputs)
            total += matrix.outputs * lora.use_dora
    return total


def count_saved_module_parameters(architecture: Architecture, settings: MemorySettings) -> int:
    """The number of parameters of whole modules that are trained beside an adapter
    (`modules_to_save`).
    """
    names = settings.lora.modules_to_save if settings.lora else ()
    table = architecture.vocabulary * architecture.hidden
    return table * sum(name.rsplit(".", 1)[-1] in (*HEADS, *EMBEDDINGS) for name in names)


def count_trained_parameters(architecture: Architecture, settings: MemorySettings) -> int:
    """The number of parameters that are trained; a vision tower is not."""
    if settings.lora is None:
        return architecture.parameters - architecture.other
    return count_adapter_parameters(architecture, settings) + count_saved_module_parameters(
        architecture, settings
    )


def weight_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the weights of the model and its adapter on one GPU."""
    split = _weight_shard_count(settings)
    # Only sharded weights can be offloaded: DDP needs them all.
    if "weights" in settings.offload and split > 1:
        return 0.0
    adapter = count_adapter_parameters(architecture, settings) * settings.adapter
    saved_modules = count_saved_module_parameters(architecture, settings) * bytes_per_saved_weight(
        settings
    )
    return (unsharded_model_bytes(architecture, settings) + adapter + saved_modules) / split


def unsharded_model_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the weights of the model alone, not shared out."""
    # bitsandbytes quantizes nn.Linear; embeddings, norms and fused experts stay as they are.
    linear = (
        sum(m.weight_parameter_count for m in architecture.matrices() if m.linear)
        if settings.load_in
        else 0
    )
    four_bits = NF4_NESTED_BYTES if settings.nested else NF4_BYTES
    rate = {4: four_bits, 8: 1.0}.get(settings.load_in or 0, 0.0)
    return linear * rate + (architecture.parameters - linear) * _bytes_per_weight(settings)


def reference_model_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the frozen copy of the model that DPO and KTO compare with."""
    if not settings.reference:
        return 0.0
    return unsharded_model_bytes(architecture, settings) / _weight_shard_count(settings)


def gradient_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the gradients of all trained parameters, in the dtype of their weights."""
    # LOMO applies each gradient as it comes, and drops it.
    if not state_of_optimizer(settings.optimizer).gradients:
        return 0.0
    split = settings.world if settings.sharding in ("zero2", "zero3", "fsdp") else 1
    return _trained_weight_bytes(architecture, settings) / split


def optimizer_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the optimizer's states, and of DeepSpeed's float32 copy of weights that are trained
    in 16 bits.
    """
    if "optimizer" in settings.offload:
        return 0.0
    state, split = state_of_optimizer(settings.optimizer), _optimizer_state_shard_count(settings)
    count = count_trained_parameters(architecture, settings)
    if _has_master_weights(settings):
        # States follow the copy, not the weights: all in float32.
        return count * (4 + 4 * state.items + state.bytes) / split
    in_weight_dtype = _trained_weight_bytes(architecture, settings) * state.items
    return (in_weight_dtype + count * state.bytes) / split


def saved_module_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of whole modules beside an adapter (`modules_to_save`), with their gradients and
    optimizer states.
    """
    count, state = (
        count_saved_module_parameters(architecture, settings),
        state_of_optimizer(settings.optimizer),
    )
    weights = count * bytes_per_saved_weight(settings)
    # Two: weights and gradients.
    return (weights * (2 + state.items) + count * state.bytes) / _weight_shard_count(settings)


def optimizer_step_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes that live only while the optimizer steps."""
    working = state_of_optimizer(settings.optimizer).working
    return (
        _trained_weight_bytes(architecture, settings)
        * working
        / _optimizer_state_shard_count(settings)
    )


def autocast_copy_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the copies of weights that autocast makes for one forward pass and keeps for the
    backward pass.
    """
    # DeepSpeed and FSDP cast the weights themselves, and hold no second copy.
    if not settings.autocast or settings.deepspeed or settings.sharding == "fsdp":
        return 0.0
    copied = _count_adapter_parameters_cast_by_autocast(architecture, settings)
    if settings.base != settings.compute:
        copied += _count_base_parameters_cast_by_autocast(architecture, settings)
    return settings.compute * copied


def _count_adapter_parameters_cast_by_autocast(
    architecture: Architecture, settings: MemorySettings
) -> int:
    """How many parameters of the adapter, and of a head that is trained whole, autocast copies."""
    copied = 0
    if settings.adapter > settings.compute:
        copied += count_adapter_parameters(architecture, settings)
    names = settings.lora.modules_to_save if settings.lora is not None else ()
    # Embeddings look rows up, and autocast casts no table for that.
    has_head = any(name.rsplit(".", 1)[-1] in HEADS for name in names)
    if has_head and bytes_per_saved_weight(settings) > settings.compute:
        copied += architecture.vocabulary * architecture.hidden
    return copied


def _count_base_parameters_cast_by_autocast(
    architecture: Architecture, settings: MemorySettings
) -> int:
    """How many parameters of the base, with its head, autocast copies."""
    # Quantized weights are unpacked one by one (see `largest_weight_bytes_when_dequantized`).
    whole = sum(
        m.weight_parameter_count
        for m in architecture.matrices()
        if not (m.linear and settings.load_in)
    )
    return whole + architecture.vocabulary * architecture.hidden


def largest_weight_bytes_when_dequantized(
    architecture: Architecture, settings: MemorySettings
) -> float:
    """Bytes of the largest weight as it is computed with, where it is held quantized."""
    largest = max(
        (m.weight_parameter_count for m in architecture.matrices() if m.linear), default=0
    )
    return float(settings.compute * largest) if settings.load_in else 0.0


def communication_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the buffers for what GPUs send to each other.

    DDP fills buckets with a copy of all gradients (gradient_as_bucket_view is off); DeepSpeed has one bucket to reduce
    and one to gather; ZeRO-3 and FSDP gather two blocks at a time, or the embedding.
    """
    if settings.world < 2:
        return 0.0
    if settings.sharding == "none":
        return _trained_weight_bytes(architecture, settings)
    if settings.sharding in ("zero1", "zero2"):
        items = min(BUCKET_ITEMS, count_trained_parameters(architecture, settings))
        return 2.0 * settings.compute * items
    largest_block = max((block.parameters for block in architecture.blocks), default=0)
    embedding = architecture.vocabulary * architecture.hidden
    return float(settings.compute * max(2 * largest_block, embedding))


def _weight_shard_count(settings: MemorySettings) -> int:
    """How many GPUs share the weights: only the third stage of ZeRO and FSDP do."""
    return settings.world if settings.sharding in ("zero3", "fsdp") else 1


def _optimizer_state_shard_count(settings: MemorySettings) -> int:
    """How many GPUs share the optimizer states: each kind of sharding does."""
    return settings.world if settings.sharding != "none" else 1


def _bytes_per_weight(settings: MemorySettings) -> int:
    """Bytes of a weight in the model: DeepSpeed holds 16 bits."""
    return settings.compute if settings.deepspeed else settings.base


def bytes_per_saved_weight(settings: MemorySettings) -> int:
    """Bytes of one weight of modules that are trained whole beside an adapter."""
    return settings.compute if settings.deepspeed else settings.saved or settings.base


def _has_master_weights(settings: MemorySettings) -> bool:
    """Does DeepSpeed keep a float32 copy of the trained weights? It does for those of 16 bits."""
    return settings.deepspeed and settings.compute == 2


def _trained_weight_bytes(architecture: Architecture, settings: MemorySettings) -> float:
    """Bytes of the weights that are trained."""
    per_weight = _bytes_per_weight(settings)
    if settings.lora is None:
        return float(count_trained_parameters(architecture, settings) * per_weight)
    per_adapter_weight = settings.compute if settings.deepspeed else settings.adapter
    adapter = count_adapter_parameters(architecture, settings) * per_adapter_weight
    saved = count_saved_module_parameters(architecture, settings) * bytes_per_saved_weight(settings)
    return float(adapter + saved)
