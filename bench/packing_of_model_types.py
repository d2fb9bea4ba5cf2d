"""`python -m bench.packing_of_model_types [TYPE...]`: do models of transformers keep packed documents apart?

A tiny model with random weights of each type is given a row of two documents. The first document is changed; the logits
of the second must stay. It is given once what a plain collator gives (positions that restart) and once what TRL gives
(besides lengths and `seq_idx`). The figure is the largest change of a logit of the second document, as a share of the
largest logit: 0 where the documents are apart.

Layers that carry a state need kernels that run on a GPU alone; without these, transformers refuses to separate. So each
kernel is replaced by one that splits the row at the borders it is given and calls transformers' own function for each
part. This shows whether the model hands the borders on. `truetune.trainers.packing_of_model_types` holds the outcome.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import transformers.integrations
import transformers.integrations.hub_kernels

DECORATOR_OF_KERNELS = "use_kernel_func_from_hub_with_fallback"
"""transformers puts it on its own functions: it calls a kernel instead, where one is installed"""
FIRST_LENGTH = 31
SECOND_LENGTH = 22
VOCABULARY = 64
MAX_PARAMETERS = 100_000_000
"""A type whose sizes have other names stays large; it is not measured then."""
IS_APART = 1e-5
"""Rounding in float32 changes a logit by some 3e-7 of the largest; the smallest leak found is 1e-4."""

SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_MAMBA = {
    "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 2, "mamba_chunk_size": 8,
}  # fmt: skip
_EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "n_group": 1, "topk_group": 1,
    "n_shared_experts": 1,
}  # fmt: skip
_DELTA = {
    "layer_types": ["linear_attention", "full_attention"] * 2, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
}  # fmt: skip
_CONVOLUTION = {"layer_types": ["conv", "full_attention"] * 2, "block_ff_dim": 48}
_LATENT = {
    "num_key_value_heads": 4, "head_dim": 4, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1, **_EXPERTS,
}  # fmt: skip
SIZES: Mapping[str, Mapping[str, Any]] = {
    "afmoe": {**_EXPERTS, "num_shared_experts": 1},
    "bamba": {**_MAMBA, "attn_layer_indices": [1, 3]},
    "codegen": {"rotary_dim": 4},
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "dots1": _EXPERTS,
    "ernie4_5_moe": {**_EXPERTS, "moe_num_experts": 4, "moe_k": 2},
    "falcon": {"head_dim": None},
    "falcon_h1": {**_MAMBA, "mamba_d_ssm": 64},
    "falcon_mamba": {"state_size": 8, "expand": 2, "time_step_rank": 4},
    "gemma3_text": {"sliding_window": 8},
    "glm4_moe": _EXPERTS,
    "glm4_moe_lite": _LATENT,
    "gpt_neo": {"num_hidden_layers": None, "num_layers": 4, "attention_types": [[["global", "local"], 2]]},
    "gpt_oss": _EXPERTS,
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": {
        **_MAMBA, "layer_types": ["mamba", "attention"] * 2, "num_local_experts": 2, "num_experts_per_tok": 1,
        "shared_intermediate_size": 16,
    },
    "jamba": {"mamba_d_state": 8, "mamba_dt_rank": 4, "num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": _CONVOLUTION,
    "lfm2_moe": {**_CONVOLUTION, **_EXPERTS, "num_dense_layers": 1},
    "mamba": {"state_size": 8, "expand": 2, "time_step_rank": 4},
    "mamba2": {"state_size": 8, "expand": 2, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8},
    "minicpm3": _LATENT,
    "minimax": {
        "layer_types": ["linear_attention", "full_attention"] * 2, "num_local_experts": 2, "num_experts_per_tok": 1,
        "block_size": 8,
    },
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention", "mamba", "mlp"], "mamba_num_heads": 8, "mamba_head_dim": 8,
        "ssm_state_size": 8, "n_groups": 2, "chunk_size": 8,
    },
    "olmo_hybrid": {**_DELTA, "linear_num_value_heads": 2},
    "qwen3_5_moe_text": {**_DELTA, **_EXPERTS},
    "qwen3_5_text": _DELTA,
    "qwen3_next": {**_DELTA, **_EXPERTS},
    "recurrent_gemma": {"lru_width": 32, "attention_window_size": 64, "block_types": ["recurrent", "attention"]},
    "rwkv": {"attention_hidden_size": 32, "context_length": 256},
    "xlstm": {"num_heads": 4, "embedding_dim": 32, "num_blocks": 4},
    "youtu": _LATENT,
    "zamba": {
        "mamba_d_state": 8, "n_mamba_heads": 2, "mamba_dt_rank": 4, "layers_block_type": ["mamba", "hybrid"] * 2,
        "attention_head_dim": 16,
    },
    "zamba2": {
        "mamba_d_state": 8, "n_mamba_heads": 8, "mamba_headdim": 8, "mamba_ngroups": 2, "chunk_size": 8,
        "layers_block_type": ["mamba", "hybrid"] * 2, "num_mem_blocks": 1,
    },
}  # fmt: skip
"""Sizes that some types have besides SMALL; None: the type has no such size"""


@dataclass(frozen=True)
class Mixing:
    """How far the logits of the second document follow the first one."""

    model_type: str
    with_positions: float
    """Where the batch holds positions alone"""
    with_borders: float
    """Where it holds lengths and `seq_idx` as well, as TRL's does"""


def replace_kernels_by_functions_that_split() -> None:
    """Let each kernel of a state split its row at the borders that it is given. Call it before models are imported."""
    for module in (transformers.integrations, transformers.integrations.hub_kernels):
        setattr(module, DECORATOR_OF_KERNELS, _splitting_decorator)


def _splitting_decorator(
    func_name: str, package: str, internal_path: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def split(*args: Any, **options: Any) -> Any:
            borders = _borders(options.pop("seq_idx", None), options.pop("cu_seqlens", None))
            if borders is None:
                return function(*args, **options)
            length = borders[-1]
            parts = [
                function(
                    *(_cut(value, start, end, length) for value in args),
                    **{name: _cut(value, start, end, length) for name, value in options.items()},
                )
                for start, end in pairwise(borders)
            ]
            lengths = [end - start for start, end in pairwise(borders)]
            if not isinstance(parts[0], tuple):
                return _join(parts, lengths)
            return tuple(_join(outputs, lengths) for outputs in zip(*parts, strict=True))

        return split

    return decorate


def _borders(seq_idx: torch.Tensor | None, cu_seqlens: torch.Tensor | None) -> list[int] | None:
    """Where documents begin, and the end of the last; None where a kernel is given no borders."""
    if cu_seqlens is not None:
        return [int(border) for border in cu_seqlens]
    if seq_idx is None:
        return None
    numbers = seq_idx[0].tolist()
    changes = [place for place in range(1, len(numbers)) if numbers[place] != numbers[place - 1]]
    return [0, *changes, len(numbers)]


def _cut(value: Any, start: int, end: int, length: int) -> Any:
    """A part of a tensor along the axis that is as long as the row; other values as they are."""
    if isinstance(value, torch.Tensor):
        for axis, size in enumerate(value.shape):
            if size == length:
                return value.narrow(axis, start, end - start)
    return value


def _join(parts: Sequence[Any], lengths: Sequence[int]) -> Any:
    """Outputs side by side along the axis of the row; of a state, the last."""
    if isinstance(parts[0], torch.Tensor):
        for axis in range(parts[0].dim()):
            sizes = [part.shape[axis] for part in parts]
            if sizes == list(lengths):
                return torch.cat(list(parts), axis)
    return parts[-1]


def measure_mixing(model_type: str) -> Mixing:
    """Measure one type.

    Args:
        model_type: as in config.json.

    Raises:
        ValueError: with these sizes there is no tiny model of this type.
    """
    torch.manual_seed(0)
    model = _tiny_model(model_type)
    first, changed, second = (
        torch.randint(3, VOCABULARY, (1, length))
        for length in (FIRST_LENGTH, FIRST_LENGTH, SECOND_LENGTH)
    )
    rows = [torch.cat([document, second], 1) for document in (first, changed)]
    return Mixing(
        model_type,
        _change_of_second(model, rows, _positions()),
        _change_of_second(model, rows, {**_positions(), **_borders_as_trl_gives_them()}),
    )


def _tiny_model(model_type: str) -> Any:
    sizes = {**SMALL, **SIZES.get(model_type, {})}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    try:
        config = transformers.AutoConfig.for_model(model_type, **sizes)
        with torch.device("meta"):
            shape = transformers.AutoModelForCausalLM.from_config(config)
    except Exception as error:  # each type refuses sizes that do not fit in its own way
        raise ValueError(f"{model_type}: no tiny model: {error}") from error
    count = sum(parameter.numel() for parameter in shape.parameters())
    if count > MAX_PARAMETERS:
        raise ValueError(f"{model_type}: no tiny model: it has {count:,} parameters")
    return transformers.AutoModelForCausalLM.from_config(config).eval().float()


def _positions() -> dict[str, Any]:
    restarting = [torch.arange(FIRST_LENGTH), torch.arange(SECOND_LENGTH)]
    return {"position_ids": torch.cat(restarting)[None]}


def _borders_as_trl_gives_them() -> dict[str, Any]:
    ends = torch.tensor([0, FIRST_LENGTH, FIRST_LENGTH + SECOND_LENGTH], dtype=torch.int32)
    numbers = [0] * FIRST_LENGTH + [1] * SECOND_LENGTH
    return {
        "cu_seq_lens_q": ends,
        "cu_seq_lens_k": ends,
        "max_length_q": FIRST_LENGTH,
        "max_length_k": FIRST_LENGTH,
        "seq_idx": torch.tensor([numbers], dtype=torch.int32),
    }


def _change_of_second(model: Any, rows: Sequence[torch.Tensor], keys: Mapping[str, Any]) -> float:
    try:
        with torch.no_grad():
            before, after = (
                model(input_ids=row, use_cache=False, **keys).logits[:, FIRST_LENGTH:]
                for row in rows
            )
    except RuntimeError as error:
        raise ValueError(f"{model.config.model_type}: these sizes do not fit: {error}") from error
    return float((before - after).abs().max() / before.abs().max())


def main(arguments: Sequence[str]) -> int:
    """Print a table of the types, or of all that truetune knows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("types", nargs="*")
    types = parser.parse_args(arguments).types
    replace_kernels_by_functions_that_split()
    from truetune.trainers.packing_of_model_types import PACKING_OF_MODEL_TYPES

    print("| model_type | positions alone | as TRL gives them |")
    print("| --- | ---: | ---: |")
    for model_type in types or sorted(PACKING_OF_MODEL_TYPES):
        try:
            mixing = measure_mixing(model_type)
        except ValueError as error:
            print(f"| {model_type} | {str(error)[:90]} | |", flush=True)
            continue
        print(
            f"| {model_type} | {mixing.with_positions:.1g} | {mixing.with_borders:.1g} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
