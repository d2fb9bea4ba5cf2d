"""Rows are longer than a limit in the model's files.

## What it does
Compares the lengths of the rows, in tokens, with `model_max_length` in tokenizer_config.json and with the model's
positions in config.json, and the longest answer of each chat with `max_new_tokens` in generation_config.json. Without
that, `max_length` in generation_config.json limits prompt and answer together.

## Why it is bad
Each limit cuts silently somewhere. `tokenizer(text, truncation=True)` cuts at `model_max_length`, and vLLM accepts no
longer request. Positions beyond those in config.json were never trained. Engines end every answer at `max_new_tokens`.
The model learns from texts that it is not given later, or answers that it may not finish.

## Example
```yaml
files:
  tokenizer_config.json: {model_max_length: 12}
data:
  - messages:
      - {role: user, content: "Is it open today, and until when?"}
      - {role: assistant, content: "It is open today, from nine in the morning until six in the evening."}
```

## Use instead
```yaml
files:
  tokenizer_config.json: {model_max_length: 512}
data:
  - messages:
      - {role: user, content: "Is it open today, and until when?"}
      - {role: assistant, content: "It is open today, from nine in the morning until six in the evening."}
```

## Fix safety
Raising `model_max_length` up to the model's positions is safe. More positions need scaling, and training with it.

## References
- vllm-project/vllm#25865, vllm-project/vllm#19201
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.model_position_limit_and_scaling import (
    does_model_scale_rotary_positions,
    positions_of_model,
)
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.render.rendering import Source
from truetune.render.tokenizer import Tokenizer

# transformers writes a number like 1e30 where no limit is known; no model reaches ten million positions.
LARGEST_REAL_LIMIT = 10_000_000
ANSWERS = "answers"
ANSWER_SOURCES = (Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL)
"""What an assistant's turn holds that the model generates"""


@dataclass
class SavedLimit:
    """A length that a file states, and what is longer."""

    file: str
    key: str
    tokens: int
    consequence: str
    remedy: str
    subject: str = "rows"
    """What it limits: rows, or answers"""
    count: int = 0
    longest: int = 0
    cases: list[Case] = field(default_factory=list)

    @property
    def is_limit_on_generated_tokens(self) -> bool:
        """Does it limit what is generated, and not what is read?"""
        return self.subject == ANSWERS

    def count_longer_examples(self, batch: Batch, lengths: NDArray[np.int64]) -> None:
        """Count the examples of a batch whose length is beyond it, and keep where.

        Args:
            batch: some rows.
            lengths: (examples,) of what it limits, in tokens.
        """
        for index, length in enumerate(lengths.tolist()):
            if length <= self.tokens:
                continue
            self.count += 1
            self.longest = max(self.longest, length)
            if len(self.cases) < MAX_CASES:
                origin = batch.examples[index].row.origin
                self.cases.append(Case(f"{length:,} tokens", origin))


class RowsLongerThanSavedLimits(DataRule):
    code = "TOK013"
    fault = Fault.ROWS_EXCEED_MODEL_POSITIONS
    symptoms = ("garbage-output", "good-here-bad-there")
    moot_where = (
        "rows-longer-than-default-max-length",
        "one-row-decides-memory",
        "truncation-cuts-the-terminator",
        "truncation-leaves-no-label",
    )
    severity = "warning"
    judges_saved_file = True
    examples = 0

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        run_limit = setup.spec.max_length
        self.limits = [
            limit
            for limit in _list_saved_limits(setup.tokenizer)
            # What the run cuts itself never meets a limit that is no shorter.
            if limit.is_limit_on_generated_tokens or run_limit is None or limit.tokens < run_limit
        ]

    def add_batch(self, batch: Batch) -> None:
        """Count the examples and answers that are longer than each limit."""
        self.examples += len(batch.examples)
        for limit in self.limits:
            lengths = (
                longest_answer_lengths(batch)
                if limit.is_limit_on_generated_tokens
                else batch.lengths
            )
            limit.count_longer_examples(batch, lengths)

    def unmet(self) -> Unmet | None:
        """Unmet where no file states a length, or no row was encoded."""
        if not self.limits:
            return Unmet(
                "it is about limits in the model's files, and none is below the run's own limit"
            )
        if self.setup.are_tokens_single_bytes:
            return Unmet("it is about tokens, and the tokenizer is not available")
        return None if self.examples else Unmet("it is about encoded rows, and there are none")

    def measurement_if_clean(self) -> Measurement:
        """The number of rows beyond a limit, none."""
        stated = ", ".join(f"{limit.key} {limit.tokens:,}" for limit in self.limits)
        return make_count_measurement(f"rows beyond {stated}", 0, self.examples)

    def findings(self) -> Iterator[Finding]:
        for limit in self.limits:
            if not limit.count:
                continue
            what = (
                "rows have an answer that is" if limit.is_limit_on_generated_tokens else "rows are"
            )
            yield self.finding(
                f"{limit.count:,} of {self.examples:,} {what} longer than the {limit.tokens:,}"
                f" tokens of {limit.key} in {limit.file} (the longest has {limit.longest:,}):"
                f" {limit.consequence}",
                limit.remedy,
                cases=limit.cases,
                count=limit.count,
                total=self.examples,
            )


def longest_answer_lengths(batch: Batch) -> NDArray[np.int64]:
    """(examples,) tokens of the longest answer in each: of what an assistant says without a break.

    A text that is learned whole has none: nobody generates it in one go.
    """
    begins = batch.offsets[:-1]
    is_answer = np.isin(batch.source, ANSWER_SOURCES)
    # One token that is no answer before each example, so that no answer runs over into the next one.
    separated = np.insert(is_answer, begins, False)
    is_separator = np.insert(np.zeros_like(is_answer), begins, True)
    example = np.cumsum(is_separator) - 1
    padded = np.append(separated, False)
    starts = np.flatnonzero(padded[1:] & ~padded[:-1]) + 1
    ends = np.flatnonzero(padded[:-1] & ~padded[1:]) + 1
    longest = np.zeros(len(batch.examples), dtype=np.int64)
    np.maximum.at(longest, example[starts], ends - starts)
    return longest


def _list_saved_limits(tokenizer: Tokenizer) -> Iterator[SavedLimit]:
    """The lengths that files of the tokenizer and of the model state."""
    longest_text = _limit_or_none(tokenizer.config.get("model_max_length"))
    if longest_text is not None:
        yield SavedLimit(
            "tokenizer_config.json",
            "model_max_length",
            longest_text,
            "calls with truncation=True cut them there, and vLLM accepts no longer request",
            "raise model_max_length to the model's max_position_embeddings (config.json), or shorten the rows",
        )
    longest_answer = _limit_or_none((tokenizer.generation_config or {}).get("max_new_tokens"))
    if longest_answer is not None:
        yield SavedLimit(
            "generation_config.json",
            "max_new_tokens",
            longest_answer,
            "engines end every answer there",
            "raise max_new_tokens in generation_config.json, or remove it",
            ANSWERS,
        )
    longest_whole = _limit_or_none((tokenizer.generation_config or {}).get("max_length"))
    # transformers counts the prompt in max_length, and does not look at it where max_new_tokens is given.
    if longest_whole is not None and longest_answer is None:
        yield SavedLimit(
            "generation_config.json",
            "max_length",
            longest_whole,
            "generate() ends prompt and answer together there",
            "set max_new_tokens in generation_config.json, and remove max_length",
        )
    positions = positions_of_model(tokenizer.model_config)
    if positions is not None and not does_model_scale_rotary_positions(tokenizer.model_config):
        yield SavedLimit(
            "config.json",
            "max_position_embeddings",
            positions,
            "the model was never trained on positions beyond it",
            f"set the training's max_length to {positions:,}, or scale the positions (rope_scaling) and train with"
            " that",
        )


def _limit_or_none(value: Any) -> int | None:
    """A length that limits something; None for none."""
    return value if isinstance(value, int) and 0 < value < LARGEST_REAL_LIMIT else None
