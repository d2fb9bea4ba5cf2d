"""Shares the work of encoding out over a Ray cluster: plain tasks, each a shard or the scan of a file.

Ray Data would want all of its input before it begins, and writes blocks of its own; here the rows of a file that can
only be read from its start come as they are read, and each shard stands for itself. Ray gives a task to a free core,
starts it again elsewhere where its worker dies, and keeps the worker's process, and so its tokenizer, for the next.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from truetune.data.find_data_files import DataFile
from truetune.data.split_lines_into_stretches import FileScan, scan_and_cut_lines
from truetune.encoding.encode_in_processes import TASKS_PER_WORKER, ShardRunner
from truetune.encoding.encode_shard import Shard, Store, Task, encode_shard, make_document_maker
from truetune.encoding.make_documents_or_reject_rows import DocumentMaker
from truetune.errors import TruetuneError, UsageError
from truetune.render.find_tokenizer_folder import tokenizer_and_model_files
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.settings.run_spec import RunSpec

MAX_RETRIES = 5
"""Workers that may die over one task. Chosen: nodes of a cluster go for reasons of their own, but a task that kills
each worker must end some time."""
CANCEL_TIMEOUT_S = 60
"""Seconds that a cancelled task may take to end. Chosen, not measured: most shards take less."""


class PortableRun(NamedTuple):
    """A run as the workers get it: no node but this one needs the tokenizer's folder."""

    spec: RunSpec
    files: dict[str, bytes]
    """by their paths in the folder that a worker lays out"""

    @classmethod
    def of(cls, probes: Probes) -> PortableRun:
        """The run as workers get it, with the bytes of all files that its tokenizer and template
        need.
        """
        tokenizer, weights = probes.tokenizer.folder, probes.tokenizer.weights
        files = {}
        for path in tokenizer_and_model_files(tokenizer, weights):
            # Two folders only where they are two, so that the worker sees the same layout.
            if path.parent == weights and weights != tokenizer:
                name = f"model/{path.relative_to(weights)}"
            else:
                name = f"tokenizer/{path.relative_to(tokenizer)}"
            files[name] = path.read_bytes()
        files.setdefault("tokenizer/tokenizer.json", probes.tokenizer.backend.to_str().encode())
        if (
            probes.spec.template is not None
            and probes.spec.template not in probes.tokenizer.templates
        ):
            files["template.jinja"] = Path(probes.spec.template).read_bytes()
        return cls(probes.spec, files)

    def load_probes(self) -> Probes:
        """The tokenizer and the template, loaded."""
        with tempfile.TemporaryDirectory(prefix="truetune-") as place:
            for name, body in self.files.items():
                path = Path(place, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(body)
            names = {"tokenizer": "tokenizer", "model": "model", "template": "template.jinja"}
            paths: dict[str, str | None] = {"model": None}
            for setting, name in names.items():
                path = Path(place, name)
                if path.exists():
                    paths[setting] = str(path)
            return load_tokenizer_and_template_of_run(self.spec.model_copy(update=paths))


def encode_shards_on_cluster(jobs: int | None) -> ShardRunner:
    """A runner that encodes shards on the cluster that RAY_ADDRESS names, else on the cores of this
    machine; by `jobs` cores at most.
    """

    def run(
        probes: Probes, tasks: Iterable[Task], store: Store, only_reference: bool
    ) -> Iterator[Shard]:
        ray = _connected_ray()
        encode = ray.remote(max_retries=MAX_RETRIES, scheduling_strategy="SPREAD")(
            _encode_in_worker
        )
        parcel, here = [ray.put(PortableRun.of(probes))], os.getcwd()
        yield from _results_as_ready(
            lambda task: encode.remote(parcel, only_reference, task, store, here), tasks, jobs
        )

    return run


def scan_on_cluster(
    sources: Sequence[DataFile], size: int, progress: Callable[[int], None]
) -> list[FileScan]:
    """Run `scan_and_cut_lines` on each file, side by side on the cluster."""
    ray = _connected_ray()
    scan_remotely = ray.remote(max_retries=MAX_RETRIES, scheduling_strategy="SPREAD")(
        _scan_in_worker
    )
    here = os.getcwd()
    scans: dict[int, FileScan] = {}
    for i, result in _results_as_ready(
        lambda i: scan_remotely.remote(i, sources[i], size, here), range(len(sources)), None
    ):
        scans[i] = result
        progress(sources[i].path.stat().st_size)
    return [scans[i] for i in range(len(sources))]


def _connected_ray() -> Any:
    """The module `ray`, connected to a cluster. Raises UsageError where it is not installed."""
    try:
        import ray
    except ImportError:
        raise UsageError("the engine ray needs Ray; install `truetune[ray]`") from None
    if not ray.is_initialized():
        # Its workers' lines would stand among ours; what goes wrong there is raised here.
        ray.init(log_to_driver=False, logging_level=logging.WARNING)
    return ray


def _encode_in_worker(
    parcel: list[Any], only_reference: bool, task: Task, store: Store, here: str
) -> Shard:
    """Encode one shard in a worker of the cluster, in the folder where the run was started."""
    _enter_folder_if_there(here)
    return encode_shard(_document_maker_of_worker(parcel[0], only_reference), task, store)


def _scan_in_worker(number: int, source: DataFile, size: int, here: str) -> tuple[int, FileScan]:
    """Scan one file in a worker of the cluster; returns the file's number with the scan."""
    _enter_folder_if_there(here)
    return number, scan_and_cut_lines(source, size)


# By the reference of the parcel, which is one for a run. It comes in a list, for Ray would else hand over its contents.
@lru_cache(maxsize=2)
def _document_maker_of_worker(parcel: Any, only_reference: bool) -> DocumentMaker:
    """What makes the documents of a run in this worker of the cluster; made once and kept."""
    return make_document_maker(
        _connected_ray().get(parcel).load_probes(),
        only_reference=only_reference,
        characters_before_fast_engine=0,
    )


def _enter_folder_if_there(here: str) -> None:
    """Change into the folder where the run was started, if this node has it, so that relative paths
    mean the same.
    """
    if os.path.isdir(here):
        os.chdir(here)


def _results_as_ready(
    submit: Callable[[Any], Any], things: Iterable[Any], jobs: int | None
) -> Iterator[Any]:
    """The results of tasks as they come. No more tasks wait than keep every core busy and make a
    cluster grow.
    """
    ray = _connected_ray()
    pending: list[Any] = []
    try:
        for thing in things:
            while len(pending) >= (
                jobs or TASKS_PER_WORKER * max(1, int(ray.cluster_resources().get("CPU", 1)))
            ):
                ready, pending = ray.wait(pending)
                yield from map(_get_result, ready)
            pending.append(submit(thing))
        while pending:
            ready, pending = ray.wait(pending)
            yield from map(_get_result, ready)
    finally:
        for reference in pending:
            ray.cancel(reference)
        if pending:  # none may write on where another run begins
            ray.wait(pending, num_returns=len(pending), timeout=CANCEL_TIMEOUT_S)


def _get_result(reference: Any) -> Any:
    """What a task returned. What it raised is raised here, without Ray's wrapping."""
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, TruetuneError | OSError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise UsageError(f"Ray gave a task up: {error}") from None
