"""The same comparison occurs in the data with opposite labels.

## What it does
Counts the pairs whose two answers occur swapped in another pair with the same prompt, and the answers that KTO's labels
call both true and false for one prompt. (`duplicate-rows` counts plain copies.) A pair that a column mapping swapped
against its own winner column does not count: its labellers may agree. It is a warning from 1 % of the pairs, and an
info below.

## Why it is bad
The two pull in opposite directions and cancel out: they teach noise, and the accuracy can't reach 1.

## Example
```yaml
data:
  - {prompt: [{role: user, content: "Is it open?"}],
     chosen: [{role: assistant, content: It is.}], rejected: [{role: assistant, content: Who knows.}]}
  - {prompt: [{role: user, content: "Is it open?"}],
     chosen: [{role: assistant, content: Who knows.}], rejected: [{role: assistant, content: It is.}]}
```

## Use instead
```yaml
data:
  - {prompt: [{role: user, content: "Is it open?"}],
     chosen: [{role: assistant, content: It is.}], rejected: [{role: assistant, content: Who knows.}]}
  - {prompt: [{role: user, content: "Is it open?"}],
     chosen: [{role: assistant, content: It is.}], rejected: [{role: assistant, content: Perhaps.}]}
```

## Fix safety
Dropping both loses nothing. If several people labelled the pairs, take the majority. If a mapping swapped rows, see
`winner-column-disagrees`.

## References
- OpenRLHF/OpenRLHF#1311, huggingface/trl#2578
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from truetune.checks.faults import Fault
from truetune.checks.find_near_copies import GrowingArray
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import completion_ids
from truetune.checks.pairs.evidence.winner_columns import do_columns_prefer_rejected
from truetune.checks.rule import MAX_CASES, PairRule, Setup
from truetune.data.conversation import Conversation, Origin
from truetune.encoding.batch import Batch

# Chosen; in LLaMA-Factory's sets of pairs and of KTO there is none. Labellers who disagree leave
# some such pairs in any large set that asks about a pair twice.
WARNING_SHARE = 0.01
"""Share of the comparisons from which it is a warning"""
NOTHING_TO_COMPARE = Unmet(
    "it is about pairs whose answers differ, and KTO's labels; the rows have neither"
)


class PairsWithOppositeLabels(PairRule):
    code = "PREF008"
    fault = Fault.PREFERENCES_REVERSED
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.ways = GrowingArray()
        """(comparisons, 6): one way and the other, as hashes; file, line, row, and where the answer begins"""
        self.files: dict[str, int] = {}

    def add_batch(self, batch: Batch) -> None:
        """Keep hashes of a batch's comparisons, and of the same ones the other way round."""
        comparisons = []
        if batch.pairs is not None:
            comparisons += [
                (_hash_parts(prompt, good, bad), _hash_parts(prompt, bad, good), row.origin, begins)
                for row, begins, prompt, good, bad in _rows_with_prompt_and_answers_as_bytes(
                    *batch.pairs
                )
                if good != bad and not do_columns_prefer_rejected(row)
            ]
        for i, (row, _) in enumerate(batch.examples):
            if row.label is not None:
                ids = batch.ids[batch.offsets[i] : batch.offsets[i + 1]].tobytes()
                verdict, other = b"\x01\x00" if row.label else b"\x00\x01"
                begins = int(batch.contexts[i])
                comparisons.append(
                    (
                        _hash_parts(ids, bytes([verdict])),
                        _hash_parts(ids, bytes([other])),
                        row.origin,
                        begins,
                    )
                )
        if comparisons:
            number = {
                at.file: self.files.setdefault(at.file, len(self.files))
                for _, _, at, _ in comparisons
            }
            rows = [
                (one, two, number[at.file], at.line, at.row, begins)
                for one, two, at, begins in comparisons
            ]
            self.ways.add(np.array(rows, dtype=np.uint64))

    def unmet(self) -> Unmet | None:
        """Unmet where there is nothing to compare."""
        return None if self.ways.parts else NOTHING_TO_COMPARE

    def measurement_if_clean(self) -> Measurement:
        """That no comparison also occurs with chosen and rejected swapped."""
        return make_count_measurement(
            "comparisons that also occur with chosen and rejected swapped",
            0,
            len(self.ways.whole()),
        )

    def findings(self) -> Iterator[Finding]:
        ways = self.ways.whole().reshape(-1, 6)
        # A comparison is opposed where its own hash is that of another one turned round. Two of
        # 2^32 different ones share a hash of 64 bits by chance.
        opposed = np.flatnonzero(np.isin(ways[:, 0], ways[:, 1]))
        if len(opposed):
            yield self.finding(
                f"{len(opposed):,} of {len(ways):,} comparisons also occur with chosen and rejected swapped, so the"
                " two cancel out",
                "drop both, or keep the one that most of your labellers chose",
                severity="warning" if len(opposed) >= WARNING_SHARE * len(ways) else "info",
                cases=list(self._cases_of_opposites(ways, opposed[:MAX_CASES].tolist())),
                count=len(opposed),
                total=len(ways),
            )

    def _cases_of_opposites(
        self, ways: NDArray[np.uint64], places: Iterable[int]
    ) -> Iterator[Case]:
        """A case for each opposed comparison, with the place of one that is its opposite."""
        files = list(self.files)
        for place in places:
            other = int(np.flatnonzero(ways[:, 1] == ways[place, 0])[0])
            here, there = (
                Origin(files[int(ways[i, 2])], *map(int, ways[i, 3:5])) for i in (place, other)
            )
            yield Case(
                (f"chosen and rejected are swapped at {there}"), here, token=int(ways[place, 5])
            )


def _rows_with_prompt_and_answers_as_bytes(
    chosen: Batch, rejected: Batch
) -> Iterator[tuple[Conversation, int, bytes, bytes, bytes]]:
    """(row, where its answer begins, prompt, chosen, rejected), the last three as bytes of ids."""
    contexts, starts = chosen.contexts.tolist(), chosen.offsets.tolist()
    for i, (good, bad) in enumerate(
        zip(completion_ids(chosen), completion_ids(rejected), strict=True)
    ):
        prompt = chosen.ids[starts[i] : starts[i] + contexts[i]]
        yield chosen.examples[i].row, contexts[i], prompt.tobytes(), good.tobytes(), bad.tobytes()


def _hash_parts(*parts: bytes) -> int:
    """A hash of 64 bits of some byte strings, and of where the one ends and the next begins."""
    digest = blake2b(digest_size=8)
    for part in parts:
        # Without the lengths, ("ab", "c") and ("a", "bc") would be one.
        digest.update(len(part).to_bytes(8, "little") + part)
    return int.from_bytes(digest.digest(), "little")
