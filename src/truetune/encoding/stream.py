"""Rows in, batches out: rendered by this thread while another one encodes the batch before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch, Example, Rejected
from truetune.encoding.encoder import Encoder
from truetune.encoding.label import label
from truetune.errors import TemplateError
from truetune.render.renderer import Renderer

ROWS = 256


def batches(rows: Iterable[Conversation], renderer: Renderer, encoder: Encoder, size: int = ROWS) -> Iterator[Batch]:
    """The batches of a stream of rows, in order; a row that can't be rendered is in `rejected`."""
    source = iter(rows)
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending: Future[Batch] | None = None
        while chunk := list(islice(source, size)):
            examples, rejected = _render(chunk, renderer)
            following = pool.submit(_encode, chunk, examples, rejected, encoder)
            if pending is not None:
                yield pending.result()
            pending = following
        if pending is not None:
            yield pending.result()


def batch(rows: list[Conversation], renderer: Renderer, encoder: Encoder, *, exact: bool = False) -> Batch:
    """One batch; with `exact`, rendered by the template itself, every offset in its runs known."""
    return _encode(rows, *_render(rows, renderer, exact), encoder)


def _render(rows: list[Conversation], renderer: Renderer, exact: bool = False) -> tuple[list[Example], list[Rejected]]:
    examples: list[Example] = []
    rejected: list[Rejected] = []
    render = renderer.exact if exact else renderer.render
    for row in rows:
        try:
            examples += [Example(row, rendering) for rendering in render(row)]
        except (TemplateError, RecursionError, OverflowError) as error:
            rejected.append(Rejected(row, str(error)))
    return examples, rejected


def _encode(rows: list[Conversation], examples: list[Example], rejected: list[Rejected], encoder: Encoder) -> Batch:
    renderings = [example.rendering for example in examples]
    encoded = encoder.encode([rendering.text for rendering in renderings])
    source, supervised = label(renderings, encoded)
    return Batch(rows, examples, rejected, encoded.ids, encoded.offsets, source, supervised, encoded.starts)
