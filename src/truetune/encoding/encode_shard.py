"""Shard: one stretch of the data, encoded and written; the unit of work, of resuming and of the spot check.

A worker reads its stretch, encodes it in memory and writes a few files under the shard's number. Workers share nothing,
so that a shard is the same whoever made it, and a run that was killed continues with the numbers that are missing. The
trade-off: a shard is held whole in memory, and recipes and engines are learned again in each process.
"""

from __future__ import annotations

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
from truetune.data.find_data_files import DataFile
from truetune.data.split_lines_into_stretches import Stretch, read_stretch
from truetune.encoding.cache_key import digest_of
from truetune.encoding.encoder import ENGINE_LOAD_CHARACTERS, Encoder
from truetune.encoding.make_arrow_table_of_documents import WrittenTables, make_table
from truetune.encoding.make_documents_or_reject_rows import DocumentMaker, DocumentsResult
from truetune.encoding.pack_documents import pack_best_fit
from truetune.encoding.preference_documents import PreferenceMaker
from truetune.encoding.render_and_encode_in_two_threads import ROWS
from truetune.encoding.token_counts import Ledger
from truetune.errors import DataError
from truetune.render.template_probes import Probes
from truetune.settings.run_spec import RunSpec

ORIGINS = ".origins.parquet"
LineWithoutRow = tuple[Origin, str]
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
    source: DataFile
    row: int
    """rows before it, over all files"""
    stretch: Stretch | None
    rows: list[Conversation] | None
    """where the file can't be read from the middle"""
    broken: Sequence[LineWithoutRow] = ()
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
    """rows that could not be read, rendered or encoded"""
    documents: int
    packs: int
    """rows of the file"""
    dropped_documents: int
    shortened: int
    """documents with fewer turns, or a shorter question, than their rows have"""
    lost: int
    """supervised tokens of rows that are written without them"""
    ledger: list[list[int]]
    """(sources, 2) tokens: context, supervised; see token_counts.Ledger"""
    longest: int
    """tokens of the longest document"""
    engine: str
    """the library that encoded it last, with its version"""
    files: dict[str, list[Any]] = field(default_factory=dict)
    """[bytes, digest] of each file that the shard consists of, by its name while the run works; manifest.json has them
    in a listing of its own"""
    lost_fields: dict[str, int] = field(default_factory=dict)
    """rows of the file by the fields of theirs that no token comes from"""

    @property
    def token_count(self) -> int:
        """How many tokens the shard holds."""
        return sum(map(sum, self.ledger))


def encode_shard(maker: DocumentMaker, task: Task, store: Store) -> Shard:
    """Encode a stretch and write it.

    Its JSON comes first: it lists the files, so that no file is ever there that nothing tells as ours. The shard is
    whole once they are all there.

    Raises DataError, FastPathError, OSError.
    """
    settings = maker.spec.encode
    broken = [*task.broken]
    result = _encode_rows(maker, task, broken)
    written = _make_tables(maker.spec, result, task.name)
    name = f"{task.number:05d}.{settings.form}"
    bodies: dict[str, Any] = {name: _table_bytes(written.table, settings.form)}
    if written.origins is not None:
        bodies[f"{task.number:05d}{ORIGINS}"] = _table_bytes(written.origins, "parquet")
    bodies |= _files_on_left_out_examples(task, result, broken)
    files: dict[str, list[Any]] = {
        name: [memoryview(body).nbytes, digest_of(body)] for name, body in bodies.items()
    }
    encoded = {document.origin.row for document in result.documents}
    dropped = {drop.origin.row for drop in result.dropped} - encoded
    shard = Shard(
        number=task.number,
        file=name,
        digest=files[name][1],
        source=task.name,
        stretch=None if task.stretch is None else tuple(task.stretch),
        row=task.row,
        rows=result.rows + len(broken),
        encoded=len(encoded),
        dropped=len(dropped),
        rejected=len(result.rejected) + len(broken),
        documents=len(result.documents),
        packs=written.table.num_rows,
        dropped_documents=len(result.dropped),
        shortened=result.shortened,
        lost=result.lost_tokens,
        ledger=written.ledger.counts.tolist(),
        longest=max((len(document.ids) for document in result.documents), default=0),
        engine=maker.encoder.engine.name,
        files=files,
        lost_fields=dict(result.lost_fields),
    )
    # Nothing is left out silently, by a defect of ours either.
    if shard.rows != shard.encoded + shard.dropped + shard.rejected:
        raise RuntimeError(f"{task.source.path}: rows were lost: {shard}")
    # The key was made of the digest of what was read first. Rows that came since would be under a wrong key.
    if task.stretch is not None and shard.rows != task.stretch.rows:
        raise DataError(f"{task.source.path}: the file changed while it was read; run again")
    # Killed between two of these, the record says which files belong to the shard, and that one is missing.
    store.write(f"{task.number:05d}.json", json.dumps(asdict(shard)).encode())
    for part, body in bodies.items():
        store.write(part, body)
    return shard


def _encode_rows(maker: DocumentMaker, task: Task, broken: list[LineWithoutRow]) -> DocumentsResult:
    """What becomes of all rows of a task; lines that hold none are appended to `broken`.

    Raises DataError for the first row that can't be encoded, where `on_error` says so, and FastPathError.
    """
    result = DocumentsResult()
    for chunk in _batches_of_rows(_read_rows(maker.spec, task, broken)):
        result.add(maker.make(chunk))
        if maker.spec.encode.on_error == "error" and result.rejected:
            row, reason = result.rejected[0]
            raise DataError(f"{row.origin}: {reason} (--on-error skip leaves such rows out)")
    # Before anything is written: a shard that is there counts as right.
    maker.renderer.prove()
    return result


def _make_tables(spec: RunSpec, result: DocumentsResult, file: str) -> WrittenTables:
    """The documents of a shard as tables, packed where that is asked for; `file` is their file's name."""
    settings = spec.encode
    packs = None
    if settings.packing == "best-fit" and spec.max_length is not None:
        packs = pack_best_fit([len(document.ids) for document in result.documents], spec.max_length)
    return make_table(
        result.documents,
        packs,
        weights=settings.loss_weights,
        sources=settings.sources,
        verdicts=settings.preferences,
        trainer=settings.trainer,
        file=file,
    )


def _files_on_left_out_examples(
    task: Task, result: DocumentsResult, broken: Sequence[LineWithoutRow]
) -> dict[str, bytes]:
    """The files of a shard that say what is not in it, by their names; only those that have a line."""
    bodies = {
        f"{task.number:05d}.dropped.jsonl": _dropped_jsonl_bytes(result, task.name),
        f"{task.number:05d}.rejected.jsonl": _rejected_jsonl_bytes(result, broken, task.name),
    }
    return {name: body for name, body in bodies.items() if body}


def _dropped_jsonl_bytes(result: DocumentsResult, file: str) -> bytes:
    """The bytes of a shard's dropped.jsonl: where each example that is not written stands, and why."""
    return _json_lines(
        {**drop.origin._asdict(), "file": file, "tokens": drop.tokens, "reason": drop.reason}
        for drop in result.dropped
    )


def _rejected_jsonl_bytes(
    result: DocumentsResult, broken: Sequence[LineWithoutRow], file: str
) -> bytes:
    """The bytes of a shard's rejected.jsonl: lines that hold no row, then rows that can't be
    encoded, with their content.
    """
    records: list[dict[str, Any]] = [
        {**origin._asdict(), "file": file, "reason": reason} for origin, reason in broken
    ]
    for row, reason in result.rejected:
        place = {**row.origin._asdict(), "file": file}
        records.append({**place, "reason": reason, "content": _row_content(row)})
    return _json_lines(records)


def why_first_example_was_left_out(shard: Shard, read: Callable[[str], bytes]) -> str | None:
    """Why the first row or example of a shard that is left out is not written, and where it is; None where none is.

    `read` gives the bytes of one of the shard's files.
    """
    for name in ("rejected.jsonl", "dropped.jsonl"):
        part = f"{shard.number:05d}.{name}"
        if part in shard.files:
            record = json.loads(read(part).split(b"\n", 1)[0])
            return f"{record['file']}:{record['line']}: {record['reason']}"
    return None


def sum_ledgers(shards: Iterable[Shard]) -> Ledger:
    """The ledger of several shards."""
    return Ledger(np.sum([shard.ledger for shard in shards], axis=0, dtype=np.int64))


def sum_lost_fields(shards: Iterable[Shard]) -> dict[str, int]:
    """Rows of several shards by the fields of theirs that no token comes from, the most frequent first."""
    total: Counter[str] = Counter()
    for shard in shards:
        total.update(shard.lost_fields)
    return dict(total.most_common())


def make_document_maker(
    probes: Probes,
    *,
    only_reference: bool,
    characters_before_fast_engine: int = ENGINE_LOAD_CHARACTERS,
) -> DocumentMaker:
    """What makes the documents of a run; kept from shard to shard, for it learns the shapes of rows."""
    encoder = Encoder(
        probes.tokenizer.backend,
        only_reference=only_reference,
        characters_before_fast_engine=characters_before_fast_engine,
    )
    # Rows and pieces are both made without shortcuts, or both with them: a notice says only "without shortcuts".
    probes = replace(probes, only_reference=only_reference)
    kind = PreferenceMaker if probes.spec.encode.preferences else DocumentMaker
    return kind(probes.spec, probes.tokenizer, probes.renderer(), encoder)


def _read_rows(spec: RunSpec, task: Task, broken: list[LineWithoutRow]) -> Iterable[Conversation]:
    """The rows of a task, read from its stretch or handed over with it; see `_encode_rows` for `broken`."""
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


def _batches_of_rows(rows: Iterable[Conversation]) -> Iterator[list[Conversation]]:
    """The rows in lists of ROWS, the size of a batch."""
    source = iter(rows)
    chunk = list(islice(source, ROWS))
    while chunk:
        yield chunk
        chunk = list(islice(source, ROWS))


def _table_bytes(table: Any, form: str) -> Any:
    """A pyarrow.Table as the bytes of a file, a pyarrow.Buffer; `form` is parquet or arrow."""
    sink = arrow.BufferOutputStream()
    if form == "parquet":
        # Dictionaries pay for the one column of repeated names; ids of a vocabulary only overflow them.
        parquet.write_table(table, sink, compression="zstd", use_dictionary=["file"])
    else:
        with arrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=RECORD_BATCH_ROWS)
    return sink.getvalue()


def _json_lines(records: Iterable[dict[str, Any]]) -> bytes:
    """Records as bytes of JSON Lines; a lone surrogate, which UTF-8 can't hold, as its escape,
    which JSON reads back.
    """
    body = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return body.encode("utf-8", "backslashreplace")


def _row_content(row: Conversation) -> dict[str, Any]:
    """The content of a rejected row, so that it can be read without its file."""
    fields = {
        "messages": row.messages,
        "prompt": row.prompt,
        "completion": row.completion,
        "text": row.text,
    }
    return {name: value for name, value in fields.items() if value}
