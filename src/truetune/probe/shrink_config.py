"""Shrinking: a configuration with few layers and small widths, its vocabulary and its kinds of layers as they are.

Everything that decides which tokens see which, what is masked and how logits are made stays: kinds of layers, the ratio
of heads to key-value heads, experts, windows, scales. Only sizes shrink, to what memorises a few rows in seconds.

The trade-off: sizes are set by name, since no configuration says which of its numbers are widths. An architecture with
a size of an unknown name fails at its first forward pass, and is replaced by a small Llama (`build_miniature`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

# Layers, where they are all of one kind; else one of each kind. Two, so that something passes from layer to layer.
MIN_LAYERS = 2
# Width of an attention head. Chosen, not measured: even, as rotary embeddings pair its halves, and wide enough to
# memorise a few rows.
HEAD_WIDTH = 16
# Attention heads at most.
MAX_HEADS = 8
# Largest values of what some architectures have besides. Chosen, not measured: the least with which each still does
# what it is there for, such as two of four experts a token.
MAX_VALUES = {
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": HEAD_WIDTH,
    "qk_nope_head_dim": HEAD_WIDTH,
    "qk_head_dim": 2 * HEAD_WIDTH,
    "v_head_dim": HEAD_WIDTH,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": HEAD_WIDTH,
    "linear_value_head_dim": HEAD_WIDTH,
    "hidden_size_per_layer_input": HEAD_WIDTH,
    "max_window_layers": MIN_LAYERS,
    "decoder_sparse_step": MIN_LAYERS,
    "num_nextn_predict_layers": 0,
    "num_kv_shared_layers": 0,
}
# For models that can't be shrunk.
SMALL_LLAMA: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
# Set on a configuration that has been shrunk.
SHRUNK_ATTRIBUTE = "_truetune_shrunk"


def shrink_config(config: Any) -> Any:
    """Shrink a configuration in place, those inside it too; one that is shrunk already stays as it is."""
    if getattr(config, SHRUNK_ATTRIBUTE, False):
        return config
    # Past the configuration's own `__setattr__`, which would write it into config.json.
    object.__setattr__(config, SHRUNK_ATTRIBUTE, True)
    for inner in _inner_configs(config):
        shrink_config(inner)
    if isinstance(_setting_or_none(config, "hidden_size"), int) and isinstance(
        _setting_or_none(config, "num_hidden_layers"), int
    ):
        _narrow_widths(config)
        _keep_one_layer_of_each_kind(config)
    for name, largest in MAX_VALUES.items():
        value = _setting_or_none(config, name)
        if isinstance(value, int) and not isinstance(value, bool) and value > largest:
            _set_setting_unless_computed(config, name, largest)
    if getattr(config, "quantization_config", None) is not None:
        # Random weights of float32 are not quantized, and loading would look for a GPU.
        del config.quantization_config
    config.dtype = "float32"
    return config


def small_llama_of_same_vocabulary(config: Any) -> Any:
    """A small Llama with the vocabulary and special tokens of a configuration."""
    from transformers import LlamaConfig

    text = config.get_text_config()
    kept: dict[str, Any] = {
        name: getattr(text, name, None) for name in ("pad_token_id", "bos_token_id", "eos_token_id")
    }
    small = LlamaConfig(vocab_size=text.vocab_size, **SMALL_LLAMA, **kept)
    object.__setattr__(small, SHRUNK_ATTRIBUTE, True)
    return small


def _inner_configs(config: Any) -> list[Any]:
    """The configurations inside one: of its text model, its vision model, and so on."""
    names = getattr(type(config), "sub_configs", {})
    inner = [getattr(config, name, None) for name in names]
    return [one for one in inner if hasattr(one, "to_dict")]


def _setting_or_none(config: Any, name: str) -> Any:
    """A setting; None where the configuration has none of this name."""
    return getattr(config, name, None)


def _set_setting_unless_computed(config: Any, name: str, value: Any) -> None:
    """Set a setting, unless the configuration computes it from others and refuses."""
    with suppress(AttributeError):
        setattr(config, name, value)


def _narrow_widths(config: Any) -> None:
    """Narrow the widths: the heads in their ratio, and every width by them."""
    heads = _setting_or_none(config, "num_attention_heads")
    kv_heads = _setting_or_none(config, "num_key_value_heads")
    small_kv_heads, small_heads = _small_head_counts_in_ratio(heads, kv_heads)
    # Of few heads each is twice as wide, so that the width suffices to memorise.
    width = small_heads * HEAD_WIDTH * (1 if small_heads >= 4 else 2)
    config.hidden_size = width
    config.num_attention_heads = small_heads
    if kv_heads is not None:
        config.num_key_value_heads = small_kv_heads
    if isinstance(_setting_or_none(config, "head_dim"), int):
        _set_setting_unless_computed(
            config,
            "head_dim",
            HEAD_WIDTH if _setting_or_none(config, "qk_rope_head_dim") else width // small_heads,
        )
    for name in ("intermediate_size", "ffn_dim", "n_inner", "word_embed_proj_dim"):
        if isinstance(_setting_or_none(config, name), int):
            setattr(config, name, width if name == "word_embed_proj_dim" else 2 * width)
    if _setting_or_none(config, "query_pre_attn_scalar") is not None:
        config.query_pre_attn_scalar = config.head_dim
    _shorten_rope_factors(
        config, (_setting_or_none(config, "head_dim") or width // small_heads) // 2
    )


def _small_head_counts_in_ratio(heads: int, kv: int | None) -> tuple[int, int]:
    """(key-value heads, heads) in the ratio of the model's own: grouped attention stays grouped
    (`test_heads_keep_their_ratio`)."""
    group = min(heads // kv, MAX_HEADS // 2) if isinstance(kv, int) and kv else 1
    small_kv = min(2 if kv is not None else 4, kv or heads)
    return small_kv, group * small_kv


def _shorten_rope_factors(config: Any, half: int) -> None:
    """Cut the lists that hold one rotary factor for each frequency to the small heads.

    `half` is half of a head's width: rotary embeddings turn pairs of its numbers. Without this a model with LongRoPE
    (Phi-3) raises a shape error at its first forward pass (`test_rotary_factors_are_cut_to_the_small_heads`).
    """
    for rope in (
        _setting_or_none(config, "rope_parameters"),
        _setting_or_none(config, "rope_scaling"),
    ):
        if not isinstance(rope, dict):
            continue
        share = (
            rope.get("partial_rotary_factor")
            or _setting_or_none(config, "partial_rotary_factor")
            or 1.0
        )
        for name in ("short_factor", "long_factor"):
            if isinstance(rope.get(name), list):
                rope[name] = rope[name][: int(half * share)]
        if isinstance(rope.get("mrope_section"), list):
            parts = len(rope["mrope_section"])
            rope["mrope_section"] = [half // parts + (i < half % parts) for i in range(parts)]


def _numbers_of_kept_layers(kinds: Any, count: int) -> list[int]:
    """Numbers of the layers that stay, of `count`: the first of each kind where there are several kinds.

    A hybrid model without its linear attention, or a model of sliding windows without a global layer, would be
    another architecture: its masks and caches could not be rehearsed.
    """
    firsts = []
    if isinstance(kinds, list):
        firsts = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    return firsts if len(firsts) >= MIN_LAYERS else list(range(min(MIN_LAYERS, count)))


def _keep_one_layer_of_each_kind(config: Any) -> None:
    """One layer of each kind, two at least."""
    kinds = _setting_or_none(config, "layer_types")
    kept = _numbers_of_kept_layers(kinds, config.num_hidden_layers)
    config.num_hidden_layers = len(kept)
    if isinstance(kinds, list) and kinds:
        config.layer_types = [kinds[i] for i in kept]
    for name in ("no_rope_layers", "mlp_layer_types"):
        per_layer = _setting_or_none(config, name)
        if isinstance(per_layer, list) and len(per_layer) > len(kept):
            setattr(config, name, [per_layer[i] for i in kept])
    if isinstance(_setting_or_none(config, "mlp_only_layers"), list):
        config.mlp_only_layers = [i for i in config.mlp_only_layers if i < len(kept)]
