"""Rows are padded on the left, and the model counts its positions from the first pad.

## What it does

Looks for rows with padding before their text, without position_ids, on a model that numbers positions from the start of
the row, padding included (GPT-2 and similar models).

## Why it is bad
The text is then at other positions than in serving: what the model learns depends on how much padding a row got. Models
with rotary positions are not affected.

## Example

```python
tokenizer.padding_side = "left"
gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4))
run = transformers.Trainer(gpt2, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Use instead

```python
tokenizer.padding_side = "right"
gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4))
run = transformers.Trainer(gpt2, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. Set `tokenizer.padding_side = "right"` for training; for generation, set it to "left" again.

## References

- huggingface/transformers#24839, huggingface/transformers#34842
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule

# By the modelling code of transformers: position_ids are an arange over the line where none are
# given.
ABSOLUTE_POSITIONS = frozenset(("gpt2", "gpt_neo", "gpt_bigcode", "openai-gpt", "ctrl", "imagegpt"))
"""Model types with learned or fixed absolute positions that are counted from the first place of the line"""


class LeftPaddingWithAbsolutePositions(BatchRule):
    code = "BAT026"
    fault = Fault.PADDING_CHANGES_RESULTS
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_collator = True

    def findings(self) -> Iterator[Finding]:
        kind = self.subject.facts["model"]["type"]
        if kind not in ABSOLUTE_POSITIONS:
            return
        padded = [
            sample
            for sample in self.subject.samples
            if sample.positions is None and not sample.attended[0] and sample.attended.any()
        ]
        if padded:
            yield self.finding(
                f"{len(padded)} of {len(self.subject.samples)} sequences are padded on the left, but"
                f" {kind} counts its positions from the first pad",
                'set tokenizer.padding_side = "right" for training, or pass position_ids that do'
                " not count the pads",
                cases=[
                    Case(f"{sample.place}: {int(sample.attended.argmax())} pads come first")
                    for sample in padded
                ],
                count=len(padded),
                total=len(self.subject.samples),
            )

    def unmet(self) -> Unmet | None:
        kind = self.subject.facts["model"]["type"]
        lacking = super().unmet()
        if lacking is not None or kind in ABSOLUTE_POSITIONS:
            return lacking
        return Unmet(
            f"it is about models that count positions from the first pad, and {kind} does not"
        )

    def measurement_if_clean(self) -> Measurement:
        """How many lines are padded on the left without positions."""
        return make_count_measurement(
            "sequences that are padded on the left without positions", 0, len(self.subject.samples)
        )
