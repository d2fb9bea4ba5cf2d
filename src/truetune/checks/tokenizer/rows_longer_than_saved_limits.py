"""Rows are longer than a limit that a file of the model states.

## What it does
Compares the lengths of the rows, in tokens, with `model_max_length` of tokenizer_config.json and with the positions
that config.json gives the model, and the lengths of the answers with `max_new_tokens` of generation_config.json.

## Why it is bad
Each limit cuts in silence somewhere: `tokenizer(text, truncation=True)` and vLLM take `model_max_length`, positions
beyond those of config.json were never trained, and engines end every answer at `max_new_tokens`. The model is trained
on texts, or has learned answers, that it is later not given or may not finish.

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
Safe: `model_max_length` up to the positions of the model. To raise the positions needs scaling, and training with it.

## References
- vllm-project/vllm#25865, vllm-project/vllm#19201
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.render.tokenizer import Tokenizer

# transformers writes a number like 1e30 where no limit is known; no model reaches ten million positions.
LARGEST_REAL_LIMIT = 10_000_000


@dataclass
class SavedLimit:
    """A length that a file states, and the rows that are longer."""

    file: str
    key: str
    tokens: int
    is_of_answers: bool
    consequence: str
    count: int = 0
    longest: int = 0
    cases: list[Case] = field(default_factory=list)

    @property
    def subject(self) -> str:
        """What is longer."""
        return "answers" if self.is_of_answers else "rows"


class RowsLongerThanSavedLimits(DataRule):
    code = "TOK013"
    symptoms = ("garbage-output", "good-here-bad-there")
    moot_where = (
        "sft-max-length-default-1024",
        "one-row-decides-memory",
        "truncation-cuts-the-terminator",
        "truncation-leaves-no-label",
    )
    severity = "warning"
    judges_saved_file = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.examples = 0
        run_limit = setup.spec.max_length
        self.limits = [
            limit
            for limit in _list_saved_limits(setup.tokenizer)
            # What the run cuts itself never meets a limit that is no shorter.
            if limit.is_of_answers or run_limit is None or limit.tokens < run_limit
        ]

    def batch(self, batch: Batch) -> None:
        """Count the examples and answers that are longer than each limit."""
        self.examples += len(batch.examples)
        answers = batch.per_example(batch.supervised)
        for limit in self.limits:
            _count_longer(limit, batch, answers if limit.is_of_answers else batch.lengths)

    def unmet(self) -> Unmet | None:
        """Unmet where no file states a length, or no row was encoded."""
        if not self.limits:
            return Unmet(
                "it is about lengths that files state, and none is below the run's own limit"
            )
        if self.setup.are_tokens_single_bytes:
            return Unmet("it is about tokens, and the tokenizer is not available")
        return None if self.examples else Unmet("it is about encoded rows, and there are none")

    def figure(self) -> Measurement:
        """The number of rows beyond a limit, none."""
        stated = ", ".join(f"{limit.key} {limit.tokens:,}" for limit in self.limits)
        return count_measurement(f"rows beyond {stated}", 0, self.examples)

    def findings(self) -> Iterator[Finding]:
        for limit in self.limits:
            if not limit.count:
                continue
            yield self.finding(
                f"{limit.count:,} of {self.examples:,} {limit.subject} are longer than the {limit.tokens:,}"
                f" tokens of {limit.key} in {limit.file} (the longest has {limit.longest:,}):"
                f" {limit.consequence}",
                f"raise {limit.key} in {limit.file}, or shorten the {limit.subject}",
                cases=limit.cases,
                count=limit.count,
                total=self.examples,
            )


def _list_saved_limits(tokenizer: Tokenizer) -> Iterator[SavedLimit]:
    """The lengths that files of the tokenizer and of the model state."""
    candidates: tuple[tuple[str, str, Any, bool, str], ...] = (
        (
            "tokenizer_config.json",
            "model_max_length",
            tokenizer.config.get("model_max_length"),
            False,
            "calls with truncation=True cut them there, and so does vLLM",
        ),
        (
            "generation_config.json",
            "max_new_tokens",
            (tokenizer.generation_config or {}).get("max_new_tokens"),
            True,
            "engines end every answer there",
        ),
    )
    for file, key, value, is_of_answers, consequence in candidates:
        if isinstance(value, int) and 0 < value < LARGEST_REAL_LIMIT:
            yield SavedLimit(file, key, value, is_of_answers, consequence)
    positions = _positions_of_model(tokenizer.model_config)
    if positions is not None:
        yield SavedLimit(
            "config.json",
            "max_position_embeddings",
            positions,
            False,
            "the model has learned no position beyond it",
        )


def _positions_of_model(config: dict[str, Any]) -> int | None:
    """How many positions the model knows; None where config.json does not say, or scales them."""
    inner = config.get("text_config")
    part = inner if isinstance(inner, dict) else config
    rope = part.get("rope_parameters")
    is_scaled = bool(part.get("rope_scaling")) or (
        isinstance(rope, dict) and rope.get("rope_type", "default") != "default"
    )
    positions = part.get("max_position_embeddings") or part.get("n_positions")
    return positions if isinstance(positions, int) and not is_scaled else None


def _count_longer(limit: SavedLimit, batch: Batch, lengths: NDArray[np.int64]) -> None:
    """Count what is longer than a limit, and keep where."""
    longer = [index for index, length in enumerate(lengths.tolist()) if length > limit.tokens]
    if not longer:
        return
    limit.count += len(longer)
    limit.longest = max(limit.longest, *(int(lengths[index]) for index in longer))
    for index in longer[: MAX_CASES - len(limit.cases)]:
        origin = batch.examples[index].row.origin
        limit.cases.append(Case(f"{lengths[index]:,} tokens", origin))
