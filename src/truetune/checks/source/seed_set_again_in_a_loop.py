"""A loop sets the seed again in each pass: the training repeats its order, or all samples of a prompt are the same.

## What it does
Follows calls that seed the shared generators (`set_seed`, `torch.manual_seed`, `seed_everything`, a function of one's
own) to the loops that reach them with the same number. It speaks of a loop that trains one model, and of a loop that
draws several answers to one prompt; of the second kind also where each request has the same `seed` of its own. Loops
that make their model again are left alone.

## Why it is bad
A `DataLoader` with `shuffle=True` draws its order from the generator that was seeded: after an evaluation that seeds,
each epoch has the same order and the same masks of dropout. Eight samples with one seed are one sample, so pass@8 is
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
There is no automatic fix. With the seed set once, the run can still be repeated.

## References
- huggingface/diffusers#7991, GuyTevet/motion-diffusion-model#254 (training), huggingface/lighteval#568 (samples)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.seeds_set_again_in_loops import (
    seeding_calls,
    seeds_set_again_in_loops,
)
from truetune.source.parsed_source_file import Module

MESSAGES = {
    "training": "the seed is set again in the passes of a training loop: the order of the rows and dropout begin again"
    " after it",
    "samples": "each draw has the same seed: all samples of a prompt are the same",
}
REMEDIES = {
    "training": "set the seed once before the loop, or give what draws a generator of its own",
    "samples": "set the seed once before the loop, or add the number of the draw to it",
}
"""What begins again -> what to do"""


def _seeding_places(module: Module) -> Iterator[ast.AST]:
    """The places of a file at which a generator is seeded, each once."""
    places = {call.node for call in seeding_calls(module)}
    # One that is set again may be found by its loop alone.
    yield from places.union(found.seed for found in seeds_set_again_in_loops(module))


class SeedSetAgainInALoop(SourceRule):
    code = "SRC467"
    symptoms = ("odd-metrics", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("seeds with a fixed number", _seeding_places)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for found in seeds_set_again_in_loops(module):
            yield self.finding(
                MESSAGES[found.effect],
                REMEDIES[found.effect],
                cases=[case_of_node(module, found.seed), case_of_node(module, found.repeated)],
                severity="warning" if found.effect == "training" else None,
            )
