"""Shard: one stretch of the data, encoded and written; the unit of work, of resuming and of replay."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as arrow
from pyarrow import parquet

from truetune.data.conversation import Conversation, Origin
from truetune.data.files import Source
from truetune.data.stretches import Stretch, read_stretch
from truetune.encoding.arrow_table import make_table
from truetune.encoding.documents import DocumentMaker, DocumentsResult
from truetune.encoding.encoder import ENGINE_LOAD_CHARACTERS, Encoder
from truetune.encoding.packing import best_fit
from truetune.encoding.preferences import PreferenceMaker
from truetune.encoding.stream import ROWS
from truetune.encoding.token_counts import Ledger
from truetune.errors import DataError
from truetune.render.probes import Probes
from truetune.spec.run import RunSpec

ORIGINS = ".origins.parquet"
Broken = tuple[Origin, str]
"""A line that holds no row, and why."""
RECORD_BATCH_ROWS = 1000
"""Rows of a record batch; `datasets` maps one at a time into memory."""


class Store(Protocol):
    """Where the files of a run's shards are written; it travels to the workers."""

    def write(self, name: str, body: Any) -> None:
        """Write bytes, or a pyarrow.Buffer. Raises OSError, DataError."""


class Task(NamedTuple):
    """What one shard is made from."""

    number: int
    source: Source
    row: int
    """rows before it, over all files"""
    stretch: Stretch | None
    rows: list[Conversation] | None
    """where the file can't be read from the middle"""
    broken: Sequence[Broken] = ()
    """lines among these that hold no row"""
    name: str = ""
    """the file's, as it is written beside its rows: no path of this machine"""


@dataclass(frozen=True)
class Shard:
    """What became of one stretch; kept as JSON beside the shard's file."""

    number: int
    file: str
    digest: str
    """blake2b of the file's bytes"""
    source: str
    stretch: tuple[int, ...] | None
    row: int
    rows: int
    encoded: int
    """rows that are in the file, whole or in part"""
    dropped: int
    """rows of which nothing is in the file"""
    rejected: int
    documents: int
    packs: int
    """rows of the file"""
    dropped_documents: int
    shortened: int
    lost: int
    ledger: list[list[int]]
    longest: int
    engine: str
    files: dict[str, list[Any]] = field(default_factory=dict)
    """[bytes, digest] of each file that the shard consists of, by its name while the run works; manifest.json has them
    in a listing of its own"""
    lost_fields: dict[str, int] = field(default_factory=dict)
    """rows of the file by the fields of theirs that no token comes from"""

    @property
    def tokens(self) -> int:
        return sum(map(sum, self.ledger))


def encode_shard(maker: DocumentMaker, task: Task, store: Store) -> Shard:
    """Encode a stretch and write it.

    Its JSON comes first: it lists the files, so that no file is ever there that nothing tells as ours. The shard is
    whole once they are all there.

    Raises DataError, FastPathError, OSError.
    """
    spec = maker.spec
    broken = [*task.broken]
    made = DocumentsResult()
    for chunk in _chunk_rows(_read_rows(spec, task, broken)):
        _add_result(made, maker.make(chunk))
        if spec.encode.on_error == "error" and made.rejected:
            row, reason = made.rejected[0]
            raise DataError(f"{row.origin}: {reason} (--on-error skip leaves such rows out)")
    maker.renderer.prove()
    packs = None
    if spec.encode.packing == "best-fit" and spec.max_length is not None:
        packs = best_fit([len(document.ids) for document in made.documents], spec.max_length)
    settings = spec.encode
    written = make_table(
        made.documents,
        packs,
        weights=settings.loss_weights,
        sources=settings.sources,
        verdicts=settings.preferences,
        trainer=settings.trainer,
        file=task.name,
    )
    name = f"{task.number:05d}.{spec.encode.form}"
    bodies: dict[str, Any] = {name: _table_bytes(written.table, spec.encode.form)}
    if written.origins is not None:
        bodies[f"{task.number:05d}{ORIGINS}"] = _table_bytes(written.origins, "parquet")
    encoded = {document.origin.row for document in made.documents}
    dropped = {drop.origin.row for drop in made.dropped} - encoded
    bodies[f"{task.number:05d}.dropped.jsonl"] = _json_lines(
        {**d.origin._asdict(), "file": task.name, "tokens": d.tokens, "reason": d.reason}
        for d in made.dropped
    )
    bodies[f"{task.number:05d}.rejected.jsonl"] = _json_lines((
        *({**origin._asdict(), "file": task.name, "reason": reason} for origin, reason in broken),
        *({**row.origin._asdict(), "file": task.name, "reason": reason, "content": _row_content(row)}
          for row, reason in made.rejected),
    ))  # fmt: skip
    bodies = {name: body for name, body in bodies.items() if len(body)}
    files: dict[str, list[Any]] = {
        name: [memoryview(body).nbytes, digest_of(body)] for name, body in bodies.items()
    }
    shard = Shard(
        number=task.number,
        file=name,
        digest=files[name][1],
        source=task.name,
        stretch=None if task.stretch is None else tuple(task.stretch),
        row=task.row,
        rows=made.rows + len(broken),
        encoded=len(encoded),
        dropped=len(dropped),
        rejected=len(made.rejected) + len(broken),
        documents=len(made.documents),
        packs=written.table.num_rows,
        dropped_documents=len(made.dropped),
        shortened=made.shortened,
        lost=made.lost,
        ledger=written.ledger.counts.tolist(),
        longest=max((len(document.ids) for document in made.documents), default=0),
        engine=maker.encoder.engine.name,
        files=files,
        lost_fields=dict(made.lost_fields),
    )
    if shard.rows != shard.encoded + shard.dropped + shard.rejected:
        raise RuntimeError(f"{task.source.path}: rows were lost: {shard}")
    if task.stretch is not None and shard.rows != task.stretch.rows:
        raise DataError(f"{task.source.path}: the file changed while it was read; run again")
    store.write(f"{task.number:05d}.json", json.dumps(asdict(shard)).encode())
    for part, body in bodies.items():
        store.write(part, body)
    return shard


def first_reason(shard: Shard, read: Callable[[str], bytes]) -> str | None:
    """Why the first row or example of a shard that is left out is not written, and where it is; None where none is.

    `read` gives the bytes of one of the shard's files.
    """
    for name in ("rejected.jsonl", "dropped.jsonl"):
        if (part := f"{shard.number:05d}.{name}") in shard.files:
            record = json.loads(read(part).split(b"\n", 1)[0])
            return f"{record['file']}:{record['line']}: {record['reason']}"
    return None


def digest_of(body: Any) -> str:
    """Of a shard's bytes."""
    return hashlib.blake2b(body, digest_size=20).hexdigest()


def ledger_of(shards: Iterable[Shard]) -> Ledger:
    """The ledger of several shards."""
    return Ledger(np.sum([shard.ledger for shard in shards], axis=0, dtype=np.int64))


def lost_fields_of(shards: Iterable[Shard]) -> dict[str, int]:
    """Rows of several shards by the fields of theirs that no token comes from, the most frequent first."""
    total: Counter[str] = Counter()
    for shard in shards:
        total.update(shard.lost_fields)
    return dict(total.most_common())


def maker_of(
    made: Probes, *, only_reference: bool, patience: int = ENGINE_LOAD_CHARACTERS
) -> DocumentMaker:
    """What makes the documents of a run; kept from shard to shard, for it learns the shapes of rows."""
    encoder = Encoder(made.tokenizer.backend, only_reference=only_reference, patience=patience)
    made = replace(made, only_reference=only_reference)
    kind = PreferenceMaker if made.spec.encode.preferences else DocumentMaker
    return kind(made.spec, made.tokenizer, made.renderer(), encoder)


def _read_rows(spec: RunSpec, task: Task, broken: list[Broken]) -> Iterable[Conversation]:
    if task.stretch is None:
        return task.rows or ()
    on_broken = None
    if spec.encode.on_error == "skip":

        def on_broken(origin: Origin, reason: str) -> None:
            broken.append((origin, reason))

    return read_stretch(
        task.source,
        task.stretch,
        task.row,
        format=spec.format,
        columns=spec.map,
        on_broken=on_broken,
    )


def _chunk_rows(rows: Iterable[Conversation]) -> Iterator[list[Conversation]]:
    source = iter(rows)
    while chunk := list(islice(source, ROWS)):
        yield chunk


def _add_result(made: DocumentsResult, more: DocumentsResult) -> None:
    made.rows += more.rows
    made.documents += more.documents
    made.dropped += more.dropped
    made.rejected += more.rejected
    made.shortened += more.shortened
    made.lost += more.lost
    made.lost_fields += more.lost_fields


def _table_bytes(made: Any, form: str) -> Any:
    sink = arrow.BufferOutputStream()
    if form == "parquet":
        parquet.write_table(made, sink, compression="zstd", use_dictionary=["file"])
    else:
        with arrow.ipc.new_stream(sink, made.schema) as writer:
            writer.write_table(made, max_chunksize=RECORD_BATCH_ROWS)
    return sink.getvalue()


def _json_lines(records: Iterable[dict[str, Any]]) -> bytes:
    body = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return body.encode("utf-8", "backslashreplace")


def _row_content(row: Conversation) -> dict[str, Any]:
    fields = {
        "messages": row.messages,
        "prompt": row.prompt,
        "completion": row.completion,
        "text": row.text,
    }
    return {name: value for name, value in fields.items() if value}
