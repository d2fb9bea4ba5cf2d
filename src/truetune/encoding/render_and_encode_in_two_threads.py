"""Makes batches of a stream of rows: this thread renders one batch while another thread encodes the batch before.

Rendering is Python and holds the lock; encoding is Rust and numpy, which let go of it. Two threads therefore use two
cores without a second process. The trade-off: each batch comes one batch late, and an error of the encoder with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch, Example, RejectedRow
from truetune.encoding.encoder import Encoder
from truetune.encoding.repeat_picture_tokens import repeat_picture_tokens
from truetune.encoding.token_labels_from_character_spans import label_tokens
from truetune.errors import FastPathError, TemplateError
from truetune.render.rendering import Rendering

ROWS = 256
"""Rows of a batch. Chosen, not measured: numpy's cost per call is spread over some thousand pieces, and a batch of long
rows still takes few MB. Larger ones would find more pieces that they share, and hold more back."""
T = TypeVar("T")
_LOG = logging.getLogger(__name__)


class RowRenderer(Protocol):
    """What makes examples of rows. Both raise TemplateError."""

    def render(self, row: Conversation) -> list[Rendering]: ...
    def render_by_template_with_offsets(self, row: Conversation) -> list[Rendering]: ...


class StreamRenderer(RowRenderer, Protocol):
    """What makes examples of many rows by shortcuts, and proves these at the end."""

    def prove(self) -> None: ...


def retry_without_shortcuts(work: Callable[[bool], T]) -> T:
    """Call `work` with False. Where it finds a shortcut wrong, a line of the log says so, and it is
    called with True: begin again without shortcuts.

    Where it finds a shortcut wrong, a line of the log says so, and it is called with True: begin again without them.
    """
    try:
        return work(False)
    except FastPathError as error:
        _LOG.warning("%s", describe_wrong_shortcut(error))
        return work(True)


def describe_wrong_shortcut(error: FastPathError) -> str:
    """The sentence that tells a user of a shortcut that was proved wrong."""
    return f"{error}: all is made again without shortcuts; please report this"


def stream_batches(
    rows: Iterable[Conversation], renderer: StreamRenderer, encoder: Encoder, size: int = ROWS
) -> Iterator[Batch]:
    """The batches of a stream of rows, in order; a row that can't be rendered is in `rejected`.

    Raises FastPathError, after which none of the batches before may be used; it does so before the last one at latest.
    """
    source = iter(rows)
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending: Future[Batch] | None = None
        chunk = list(islice(source, size))
        while chunk:
            following = pool.submit(_encode_rendered, _render_rows(chunk, renderer), encoder)
            if pending is not None:
                yield pending.result()
            pending = following
            chunk = list(islice(source, size))
        # Before the last batch goes out: who has all batches may use them.
        renderer.prove()
        if pending is not None:
            yield pending.result()


def make_batch(
    rows: list[Conversation], renderer: RowRenderer, encoder: Encoder, *, exact: bool = False
) -> Batch:
    """One batch; with `exact`, rendered by the template itself, every offset in its runs known."""
    return _encode_rendered(_render_rows(rows, renderer, exact), encoder)


class _Rendered(NamedTuple):
    """A batch between rendering and encoding."""

    rows: list[Conversation]
    examples: list[Example]
    others: list[Example]
    """The rejected sides of the examples that are pairs"""
    rejected: list[RejectedRow]


def _render_rows(rows: list[Conversation], renderer: RowRenderer, exact: bool = False) -> _Rendered:
    """Render rows to examples; a row that the template refuses is rejected. Of a pair either both
    sides are rendered, or it is rejected.
    """
    rendered = _Rendered(rows, [], [], [])
    render = renderer.render_by_template_with_offsets if exact else renderer.render
    for row in rows:
        try:
            examples = [Example(row, rendering) for rendering in render(row)]
            if row.rejected is not None:
                other = row.with_sides_exchanged()
                # `render` returns a list: where it raises, nothing of this side is in `others` yet.
                rendered.others.extend(Example(other, rendering) for rendering in render(other))
        except (TemplateError, RecursionError, OverflowError) as error:
            # Rows nested too deeply, and numbers too large to write, are the row's fault as well.
            rendered.rejected.append(RejectedRow(row, str(error)))
        else:
            rendered.examples.extend(examples)
    return rendered


def _encode_rendered(rendered: _Rendered, encoder: Encoder) -> Batch:
    """Encode and label a rendered batch. Both sides of pairs go through the encoder together: it
    sees a prompt that they share but once.
    """
    rows, examples, others, rejected = rendered
    renderings = [example.rendering for example in (*examples, *others)]
    encoded = encoder.encode([rendering.text for rendering in renderings])
    source, supervised = label_tokens(renderings, encoded)
    encoded, source, supervised = repeat_picture_tokens(renderings, encoded, source, supervised)
    ids, offsets, starts = encoded
    # Of all tokens the first `chosen_tokens` belong to `examples`, the rest to the rejected sides.
    count = len(examples)
    chosen_tokens = int(offsets[count])
    rejected_sides = None
    if others:
        behind = slice(chosen_tokens, None)
        rejected_sides = Batch(
            rows=[],
            examples=others,
            rejected=[],
            ids=ids[behind],
            offsets=offsets[count:] - chosen_tokens,
            source=source[behind],
            supervised=supervised[behind],
            starts=starts[behind],
        )
    return Batch(
        rows=rows,
        examples=examples,
        rejected=rejected,
        ids=ids[:chosen_tokens],
        offsets=offsets[: count + 1],
        source=source[:chosen_tokens],
        supervised=supervised[:chosen_tokens],
        starts=starts[:chosen_tokens],
        rejected_sides=rejected_sides,
    )
