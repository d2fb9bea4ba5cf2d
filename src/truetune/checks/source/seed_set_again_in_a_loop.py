"""A loop sets the seed again in each pass: training repeats its order, or all samples of a prompt are the same.

## What it does
Traces calls that seed the global generators (`set_seed`, `torch.manual_seed`, `seed_everything`, a function of your
script) to the loops that reach them with the same number. It is an error in a loop that samples several answers to one
prompt, also if each request has the same `seed`, and a warning in a loop that trains one model. Loops that create their
model again are not reported.

## Why it is bad
A `DataLoader` with `shuffle=True` takes its order from the global generator. After an evaluation that seeds it, each
epoch has the same order and the same dropout masks. Eight samples with one seed are one sample, so pass@8 equals
pass@1, and a majority vote changes nothing.

## Example
```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("out", torch_dtype=torch.bfloat16).to("cuda")
inputs = tokenizer(prompt, return_tensors="pt").to("cuda")
samples = []
for _ in range(8):
    set_seed(42)
    samples.append(model.generate(**inputs, do_sample=True, temperature=0.8, max_new_tokens=512))
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("out", torch_dtype=torch.bfloat16).to("cuda")
inputs = tokenizer(prompt, return_tensors="pt").to("cuda")
set_seed(42)
samples = []
for _ in range(8):
    samples.append(model.generate(**inputs, do_sample=True, temperature=0.8, max_new_tokens=512))
```

## Fix safety
There is no automatic fix. If the seed is set once before the loop, the run is still reproducible. Samples differ from
each other, so scores such as pass@8 change.

## References
- huggingface/diffusers#7991, GuyTevet/motion-diffusion-model#254 (training), huggingface/lighteval#568 (samples)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.seeds_set_again_in_loops import (
    seeding_calls,
    seeds_set_again_in_loops,
)
from truetune.source.parsed_source_file import Module

MESSAGES = {
    "training": "the seed is set again in each pass of a training loop: the order of the rows and the dropout masks"
    " repeat",
    "samples": "each sample is drawn with the same seed: all samples of a prompt are the same",
}
REMEDIES = {
    "training": "set the seed once before the loop; if an evaluation needs a fixed seed, pass it"
    " generator=torch.Generator().manual_seed(...) instead",
    "samples": "set the seed once before the loop, or use seed + i for the i-th sample",
}
"""What begins again -> what to do"""


def _seeding_places(module: Module) -> Iterator[ast.AST]:
    """The places of a file at which a generator is seeded, each once."""
    places = {call.node for call in seeding_calls(module)}
    # One that is set again may be found by its loop alone.
    yield from places.union(
        seed_set_again.seed for seed_set_again in seeds_set_again_in_loops(module)
    )


class SeedSetAgainInALoop(SourceRule):
    code = "SRC467"
    fault = Fault.SAMPLES_OF_PROMPT_ARE_COPIES
    symptoms = ("odd-metrics", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("seeds with a fixed number", _seeding_places)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for seed_set_again in seeds_set_again_in_loops(module):
            yield self.finding(
                MESSAGES[seed_set_again.effect],
                REMEDIES[seed_set_again.effect],
                cases=[
                    case_of_node(module, seed_set_again.seed),
                    case_of_node(module, seed_set_again.repeated),
                ],
                severity="warning" if seed_set_again.effect == "training" else None,
            )
