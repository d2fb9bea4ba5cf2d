"""Rows in, batches out: rendered by this thread while another one encodes the batch before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch, Example, Rejected
from truetune.encoding.encoder import Encoder
from truetune.encoding.token_labels import label_tokens
from truetune.errors import FastPathError, TemplateError
from truetune.render.renderer import Renderer
from truetune.render.rendering import Rendering

ROWS = 256
T = TypeVar("T")
_LOG = logging.getLogger(__name__)


class RowRenderer(Protocol):
    """What makes examples of rows. Both raise TemplateError."""

    def render(self, row: Conversation) -> list[Rendering]: ...
    def exact(self, row: Conversation) -> list[Rendering]: ...


def with_proof(work: Callable[[bool], T]) -> T:
    """What `work` gives, called with False.

    Where it finds a shortcut wrong, a line of the log says so, and it is called with True: begin again without them.
    """
    try:
        return work(False)
    except FastPathError as error:
        _LOG.warning("%s", void_notice(error))
        return work(True)


def void_notice(error: FastPathError) -> str:
    """What a user is told of a shortcut that was proved wrong."""
    return f"{error}: all is made again without shortcuts; please report this"


def batches(
    rows: Iterable[Conversation], renderer: Renderer, encoder: Encoder, size: int = ROWS
) -> Iterator[Batch]:
    """The batches of a stream of rows, in order; a row that can't be rendered is in `rejected`.

    Raises FastPathError, after which none of the batches before may be used; it does so before the last one at latest.
    """
    source = iter(rows)
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending: Future[Batch] | None = None
        while chunk := list(islice(source, size)):
            following = pool.submit(_encode_rendered, _render_rows(chunk, renderer), encoder)
            if pending is not None:
                yield pending.result()
            pending = following
        renderer.prove()
        if pending is not None:
            yield pending.result()


def batch(
    rows: list[Conversation], renderer: RowRenderer, encoder: Encoder, *, exact: bool = False
) -> Batch:
    """One batch; with `exact`, rendered by the template itself, every offset in its runs known."""
    return _encode_rendered(_render_rows(rows, renderer, exact), encoder)


class _Rendered(NamedTuple):
    rows: list[Conversation]
    examples: list[Example]
    others: list[Example]
    """The rejected sides of the examples that are pairs"""
    rejected: list[Rejected]


def _render_rows(rows: list[Conversation], renderer: RowRenderer, exact: bool = False) -> _Rendered:
    """Of a pair either both sides are rendered, or it is rejected."""
    made = _Rendered(rows, [], [], [])
    render = renderer.exact if exact else renderer.render
    for row in rows:
        try:
            examples = [Example(row, rendering) for rendering in render(row)]
            if row.rejected is not None:
                other = row.exchanged()
                made.others.extend(Example(other, rendering) for rendering in render(other))
        except (TemplateError, RecursionError, OverflowError) as error:
            made.rejected.append(Rejected(row, str(error)))
        else:
            made.examples.extend(examples)
    return made


def _encode_rendered(rendered: _Rendered, encoder: Encoder) -> Batch:
    """Both sides of pairs go through the encoder together: it sees a prompt that they share but once."""
    rows, examples, others, rejected = rendered
    renderings = [example.rendering for example in (*examples, *others)]
    encoded = encoder.encode([rendering.text for rendering in renderings])
    source, supervised = label_tokens(renderings, encoded)
    if not others:
        return Batch(
            rows,
            examples,
            rejected,
            encoded.ids,
            encoded.offsets,
            source,
            supervised,
            encoded.starts,
        )
    ids, offsets, starts = encoded
    count = len(examples)
    cut = int(offsets[count])
    behind, ends = slice(cut, None), offsets[count:] - cut
    other = Batch(
        [], others, [], ids[behind], ends, source[behind], supervised[behind], starts[behind]
    )
    return Batch(
        rows,
        examples,
        rejected,
        ids[:cut],
        offsets[: count + 1],
        source[:cut],
        supervised[:cut],
        starts[:cut],
        other,
    )
