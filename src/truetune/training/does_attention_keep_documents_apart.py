"""Tests whether a model's attention keeps the documents of a packed row apart: tried on the model,
not looked up by name.

Two short documents go through the model together and one of them alone; equal logits are the proof. That costs two
small forward passes at each start, and holds for every implementation, kernel and release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from truetune.collate import PaddingFreeCollator
from truetune.probe.measuring.rounding_tolerance import (
    forward_inputs_without_labels,
    relative_difference,
    rounding_tolerance,
)

# Chosen, not measured: two documents of 8 are enough for attention across the border to move every
# logit of the second; longer ones cost time on a large model and show nothing more.
DOCUMENT_TOKENS = 8
"""Tokens of each of the documents that are tried"""


@dataclass(frozen=True)
class ModelAttention:
    """How a model attends: does it keep packed documents apart, and how is that known?"""

    implementation: str
    varlen: bool
    """It takes the documents of a batch as lengths, and never makes a mask."""
    packs: bool
    """A document of a packed row gets the logits that it gets alone."""
    why: str


def probe_packing_attention(model: Any) -> ModelAttention:
    """How the model attends to packed rows, tried on the device where it is (a GPU for kernels that
    need one).
    """
    name = str(model.config._attn_implementation)
    flash = "flash" in name
    # The kernels of flash attention exist for GPUs alone; the model goes there for training anyway.
    if flash and model.device.type == "cpu" and torch.cuda.is_available():
        model.to("cuda")
    # An ordinary attention is tried with a mask first: that is the form which CheaperCollator can
    # mix with padding. Only where the mask is not honoured are lengths tried.
    for varlen in (True,) if flash else (False, True):
        packs, why = keeps_documents_apart_and_how_known(model, varlen=varlen)
        if packs:
            return ModelAttention(name, varlen, True, why)
    return ModelAttention(name, flash, False, why)


def keeps_documents_apart_and_how_known(model: Any, *, varlen: bool = False) -> tuple[bool, str]:
    """Does the second of two documents in a row get the logits that it gets alone? And how that is known."""
    rows = int(model.get_input_embeddings().weight.shape[0])
    # Times a prime, so that ids are spread over the vocabulary and no token repeats: with equal
    # documents a leak would change nothing.
    ids = torch.arange(2 * DOCUMENT_TOKENS) * 7919 % rows
    documents = [{"input_ids": part, "labels": part} for part in np.split(ids.numpy(), 2)]
    collate = PaddingFreeCollator(varlen=varlen)
    training = model.training
    model.eval()
    try:
        # The second document alone and behind the first. An equal result is the definition of
        # packing without contamination, and no list of attention implementations has to be kept.
        own, packed = (
            _batch_logits(model, collate(rows))[0, -DOCUMENT_TOKENS:]
            for rows in (documents[1:], documents)
        )
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        return False, f"the model can't take packed rows: {str(error).partition(chr(10))[0]}"
    finally:
        model.train(training)
    difference = relative_difference(own, packed)
    # Kernels sum in another order for another length, so equality to the bit is too much to ask.
    if difference <= rounding_tolerance(model):
        return True, "a document in a packed row gets the logits that it gets alone"
    return (
        False,
        f"a document in a packed row gets other logits than alone, by {difference:.2g} of the largest",
    )


@torch.no_grad()
def _batch_logits(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    """The logits of a batch, (rows, tokens, vocabulary), without gradients, on the model's device."""
    inputs = {
        name: value.to(model.device) if isinstance(value, torch.Tensor) else value
        for name, value in forward_inputs_without_labels(batch, model).items()
    }
    logits: torch.Tensor = model(**inputs).logits
    return logits
