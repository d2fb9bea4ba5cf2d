"""The prompt that will be served is not the one that is trained.

## What it does

Compares the ids of the prompt that the tokenizer's template makes at inference with those of the training row, and
generates answers from both. It fires where answers are recited from the trained prompt and are not, or are half as
likely, from the served one, or where the ids differ right before the answer (error); and where they differ elsewhere
and the miniature does not mind (warning).

## Why it is bad

The model is asked in another format than it was taught: good in the notebook, bad when served. The loss knows nothing
of it.

## Example

```python
given = datasets.Dataset.from_list(rows)
texts = ["User: {} Assistant: {}<|im_end|>".format(*(m["content"] for m in row["messages"])) for row in rows]
run = sft([{"text": text} for text in texts])
```

## Use instead

```python
given = datasets.Dataset.from_list(rows)
run = sft(rows)
```

## Fix safety

There is no automatic fix: train with the template that is saved with the tokenizer, or save the one that was trained.

## References

- unslothai/unsloth#449, vllm-project/vllm#6699, ollama/ollama#6823
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.recitation.recited import answers, case, no_answers
from truetune.checks.rule import RecitationRule


class AnswersNeedAnotherPrompt(RecitationRule):
    code = "REC007"
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        rows = answers(self.subject)
        differing = [row for row in rows if row["prompt"]]
        if not differing:
            return
        lost = [row for row in differing if (row["trained"] or {}).get("recited") and _worse(row)]
        ends = [row for row in differing if not row["prompt"]["same_end"]]
        yield self.finding(
            (
                f"{len(lost)} of {len(rows)} answers come from the trained prompt and hardly from"
                " the served one"
                if lost
                else (
                    f"{len(differing)} of {len(rows)} prompts are served with other ids than they"
                    " are trained with"
                )
                + (", those right before the answer too" if ends else "")
            ),
            "train on the rendering of the template that is saved with the tokenizer, which"
            " servers use",
            severity="error" if lost or ends else "warning",
            evidence=[_difference(row["prompt"]) for row in differing[:1]],
            cases=[case(row) for row in lost]
            or [Case(_difference(row["prompt"])) for row in differing[1:]],
            count=len(lost or differing),
            total=len(rows),
        )

    def unmet(self) -> Unmet | None:
        return super().unmet() or no_answers(self.subject)

    def figure(self) -> Measurement:
        return counted(
            "prompts that are served with other ids than they are trained with",
            0,
            len(answers(self.subject)),
        )


def _worse(row: dict[str, Any]) -> bool:
    """Not recited, or half as likely."""
    trained, served = row["probability"]
    return not row["recited"] or served < trained - math.log(2)


def _difference(prompt: dict[str, Any]) -> str:
    trained, served = prompt["lengths"]
    return (
        f"they differ from token {prompt['first']} on: trained {prompt['trained']!r}, served"
        f" {prompt['served']!r} ({trained} and {served} tokens)"
    )
