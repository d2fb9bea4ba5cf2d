"""Model and tokenizer have different pad tokens, and the model uses its own.

## What it does
Compares the tokenizer's pad id with that of the model's config. A model with a sequence head (classification, rewards)
finds the last token of a row by its own pad id: there it is a warning. Other models find padding by the attention mask,
and it is info.

## Why it is bad
A classifier or reward model scores a pad token instead of the last token, so the score depends on how much a row was
padded.

## Example

```python
model.config.pad_token_id = tokenizer.pad_token_id - 1
run = model
loader = torch.utils.data.DataLoader(encoded(rows), 2, collate_fn=transformers.DataCollatorForSeq2Seq(tokenizer))
```

## Use instead

```python
model.config.pad_token_id = tokenizer.pad_token_id
run = model
loader = torch.utils.data.DataLoader(encoded(rows), 2, collate_fn=transformers.DataCollatorForSeq2Seq(tokenizer))
```

## Fix safety
`model.config.pad_token_id = tokenizer.pad_token_id` is safe.

## References

- huggingface/transformers#30073
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import BatchRule

MODELS_READING_PADS = ("ForSequenceClassification", "RewardModel")
"""Ends of the names of models that find the last token by their pad id"""


class ModelAndTokenizerPadIdsDiffer(BatchRule):
    code = "BAT042"
    fault = Fault.PAD_TOKEN_MISSING_OR_DIFFERENT
    severity = "warning"
    needs_batches = False

    def findings(self) -> Iterator[Finding]:
        own, other = self._pad_ids_of_model_and_tokenizer()
        if own is None or other is None or own == other:
            return
        reads = self.subject.facts["model"]["class"].endswith(MODELS_READING_PADS)
        yield self.finding(
            f"the tokenizer pads with {other}, but the model's config has {own}"
            + (", by which this model finds the last token of a row" if reads else ""),
            "set model.config.pad_token_id = tokenizer.pad_token_id before training",
            severity="warning" if reads else "info",
        )

    def unmet(self) -> Unmet | None:
        own, other = self._pad_ids_of_model_and_tokenizer()
        if own is None:
            return Unmet("the model's config names no pad token")
        return (
            None if other is not None else Unmet("the tokenizer has no pad token, or there is none")
        )

    def measurement_if_clean(self) -> str:
        """The pad token that model and tokenizer share."""
        return f"the pad token is {self._pad_ids_of_model_and_tokenizer()[0]}, in the model and in the tokenizer"

    def _pad_ids_of_model_and_tokenizer(self) -> tuple[Any, Any]:
        """(the pad id of the model, that of the tokenizer)."""
        facts = self.subject.facts
        return facts["model"]["config"].get("pad_token_id"), (facts["tokenizer"] or {}).get("pad")
