"""Workers: shards encoded side by side, by processes of this machine or of a Ray cluster."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import lru_cache
from pathlib import Path
from typing import Any

from truetune.encoding.documents import DocumentMaker
from truetune.encoding.shard import Shard, Task, encode_shard, maker_of
from truetune.errors import UsageError
from truetune.render.probes import Probes, prepared
from truetune.spec.run import RunSpec

AHEAD = 2
"""Tasks a worker that wait for it; more would only hold rows in memory."""
Run = Callable[[Probes, Iterable[Task], Path, bool], Iterator[Shard]]


def cores() -> int:
    """Cores that this process may use, of its affinity and its container."""
    import loky

    return int(loky.cpu_count())


def in_turn(made: Probes, tasks: Iterable[Task], folder: Path, only_reference: bool) -> Iterator[Shard]:
    """One after the other, in this process."""
    maker = maker_of(made, only_reference=only_reference)
    for task in tasks:
        yield encode_shard(maker, task, folder)


def in_processes(count: int) -> Run:
    """By `count` processes of this machine. Shards come as they are done."""

    def run(made: Probes, tasks: Iterable[Task], folder: Path, only_reference: bool) -> Iterator[Shard]:
        import loky

        pool = loky.ProcessPoolExecutor(count, initializer=_deaf)
        spec, done = made.spec.model_dump_json(), False
        try:
            yield from _ahead(
                lambda task: pool.submit(_in_worker, spec, only_reference, task, folder), tasks, count * AHEAD
            )
            done = True
        finally:
            pool.shutdown(wait=True, kill_workers=not done)

    return run


def _in_worker(spec: str, only_reference: bool, task: Task, folder: Path) -> Shard:
    return encode_shard(_maker(spec, only_reference), task, folder)


@lru_cache(maxsize=2)
def _maker(spec: str, only_reference: bool) -> DocumentMaker:
    return maker_of(prepared(RunSpec.model_validate_json(spec)), only_reference=only_reference)


def _ahead(submit: Callable[[Task], Future[Shard]], tasks: Iterable[Task], limit: int) -> Iterator[Shard]:
    pending: set[Future[Shard]] = set()
    for task in tasks:
        if len(pending) >= limit:
            ready, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in ready)
        pending.add(submit(task))
    while pending:
        ready, pending = wait(pending, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in ready)


def _deaf() -> None:
    """Ctrl-C is for the process that gives out the work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def on_ray(made: Probes, tasks: Iterable[Task], folder: Path, only_reference: bool) -> Iterator[Shard]:
    """By Ray, on the cluster that RAY_ADDRESS names, else on this machine. `folder` must be one that all nodes see."""
    try:
        import ray
    except ImportError:
        raise UsageError("the engine ray needs Ray; install `truetune[ray]`") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    encode: Any = ray.remote(max_retries=2)(_in_worker)
    limit = max(1, int(ray.cluster_resources().get("CPU", 1))) * AHEAD
    spec = made.spec.model_dump_json()
    pending: list[Any] = []
    for task in tasks:
        if len(pending) >= limit:
            ready, pending = ray.wait(pending)
            yield from ray.get(ready)
        pending.append(encode.remote(spec, only_reference, task, folder))
    while pending:
        ready, pending = ray.wait(pending)
        yield from ray.get(ready)
