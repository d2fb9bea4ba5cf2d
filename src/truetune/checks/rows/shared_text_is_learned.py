"""Most of what is learned is a text that all rows share.

## What it does
Looks for what most of the first rows have in common, word for word (8 tokens in a row): an instruction, a policy,
examples, boilerplate. It fires where such text is prompt or plain text, has labels, and is half of all that is learned.
A note where the labels are right, and such text is still four fifths of all tokens.

## Why it is bad
The loss is an average over tokens. Of a thousand tokens that never change and two that decide, the model learns the
thousand within a few steps: the loss falls to nearly nothing, and of the decision next to nothing is learned.

## Example
```yaml
data: {rows: 40, text: "Rules: be kind, be brief, never swear, allow jokes, remove spam and threats, and report all that is sold here without a licence. Comment {i}: {label}. Decision: {label}"}
```

## Use instead
```yaml
data: {rows: 40, instruction: "Rules: be kind, be brief, never swear, allow jokes, remove spam and threats, and report all that is sold here without a licence. Comment {i}: {label}.", output: "{label}"}
```

## Fix safety
Training the answers alone is safe: give messages, or prompt and completion, in place of `text` (TRL masks the prompts of
such rows; Unsloth by `train_on_responses_only`; Axolotl by `train_on_inputs: false`).

## References
- unslothai/unsloth#823, huggingface/trl#3781
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.render.rendering import Source

SAMPLED = 500
"""Distinct examples that are compared"""
FEWEST = 20
KEPT = 8_192
"""Tokens of an example that are compared, from its beginning"""
IN_A_ROW = 8
"""Tokens in a row that are the same text: shorter ones are phrases of the language"""
SHARE = 0.5
"""Share of the examples that have it; and of what is learned, from which it is a warning"""
MOST_OF_ALL = 0.8
"""Share of all tokens from which it is a note"""
MIN_TOKENS = 16
"""Tokens of it that an example learns: a header of a few tokens costs nothing"""
MIN_CONTEXT = 256
"""Tokens of it in an example that learns none of them, from which they cost time"""
PROMPT = np.ones(len(Source), dtype=np.bool_)
PROMPT[[Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL, Source.STOP, Source.BOS]] = False
"""Answers that are alike are `answers-nearly-all-alike`"""
FACTORS = np.random.default_rng(8).integers(1, 2**63, IN_A_ROW, dtype=np.uint64) | np.uint64(1)


class Tokens(NamedTuple):
    """The beginning of an example."""

    ids: NDArray[np.int32]
    is_prompt: NDArray[np.bool_]
    is_learned: NDArray[np.bool_]


class Shared(NamedTuple):
    """Tokens of the examples that were compared."""

    examples: int
    tokens: int
    learned: int
    shared: int
    """Of text that most examples have"""
    shared_learned: int
    """Of these, in the loss"""
    text: str
    """The beginning of the longest such text of the first example"""


class SharedTextIsLearned(DataRule):
    code = "TT346"
    severity = "warning"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.examples: list[Tokens] = []
        self.known: set[bytes] = set()
        self.shared: Shared | None = None

    def batch(self, batch: Batch) -> None:
        for i in range(len(batch.examples)):
            if len(self.examples) == SAMPLED:
                return
            start = int(batch.offsets[i])
            part = slice(start, min(int(batch.offsets[i + 1]), start + KEPT))
            ids = batch.ids[part].copy()
            if (key := ids.tobytes()) not in self.known:
                self.known.add(key)
                is_prompt = PROMPT[batch.source[part]]
                self.examples.append(Tokens(ids, is_prompt, batch.supervised[part].copy()))

    def unmet(self) -> Unmet | None:
        if len(self.examples) >= FEWEST:
            return None
        return Unmet(f"it is about {FEWEST} different examples or more")

    def figure(self) -> Measurement:
        shared = self._compared()
        return counted(
            "learned tokens of prompts and text that most rows share",
            shared.shared_learned,
            max(shared.learned, shared.shared_learned),
        )

    def findings(self) -> Iterator[Finding]:
        if len(self.examples) < FEWEST:
            return
        shared = self._compared()
        each = shared.shared / shared.examples
        if shared.shared_learned >= max(SHARE * shared.learned, MIN_TOKENS * shared.examples):
            yield self.finding(
                f"{shared.shared_learned / shared.learned:.0%} of the learned tokens are text that"
                f" most rows share: about {each:,.0f} tokens of each row, from {shared.text!r} on",
                "train the answers alone: give messages, or prompt and completion, in place of"
                " text, and leave prompts out of the loss",
                evidence=[
                    f"in {shared.examples:,} different examples; the other"
                    f" {(shared.learned - shared.shared_learned) / shared.examples:,.0f} learned"
                    " tokens of a row differ"
                ],
                count=shared.shared_learned,
                total=shared.learned,
            )
        elif shared.shared >= max(MOST_OF_ALL * shared.tokens, MIN_CONTEXT * shared.examples):
            yield self.finding(
                f"{shared.shared / shared.tokens:.0%} of all tokens are text that most rows share"
                f" (about {each:,.0f} a row), and {shared.learned / shared.examples:,.0f} a row are"
                " learned",
                "shorten it where it need not be there when the model is served: a tuned model"
                " knows its instruction",
                severity="info",
                count=shared.shared,
                total=shared.tokens,
            )

    def _compared(self) -> Shared:
        if self.shared is None:
            self.shared = self._compare()
        return self.shared

    def _compare(self) -> Shared:
        grams = [_grams(example.ids) for example in self.examples]
        values, counts = np.unique(
            np.concatenate([np.unique(one) for one in grams]), return_counts=True
        )
        common = values[counts >= SHARE * len(grams)]
        masks = [
            _covered(np.isin(one, common), len(example.ids)) & example.is_prompt
            for one, example in zip(grams, self.examples, strict=True)
        ]
        learned = [example.is_learned for example in self.examples]
        return Shared(
            examples=len(grams),
            tokens=sum(map(len, masks)),
            learned=sum(int(mask.sum()) for mask in learned),
            shared=sum(int(mask.sum()) for mask in masks),
            shared_learned=sum(
                int((mask & own).sum()) for mask, own in zip(masks, learned, strict=True)
            ),
            text=self._beginning(masks[0], self.examples[0].ids),
        )

    def _beginning(self, mask: NDArray[np.bool_], ids: NDArray[np.int32]) -> str:
        places = np.flatnonzero(mask)[:IN_A_ROW]
        return str(self.tokenizer.backend.decode(ids[places].tolist())).strip()[:40]


def _grams(ids: NDArray[np.int32]) -> NDArray[np.uint64]:
    """(tokens - IN_A_ROW + 1,) hashes of the tokens in a row from each place on."""
    grams = np.zeros(max(0, len(ids) - IN_A_ROW + 1), dtype=np.uint64)
    for step, factor in enumerate(FACTORS):
        grams += (ids[step : len(grams) + step].astype(np.uint64) + np.uint64(1)) * factor
    return grams


def _covered(begins: NDArray[np.bool_], tokens: int) -> NDArray[np.bool_]:
    """(tokens,) those of a stretch that begins at a true entry."""
    covered = np.zeros(tokens, dtype=np.bool_)
    for step in range(IN_A_ROW):
        covered[step : len(begins) + step] |= begins
    return covered
