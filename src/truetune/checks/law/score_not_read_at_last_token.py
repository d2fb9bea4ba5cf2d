"""The reward model reads its score at padding, or before the end of the answer.

## What it does
Takes the gradient of each score in a real batch by the embedded tokens. The last token with a gradient is where the
score is read. It fires if that is padding, or if tokens of the row follow it.

## Why it is bad
A score that is read at padding depends on how long the other rows of the batch are. One that is read too early can't
tell how the answer ends. transformers takes the last token that is not `pad_token_id`: with another id in the padding
it reads the padding, and with the stop token as the pad token it skips the stop token.

## Example

```python
class PadWithZeros:
    def __call__(self, rows):
        ids = [torch.tensor(row[side]) for side in ("chosen_ids", "rejected_ids") for row in rows]
        masks = [torch.ones_like(one) for one in ids]
        pad = torch.nn.utils.rnn.pad_sequence
        return {"input_ids": pad(ids, batch_first=True), "attention_mask": pad(masks, batch_first=True)}


run = trl.RewardTrainer(reward_model(), args=arguments(trl.RewardConfig), processing_class=tokenizer,
                        data_collator=PadWithZeros(), train_dataset=datasets.Dataset.from_list(pairs()))
```

## Use instead

```python
class PadWithPadToken:
    def __call__(self, rows):
        ids = [torch.tensor(row[side]) for side in ("chosen_ids", "rejected_ids") for row in rows]
        masks = [torch.ones_like(one) for one in ids]
        pad = torch.nn.utils.rnn.pad_sequence
        return {"input_ids": pad(ids, batch_first=True, padding_value=tokenizer.pad_token_id),
                "attention_mask": pad(masks, batch_first=True)}


run = trl.RewardTrainer(reward_model(), args=arguments(trl.RewardConfig), processing_class=tokenizer,
                        data_collator=PadWithPadToken(), train_dataset=datasets.Dataset.from_list(pairs()))
```

## Fix safety
There is no automatic fix. Train the reward model again after it: the scores of one that read its padding depend on the
batches of its training. Whoever uses it must pad as the training did.

## References

- huggingface/trl#937, huggingface/transformers#35352, huggingface/transformers#35911, EleutherAI/gpt-neox#1285
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class ScoreNotReadAtLastToken(LawRule):
    code = "LAW030"
    fault = Fault.SCORE_READ_AT_WRONG_TOKEN
    symptoms = ("odd-metrics",)
    severity = "error"
    law = "score-position"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that scores are read at padding, or before the last token."""
        padding, early, rows = evidence["padding"], evidence["before the end"], evidence["rows"]
        if padding:
            yield self.finding(
                f"{padding} of {rows} scores are read at padding",
                "pad with the model's own pad token: set config.pad_token_id and the collator's padding value to the"
                " same id, tokenizer.pad_token_id",
                evidence=[
                    f"{_place(one)}: read {one['apart']} tokens after the last one"
                    for one in evidence["padding places"]
                ],
                count=padding,
                total=rows,
            )
        elif early:
            only_stops = evidence["only stops"]
            yield self.finding(
                f"{early} of {rows} scores are read before the last token: up to {evidence['left out']} tokens of an"
                " answer are left out",
                "give the tokenizer a pad token that no answer ends with, and set config.pad_token_id to its id",
                # Whoever scores with the model skips the stop token, too: it can't tell a cut answer from a whole one,
                # and all else is as it should be.
                severity="info" if only_stops else "error",
                evidence=[
                    f"{_place(one)}: {', '.join(map(repr, one['left out']))} left out"
                    for one in evidence["before the end places"]
                ],
                count=early,
                total=rows,
            )


def _place(one: dict[str, Any]) -> str:
    """`batch 0, row 1 (chosen)`."""
    return f"batch {one['batch']}, row {one['row']} ({one['side']})"
