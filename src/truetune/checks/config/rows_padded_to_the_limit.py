"""Every row is padded to the maximum length, although all rows are far shorter.

## What it does
Looks at settings that pad each row to a fixed length (Axolotl's `pad_to_sequence_len` without packing,
`pad_to_max_length`, a `pad_to_multiple_of` of 512 or more) and reads the local training rows. It fires if the longest
row is certainly shorter than half of that length: no tokenizer makes more than one token per byte.

## Why it is bad
The time and memory of a step depend on the padded length. Rows of 150 tokens that are padded to 8,192 take fifty times
the time, and the model learns nothing from the padding.

## Example
```yaml
files:
  rows.jsonl: [{messages: [{role: user, content: a}, {role: assistant, content: b}]}]
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  adapter: lora
  lora_target_linear: true
  sequence_len: 8192
  sample_packing: false
  pad_to_sequence_len: true
```

## Use instead
```yaml
files:
  rows.jsonl: [{messages: [{role: user, content: a}, {role: assistant, content: b}]}]
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  adapter: lora
  lora_target_linear: true
  sequence_len: 8192
  sample_packing: false
  pad_to_sequence_len: false
```

## Fix safety
The collator then pads to the longest row of each batch. The training result stays the same. Compiled models and TPUs
may need one fixed length.

## References
- Axolotl documentation, `pad_to_sequence_len`
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from truetune.checks.config.evidence.find_settings_padding_to_one_length import (
    MULTIPLE,
    find_padding_to_a_length,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.data.find_data_files import find_data_files_of_paths
from truetune.data.row_text_bytes import text_bytes_of_rows
from truetune.errors import DataError
from truetune.settings.config import Config

MIN_TIMES = 2
"""Times the longest row by its bytes. With the usual three to four bytes a token, six to eight times its tokens"""
TEMPLATE_TOKENS = 256
"""For the headers of a chat template and its system prompt. Chosen, not measured"""


class _RowLengths(NamedTuple):
    """Tokens of the rows, at most."""

    rows: int
    median: int
    longest: int


class RowsPaddedToTheLimit(ConfigRule):
    code = "CFG095"
    fault = Fault.BATCHES_MOSTLY_PADDING
    symptoms = ("slow-training",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no setting pads to a fixed length, or the rows are not here.
        """
        lacking = super().unmet()
        if lacking is not None or find_padding_to_a_length(self.subject) is None:
            return lacking or Unmet(
                "it is about settings that pad rows to a fixed length: none does"
            )
        if self._padded_row_lengths is None:
            return Unmet("the rows are not here", "name the files of the rows")
        return None

    @cached_property
    def _padded_row_lengths(self) -> _RowLengths | None:
        """The lengths of the training rows, where the settings pad each to a length; else None."""
        return (
            _row_lengths(self.subject)
            if find_padding_to_a_length(self.subject) is not None
            else None
        )

    def measurement_if_clean(self) -> str:
        """What was measured: the length that rows are padded to, beside that of the longest."""
        padding, lengths = find_padding_to_a_length(self.subject), self._padded_row_lengths
        assert padding is not None, "else the rule is not judged"
        assert lengths is not None, "else the rule is not judged"
        return (
            f"rows padded to {padding.length:,} tokens; the longest has at most {lengths.longest:,}"
        )

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        padding, lengths = find_padding_to_a_length(config), self._padded_row_lengths
        if padding is None or lengths is None or padding.length < MIN_TIMES * lengths.longest:
            return
        pads = 1 - lengths.median / padding.length
        off = f"set {padding.key} to {'8' if padding.key == MULTIPLE else 'false'}"
        yield self.finding(
            f"every row is padded to {padding.length:,} tokens, but the longest of {lengths.rows:,} rows has at most"
            f" {lengths.longest:,}: at least {pads:.0%} of the computation is padding",
            f"{off}: batches are then padded to their longest row; or pack short rows, or lower the maximum length",
            evidence=[f"the median row has {lengths.median:,} bytes, and at most as many tokens"],
            cases=[setting_case(config, config.raw[padding.key], padding.key)],
        )


def _row_lengths(config: Config) -> _RowLengths | None:
    """Tokens of the training rows at most; None where a file of them is not here or can't be read whole."""
    try:
        sources = find_data_files_of_paths(config.spec.data or config.row_files)
    except DataError:
        return None
    sizes = text_bytes_of_rows(sources)
    if not sizes:
        return None
    tokens = sorted(size + TEMPLATE_TOKENS for size in sizes)
    return _RowLengths(len(tokens), tokens[len(tokens) // 2], tokens[-1])
