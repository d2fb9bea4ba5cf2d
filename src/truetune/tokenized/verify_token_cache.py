"""Verifies that the rows of a cache are those that `truetune encode` makes of the data, each with
the same labels.

Only digests are held, 16 bytes a document, so that the order of the rows and how they are packed do not matter. The
data are encoded by the exact way of `truetune encode`; what the cache lacks or has too much is counted, and the first
places are named.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from truetune.data.conversation import Origin
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import (
    retry_without_shortcuts,
    stream_batches,
)
from truetune.errors import DataError
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.settings.run_spec import RunSpec
from truetune.tokenized.find_token_sources import TokenPlacer
from truetune.tokenized.open_token_cache import TokenCache
from truetune.tokenized.read_tokenized_rows_in_chunks import Chunk, read_chunks

# Chosen, not measured: enough to see what such rows have in common.
MAX_KEPT_PLACES = 20
"""Places of each kind that are kept"""


@dataclass
class CacheComparison:
    """How the rows of a cache differ from what the data encode to."""

    examples: int = 0
    """That the data encode to"""
    documents: int = 0
    """That the cache holds"""
    same: int = 0
    """Examples with the same ids and the same supervised tokens"""
    other_labels: int = 0
    """Examples whose ids are in the cache with other labels"""
    missing: int = 0
    """Examples whose ids are not in the cache"""
    extra: int = 0
    """Documents of the cache that the data do not encode to"""
    rejected: int = 0
    """Rows that could not be rendered"""
    labels: bool = True
    """Does the cache say what is learned?"""
    places: list[tuple[str, Origin]] = field(default_factory=list)
    """`other labels` or `missing`, and the row of the data; `extra`, and the row of the cache"""

    @property
    def is_same(self) -> bool:
        """Does the cache hold just what the data encode to?"""
        return (
            self.labels and not (self.other_labels or self.missing or self.extra) and self.same > 0
        )

    def as_json(self) -> dict[str, Any]:
        """The comparison as plain values."""
        places = [
            {"what": what, "file": at.file, "line": at.line, "row": at.row}
            for what, at in self.places
        ]
        counts = {
            name: getattr(self, name)
            for name in (
                "examples",
                "documents",
                "same",
                "other_labels",
                "missing",
                "extra",
                "rejected",
                "labels",
            )
        }
        return {**counts, "is_same": self.is_same, "places": places}

    def note(self, what: str, origin: Origin) -> None:
        """Keep a place, of each kind the first ones."""
        if sum(kind == what for kind, _ in self.places) < MAX_KEPT_PLACES:
            self.places.append((what, origin))


def verify_cache(spec: RunSpec, cache: TokenCache) -> CacheComparison:
    """Encode the data of `spec` and compare with a cache.

    Raises SpecError, TokenizerError, TemplateError or DataError.
    """
    return retry_without_shortcuts(
        lambda only_reference: _compare_cache_with_encoded_data(
            spec, cache, only_reference=only_reference
        )
    )


@dataclass
class _UnmatchedDocuments:
    """The documents of a cache that are not yet matched, by the digest of their ids."""

    labels: dict[bytes, Counter[bytes]] = field(default_factory=dict)
    """The digests of their labels"""
    places: dict[bytes, Origin] = field(default_factory=dict)


def _compare_cache_with_encoded_data(
    spec: RunSpec, cache: TokenCache, *, only_reference: bool
) -> CacheComparison:
    """Compare as `verify_cache` does, once; with shortcuts of the encoder or without."""
    probes = load_tokenizer_and_template_of_run(spec)
    comparison = CacheComparison()
    # The cache is held and the data pass by: the cache must be read to its end either way, and data
    # may be a stream.
    stored = _digests_of_cache_documents(cache, probes, comparison)
    encoder = Encoder(probes.tokenizer.backend, only_reference=only_reference)
    rows = read_conversations(spec.data, format=spec.format, columns=spec.map)
    for batch in stream_batches(rows, probes.renderer(), encoder):
        comparison.rejected += len(batch.rejected)
        for i, example in enumerate(batch.examples):
            part = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
            comparison.examples += 1
            _compare_example_and_take_document(
                batch.ids[part], batch.supervised[part], example.row.origin, stored, comparison
            )
    for ids, labels in stored.labels.items():
        left = labels.total()
        if left:
            comparison.extra += left
            comparison.note("extra", stored.places[ids])
    return comparison


def _compare_example_and_take_document(
    ids: Any,
    supervised: Any,
    origin: Origin,
    stored: _UnmatchedDocuments,
    comparison: CacheComparison,
) -> None:
    """Compare an example of the data with the documents of the same ids, and take one of them."""
    labels = stored.labels.get(_digest_of_values(ids))
    if labels is None or not labels.total():
        comparison.missing += 1
        comparison.note("missing", origin)
        return
    wanted = _digest_of_values(_supervision_after_first_token(supervised))
    if labels[wanted] > 0:
        comparison.same += 1
        labels[wanted] -= 1
        return
    comparison.other_labels += 1
    comparison.note("other labels", origin)
    # The same ids with other labels: one of those documents is taken, so that it does not count as
    # extra as well.
    labels[next(digest for digest, count in labels.items() if count > 0)] -= 1


def _digests_of_cache_documents(
    cache: TokenCache, probes: Probes, comparison: CacheComparison
) -> _UnmatchedDocuments:
    """The digests of all documents of a cache. Raises DataError where rows can't be read."""
    placer, stored = TokenPlacer(probes), _UnmatchedDocuments()
    for chunk in read_chunks(cache.sources):
        if chunk.broken:
            origin, reason = chunk.broken[0]
            # A comparison with some rows missing would call the cache different for another reason.
            raise DataError(f"{origin}: {reason}; write the cache again")
        comparison.labels &= chunk.labels is not None or bool(chunk.masks)
        padding = placer.place(chunk).padding
        for row, start, end in _document_ranges_by_columns(chunk):
            kept = ~padding[start:end]
            ids = chunk.ids[start:end][kept]
            if not len(ids):
                continue
            comparison.documents += 1
            key = _digest_of_values(ids)
            stored.labels.setdefault(key, Counter())[
                _digest_of_values(_supervision_after_first_token(chunk.supervised[start:end][kept]))
            ] += 1
            stored.places.setdefault(key, chunk.origin(row))
    return stored


def _document_ranges_by_columns(chunk: Chunk) -> list[tuple[int, int, int]]:
    """(row, start, end) of each document, as far as columns separate them."""
    starts = np.flatnonzero(chunk.borders)
    ends = np.append(starts[1:], len(chunk.ids))
    return list(
        zip(chunk.rows_of_tokens(starts).tolist(), starts.tolist(), ends.tolist(), strict=True)
    )


def _supervision_after_first_token(supervised: Any) -> Any:
    """Which tokens are supervised, without the first one, whose label no trainer uses."""
    # Labels are shifted by one in the loss: the first token is predicted from nothing.
    return np.asarray(supervised, np.bool_)[1:]


def _digest_of_values(values: Any) -> bytes:
    """A digest (16 bytes) of the values of an array, whatever its integer type."""
    # One type for the same numbers, for int32 and int64 have other bytes.
    kind = np.bool_ if values.dtype == np.bool_ else np.int64
    return blake2b(np.ascontiguousarray(values, kind).tobytes(), digest_size=16).digest()
