"""Placing: where each token of a recorded batch came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import PAD, Field, Sample
from truetune.encoding.vocabulary import Vocabulary
from truetune.probe.record import Arrays, Record
from truetune.render.probes import Probes
from truetune.render.rendering import IGNORED, Source

ROLES = {"system": Source.SYSTEM, "user": Source.USER, "assistant": Source.ASSISTANT, "tool": Source.TOOL_RESULT}


def samples(record: Record, probes: Probes | None, stops: frozenset[int]) -> Iterator[Sample]:
    """Every line of every batch of a record, with its tokens placed."""
    fields = [field for number, row in zip(record.facts["data"]["numbers"], record.rows, strict=True)
              for field in fields_of(row, number)]  # fmt: skip
    vocabulary = Vocabulary(probes.tokenizer.backend) if probes else None
    for number, batch in enumerate(record.batches):
        if "input_ids" not in batch or batch["input_ids"].ndim != 2:
            continue
        for line in range(len(batch["input_ids"])):
            yield _sample(record, number, line, batch, fields, vocabulary, stops)


def fields_of(row: dict[str, Any], number: int) -> Iterator[Field]:
    """The texts of a given row, longest first."""
    yield from sorted(_fields(row, "", Source.OTHER, number), key=lambda field: -len(field.text))


def _fields(value: Any, path: str, source: Source, number: int) -> Iterator[Field]:
    if isinstance(value, str) and value.strip():
        yield Field(path, source, value, number)
    elif isinstance(value, dict):
        role = ROLES.get(str(value.get("role")), source)
        for key, item in value.items():
            if key != "role":
                yield from _fields(item, f"{path}.{key}" if path else key, role, number)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _fields(item, f"{path}[{i}]", source, number)


def _sample(
    record: Record, number: int, line: int, batch: Arrays, fields: list[Field], vocabulary: Vocabulary | None,
    stops: frozenset[int],
) -> Sample:  # fmt: skip
    ids = batch["input_ids"][line].astype(np.int64)
    attended = batch["attention_mask"][line] != 0 if "attention_mask" in batch else np.ones(len(ids), np.bool_)
    positions = batch["position_ids"][line].astype(np.int64) if "position_ids" in batch else None
    padding = ~attended
    documents = np.where(padding, PAD, 0 if positions is None else np.cumsum(positions == 0) - 1)
    pieces = tuple(vocabulary.spell(id).decode("utf-8", "surrogateescape") if vocabulary else "" for id in ids.tolist())
    source, field, found = _source(pieces, fields)
    is_stop = np.isin(ids, list(stops)) & ~padding
    source[is_stop & np.concatenate(([False], source[:-1] == Source.ASSISTANT))] = Source.STOP
    return Sample(
        rank=int(record.facts["rank"]), batch=number, line=line, ids=ids, labels=labels_of(batch, line),
        attended=attended, positions=positions, documents=documents, padding=padding, source=source, field=field,
        fields=found, expected=np.isin(source, (Source.ASSISTANT, Source.STOP)), pieces=pieces,
    )  # fmt: skip


def labels_of(batch: Arrays, line: int) -> NDArray[np.int64] | None:
    """The labels of a line; by its loss mask where the trainer makes them from that."""
    if "labels" in batch and batch["labels"].ndim == 2:
        return np.asarray(batch["labels"][line].astype(np.int64))
    if "completion_mask" in batch:
        return np.where(batch["completion_mask"][line] != 0, batch["input_ids"][line], IGNORED).astype(np.int64)
    return None


def _source(
    pieces: tuple[str, ...], fields: list[Field]
) -> tuple[NDArray[np.uint8], NDArray[np.int32], tuple[Field, ...]]:
    """Each text is looked for where no longer one was found."""
    text = "".join(pieces)
    begins = np.cumsum([0, *(len(piece) for piece in pieces)])[:-1]
    source = np.full(len(pieces), Source.TEMPLATE, np.uint8)
    owner = np.full(len(pieces), -1, np.int32)
    found: list[Field] = []
    for candidate in fields:
        start = text.find(wanted := candidate.text.strip())
        while start >= 0:
            inside = (begins >= start) & (begins < start + len(wanted))
            if inside.any() and (owner[inside] < 0).all():
                source[inside], owner[inside] = candidate.source, len(found)
                found.append(candidate)
                break
            start = text.find(wanted, start + 1)
    return source, owner, tuple(found)
