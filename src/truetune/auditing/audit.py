"""An audit holds the batches of a real run, with the source of every token in them: what rules on
batches, invariants and recitations see.

The trade-off: flat arrays over the tokens of a line, for rules compare whole lines at once; which field a token is from
is an index, and the texts of fields stand beside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.encoding.token_counts import Ledger, count_tokens
from truetune.probe.run_record import Record
from truetune.render.rendering import IGNORED, Source
from truetune.render.template_probes import Probes
from truetune.settings.run_spec import RunSpec

NO_DOCUMENT = -1
"""The document of a place that holds no token of any"""


@dataclass(frozen=True, slots=True)
class Field:
    """One text of a given row."""

    path: str
    """`messages[1].content`, `output`"""
    source: Source
    text: str
    row: int
    """Number of the given row, 0-based"""


@dataclass(frozen=True)
class Sample:
    """One line of a micro-batch: (tokens,) each, padding included."""

    rank: int
    batch: int
    line: int
    """Which line of the batch"""
    ids: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    """As the collator gave them: ids, or -100; made from its loss mask where it gives one; None where neither is"""
    attended: NDArray[np.bool_]
    """By the attention mask; all where there is none"""
    positions: NDArray[np.int64] | None
    documents: NDArray[np.int64]
    """Number of the document within this line, from 0; PAD for padding. Documents that the batch does not part are
    told by the rows they are from"""
    padding: NDArray[np.bool_]
    """Places behind or before all text: pads by position, attended or not"""
    source: NDArray[np.uint8]
    """Source of each token; a stop token that ends an answer is STOP"""
    field: NDArray[np.int32]
    """Index in `fields` of the text that each token is from; -1 for template text, special tokens and padding"""
    fields: tuple[Field, ...]
    expected: NDArray[np.bool_] | None
    """Must the model produce this token when served (the inference contract)? None where nothing is recognised; of a
    document in a pack that is not recognised, what is supervised"""
    pieces: tuple[str, ...]
    """What each id spells"""
    side: str = ""
    """`chosen` or `rejected` in a batch of pairs, `kl` for KTO's mismatched ones"""
    placed_by: str = ""
    """How most of it was placed: `rendering` (the ids are those of a row's own rendering), `fields` (the texts of given
    rows stand in it), `markers` (the template's), or nothing"""
    separated_by: tuple[str, ...] = ()
    """Keys of the batch that part its documents (`position_ids`, `seq_idx`, `attention_mask`, ...)"""
    cut: tuple[int, ...] = ()
    """Indices in `fields` of the texts of which only a part stands here"""

    @cached_property
    def supervised(self) -> NDArray[np.bool_]:
        """(tokens,) is the token's own label in the loss?"""
        return (
            self.labels != IGNORED if self.labels is not None else np.zeros(len(self.ids), np.bool_)
        )

    @property
    def place(self) -> str:
        """`batch 0, line 2`, with the side and the rank where there are several"""
        side = f" ({self.side})" if self.side else ""
        return f"batch {self.batch}, line {self.line}{side}" + (
            f" of rank {self.rank}" if self.rank else ""
        )

    def text(self, start: int, end: int) -> str:
        """The tokens of a range as text."""
        # Halves of a character become whole beside each other; what stays half is shown as replaced.
        whole = "".join(self.pieces[start:end])
        return whole.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@dataclass(frozen=True)
class Audit:
    """A run that is about to start, as its processes recorded it."""

    records: tuple[Record, ...]
    """By rank"""
    samples: tuple[Sample, ...]
    probes: Probes | None
    """The tokenizer and template of the run; None where there is none"""
    stops: frozenset[int]
    """Ids that end a turn: of the tokenizer, generation_config and template"""
    spec: RunSpec = field(default_factory=RunSpec)

    @property
    def facts(self) -> dict[str, Any]:
        """Of the first process; see `truetune.probe.run_record.Record`"""
        return self.records[0].facts

    @property
    def kind(self) -> str:
        """sft, dpo, kto, orpo, reward, loop"""
        return str(self.facts["trainer"]["kind"])

    @property
    def laws(self) -> dict[str, dict[str, Any]]:
        """What each law that was tried gave, by its name; empty where none were"""
        return dict(self.facts.get("laws", {}))

    @property
    def loss(self) -> dict[str, Any]:
        """Which function computes the loss; empty in records of earlier releases"""
        return dict(self.facts["trainer"].get("loss") or {})

    @cached_property
    def ledger(self) -> Ledger:
        """Tokens of all samples by source, without padding."""
        total = np.zeros((len(Source), 2), np.int64)
        for sample in self.samples:
            kept = ~sample.padding
            total += count_tokens(sample.source[kept], sample.supervised[kept]).counts
        return Ledger(total)

    def batches(self) -> Iterator[tuple[Sample, ...]]:
        """The lines of each micro-batch, rank by rank."""
        keys = dict.fromkeys((s.rank, s.batch) for s in self.samples)
        for key in keys:
            yield tuple(s for s in self.samples if (s.rank, s.batch) == key)
