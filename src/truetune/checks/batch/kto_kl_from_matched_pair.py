"""KTO's mismatched batch contains the matched pairs themselves.

## What it does
Compares each row of the batch that estimates KTO's KL term with the row that it was made from. An answer that several
rows of the batch share is not reported. It is an error if 25 % of the rows or more match, else a warning.

## Why it is bad
The KL term has to come from prompts with answers of other rows. From matched pairs it is far too high, and hides the
signal. It happens with batches of one row, or with the middle row of a list that is reversed.

## Example

```python
import copy

data = [{"prompt": p["prompt"], "completion": p["chosen"], "label": i % 2 == 0} for i, p in enumerate(pairs())]
data = datasets.Dataset.from_list(data)
run = trl.KTOTrainer(model, ref_model=copy.deepcopy(model), args=arguments(trl.KTOConfig), train_dataset=data,
                     processing_class=tokenizer)
run.train_dataset = run.train_dataset.map(lambda row: {"KL_completion_ids": row["completion_ids"]})
```

## Use instead

```python
import copy

data = [{"prompt": p["prompt"], "completion": p["chosen"], "label": i % 2 == 0} for i, p in enumerate(pairs())]
data = datasets.Dataset.from_list(data)
run = trl.KTOTrainer(model, ref_model=copy.deepcopy(model), args=arguments(trl.KTOConfig), train_dataset=data,
                     processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: set `per_device_train_batch_size` to 2 or more, and use a trainer that rotates the answers.
The KL term becomes lower.

## References

- huggingface/trl#1911, huggingface/trl#2153, hiyouga/LlamaFactory#7509
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule
from truetune.probe.run_record import Arrays

# Chosen, not measured: an odd batch that is reversed leaves its middle row matched, a fifth of five
# rows.
ERROR_SHARE = 0.25
"""Share of the rows from which it is an error"""
KL_KEYS = (
    ("KL_input_ids", "input_ids"),
    ("KL_completion_input_ids", "completion_input_ids"),
    ("kl_input_ids", "input_ids"),
)


class KtoKlFromMatchedPair(BatchRule):
    code = "BAT035"
    fault = Fault.KTO_LABELS_UNUSABLE
    symptoms = ("dpo-without-effect",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        matched = self._kl_rows_with_is_own_pair
        wrong = [(number, line) for number, line, equal in matched if equal]
        if wrong:
            yield self.finding(
                f"{len(wrong)} of {len(matched)} rows in the KL batches are the same pair that they were"
                " made from",
                "set per_device_train_batch_size to 2 or more, and use a trainer that rotates the answers within a"
                " batch",
                severity="error" if len(wrong) >= ERROR_SHARE * len(matched) else "warning",
                cases=[
                    Case(f"batch {number}, line {line}: it has its own prompt and answer")
                    for number, line in wrong
                ],
                count=len(wrong),
                total=len(matched),
            )

    def unmet(self) -> Unmet | None:
        return super().unmet() or (
            None
            if self._kl_rows_with_is_own_pair
            else Unmet("it is about KTO's KL batches, and there are none")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many rows of the KL batches are the pair that they were made from."""
        return make_count_measurement(
            "rows in the KL batches that are the pair they were made from",
            0,
            len(self._kl_rows_with_is_own_pair),
        )

    @cached_property
    def _kl_rows_with_is_own_pair(self) -> list[tuple[int, int, bool]]:
        """(number of the batch, line, is it its own pair?) of each KL row."""
        return [
            (number, line, equal)
            for record in self.subject.records
            for number, batch in enumerate(record.batches)
            for line, equal in enumerate(_do_kl_rows_equal_own_rows(batch))
        ]


def _do_kl_rows_equal_own_rows(batch: Arrays) -> Iterator[bool]:
    """For each KL row: does it equal its own row? No, if more than one row has that answer."""
    for name, own in KL_KEYS:
        if name in batch and own in batch and len(batch[name]) == len(batch[own]):
            answers = [_unpadded_ids(batch, own, i, answer=True) for i in range(len(batch[own]))]
            shared = Counter(answers)
            for i, answer in enumerate(answers):
                equal = _unpadded_ids(batch, name, i) == _unpadded_ids(batch, own, i)
                yield equal and shared[answer] == 1
            return


def _unpadded_ids(batch: Arrays, name: str, line: int, *, answer: bool = False) -> bytes:
    """The ids of a line without padding; of its answer alone where the batch tells it."""
    mask = batch.get(name.replace("input_ids", "completion_mask" if answer else "attention_mask"))
    ids = batch[name][line]
    # As bytes two rows are compared, and counted, without regard to how far each batch pads them.
    return np.ascontiguousarray(ids if mask is None else ids[mask[line] != 0]).tobytes()
