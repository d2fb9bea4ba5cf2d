"""Attention: does it keep the documents of a packed row apart? Tried on the model itself, not looked up by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from truetune.collate import PaddingFreeCollator
from truetune.probe.measuring.rounding_tolerance import (
    inputs_of,
    relative_difference,
    rounding_tolerance,
)

LENGTH = 8
"""Tokens of each of the documents that are tried"""


@dataclass(frozen=True)
class Attention:
    """How a model attends."""

    implementation: str
    varlen: bool
    """It takes the documents of a batch as lengths, and never makes a mask."""
    packs: bool
    """A document of a packed row gets the logits that it gets alone."""
    why: str


def attention_of(model: Any) -> Attention:
    """Try it, on the device where the model is (a GPU for kernels that need one)."""
    name = str(model.config._attn_implementation)
    flash = "flash" in name
    if flash and model.device.type == "cpu" and torch.cuda.is_available():
        model.to("cuda")
    for varlen in (True,) if flash else (False, True):
        packs, why = honours_packing(model, varlen=varlen)
        if packs:
            return Attention(name, varlen, True, why)
    return Attention(name, flash, False, why)


def honours_packing(model: Any, *, varlen: bool = False) -> tuple[bool, str]:
    """Does the second of two documents in a row get the logits that it gets alone? And how that is known."""
    rows = int(model.get_input_embeddings().weight.shape[0])
    ids = torch.arange(2 * LENGTH) * 7919 % rows
    documents = [{"input_ids": part, "labels": part} for part in np.split(ids.numpy(), 2)]
    collate = PaddingFreeCollator(varlen=varlen)
    training = model.training
    model.eval()
    try:
        own, packed = (
            _logits(model, collate(rows))[0, -LENGTH:] for rows in (documents[1:], documents)
        )
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        return False, f"the model can't take packed rows: {str(error).partition(chr(10))[0]}"
    finally:
        model.train(training)
    apart = relative_difference(own, packed)
    if apart <= rounding_tolerance(model):
        return True, "a document in a packed row gets the logits that it gets alone"
    return (
        False,
        f"a document in a packed row gets other logits than alone, by {apart:.2g} of the largest",
    )


@torch.no_grad()
def _logits(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    given = {
        name: value.to(model.device) if isinstance(value, torch.Tensor) else value
        for name, value in inputs_of(batch, model).items()
    }
    found: torch.Tensor = model(**given).logits
    return found
