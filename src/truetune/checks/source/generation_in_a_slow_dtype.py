"""Answers are generated in LLM.int8 or float32, which take several times as long for a token as bfloat16.

## What it does
Follows the model of `generate` to what loads it. It gives a note where that is `load_in_8bit` of bitsandbytes (in
`from_pretrained` or a `BitsAndBytesConfig`), or a dtype of float32 for a model of a billion parameters or more by its
name, and nothing is trained in the file. Where the name says the size, the note has the memory that 16 bits need.

## Why it is bad
LLM.int8 splits each input into outliers and the rest, rounds it, and multiplies twice, at every layer and for every
token. It saves memory, and costs time: a token takes two to five times as long as in bfloat16, most of all in small
batches. float32 reads twice the bytes for each token, and leaves half of the memory for batches. On a card that holds
the weights in 16 bits nothing is gained.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

tokenizer = AutoTokenizer.from_pretrained("org/model-7B")
model = AutoModelForCausalLM.from_pretrained("org/model-7B", quantization_config=BitsAndBytesConfig(load_in_8bit=True))
out = model.generate(**tokenizer("Hi", return_tensors="pt").to("cuda"), max_new_tokens=20)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("org/model-7B")
model = AutoModelForCausalLM.from_pretrained("org/model-7B", dtype="bfloat16", device_map="auto")
out = model.generate(**tokenizer("Hi", return_tensors="pt").to("cuda"), max_new_tokens=20)
```

## Fix safety
Where 16 bits do not fit, nf4 with `bnb_4bit_compute_dtype="bfloat16"` is smaller and quicker. Answers change by
rounding.

## References
- Dettmers et al. 2022, arXiv 2208.07339 (LLM.int8, table on inference time); bitsandbytes-foundation/bitsandbytes#6
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.answering_models import (
    EIGHT_BIT_OPTION,
    ModelChain,
    billions_of_model,
    is_float32_by_default,
    load_dtypes,
    model_chains,
)
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.execution_order import trains_anything
from truetune.checks.source.evidence.generate_call_inputs import GENERATE_CALLS, generate_calls
from truetune.checks.source.evidence.optimized_weight_dtypes import WIDE
from truetune.source.constant_values import UNKNOWN
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

BYTES_OF_BFLOAT16 = 2
"""Of a weight in bfloat16"""
MIN_BILLIONS = 1.0
"""Parameters from which float32 is a choice that costs something; tests and demonstrations are smaller"""


class GenerationInASlowDtype(SourceRule):
    code = "SRC089"
    severity = "info"
    looks_at = GENERATE_CALLS

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if trains_anything(module) or Path(module.path).name.startswith("test_"):
            return
        seen: set[object] = set()
        for call in generate_calls(module):
            chains = model_chains(module, call.receiver) if call.receiver is not None else None
            for chain in chains or ():
                why = _why_slow(module, chain)
                if chain.load.node in seen or why is None:
                    continue
                seen.add(chain.load.node)
                billions = billions_of_model(module, chain.load)
                size = f" ({BYTES_OF_BFLOAT16 * billions:.0f} GB of weights)" if billions else ""
                yield self.finding(
                    f"the model generates in {why} as in bfloat16",
                    f"set dtype=torch.bfloat16 in from_pretrained where that fits the GPU{size}; 4 bits with"
                    " bnb_4bit_compute_dtype=torch.bfloat16 take less",
                    severity="warning" if is_float32_by_default(module, chain.load) else "info",
                    cases=[case_at(module, chain.load.node), case_at(module, call.node)],
                )


def _why_slow(module: Module, chain: ModelChain) -> str | None:
    """What makes each token slow; None where nothing is seen to."""
    billions = billions_of_model(module, chain.load)
    if billions is not None and billions < MIN_BILLIONS:
        return None
    if _is_in_8_bits(module, chain.load):
        return "LLM.int8 (load_in_8bit): each token takes several times as long"
    wide = any(dtype in WIDE for dtype in load_dtypes(module, chain.load))
    narrowed = any(_casts_weights(module, step) for step in chain.steps)
    if not wide and not narrowed and is_float32_by_default(module, chain.load):
        wide = True
    if wide and not narrowed and billions is not None:
        return "float32: each token reads twice the bytes, and takes twice as long"
    return None


def _casts_weights(module: Module, step: Call) -> bool:
    """Does a step give the weights another dtype, or one that is not known?"""
    given = [*step.args, *step.keywords.values()]
    return step.method in ("half", "bfloat16") or any(
        (module.flow.name(one) or "").startswith("torch.") or module.flow.value(one) is UNKNOWN
        for one in given
        if step.method == "to"
    )


def _is_in_8_bits(module: Module, load: Call) -> bool:
    """Does a call load a model by LLM.int8?"""
    if module.flow.value(load.keywords.get(EIGHT_BIT_OPTION)) is True:
        return True
    config = module.flow.producing_call(load.keywords.get("quantization_config"))
    return (
        config is not None
        and config.named("transformers.BitsAndBytesConfig")
        and module.flow.value(config.argument(0, EIGHT_BIT_OPTION)) is True
    )
