"""The margin of a triplet loss is wider than its distance can be.

## What it does
Reads the distance and the margin of TripletLoss and of the batch triplet losses of sentence-transformers. It fires if
the distance is that of the cosine, which lies between 0 and 2, and the margin is 1 or more: the default is 5.

## Why it is bad
The loss is zero where the wrong text is farther away than the right one by the margin. With a cosine that can't be,
so every triplet stays in the loss, also those that have been learned, and pushes its texts to opposite sides of the
space. The loss stays near the margin. Embeddings then collapse: any two texts have a similarity near 1 or -1.

## Example
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses

model = SentenceTransformer("microsoft/mpnet-base")
rows = Dataset.from_list([{"anchor": "Open?", "positive": "From nine.", "negative": "It is red."}])
loss = losses.TripletLoss(model, distance_metric=losses.TripletDistanceMetric.COSINE)
SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
```

## Use instead
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses

model = SentenceTransformer("microsoft/mpnet-base")
rows = Dataset.from_list([{"anchor": "Open?", "positive": "From nine.", "negative": "It is red."}])
loss = losses.TripletLoss(model, distance_metric=losses.TripletDistanceMetric.COSINE, triplet_margin=0.3)
SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
```

## Fix safety
There is no automatic fix: margins of 0.1 to 0.5 are usual for the cosine, and have to be tried.

## References
- huggingface/sentence-transformers#1183 (all similarities 0.9999; a maintainer: the right margin is quite important)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

TRIPLET_LOSSES = ("sentence_transformers.*TripletLoss",)
DEFAULT_MARGIN = 5.0
# The widest difference of two cosine distances is 2, of which half is the most that texts of one language reach.
MAX_MARGIN_OF_COSINE = 1.0


class MarginWiderThanTheDistance(SourceRule):
    code = "SRC575"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("loss-does-not-fall", "odd-metrics")
    severity = "error"
    looks_at = places_of_calls("triplet losses", *TRIPLET_LOSSES)

    def findings(self) -> Iterator[Finding]:
        """Findings on triplet losses that no triplet can satisfy."""
        module = self.subject
        for call in module.calls(*TRIPLET_LOSSES):
            margin = _margin(module, call)
            if margin is None or not _has_cosine_distance(call) or margin < MAX_MARGIN_OF_COSINE:
                continue
            yield self.finding(
                f"the margin is {margin:g}, but two cosine distances differ by 2 at most: every triplet stays in the"
                " loss",
                "set the margin to 0.1 to 0.5, or leave the distance to its default, the Euclidean one",
                cases=[case_of_node(module, call.node)],
            )


def _has_cosine_distance(call: Call) -> bool:
    """Is the distance of a loss that of the cosine?"""
    given = call.argument(1, "distance_metric")
    text = "" if given is None else ast.unparse(given)
    return text.endswith((".COSINE", "cosine_distance"))


def _margin(module: Module, call: Call) -> float | None:
    """The margin of a loss; None where it is not known."""
    given = call.argument(2, "triplet_margin") or call.argument(2, "margin")
    if given is None:
        return None if call.open else DEFAULT_MARGIN
    value = module.flow.value(given)
    return float(value) if isinstance(value, int | float) else None
