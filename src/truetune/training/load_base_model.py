"""Loads the base model of a run: in which number format, with which attention, whole or quantized.

What the user left open is chosen by what will be trained and by the machine: all weights in float32, a frozen base in
its own type or in what the machine multiplies fast. Each choice is returned, to be told and recorded.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import torch
import transformers

from truetune.errors import UsageError
from truetune.render.read_embedding_from_safetensors import find_embedding
from truetune.render.tokenizer import Tokenizer
from truetune.settings.training_settings import Training
from truetune.training.training_recipe import Choice


def load_base_model(tokenizer: Tokenizer, training: Training) -> tuple[Any, list[Choice]]:
    """The model in the folder of the weights, on the CPU (a quantized one on the GPU). Raises UsageError."""
    folder = tokenizer.weights
    # transformers would load the base that the adapter names and drop the adapter without a word.
    if not (folder / "config.json").is_file() and (folder / "adapter_config.json").is_file():
        raise UsageError(
            f"{folder} is an adapter; name its base as model, and the adapter as training.adapter"
        )
    dtype, choices = choose_dtype_to_load_weights_in(tokenizer, training)
    attention = training.attn_implementation or _variable_length_attention_if_installed(training)
    # local_files_only: a run must not depend on the network, nor change when a hub's file does.
    settings: dict[str, Any] = {"dtype": dtype, "local_files_only": True}
    if attention is not None:
        settings["attn_implementation"] = attention
    if training.load_in is not None:
        settings["quantization_config"] = _bitsandbytes_config_if_quantized(training, dtype)
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(str(folder), **settings)
    except (OSError, ValueError, ImportError) as error:
        raise UsageError(f"{folder}: the model can't be loaded: {str(error).strip()}") from None
    if training.load_in is not None:
        import peft

        # It casts norms to float32 and lets gradients pass through frozen inputs; without it, a
        # quantized model under gradient checkpointing trains nothing.
        model = peft.prepare_model_for_kbit_training(  # type: ignore[no-untyped-call]
            model,
            use_gradient_checkpointing=bool(training.gradient_checkpointing),
            # The reentrant form needs an input with a gradient, which a frozen base does not give.
            gradient_checkpointing_kwargs={"use_reentrant": False},
        )
    return model, [*choices, *_turn_on_expert_balance_loss(model, training)]


def choose_dtype_to_load_weights_in(
    tokenizer: Tokenizer, training: Training
) -> tuple[Any, list[Choice]]:
    """The format that the weights are loaded in; `auto` in the settings leaves it to us.

    All weights trained: float32, for bfloat16 ones round small updates away. A frozen base: its own type; one that is
    stored in float32 is rounded to bfloat16 where the machine computes that natively (a step takes half the time on a
    CPU, and a GPU's autocast rounds it anyway).
    """
    # Of two kinds of run only the one that trains all weights needs their full precision.
    adapts = training.lora is not None or training.adapter is not None
    if training.dtype not in (None, "auto"):
        dtype = getattr(torch, str(training.dtype), None)
        if not isinstance(dtype, torch.dtype):
            raise UsageError(
                f"training.dtype is {training.dtype}; expected float32, bfloat16, float16 or auto"
            )
        return dtype, []
    if not adapts:
        return torch.float32, (
            []
            if training.dtype is None
            else [
                Choice(
                    "dtype",
                    "float32",
                    "all weights are trained: bfloat16 ones round small updates away",
                )
            ]
        )
    if training.fp16:
        return torch.float16, [Choice("dtype", "float16", "fp16 is set; the adapter is float32")]
    stored = find_embedding(tokenizer.weights)
    # The embedding stands for the whole model, which is a guess: reading every header would cost
    # more.
    if stored is not None and stored.dtype == "F32" and has_hardware_bf16():
        why = (
            "the frozen base is float32 on disk; this machine computes bfloat16 natively, in half"
            " the time"
        )
        return torch.bfloat16, [Choice("dtype", "bfloat16", f"{why}; the adapter is float32")]
    return "auto", []


def has_hardware_bf16() -> bool:
    """Does the machine that trains multiply bfloat16 in hardware?"""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    able = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(able.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16"))


def _variable_length_attention_if_installed(training: Training) -> str | None:
    """Attention of variable length where it is installed and 16-bit numbers are computed; else the model's default."""
    if not torch.cuda.is_available() or not (training.bf16 or training.fp16):
        return None
    # The newest first; 3 exists for Hopper GPUs alone, and reports itself as absent elsewhere.
    for version in (3, 2):
        if getattr(transformers.utils, f"is_flash_attn_{version}_available")():
            return f"flash_attention_{version}"
    return None


def _bitsandbytes_config_if_quantized(training: Training, dtype: Any) -> Any:
    """bitsandbytes' settings for a quantized base: 8 bits, or 4 as in QLoRA (Dettmers 2023): NF4,
    its scales quantized too.
    """
    if not torch.cuda.is_available():
        raise UsageError(
            "training.load_in needs a GPU, and this machine has none; leave it out: LoRA works"
            " without"
        )
    if importlib.util.find_spec("bitsandbytes") is None:
        raise UsageError("training.load_in needs bitsandbytes: pip install bitsandbytes")
    kind: Any = transformers.BitsAndBytesConfig
    if training.load_in == 8:
        return kind(load_in_8bit=True)
    # What the 4-bit weights are unpacked to for each product.
    compute = torch.bfloat16 if has_hardware_bf16() else torch.float16
    if isinstance(dtype, torch.dtype):
        compute = dtype
    return kind(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute,
    )


def _turn_on_expert_balance_loss(model: Any, training: Training) -> Iterator[Choice]:
    """Turn on the loss that keeps the experts of a mixture in balance, where all its weights are
    trained.
    """
    config = model.config.get_text_config()
    if not hasattr(config, "output_router_logits"):
        return
    share = getattr(config, "router_aux_loss_coef", 0.0) or 0.0
    whole = training.lora is None and training.adapter is None
    # A frozen router cannot be unbalanced by training, so its penalty would only add noise to the
    # loss of an adapter.
    if share and whole and training.method == "sft":
        config.output_router_logits = True
        yield Choice(
            "output_router_logits",
            True,
            f"{share} x the balance of the experts is added to the loss",
        )
    elif not config.output_router_logits:
        yield Choice(
            "output_router_logits",
            False,
            "an adapter is trained without a loss for the balance of the experts",
        )
