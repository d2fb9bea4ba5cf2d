"""Finds the training examples of the given rows again among the ids of a batch.

The rows are rendered and encoded in each way that trainers do it, and the ids of a line are compared with the results:
equal ids prove where every token is from. The trade-off: one other token (a system prompt more, another template) and
nothing matches; then the texts are searched (`search_row_fields_in_text`), which proves less and finds more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.errors import TruetuneError
from truetune.render.rendering import Source
from truetune.render.template_probes import Probes
from truetune.settings.run_spec import Learn

Ids = NDArray[np.int64]
# Chosen, not measured: fewer tokens stand in a line by chance; more would miss short answers.
MIN_MATCH_TOKENS = 4
"""An example of fewer tokens is found only where it is a whole document."""


RENDERING_SETTINGS: dict[str, dict[str, Any]] = {
    "as-served": {"history": "as-served"},
    "eos": {"append_eos": True},
    "completion": {"learn": Learn(what="completion")},
}
"""Settings of the renderer for rows that may have been rendered otherwise"""


@dataclass(frozen=True, eq=False)
class RowExample:
    """One training example of a given row, as the inference contract has it."""

    row: int
    ids: Ids
    source: NDArray[np.uint8]
    supervised: NDArray[np.bool_]
    plain: bool
    """Text without turns: what of it is to be learned is the trainer's choice"""


class RenderingMatch(NamedTuple):
    """`ids[start:end]` are `example.ids[begin:begin + end - start]`."""

    start: int
    end: int
    example: RowExample
    begin: int


class RenderingIndex:
    """Examples by row and by ids."""

    def __init__(self, probes: Probes, rows: Mapping[int, Conversation]) -> None:
        self.examples_by_row: dict[int, list[RowExample]] = {}
        self._whole: dict[bytes, RowExample] = {}
        encoder = Encoder(probes.tokenizer.backend, only_reference=True)
        for kind, conversations in _list_rendering_variants(rows.values()):
            renderer = replace(probes, only_reference=True).renderer(
                **{"history": "single", **RENDERING_SETTINGS.get(kind, {})}
            )
            encoded = make_batch(conversations, renderer, encoder)
            for part in (encoded, encoded.rejected_sides):
                if part is not None:
                    self._index_examples_of_batch(part)

    def _index_examples_of_batch(self, encoded: Batch) -> None:
        """Index each example of an encoded batch, by its row and by its ids."""
        for i, example in enumerate(encoded.examples):
            part = slice(int(encoded.offsets[i]), int(encoded.offsets[i + 1]))
            ids, row = encoded.ids[part].astype(np.int64), example.row.origin.row
            row_example = RowExample(
                row,
                ids,
                encoded.source[part],
                encoded.supervised[part],
                example.row.text is not None,
            )
            # Of equal ids the first variant stays: the order of variants is the order of what trainers do.
            if len(ids) and self._whole.setdefault(ids.tobytes(), row_example) is row_example:
                self.examples_by_row.setdefault(row, []).append(row_example)

    def matches(self, ids: Ids, rows: Sequence[int], hint: int | None) -> list[RenderingMatch]:
        """The examples in a range of ids, in order: whole, then cut ones at its ends."""
        whole = self._whole.get(ids.tobytes())
        if whole is not None:
            return [
                RenderingMatch(0, len(ids), self._same_example_of_expected_row(whole, ids, hint), 0)
            ]
        order = dict.fromkeys(rows if hint is None else [hint, *rows])
        near = [example for row in order for example in self.examples_by_row.get(row, ())]
        matches = _match_whole(ids, near)
        others = [
            example
            for row, many in self.examples_by_row.items()
            if row not in order
            for example in many
        ]
        return _add_cut_examples(ids, matches, [*near, *others])

    def _same_example_of_expected_row(
        self, whole: RowExample, ids: Ids, hint: int | None
    ) -> RowExample:
        """Of examples with the same ids that of the row which is expected here."""
        for example in self.examples_by_row.get(hint, ()) if hint is not None else ():
            if np.array_equal(example.ids, ids):
                return example
        return whole


def _match_whole(ids: Ids, examples: list[RowExample]) -> list[RenderingMatch]:
    """Examples that stand whole in a range, longest first, so that none is found inside of another; by place."""
    matches: list[RenderingMatch] = []
    taken = np.zeros(len(ids), np.bool_)
    for example in sorted(examples, key=lambda example: -len(example.ids)):
        if len(example.ids) < MIN_MATCH_TOKENS:
            continue
        for at in _find_ids(ids, example.ids):
            end = at + len(example.ids)
            if not taken[at:end].any():
                taken[at:end] = True
                matches.append(RenderingMatch(at, end, example, 0))
    return sorted(matches, key=lambda match: match.start)


def _list_rendering_variants(
    rows: Iterable[Conversation],
) -> Iterator[tuple[str, list[Conversation]]]:
    """The rows by how they may have been rendered: what trainers do first."""
    kinds: dict[str, list[Conversation]] = {}
    for row in rows:
        # Plain text is learned as it is, or with an EOS, as trainers append one.
        if not row.is_chat:
            kinds.setdefault("plain", []).append(row)
            kinds.setdefault("eos", []).append(row)
        elif row.prompt_messages is not None:
            kinds.setdefault("completion", []).append(row)
        else:
            kinds.setdefault("single", []).append(row)
            if sum(message.get("role") == "assistant" for message in row.messages) > 1:
                kinds.setdefault("as-served", []).append(row)
    order = ("single", "completion", "plain", "eos", "as-served")
    yield from ((kind, kinds[kind]) for kind in order if kind in kinds)


def _find_ids(ids: Ids, wanted: Ids) -> Iterator[int]:
    """Where some ids stand among others, in order."""
    hay, needle, size = ids.tobytes(), wanted.tobytes(), ids.itemsize
    # Bytes are searched in C; a place that is no multiple of an id's size lies across ids and is none.
    at = hay.find(needle) if len(wanted) else -1
    while at >= 0:
        if at % size == 0:
            yield at // size
        at = hay.find(needle, at + (len(needle) if at % size == 0 else 1))


def _add_cut_examples(
    ids: Ids, matches: list[RenderingMatch], examples: list[RowExample]
) -> list[RenderingMatch]:
    """With the example that ends before the first match, and the one that begins behind the last."""
    middle = None if matches else _match_inside_one_example(ids, examples)
    if middle:
        return [middle]
    head = matches[0].start if matches else len(ids)
    ended = _match_example_end_at_range_start(ids[:head], examples)
    matches = [ended, *matches] if ended else matches
    tail = matches[-1].end if matches else 0
    begun = _match_example_start_at_range_end(ids[tail:], examples)
    if begun:
        matches = [*matches, begun._replace(start=begun.start + tail, end=len(ids))]
    return matches


def _match_inside_one_example(ids: Ids, examples: list[RowExample]) -> RenderingMatch | None:
    """All of a range from inside one example: cut at its end first."""
    parts = [
        RenderingMatch(0, len(ids), example, at)
        for example in examples
        if len(example.ids) > len(ids)
        for at in _find_ids(example.ids, ids)
    ]
    return min(parts, key=lambda match: match.begin, default=None)


def _match_example_end_at_range_start(
    ids: Ids, examples: list[RowExample]
) -> RenderingMatch | None:
    """The longest end of an example with which a range begins."""
    if not len(ids):
        return None
    longest, most = None, 0
    key_size = min(MIN_MATCH_TOKENS, len(ids))
    for example in examples:
        # The last tokens of the example are looked for first: comparing all lengths would take quadratic time.
        for at in _find_ids(ids, example.ids[-key_size:]):
            count = at + min(key_size, len(example.ids))
            if count > most and np.array_equal(ids[:count], example.ids[-count:]):
                most = count
                longest = RenderingMatch(0, count, example, len(example.ids) - count)
    return longest


def _match_example_start_at_range_end(
    ids: Ids, examples: list[RowExample]
) -> RenderingMatch | None:
    """The longest beginning of an example with which a range ends."""
    if not len(ids):
        return None
    longest, first = None, len(ids)
    for example in examples:
        for at in _find_ids(ids, example.ids[: min(MIN_MATCH_TOKENS, len(ids))]):
            if at < first and np.array_equal(ids[at:], example.ids[: len(ids) - at]):
                first = at
                longest = RenderingMatch(at, len(ids), example, 0)
    return longest


def index_renderings(
    probes: Probes | None, rows: Mapping[int, Conversation]
) -> RenderingIndex | None:
    """Index the renderings of these rows.

    None where there is no tokenizer, or it can't render these rows.
    """
    if probes is None:
        return None
    try:
        return RenderingIndex(probes, rows)
    # A template that refuses the rows is a finding of its own; tokens are placed by their texts then.
    except TruetuneError:
        return None


def assistant_token_mask(source: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(tokens,) -> (tokens,): content, reasoning and calls of the assistant."""
    return np.isin(source, (Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL))
