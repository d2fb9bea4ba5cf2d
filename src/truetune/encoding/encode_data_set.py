"""Encodes a data set: every row to ids and labels, once, with proof; or proves that it has been done.

The order of things: read every byte once for its digest and its stretches (`Job.prepare`), make the key, check whether
the folder holds that key already (then check it and stop), else give the stretches out to workers as shards
(`_run_shards`) and publish what they wrote.

Shortcuts (recipes, fast engines) are proved while they work. Where one is proved wrong, all shards of the run are made
again without any: the trade-off is that one wrong row costs a whole run, which has to be rare to be worth it, and is
then right without asking which rows were spoiled.
"""

from __future__ import annotations

import errno
import glob
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from truetune.data.conversation import Conversation
from truetune.data.find_data_files import DataFile, find_data_files_of_paths, open_raw
from truetune.data.guard_output_folder import Input
from truetune.data.read_file_records import read_records
from truetune.data.read_rows_as_conversations import conversations_of_records, read_conversations
from truetune.data.remote_path import DataPath, RemotePath, parse_data_path
from truetune.data.split_lines_into_stretches import FileScan, scan_files_in_turn
from truetune.encoding import encode_on_ray
from truetune.encoding.cache_key import cache_key_of_inputs, collect_key_inputs
from truetune.encoding.encode_in_processes import (
    ShardRunner,
    encode_shards_in_processes,
    encode_shards_in_turn,
    usable_cores,
)
from truetune.encoding.encode_shard import (
    LineWithoutRow,
    Shard,
    Task,
    make_document_maker,
    sum_ledgers,
    sum_lost_fields,
)
from truetune.encoding.encoded_folder_layout import DATA
from truetune.encoding.encoded_folder_on_disk import AnyEncodedFolder, encoded_folder_at
from truetune.encoding.make_arrow_table_of_documents import make_table
from truetune.encoding.make_documents_or_reject_rows import DocumentsResult
from truetune.encoding.relative_names_of_data_files import names_relative_to_common_folder
from truetune.encoding.render_and_encode_in_two_threads import (
    describe_wrong_shortcut,
    retry_without_shortcuts,
)
from truetune.encoding.spot_check_encoded_rows import verify_random_rows
from truetune.encoding.token_counts import Ledger
from truetune.errors import DataError, FastPathError, SpecError, UsageError
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.settings.row_formats import is_script_named_as_format
from truetune.settings.run_spec import RunSpec

MIN_SHARD_BYTES = 1 << 23
"""Bytes of data that make one shard. Chosen, not measured: a second or so of work, so that the cores end at about the
same time, and what a killed run loses is little; smaller ones would make many small files."""
MAX_SHARDS, MAX_SHARD_BYTES = 10_000, 1 << 26
"""Shards that data beyond 80 GB is cut into, if none of them gets more bytes than this: a worker holds one whole, in
about 1 GB at the largest."""
PACKED_BYTES_PER_TOKEN = 1 << 10
"""Bytes of data a token of max_length that make one shard, where rows are packed: some hundred packs, so that the last
one, which may be half empty, weighs little."""
STREAMED_ROWS = 4096
"""Rows that make one shard, where a file can only be read from its start: they are handed to the worker, so that their
number and not their bytes bounds what waits. Chosen, not measured."""
VERIFIED_ROWS = 8
"""Rows that are encoded again where encoded data is found. Chosen: they take less time than reading the shards that
they stand in."""

ESTIMATE_ROWS = 1000
"""Rows that a dry run encodes. Chosen: seconds, and some percent off where the first rows are like the rest."""

Name = str | PathLike[str] | RemotePath
Scans = Callable[[Sequence[DataFile], int, Callable[[int], None]], list[FileScan]]
SCAN_OF_ENGINE: dict[str, Scans] = {
    "local": scan_files_in_turn,
    "ray": encode_on_ray.scan_on_cluster,
}
"""How each engine reads the data once. An engine is where the shards are encoded: on this machine or on a cluster; what
turns text into ids is called an engine too (`proved_tokenizer_engines`)."""
Progress = Callable[[str, int, int, int, int], None]
"""Called with what is done (reading, encoding), bytes done, bytes in all, rows and tokens."""


@dataclass(frozen=True)
class Encoded:
    """The result of `truetune.encode`."""

    folder: DataPath
    manifest: dict[str, Any]
    reused: bool
    """It was there already, and is proved to be the same."""
    notices: tuple[str, ...]
    """What a user should know though it stopped nothing."""
    seconds: float

    @property
    def counts(self) -> dict[str, int]:
        """rows = encoded + dropped + rejected; documents, packs, tokens, supervised tokens, and more."""
        counts: dict[str, int] = self.manifest["counts"]
        return counts

    @property
    def ledger(self) -> Ledger:
        """Tokens by source, and by whether they have a label."""
        return sum_ledgers([Shard(**shard) for shard in self.manifest["shards"]])

    @property
    def lost_fields(self) -> dict[str, int]:
        """Rows by the fields of theirs that no token comes from, for the template does not write them."""
        return sum_lost_fields(Shard(**shard) for shard in self.manifest["shards"])

    def dataset(self) -> Any:
        """A `datasets.Dataset` of the rows. Needs `datasets`."""
        import datasets

        # Arrow files are described by state.json; Parquet files need none.
        if (self.folder / DATA / "state.json").is_file():
            return datasets.load_from_disk(str(self.folder / DATA))
        # `load_dataset` takes names for patterns: a folder called `run[1]` would match nothing.
        files = [
            glob.escape(str(self.folder / DATA / shard["file"]))
            for shard in self.manifest["shards"]
        ]
        return datasets.load_dataset("parquet", data_files=files, split="train")


def encode(
    spec: RunSpec,
    out: Name | None = None,
    *,
    cache: Name | None = None,
    jobs: int | None = None,
    engine: str = "local",
    progress: Progress | None = None,
) -> Encoded:
    """Encode the rows of `spec` into the folder `out`, else into a folder of `cache` that is named by its key.

    Either may be the URI of a folder in a store (s3://bucket/folder), as the data may be.

    What already exists and was made from the same inputs is checked (every byte, and some rows encoded again) and kept.
    An interrupted run resumes where it stopped. `jobs` processes share the work (default: one a core); with the engine
    `ray`, the nodes of a cluster do.

    Raises SpecError, TokenizerError, DataError, TemplateError or UsageError.
    """
    started = time.perf_counter()
    if engine not in SCAN_OF_ENGINE:
        raise UsageError(f"engine {engine}: expected {' or '.join(SCAN_OF_ENGINE)}")
    job = Job.prepare(spec, progress, SCAN_OF_ENGINE[engine])
    entry = _open_output_folder(out, cache, job.key)
    entry.check_outside(inputs_that_encoding_reads(job.spec, job.probes, job.sources))
    with explained_write_errors(entry.folder), entry.locked():
        notices: list[str] = []
        present = entry.manifest()
        if present is not None and present.get("key") == job.key:
            damage = entry.find_missing_file(present)
            if damage is None:
                verify_random_rows(job.probes, job.sources, present, entry, VERIFIED_ROWS)
                return Encoded(entry.folder, present, True, (), time.perf_counter() - started)
            notices.append(f"{damage}: all is encoded again")
        run = _choose_shard_runner(engine, jobs, job.tasks_at_most)
        # A run that was killed after a shortcut had failed resumes without shortcuts.
        only_reference = entry.has_unfinished_run(_key_of_unfinished_run(job, only_reference=True))
        try:
            shards = _run_shards(job, entry, run, progress, only_reference=only_reference)
        except FastPathError as error:
            notices.append(describe_wrong_shortcut(error))
            shards = _run_shards(job, entry, run, progress, only_reference=True)
        counts = _sum_counts(shards, job.spec)
        if not counts["encoded"]:
            # An empty data set would be found by the next run, and trained on.
            why = _explain_nothing_encoded(counts, shards, entry)
            entry.discard_files_of_run()
            raise DataError(why)
        notices += _notices_on_counts(job.spec, shards)
        manifest: dict[str, Any] = {
            "key": job.key,
            "inputs": job.inputs,
            "counts": counts,
            "ledger": {
                s.label: {"supervised": a, "context": b} for s, a, b in sum_ledgers(shards).rows()
            },
            "lost_fields": sum_lost_fields(shards),
            "engines": sorted({shard.engine for shard in shards}),
            "notices": notices,
        }
        if job.spec.encode.record_root:
            manifest["root"] = names_relative_to_common_folder(job.sources).root
        manifest = entry.publish(shards, manifest, job.spec.encode.form)
    return Encoded(entry.folder, manifest, False, tuple(notices), time.perf_counter() - started)


def inputs_that_encoding_reads(
    spec: RunSpec, probes: Probes, sources: Sequence[DataFile]
) -> list[Input]:
    """The files and folders that are read to encode: an output must be none of them."""
    # Both what was named (a folder) and the files in it: an output inside a data folder would be read the next time.
    inputs = [Input("data", parse_data_path(name)) for name in spec.data]
    inputs += [Input("data", source.path) for source in sources]
    inputs.append(Input("the tokenizer", probes.tokenizer.folder))
    inputs.append(Input("the model", probes.tokenizer.weights))
    if spec.template is not None and spec.template not in probes.tokenizer.templates:
        inputs.append(Input("the chat template", Path(spec.template)))
    return inputs


@contextmanager
def explained_write_errors(folder: DataPath) -> Iterator[None]:
    """Raise UsageError, with the path and what to do, where a file of the folder can't be written."""
    try:
        yield
    except OSError as error:
        # Only of files that we write: one that can't be read is another error, and not for this text.
        written = isinstance(folder, Path) and str(error.filename or "").startswith(
            str(folder.absolute())
        )
        if not written or isinstance(error, FileNotFoundError):
            raise
        room = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        then = "make room there" if room else "make it writable"
        raise UsageError(
            f"{error.filename}: can't be written: {error.strerror}; {then}, or name another folder"
            " with -o. The same command resumes where this one ended"
        ) from error


@dataclass(frozen=True)
class Estimate:
    """What a run would write, from its first rows."""

    folder: DataPath
    reused: bool
    """The folder holds it already."""
    rows: int
    documents: int
    ledger: Ledger
    lost_fields: dict[str, int]
    """rows by the fields of theirs that no token comes from"""
    whole: int | None
    """tokens of all the data, about"""
    problems: dict[str, int]
    """why examples are dropped and rows rejected, and how many"""

    @property
    def token_count_of_first_rows(self) -> int:
        """How many tokens the first rows give, by which the rest is estimated."""
        return self.ledger.total


def estimate(spec: RunSpec, out: Name | None = None, *, cache: Name | None = None) -> Estimate:
    """Encode the first rows, and write nothing. Raises what `encode` raises, but for rows that can't be encoded."""
    job = Job.prepare(spec, None, scan_files_in_turn)
    entry = _open_output_folder(out, cache, job.key)
    rows = list(
        islice(read_conversations(spec.data, format=spec.format, columns=spec.map), ESTIMATE_ROWS)
    )

    def encode_rows(only_reference: bool) -> DocumentsResult:
        maker = make_document_maker(job.probes, only_reference=only_reference)
        result = maker.make(rows)
        maker.renderer.prove()
        return result

    result = retry_without_shortcuts(encode_rows)
    ledger = make_table(result.documents, None).ledger
    problems = Counter(drop.reason for drop in result.dropped)
    problems.update(rejected.reason for rejected in result.rejected)
    present = entry.manifest()
    return Estimate(
        folder=entry.folder,
        reused=present is not None and present.get("key") == job.key,
        rows=len(rows),
        documents=len(result.documents),
        ledger=ledger,
        lost_fields=dict(result.lost_fields.most_common()),
        whole=_estimate_tokens(job, ledger.total, len(rows)),
        problems=dict(problems.most_common(5)),
    )


def _estimate_tokens(job: Job, tokens: int, rows: int) -> int | None:
    """The tokens of all the data, from those of its first rows; None where the number of all rows is not known.

    Some files can only be read from their start; nobody has counted their rows before they are encoded.
    """
    if rows < ESTIMATE_ROWS:
        return tokens  # these were all
    if not all(scan.stretches for scan in job.scans):
        return None
    all_rows = sum(stretch.rows for scan in job.scans for stretch in scan.stretches)
    return tokens * all_rows // rows


def _check_settings(spec: RunSpec) -> None:
    """Raise SpecError for settings of `encode` that contradict each other."""
    settings = spec.encode
    if spec.format is not None and is_script_named_as_format(spec.format):
        raise SpecError(
            f"encode reads rows as their file has them, not as {spec.format} shapes them; let the"
            " script write its rows (`train_dataset.to_json(...)`), and encode that file"
        )
    is_packed = settings.packing != "none"
    if spec.max_length is None:
        _check_settings_without_max_length(settings.overflow, is_packed=is_packed)
    if settings.trainer == "axolotl" and is_packed:
        raise SpecError(
            "Axolotl loses the borders in packed rows; leave packing to its sample_packing"
        )
    if settings.preferences:
        _check_preference_settings(settings.overflow, is_packed=is_packed)
    if settings.trainer != "transformers":
        for name in ("loss_weights", "sources"):
            if getattr(settings, name):
                raise SpecError(f"{settings.trainer} has no use for {name}; leave them out")


def _check_settings_without_max_length(overflow: str, *, is_packed: bool) -> None:
    """Raise SpecError for settings that need a max_length, of which there is none."""
    if is_packed:
        raise SpecError("packing needs max_length, the length of a packed row; give --max-length")
    if overflow != "drop":
        raise SpecError(f"overflow {overflow} needs max_length; give --max-length")


def _check_preference_settings(overflow: str, *, is_packed: bool) -> None:
    """Raise SpecError for settings that would spoil pairs and verdicts."""
    if overflow not in ("drop", "error"):
        raise SpecError(
            f"overflow {overflow} would cut the two sides of a pair differently; use drop"
        )
    if is_packed:
        raise SpecError(
            "pairs and verdicts are compared whole and can't share a row; leave packing out"
        )


@dataclass
class Job:
    """What is to be encoded, and everything that shapes it."""

    spec: RunSpec
    probes: Probes
    sources: list[DataFile]
    scans: list[FileScan]
    inputs: dict[str, Any]
    key: str

    @classmethod
    def prepare(cls, spec: RunSpec, progress: Progress | None, scanned_by: Scans) -> Job:
        """Read the tokenizer, and every byte of the data once.

        Args:
            spec: the settings.
            progress: called while the data is read.
            scanned_by: reads it, one of ENGINES.

        Raises:
            SpecError: for settings that contradict each other.
            DataError: for a file that holds no row.
        """
        _check_settings(spec)
        probes = load_tokenizer_and_template_of_run(spec)
        sources = find_data_files_of_paths(spec.data)
        total = sum(source.path.stat().st_size for source in sources)
        size = max(MIN_SHARD_BYTES, min(MAX_SHARD_BYTES, total // MAX_SHARDS))
        if spec.encode.packing != "none":
            size = max(size, PACKED_BYTES_PER_TOKEN * (spec.max_length or 0))
        done = 0

        def report_read(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress("reading", done, total, 0, 0)

        scans = scanned_by(sources, size, report_read)
        for source, scan in zip(sources, scans, strict=True):
            # Without stretches the rows are not counted yet: `_read_rows_in_portions` raises the same.
            has_no_rows = scan.stretches and not any(stretch.rows for stretch in scan.stretches)
            if source.path.stat().st_size == 0 or has_no_rows:
                raise DataError(f"{source.path}: the file holds no row")
        inputs = collect_key_inputs(spec, probes, sources, scans)
        return cls(spec, probes, sources, scans, inputs, cache_key_of_inputs(inputs))

    @property
    def tasks_at_most(self) -> int | None:
        """How many tasks there are at most; None where that is not known before the data is read."""
        return (
            sum(len(s.stretches) for s in self.scans)
            if all(s.stretches for s in self.scans)
            else None
        )

    def tasks(self) -> Iterator[tuple[Task, int]]:
        """The tasks of the run in order, each with the bytes that it reads."""
        number = row = 0
        names = names_relative_to_common_folder(self.sources).names
        for source, name, scan in zip(self.sources, names, self.scans, strict=True):
            for stretch in scan.stretches:
                byte_count = stretch.stop - stretch.start
                yield Task(number, source, row, stretch, None, name=name), byte_count
                number += 1
                row += stretch.rows
            if not scan.stretches:
                size = source.path.stat().st_size
                for rows, broken, byte_count in self._read_rows_in_portions(source, row, size):
                    yield Task(number, source, row, None, rows, broken, name), byte_count
                    number += 1
                    row += len(rows) + len(broken)

    def _read_rows_in_portions(
        self, source: DataFile, row: int, size: int
    ) -> Iterator[tuple[list[Conversation], list[LineWithoutRow], int]]:
        """The rows of a file in portions: the rows, the lines that hold none, and the bytes read
        for them.
        """
        broken: list[LineWithoutRow] = []
        on_broken = (
            (lambda *line: broken.append(line)) if self.spec.encode.on_error == "skip" else None
        )
        with open_raw(source.path) as raw:
            form: dict[str, Any] = {
                "format": self.spec.format,
                "columns": self.spec.map,
                "on_broken": on_broken,
            }
            stream = conversations_of_records(read_records(source, raw), source, row, **form)
            reached = 0
            is_empty = True
            rows = list(islice(stream, STREAMED_ROWS))
            while rows or broken:
                is_empty = False
                # Of a compressed file: how far its bytes are read. A reader may step back, progress must not.
                before, reached = reached, max(reached, min(raw.tell(), size))
                yield rows, broken[:], reached - before
                broken.clear()
                rows = list(islice(stream, STREAMED_ROWS))
            if is_empty:
                raise DataError(f"{source.path}: the file holds no row")


def cache_home() -> DataPath:
    """Where encoded data is kept when no folder is named: $TRUETUNE_CACHE, else the user's cache folder."""
    import os

    root = (
        os.environ.get("TRUETUNE_CACHE")
        or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "truetune"
    )
    return parse_data_path(root) / "encoded"


def _open_output_folder(out: Name | None, cache: Name | None, key: str) -> AnyEncodedFolder:
    """The folder to write to; 20 digits of the key, 80 bits, name one in a cache and are enough to tell all apart."""
    return encoded_folder_at(
        parse_data_path(out)
        if out is not None
        else parse_data_path(cache or cache_home()) / key[:20]
    )


def _choose_shard_runner(engine: str, jobs: int | None, tasks: int | None) -> ShardRunner:
    """What runs the tasks; never more processes than tasks, and none at all for one."""
    if engine == "ray":
        return encode_on_ray.encode_shards_on_cluster(jobs)
    jobs = jobs or usable_cores()
    count = jobs if tasks is None else min(jobs, tasks)
    return encode_shards_in_processes(count) if count > 1 else encode_shards_in_turn


def _run_shards(
    job: Job,
    entry: AnyEncodedFolder,
    run: ShardRunner,
    progress: Progress | None,
    *,
    only_reference: bool,
) -> list[Shard]:
    """All shards in order: those that are there from a run before, and the others."""
    shards = entry.start_or_resume(_key_of_unfinished_run(job, only_reference=only_reference))
    total = sum(source.path.stat().st_size for source in job.sources)
    sizes: dict[int, int] = {}
    done = rows = tokens = 0

    def report_shard(shard: Shard) -> None:
        nonlocal done, rows, tokens
        done += sizes[shard.number]
        rows += shard.rows
        tokens += shard.token_count
        if progress is not None:
            progress("encoding", done, total, rows, tokens)

    if progress is not None:
        progress("encoding", 0, total, 0, 0)

    # A generator, for the rows of a streamed file are read only when a worker has room for them.
    def missing_tasks() -> Iterator[Task]:
        for task, size in job.tasks():
            sizes[task.number] = size
            if task.number in shards:
                report_shard(shards[task.number])
            else:
                yield task

    for shard in run(job.probes, missing_tasks(), entry.store(), only_reference):
        shards[shard.number] = shard
        report_shard(shard)
    return [shards[number] for number in sorted(shards)]


def _key_of_unfinished_run(job: Job, *, only_reference: bool) -> str:
    """The key under which the parts of an interrupted run are kept: parts that were made with a
    shortcut are void without it.
    """
    return job.key + " without shortcuts" * only_reference


def _sum_counts(shards: Iterable[Shard], spec: RunSpec) -> dict[str, int]:
    """The counts of all shards, as they stand in the manifest. Raises RuntimeError where rows are missing in them."""
    names = (
        "rows",
        "encoded",
        "dropped",
        "rejected",
        "documents",
        "dropped_documents",
        "shortened",
        "lost",
        "packs",
    )
    counts = {name: sum(getattr(shard, name) for shard in shards) for name in names}
    table = sum_ledgers(shards)
    counts |= {"tokens": table.total, "supervised": table.supervised}
    if counts["rows"] != counts["encoded"] + counts["dropped"] + counts["rejected"]:
        raise RuntimeError(f"rows were lost: {counts}")
    if spec.encode.packing != "none" and spec.max_length is not None:
        counts["room"] = counts["packs"] * spec.max_length
    return counts


def _explain_nothing_encoded(
    counts: Mapping[str, int], shards: Iterable[Shard], entry: AnyEncodedFolder
) -> str:
    """The error where nothing could be encoded, with the first reason."""
    rows = f"{counts['rows']:,} row{'s' * (counts['rows'] != 1)}"
    parts = [f"{counts[name]:,} {name}" for name in ("rejected", "dropped") if counts[name]]
    reason = next(
        filter(None, (entry.why_first_left_out_row_failed(shard) for shard in shards)), None
    )
    text = f"none of {rows} could be encoded ({', '.join(parts)}): nothing was written"
    return f"{text}; the first: {reason}" if reason else text


def _notices_on_counts(spec: RunSpec, shards: Iterable[Shard]) -> list[str]:
    """What a user should know of the counts: all that is not as it stood in the data."""
    counts = _sum_counts(shards, spec)
    texts = {
        "dropped_documents": "examples that are not written: {:,} (dropped.jsonl says why)",
        "rejected": "rows that could not be encoded: {:,} (rejected.jsonl says why)",
        "shortened": "examples that were shortened to max_length: {:,}",
        "lost": "supervised tokens that are not trained, for their turns were cut away: {:,}",
    }
    return [text.format(counts[name]) for name, text in texts.items() if counts[name]]
