"""Encodes shards side by side, by worker processes of this machine; `encode_on_ray` has those of a cluster.

Processes and not threads, for rendering is Python. loky's pool starts fresh interpreters instead of forks: a fork of a
process with Rust threads in it may hang. The trade-off is half a second of imports a worker, so that one task, or one
core, needs none: `encode_shards_in_turn` does the same here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import lru_cache

from truetune.encoding.encode_shard import Shard, Store, Task, encode_shard, make_document_maker
from truetune.encoding.end_worker_with_parent import set_up_worker_process
from truetune.encoding.make_documents_or_reject_rows import DocumentMaker
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.settings.run_spec import RunSpec

TASKS_PER_WORKER = 2
"""Tasks a worker that wait for it; more would only hold rows in memory. With one, it would wait for the next."""
ShardRunner = Callable[[Probes, Iterable[Task], Store, bool], Iterator[Shard]]
"""(tokenizer, tasks, where to write, without shortcuts?) -> the shards, as they are done"""


def usable_cores() -> int:
    """How many cores this process may use, by its affinity and its container."""
    import loky

    return int(loky.cpu_count())


def encode_shards_in_turn(
    probes: Probes, tasks: Iterable[Task], store: Store, only_reference: bool
) -> Iterator[Shard]:
    """Encode the shards one after the other, in this process."""
    maker = make_document_maker(probes, only_reference=only_reference)
    for task in tasks:
        yield encode_shard(maker, task, store)


def encode_shards_in_processes(count: int) -> ShardRunner:
    """A runner that encodes shards by `count` worker processes of this machine. Shards come as they
    are done.
    """

    def run(
        probes: Probes, tasks: Iterable[Task], store: Store, only_reference: bool
    ) -> Iterator[Shard]:
        import loky

        pool = loky.ProcessPoolExecutor(
            count, initializer=set_up_worker_process, initargs=(os.getpid(),)
        )
        spec, done = probes.spec.model_dump_json(), False
        try:
            yield from _results_as_ready(
                lambda task: pool.submit(_encode_in_worker, spec, only_reference, task, store),
                tasks,
                count * TASKS_PER_WORKER,
            )
            done = True
        finally:
            pool.shutdown(wait=True, kill_workers=not done)

    return run


def _encode_in_worker(spec: str, only_reference: bool, task: Task, store: Store) -> Shard:
    """Encode one shard in a worker process."""
    return encode_shard(_document_maker_of_worker(spec, only_reference), task, store)


# Kept from task to task, for loading a tokenizer takes longer than many a shard. Two, for a run may start again without
# shortcuts. The settings come as JSON, which can be hashed.
@lru_cache(maxsize=2)
def _document_maker_of_worker(spec: str, only_reference: bool) -> DocumentMaker:
    """What makes the documents of a run in this worker process; made once and kept."""
    probes = load_tokenizer_and_template_of_run(RunSpec.model_validate_json(spec))
    return make_document_maker(
        probes, only_reference=only_reference, characters_before_fast_engine=0
    )


def _results_as_ready(
    submit: Callable[[Task], Future[Shard]], tasks: Iterable[Task], limit: int
) -> Iterator[Shard]:
    """The shards as they are done, while at most `limit` tasks wait or run; raises what a task raised."""
    pending: set[Future[Shard]] = set()
    for task in tasks:
        if len(pending) >= limit:
            ready, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in ready)
        pending.add(submit(task))
    while pending:
        ready, pending = wait(pending, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in ready)
