"""Says whether a model in the symbolic run of a script is a decoder without an encoder of its own."""

from __future__ import annotations

from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.values_of_run import Value

CAUSAL_LOADS = (
    "transformers.*CausalLM.from_pretrained",
    "transformers.*LMHeadModel.from_pretrained",
    "peft.AutoPeftModelForCausalLM.from_pretrained",
    "unsloth.FastLanguageModel.from_pretrained",
)
MOVING_METHODS = frozenset(("to", "cpu", "cuda", "detach", "tolist", "numpy", "clone"))
"""Methods of ids that leave them whole"""


def is_causal_decoder(model: Value | None) -> bool:
    """Is a model certainly a decoder without an encoder of its own?"""
    loads = (
        []
        if model is None
        else [one.call_that_gave_origin for one in lineages_back_to_origins(model)]
    )
    return bool(loads) and all(load is not None and load.named(*CAUSAL_LOADS) for load in loads)
