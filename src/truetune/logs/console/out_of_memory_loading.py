"""Explains an out-of-memory error that comes while a model is loaded: too large a model, or a
second one.

Before any step the weights themselves are too large for what is free. After steps of the training in the same process,
where PyTorch's own tensors fill the card, the first model, its trainer and its optimizer are still there. Advice that
the failing line follows already, or that the message excludes, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from truetune.logs.console.out_of_memory_causes import (
    LOADED_AFTER_TRAINING,
    MODEL_LOADING,
    MemoryCause,
)
from truetune.logs.console.out_of_memory_message import MemoryFigures
from truetune.logs.console.parse_tracebacks import Frame

MIN_OWN_SHARE = 0.5
"""Of the card, in PyTorch's tensors of this process, from which what trained before is there still: half of a card is
more than the part of a second model that was loaded, or the first one is as large"""
CELL_FILE = re.compile(r"ipython-input|ipykernel|^<cell|^Cell In|<ipython", re.I)
HALF_PRECISION = re.compile(
    r"dtype\s*=\s*(?:torch\.)?[\"']?(?:bfloat16|float16|half|auto|bf16|fp16)"
)
QUANTIZED = re.compile(r"quantization_config\s*=|load_in_[48]bit\s*=\s*True")
FLOAT32 = re.compile(r"dtype\s*=\s*(?:torch\.)?[\"']?(?:float32|float|fp32)\b")
FLOAT32_ADVICE = "dtype=torch.bfloat16 instead of float32, half of it"
DTYPE_ADVICE = "dtype=torch.bfloat16 (transformers before 5 loads float32 by default)"
BITS_ADVICE = (
    "4-bit (a BitsAndBytesConfig that from_pretrained is given as quantization_config: one that is only built does"
    " nothing)"
)
GPUS_ADVICE = "or more GPUs"
OTHERS_ADVICE = "end what else runs on the GPU (nvidia-smi)"


def loading_cause(frames: Sequence[Frame], figures: MemoryFigures, steps: float) -> MemoryCause:
    """The cause of an out-of-memory error while a model is loaded.

    Args:
        frames: of the traceback.
        figures: of the message.
        steps: that this process had trained before.
    """
    if steps > 0 and figures.does_process_hold_all_memory_in_use and _pytorch_fills_gpu(figures):
        return (
            LOADED_AFTER_TRAINING
            if _is_in_notebook(frames)
            else _cause_after_training_in_script(frames, figures)
        )
    before = "" if steps > 0 else ", before any row"
    return replace(
        MODEL_LOADING,
        cause=f"the weights alone do not fit into what is free: they are being loaded{before}",
        advice=_advice_to_make_room(frames, figures),
    )


def _is_in_notebook(frames: Sequence[Frame]) -> bool:
    """Does the traceback come from a notebook's cells, which all run in one process?"""
    return any(CELL_FILE.search(frame.file) for frame in frames)


def _cause_after_training_in_script(frames: Sequence[Frame], figures: MemoryFigures) -> MemoryCause:
    """The cause, in a script's log, of a failed load after training steps: another program may have
    been started after the training.
    """
    return replace(
        LOADED_AFTER_TRAINING,
        cause=f"{LOADED_AFTER_TRAINING.cause} (in a program of its own the model would be too large by itself)",
        advice=f"{LOADED_AFTER_TRAINING.advice}; in a program of its own: {_advice_to_make_room(frames, figures)}",
    )


def _pytorch_fills_gpu(figures: MemoryFigures) -> bool:
    """Do PyTorch's own tensors hold the larger part of the GPU?"""
    if figures.allocated is None or not figures.capacity:
        return False
    return figures.allocated >= MIN_OWN_SHARE * figures.capacity


def _advice_to_make_room(frames: Sequence[Frame], figures: MemoryFigures) -> str:
    """Advice that makes room, without what the failing line does already, and without processes
    that do not exist.
    """
    code = " ".join(frame.code for frame in frames if not frame.is_in_package)
    smaller_type = FLOAT32_ADVICE if FLOAT32.search(code) else DTYPE_ADVICE
    smaller = [
        *(() if HALF_PRECISION.search(code) or QUANTIZED.search(code) else (smaller_type,)),
        *(() if QUANTIZED.search(code) else (BITS_ADVICE,)),
    ]
    parts = [", ".join((*smaller, GPUS_ADVICE)) if smaller else "a smaller model, or more GPUs"]
    if figures.does_process_hold_all_memory_in_use:
        return parts[0]
    return "; ".join((*parts, OTHERS_ADVICE))
