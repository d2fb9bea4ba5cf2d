"""Section `memory`: what `truetune plan` predicts beside what a training step takes on the card.

The cases and their step are those of bench.memory. Beside the tensors (max_memory_allocated against the plan's largest
moment) two of the plan's assumptions are measured, which no CPU can: the memory of CUDA itself, and what the allocator
holds beyond its tensors. On a CPU the step runs on tensors without data, which are counted.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.gpu.entries import Budget, Entry, Value, free_memory, measure_guarded
from bench.gpu.size import Size
from bench.memory import SHAPES, Case, model_of, on_gpu, on_nothing, step

SECTION = "memory"
GIB = 2**30
SHARE_TO_TRY = 0.95
"""A case that the plan puts above this share of the card is not run; what ends out of memory measures nothing"""
MAX_ERROR = 0.15
"""Of the plan, either way. docs/plan.md promises a margin of 5 % for fragments; a plan that is wrong by three times as
much names the wrong settings."""
EXPECTED_S = {"llama-3.1-8b": 15.0}
"""Seconds that a case takes on a card, with the making of the weights; 6 for the others"""


def measure(size: Size, budget: Budget) -> Iterator[Entry]:
    """CUDA's own memory, then one entry for each case."""
    yield measure_guarded(SECTION, "CUDA itself", budget, 2, _cuda_context)
    for case in size.memory:
        expected = EXPECTED_S.get(case.shape, 6.0)
        measure_this = partial(_measure_case, case)
        yield measure_guarded(SECTION, _name(case), budget, expected, measure_this)


def _name(case: Case) -> str:
    quantized = " 4-bit" if "load_in" in case.training else ""
    return f"{case.name}{quantized}"


def _cuda_context() -> Entry:
    """Memory of the card that no tensor has, after kernels of torch and cuBLAS have run."""
    import torch

    from truetune.memory.estimate_memory import CUDA_CONTEXT_BYTES

    name = "CUDA itself"
    if not torch.cuda.is_available():
        return Entry(SECTION, name, "not run", note="torch sees no CUDA card")
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(1024, 1024, device="cuda", dtype=dtype)
        (matrix @ matrix).softmax(-1).sum().item()
    del matrix
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    figures: dict[str, Value] = {
        "plan GiB": round(CUDA_CONTEXT_BYTES / GIB, 3),
        "measured GiB": round((total - free - torch.cuda.memory_reserved()) / GIB, 3),
    }
    return Entry(SECTION, name, "measured", figures, note="other programs on the card count too")


def _measure_case(case: Case) -> Entry:
    """Predicted and measured bytes of one case."""
    import torch

    from truetune.memory.estimate_memory import estimate_memory
    from truetune.memory.matrices_and_parameters_from_config import parse_architecture
    from truetune.memory.memory_settings import resolve_memory_settings

    name = _name(case)
    architecture = parse_architecture(SHAPES[case.shape])
    estimate = estimate_memory(architecture, resolve_memory_settings(case.config(), architecture))
    moment = max(estimate.moments, key=lambda moment: moment.allocated)
    figures: dict[str, Value] = {
        "predicted GiB": round(moment.allocated / GIB, 2),
        "moment": moment.name,
        "total with CUDA and margin GiB": round(estimate.peak.total / GIB, 2),
        "logits GiB": round(moment.parts.get("logits", 0.0) / GIB, 2),
    }
    on_card = torch.cuda.is_available()
    if on_card:
        room = torch.cuda.get_device_properties(0).total_memory * SHARE_TO_TRY
        if estimate.peak.total > room:
            note = "the plan says that it does not fit into this card"
            return Entry(SECTION, name, "not run", figures, note)
    if "load_in" in case.training:
        if not on_card or importlib.util.find_spec("bitsandbytes") is None:
            note = "needs a card and bitsandbytes, which is not installed"
            return Entry(SECTION, name, "not run", figures, note)
        measured = _quantized_on_gpu(case)
    else:
        measured = on_gpu(case) if on_card else on_nothing(case)
    ratio = moment.allocated / measured
    figures |= {
        "measured GiB": round(measured / GIB, 2),
        "predicted / measured": round(ratio, 3),
    }
    if on_card:
        # Since on_gpu has reset the peaks after its first step.
        reserved = torch.cuda.max_memory_reserved()
        figures |= {
            "reserved GiB": round(reserved / GIB, 2),
            "reserved / allocated": round(reserved / measured, 3),
        }
    holds = abs(ratio - 1) <= MAX_ERROR
    return Entry(SECTION, name, "passed" if holds else "failed", figures)


def _quantized_on_gpu(case: Case) -> float:
    """Peak bytes of the second step of QLoRA."""
    import peft
    import torch
    import transformers

    # bitsandbytes quantizes while weights are loaded, so these have to be on a disk.
    with tempfile.TemporaryDirectory() as folder:
        plain = Case(case.shape, case.batch, case.length, {"dtype": "bfloat16"})
        with torch.device("cuda"):
            model_of(plain, torch.bfloat16).save_pretrained(folder)
        free_memory()
        quantization: Any = transformers.BitsAndBytesConfig
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.bfloat16,
            quantization_config=quantization(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=torch.bfloat16,
            ),
        )
    checkpointing = bool(case.training.get("gradient_checkpointing"))
    model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=checkpointing)
    lora = peft.LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, lora).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], fused=True)
    step(case, model, optimizer, "cuda")
    torch.cuda.reset_peak_memory_stats()
    step(case, model, optimizer, "cuda")
    return float(torch.cuda.max_memory_allocated())
