"""Judges rows as a check does (reader, renderer, encoder and rules), before and after edits, to prove that an edit
helps.

The same reader, renderer, encoder and rules as in `truetune check`: an edit counts as proved only by what a check would
find afterwards. Rows are judged many times, so that each is rendered once; the trade-off is that a group's renderings
are held until it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from truetune.checks.rule import DataRule, Setup
from truetune.checks.rule_catalogue import find_rule
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.errors import TemplateError
from truetune.render.renderer import Renderer
from truetune.render.rendering import Rendering
from truetune.render.row_fields_lost_in_rendering import FieldTracker


class RowJudge:
    """Renders and encodes rows, and asks rules about them, as a check does."""

    def __init__(self, setup: Setup | None, *, only_reference: bool = False) -> None:
        self.setup = setup
        self._renderer: _CachingRenderer | None = None
        self._encoder: Encoder | None = None
        if setup is not None:
            self._renderer = _CachingRenderer(setup.probes.renderer())
            self._encoder = Encoder(setup.tokenizer.backend, only_reference=only_reference)

    def __call__(self, rows: Sequence[Conversation]) -> JudgedRows:
        """The rows, rendered and encoded where there is a tokenizer."""
        if self._renderer is None or self._encoder is None:
            return JudgedRows(_batch_without_tokens(list(rows)), None)
        return JudgedRows(make_batch(list(rows), self._renderer, self._encoder), self.setup)

    def verify_renderer(self) -> None:
        """Compare the renderer's shortcut with the exact way. Raises FastPathError where it was
        wrong.
        """
        if self._renderer is not None:
            self._renderer.inner.prove()

    def forget_renderings(self) -> None:
        """Drop the renderings that are cached: these rows will not come again."""
        if self._renderer is not None:
            self._renderer.known.clear()


class _CachingRenderer:
    """A renderer that renders each row once, however often it is judged: beside others, before an edit and after."""

    def __init__(self, inner: Renderer) -> None:
        self.inner = inner
        self.known: dict[int, tuple[Conversation, list[Rendering] | TemplateError]] = {}
        """By the identity of the row, which is held so that no other gets it"""

    def render(self, row: Conversation) -> list[Rendering]:
        """The renderings of a row, from the cache where it was rendered before. Raises
        TemplateError.
        """
        # By identity: two rows may be equal, and hashing one costs as much as rendering it.
        if id(row) not in self.known:
            try:
                self.known[id(row)] = row, self.inner.render(row)
            except TemplateError as error:
                # A refusal is an answer like any other, and takes as long to get.
                self.known[id(row)] = row, error
        result = self.known[id(row)][1]
        if isinstance(result, TemplateError):
            raise result
        return result

    def render_by_template_with_offsets(self, row: Conversation) -> list[Rendering]:
        """The renderings by the exact way, which are not cached: they prove the others."""
        return self.inner.render_by_template_with_offsets(row)


class JudgedRows:
    """Some rows as one batch of a check, and what rules find in them."""

    def __init__(self, batch: Batch, setup: Setup | None) -> None:
        self.batch = batch
        self._setup = setup
        self._counts: dict[str, int] = {}

    def count_findings(self, rule: str) -> int:
        """How many places a rule finds in these rows; 0 where there is no tokenizer."""
        if self._setup is None:
            return 0
        if rule not in self._counts:
            kind = find_rule(rule)
            assert issubclass(kind, DataRule)
            rule_instance = kind(self._setup)
            # A new instance each time: rules count over all rows that they have seen.
            rule_instance.add_batch(self.batch)
            # A finding without a count speaks of the rows as a whole.
            self._counts[rule] = sum(finding.count or 1 for finding in rule_instance.findings())
        return self._counts[rule]

    @property
    def template_refusal_reason_by_row(self) -> dict[int, str]:
        """Row number -> why the template refuses it."""
        # Plain text has no template that could refuse it.
        if self._setup is not None and self._setup.probes.template is None:
            return {}
        return {row.origin.row: reason for row, reason in self.batch.rejected}

    def count_turns_with_lost_content(self) -> int:
        """How many trained turns the template drops something of that the model says: a call, its
        reasoning.

        The template writes no token of it, so that the model learns an empty or another answer.
        """
        if self._setup is None:
            return 0
        tracker = FieldTracker(self._setup.probes.renderer())
        count = 0
        # One conversation may be several examples, and a field is lost only where none of them
        # holds it.
        for _, examples in groupby(self.batch.examples, lambda one: one.row.origin.row):
            own = list(examples)
            lost = tracker.fields_lost_from_training_examples(
                own[0].row, [one.rendering for one in own]
            )
            count += sum(field.effect in ("empties", "changes") for field in lost)
        return count

    def supervised_token_count_by_row(self) -> dict[int, int]:
        """Row number -> how many supervised tokens it has; rows without an example have none."""
        tokens = {row.origin.row: 0 for row in self.batch.rows}
        counts = self.batch.count_true_per_example(self.batch.supervised).tolist()
        for example, count in zip(self.batch.examples, counts, strict=True):
            tokens[example.row.origin.row] += count
        return tokens


def _batch_without_tokens(rows: list[Conversation]) -> Batch:
    """A batch of rows without tokens, where no tokenizer is named."""
    # A batch without a token: what the reader says of rows is judged all the same.
    none = np.zeros(0, dtype=np.int32)
    return Batch(
        rows,
        [],
        [],
        none,
        np.zeros(1, dtype=np.int64),
        none.astype(np.uint8),
        none.astype(np.bool_),
        none,
    )
