"""The data do not fill one packed batch, so the run makes no optimizer step.

## What it does
For an Axolotl run with `sample_packing` and an attention that does not pack by itself (`sdpa`, `eager`, none), counts
the packed rows that the data can give at most and compares them with `micro_batch_size`.

## Why it is bad
Axolotl's sampler drops the last batch unless it is full. If that is the only batch, nothing is trained. The run still
ends normally and saves the model that it loaded.

## Example
```yaml
files:
  rows.jsonl: {rows: 3}
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  sequence_len: 2048
  sample_packing: true
  attn_implementation: sdpa
  micro_batch_size: 4
  num_epochs: 3
  learning_rate: 0.0002
```

## Use instead
```yaml
files:
  rows.jsonl: {rows: 3}
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  sequence_len: 2048
  sample_packing: true
  attn_implementation: sdpa
  micro_batch_size: 1
  num_epochs: 3
  learning_rate: 0.0002
```

## Fix safety
A smaller batch with more accumulation makes the same number of steps.

## References
- axolotl-ai-cloud/axolotl#1212, `MultipackBatchSampler` in axolotl 0.21 (`drop_last=True`); run with axolotl 0.19
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_ROWS
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import (
    count_training_rows,
    training_bytes,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

REAL_BATCHES = (None, "sdpa", "eager")
"""Attention implementations for which Axolotl makes batches of packed rows; others get one long row."""
BYTES_A_TOKEN = 3.0
"""Of a file of chats: text, markers and JSON together; English text has about four."""


class SamplePackingTrainsNoStep(ConfigRule):
    code = "CFG006"
    fault = Fault.TOO_FEW_OPTIMIZER_STEPS
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    since = "0.1.0"
    stacks = ("axolotl",)
    about = ("training.packing",)
    reads = ("training.per_device_train_batch_size", "max_length", "training.attn_implementation")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the number of rows is not known.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        return NO_ROWS if count_training_rows(self.subject) is None else None

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        if not _does_axolotl_batch_several_packed_rows(config):
            return
        data, size = count_training_rows(config), training.per_device_train_batch_size
        length = config.spec.max_length
        # A batch of one packed row is always filled.
        if data is None or size is None or size < 2 or not length:
            return
        text = training_bytes(config)
        packed, is_sure = _packed_rows_and_is_upper_bound(data.count, text, length, size)
        if packed is None or packed >= size:
            return
        about, effect = ("at most", "no step") if is_sure else ("about", "possibly no step")
        yield self.finding(
            f"{about} {packed:,} packed rows of {length:,} tokens do not fill a batch of {size}, so Axolotl drops"
            f" it: the run makes {effect}",
            f"set micro_batch_size to 1 and gradient_accumulation_steps to {size}, or remove sample_packing",
            severity="error" if is_sure else "warning",
            evidence=[data.why] + ([f"the data have {text:,} bytes"] if text is not None else []),
            cases=[
                setting_case(config, size, "training.per_device_train_batch_size"),
                setting_case(config, True, "training.packing"),
                setting_case(config, length, "max_length"),
            ],
        )


def _does_axolotl_batch_several_packed_rows(config: Config) -> bool:
    """Does Axolotl pack, and make a batch of several packed rows?"""
    training = config.spec.training
    if config.stack != "axolotl" or not training.packing:
        return False
    real = config.raw.get("multipack_real_batches")
    if real is False:
        return False
    return bool(real) or training.attn_implementation in REAL_BATCHES


def _packed_rows_and_is_upper_bound(
    rows: int, text: int | None, length: int, batch: int
) -> tuple[int | None, bool]:
    """How many packed rows there are, and whether there are certainly no more; None where nothing says it.

    Args:
        rows: The rows before packing.
        text: Bytes of the files; None where they are no text.
        length: Tokens of a packed row.
        batch: Packed rows of a batch.
    """
    if rows < batch:
        return rows, True
    if text is None:
        return None, False
    # A token has a byte at least. First fit leaves every row but one at least half full: twice the tokens bound it.
    most = 2 * text / length + 1
    if most < batch:
        return math.ceil(most), True
    return math.ceil(text / BYTES_A_TOKEN / length), False
