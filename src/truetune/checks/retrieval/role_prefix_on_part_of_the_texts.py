"""The prefix that says a text's role is on some of the texts only.

## What it does
Counts prefixes of roles ("query: ", "passage: ", "search_query: ", "search_document: ", "Represent this sentence ...:
", "Instruct: ... Query: ") before queries and before the texts that they are compared with. It fires if 1 to 99 % of
one side have the prefix of the rest, or if the prefix of one side is of a model that wants one on both.

## Why it is bad
A prefix is part of the text. The model learns that texts with it are of one kind, so texts without it are farther
from all others, whatever they say. E5 and Nomic are trained with a prefix on both sides. Used with one, or on some
texts, they rank worse, and nothing fails.

## Example
```yaml
data:
  - {query: "query: When do you open?", positive: "passage: We open at nine."}
  - {query: "Where is the station?", positive: "passage: Next to the church."}
  - {query: "query: Is the pool heated?", positive: "passage: The water has 26 degrees."}
```

## Use instead
```yaml
data:
  - {query: "query: When do you open?", positive: "passage: We open at nine."}
  - {query: "query: Where is the station?", positive: "passage: Next to the church."}
  - {query: "query: Is the pool heated?", positive: "passage: The water has 26 degrees."}
```

## Fix safety
Adding the prefix to the rows that lack it is safe, if the program that trains adds none itself.

## References
- microsoft/unilm#1325, nextcloud/context_chat_backend#338, jeanibarz/knowledge-base-mcp-server#567
- QwenLM/Qwen3-Embedding#119 (who adds the instruction: the rows, or the program?)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.retrieval.evidence.compare_texts_of_rows import cases_of_rows
from truetune.checks.rule import RetrievalRule
from truetune.data.retrieval_rows import RetrievalRow

PREFIX = re.compile(
    r"(?P<instruct>Instruct: )|(?P<represent>Represent this (?:sentence|query|question)[^:]{0,80}: ?)"
    r"|(?P<name>[Qq]uery|[Pp]assage|[Dd]ocument|search_query|search_document|classification|clustering): "
)
OTHER_SIDE = {"query": "passage", "search_query": "search_document"}
"""Prefix of queries -> that of the texts, of models that want both"""
# Chosen, not measured: one row of a hundred may quote such a prefix.
MIN_SHARE, MAX_SHARE = 0.01, 0.99
"""Share of a side's texts with the prefix, between which it is on part of them"""
MIN_TEXTS_WITH_PREFIX = 2
"""A single text may begin so by chance"""


@dataclass(frozen=True, slots=True)
class _Side:
    """The prefixes of the queries, or of the texts that they are compared with."""

    title: str
    texts: Sequence[tuple[RetrievalRow, str]]
    prefix: str
    """The most frequent prefix; empty where none is"""
    lacking: Sequence[tuple[RetrievalRow, str]]
    """Texts without it"""

    @property
    def is_on_part(self) -> bool:
        """Is the prefix on some of the texts only?"""
        with_prefix = len(self.texts) - len(self.lacking)
        share = with_prefix / max(len(self.texts), 1)
        return with_prefix >= MIN_TEXTS_WITH_PREFIX and MIN_SHARE <= share < MAX_SHARE

    @property
    def is_on_all(self) -> bool:
        """Do nearly all texts have it?"""
        return bool(self.prefix) and len(self.lacking) <= (1 - MAX_SHARE) * len(self.texts)


class RolePrefixOnPartOfTheTexts(RetrievalRule):
    code = "RET004"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("odd-metrics",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet where no text has such a prefix."""
        if super().unmet() is None and not any(side.prefix for side in self._sides()):
            return Unmet("it is about prefixes of roles, and no text begins with one")
        return super().unmet()

    def measurement_if_clean(self) -> Measurement:
        """How many texts of the sides with a prefix lack it."""
        sides = [side for side in self._sides() if side.prefix]
        lacking = sum(len(side.lacking) for side in sides)
        texts = sum(len(side.texts) for side in sides)
        return make_count_measurement("texts without the prefix of their role", lacking, texts)

    def findings(self) -> Iterator[Finding]:
        """The finding on texts that lack the prefix of the others."""
        queries, others = self._sides()
        parts = [side for side in (queries, others) if side.is_on_part]
        for side in parts:
            yield self.finding(
                f"{len(side.lacking):,} of {len(side.texts):,} {side.title} lack the prefix {side.prefix!r} that the"
                " others have",
                f"put {side.prefix!r} before all of them, or before none",
                cases=cases_of_rows(side.lacking),
                count=len(side.lacking),
                total=len(side.texts),
            )
        if not parts:
            yield from self._findings_on_one_side(queries, others)

    def _findings_on_one_side(self, queries: _Side, others: _Side) -> Iterator[Finding]:
        """The finding on a prefix that one side has, of a model that wants one on both."""
        for role, other_role in OTHER_SIDE.items():
            names = (f"{role}: ", f"{other_role}: ")
            if queries.is_on_all and queries.prefix == names[0] and not others.prefix:
                yield self._finding_on_bare_side(queries, others, names[1])
            elif others.is_on_all and others.prefix == names[1] and not queries.prefix:
                yield self._finding_on_bare_side(others, queries, names[0])

    def _finding_on_bare_side(self, prefixed: _Side, bare: _Side, wanted: str) -> Finding:
        """The finding on a side whose texts all lack their prefix."""
        return self.finding(
            f"the {prefixed.title} begin with {prefixed.prefix!r}, and no one of {len(bare.texts):,} {bare.title} with"
            f" {wanted!r}",
            f"put {wanted!r} before the {bare.title}, as models with these prefixes are trained",
            cases=cases_of_rows(bare.texts),
            count=len(bare.texts),
            total=len(bare.texts),
        )

    def _sides(self) -> tuple[_Side, _Side]:
        """The queries, and the texts that they are compared with."""
        rows = self.subject.rows
        queries = [(row, row.query) for row in rows]
        others = [(row, text) for row in rows for text in (*row.positives, *row.negatives)]
        return _side_of_texts("queries", queries), _side_of_texts("texts", others)


def _side_of_texts(title: str, texts: Sequence[tuple[RetrievalRow, str]]) -> _Side:
    """A side with its most frequent prefix."""
    prefixes = [_prefix_of_text(text) for _, text in texts]
    present = [prefix for prefix in prefixes if prefix]
    most = max(sorted(set(present)), key=present.count, default="")
    lacking = [one for one, prefix in zip(texts, prefixes, strict=True) if prefix != most]
    return _Side(title, texts, most, lacking)


def _prefix_of_text(text: str) -> str:
    """The prefix of a role that a text begins with; empty without one."""
    match = PREFIX.match(text)
    if match is None:
        return ""
    # Instructions differ by task, and are one prefix.
    return "Instruct: " if match["instruct"] else match[0]
