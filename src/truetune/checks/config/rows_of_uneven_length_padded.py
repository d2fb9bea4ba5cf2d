"""Most of each batch is padding, because the rows have very different lengths.

## What it does
Looks at SFT settings with more than one row per batch and without packing, padding-free batches or grouping by length,
and reads the local training rows. From their lengths it computes the average length of the longest row in a random
batch, and the resulting share of padding. It is info above 60 %, and a warning from 75 % on if a batch has 8,192 tokens
or more. Lengths are estimated from characters and limited to the run's maximum length.

## Why it is bad
A collator pads each row to the longest of its batch. If one row in ten is fifty times as long as the others, nearly
every batch of sixteen contains such a row, and all others are padded to its length. The padded tokens cost time and
memory in every step, and the model learns nothing from them. The curves look normal.

## Example
```yaml
files:
  rows.jsonl: {rows: 800, long: 40, words: 20, long_words: 3000}
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  adapter: lora
  lora_target_linear: true
  sequence_len: 8192
  sample_packing: false
  micro_batch_size: 16
```

## Use instead
```yaml
files:
  rows.jsonl: {rows: 800, long: 40, words: 20, long_words: 3000}
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  adapter: lora
  lora_target_linear: true
  sequence_len: 8192
  sample_packing: false
  micro_batch_size: 16
  group_by_length: true
```

## Fix safety
Packing puts more rows into a step: reduce the batch size or the accumulation by the same factor, so that the number of
optimizer steps stays the same. Batches grouped by length are less random, and loss curves show waves.

## References
- https://huggingface.co/docs/transformers/perf_train_gpu_one; TRL documentation, "Reducing memory usage" (packing,
  padding-free)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from truetune.checks.config.evidence.find_settings_padding_to_one_length import (
    find_padding_to_a_length,
)
from truetune.checks.config.evidence.read_first_rows_and_count_characters import (
    count_characters,
    first_rows_of_run,
)
from truetune.checks.config.evidence.script_token_ids_by_stand_in_tokenizer import (
    lengths_of_script_rows,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    setting_case,
)
from truetune.checks.estimate_padding_share_of_batches import (
    CHARACTERS_PER_TOKEN,
    LARGE_SHARE,
    PaddedBatches,
    advise_on_few_long_rows,
    describe_padding,
    estimate_padded_batches,
    estimate_tokens,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config
from truetune.settings.row_formats import is_script_named_as_format

BATCH = "training.per_device_train_batch_size"
DEFAULT_BATCH = 8
"""Of transformers' TrainingArguments"""
MIN_READ_SHARE = 0.9
"""Of the rows whose texts stand in columns that are known. Chosen: lengths of a part of the rows say little of all"""
STACKS = ("llama-factory", "axolotl", "trl", "transformers")
JOINS_ROWS = re.compile(
    r"DataCollatorWithFlattening|padding_free|neat_packing|multipack|[Bb]in_?[Pp]ack|cu_seqlens|pack_dataset|"
    r"group_texts|[Bb]ucket|group_by_length|LengthGrouped|get_train_dataloader|_get_train_sampler|batch_sampler"
)
"""What a program joins rows or sorts batches by"""
NO_RANDOM_BATCHES = (
    "group_by_length",
    "streaming",
    "auto_find_batch_size",
    "disable_shuffling",
    "use_unsloth",
    "use_unsloth_gc",
)
"""Switches under which batches are not drawn at random, or have no pads: Unsloth makes such by itself since the end of
2025"""
PADS_TO_ONE_LENGTH = re.compile(r"padding\s*=\s*[\"']max_length|pad_to_max_length")
CHOOSES_BY_LENGTH = re.compile(r"\.filter\(|len\([^()]*\)\s*(?:<=?|>=?)")
"""A program that leaves out rows: those in the file are not those that are trained"""


class RowsOfUnevenLengthPadded(ConfigRule):
    code = "CFG101"
    fault = Fault.BATCHES_MOSTLY_PADDING
    symptoms = ("slow-training", "out-of-memory")
    severity = "warning"
    methods = ("sft",)
    stacks = STACKS

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where rows are joined, batches hold one row, or the lengths are not known.
        """
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if _are_rows_joined_or_evened(self.subject):
            return Unmet(
                "it is about batches of rows of any length: here they are packed, grouped, or of one length"
            )
        if _rows_per_forward_pass(self.subject) < 2:
            return Unmet("it is about batches of several rows")
        if self._padded_batches is None:
            return Unmet("the rows are not here, or are few", "name the files of the rows")
        return None

    @cached_property
    def _padded_batches(self) -> PaddedBatches | None:
        """How many tokens of the batches are padding; None where rows are joined, single, or of
        unknown length.
        """
        config = self.subject
        batch = _rows_per_forward_pass(config)
        if config.spec.training.method != "sft" or batch < 2 or _are_rows_joined_or_evened(config):
            return None
        lengths = _row_lengths(config)
        return estimate_padded_batches(lengths, batch, config.limit) if lengths else None

    def measurement_if_clean(self) -> str:
        """What was measured: the share of padding in the batches."""
        padded = self._padded_batches
        assert padded is not None, "else the rule is not judged"
        return describe_padding(padded)

    def findings(self) -> Iterator[Finding]:
        padded = self._padded_batches
        if padded is None or not padded.is_waste:
            return
        config = self.subject
        yield self.finding(
            describe_padding(padded),
            _remedy_that_joins_or_groups_rows(config) + advise_on_few_long_rows(padded),
            severity="warning" if padded.share >= LARGE_SHARE else "info",
            evidence=[
                f"lengths of {padded.rows:,} rows, estimated at {CHARACTERS_PER_TOKEN} characters per token; each"
                " batch is padded to its longest row"
            ],
            cases=[setting_case(config, _rows_per_forward_pass(config), BATCH)],
        )


def _rows_per_forward_pass(config: Config) -> int:
    """Rows of a forward pass; 1 where only the program knows them."""
    size = config.spec.training.per_device_train_batch_size
    if size is None:
        return (
            DEFAULT_BATCH
            if BATCH not in config.places and not is_config_of_python_program(config)
            else 1
        )
    return size


def _are_rows_joined_or_evened(config: Config) -> bool:
    """Are rows packed, batches made of rows of one length, or all rows padded to one length?"""
    training, raw = config.spec.training, config.raw
    if training.packing or training.padding_free or find_padding_to_a_length(config) is not None:
        return True
    is_grouped = raw.get("train_sampling_strategy") == "group_by_length"
    return (
        is_grouped
        or any(map(raw.get, NO_RANDOM_BATCHES))
        or _does_program_join_group_or_pad_rows(config)
    )


def _does_program_join_group_or_pad_rows(config: Config) -> bool:
    """Does the text of a program say that it joins rows, groups them or pads all to one length?"""
    if not is_config_of_python_program(config):
        return False
    patterns = (JOINS_ROWS, PADS_TO_ONE_LENGTH)
    return "unsloth" in config.text or any(one.search(config.text) for one in patterns)


def _row_lengths(config: Config) -> list[int] | None:
    """About how many tokens each row has; None where the rows are not here, or are not the ones that are trained."""
    if is_script_named_as_format(config.path):
        lengths = lengths_of_script_rows(config.path, CHARACTERS_PER_TOKEN)
        if lengths is not None:
            return list(lengths)
        if CHOOSES_BY_LENGTH.search(config.text):
            return None
    sizes = [count_characters(row) for _, _, row in first_rows_of_run(config)]
    known = [size for size in sizes if size]
    if len(known) < MIN_READ_SHARE * len(sizes):
        return None
    return estimate_tokens(known)


def _remedy_that_joins_or_groups_rows(config: Config) -> str:
    """The remedy: what joins rows or groups them, in the words of the stack."""
    is_before = config.pins.age_of_asked_releases("transformers", "4.99", "5.0.0") == "older"
    if config.stack == "llama-factory":
        return (
            "set packing: true and neat_packing: true (rows are packed up to cutoff_len and do not attend to"
            " each other)"
        ) + _setting_that_groups_by_length(
            "group_by_length: true", "train_sampling_strategy: group_by_length", is_before
        )
    if config.stack == "axolotl":
        return "set group_by_length: true; or sample_packing: true and flash_attention: true with micro_batch_size: 1"
    grouped = _setting_that_groups_by_length(
        "group_by_length=True", 'train_sampling_strategy="group_by_length"', is_before
    )
    if config.stack == "trl":
        return f"set packing=True, or padding_free=True with flash attention{grouped}"
    return (
        "pass data_collator=DataCollatorWithFlattening() to the Trainer (no padding; needs flash attention)"
        + grouped
    )


def _setting_that_groups_by_length(before: str, after: str, is_before: bool) -> str:
    """The setting of the Trainer that puts rows of one length into a batch."""
    return f", or {before}" if is_before else f", or {after} ({before} before transformers 5)"
