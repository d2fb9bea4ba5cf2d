"""Pictures go into the model at full size: each one is thousands of tokens.

## What it does
Applies to scripts that create the processor of a Qwen vision model without a pixel limit. It takes the sizes of the
images from the rows that the script names (`width` and `height`, or the files themselves) and counts their tokens as
the processor does: one for each 28 x 28 pixels, 32 x 32 in Qwen3-VL. It fires if the median image has 4,096 tokens or
more. It does not fire if anything in the script, or in a module next to it, limits or resizes images.

## Why it is bad
Memory and time of a step grow with the tokens of a row. A phone photo (3024 x 4032) is 15,552 tokens, next to some
forty for an answer: the logits alone take 9 GiB, and even a batch of one row does not fit a GPU of 24 GB. `max_length`
does not help: it cuts the image tokens, and the forward pass fails.

## Example
```python
from transformers import AutoProcessor

rows = [
    {"image": "a.jpg", "width": 3024, "height": 4032, "answer": "12.50"},
    {"image": "b.jpg", "width": 4032, "height": 3024, "answer": "9.99"},
]
processor = AutoProcessor.from_pretrained("Qwen/Qwen2.5-VL-7B-Instruct")
```

## Use instead
```python
from transformers import AutoProcessor

rows = [
    {"image": "a.jpg", "width": 3024, "height": 4032, "answer": "12.50"},
    {"image": "b.jpg", "width": 4032, "height": 3024, "answer": "9.99"},
]
processor = AutoProcessor.from_pretrained("Qwen/Qwen2.5-VL-7B-Instruct", max_pixels=1280 * 28 * 28)
```

## Fix safety
A smaller image shows less detail: check that the smallest print that matters is still legible at the size that you
choose. Use the same limit for inference.

## References
- https://huggingface.co/Qwen/Qwen2.5-VL-7B-Instruct, "Image Resolution for performance boost"
- https://github.com/QwenLM/Qwen2.5-VL, `smart_resize`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.picture_token_counts import (
    PROCESSORS,
    find_picture_sizes,
    processors_without_size_limit,
)
from truetune.logs.console.picture_tokens_by_printed_shapes import (
    MIN_PICTURE_TOKENS,
    USUAL_PICTURE_TOKENS,
)


class PicturesAtFullSize(SourceRule):
    code = "SRC356"
    fault = Fault.PICTURES_REACH_MODEL_WRONGLY
    symptoms = ("out-of-memory", "slow-training")
    severity = "warning"
    looks_at = places_of_calls("processors of pictures", *PROCESSORS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for processor in processors_without_size_limit(module):
            sizes = find_picture_sizes(module, processor.side)
            if sizes is None or sizes.tokens < MIN_PICTURE_TOKENS:
                continue
            side = processor.side
            yield self.finding(
                f"images go in at full size: those of {sizes.source} have about {sizes.width:,} x"
                f" {sizes.height:,} pixels, which is {sizes.tokens:,} tokens each (one per {side} x {side} pixels),"
                " and nothing limits them",
                f"set AutoProcessor.from_pretrained(..., max_pixels={USUAL_PICTURE_TOKENS} * {side} * {side}) for at"
                f" most {USUAL_PICTURE_TOKENS:,} tokens per image, or resize the files; max_length does not help, since"
                " it would cut the image tokens",
                evidence=[f"the sizes of {sizes.rows:,} images are known"],
                cases=[case_of_node(module, processor.call.node)],
            )
