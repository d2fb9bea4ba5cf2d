"""python -m tests.parts: lay out everything that the tests need, beforehand."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from tests.parts import DATA, FAMILIES, TEMPLATES
from tests.parts.lay_out import MODEL, model_folder, tokenizer_folder
from tests.parts.packages import unpack
from tests.parts.shelf import Missing, root

Job = Callable[[], Path]


def main() -> None:
    arguments = _parse()
    if arguments.dir:
        os.environ["TRUETUNE_PARTS"] = str(arguments.dir)
    print(f"laying out under {root()}", flush=True)
    jobs = _jobs(arguments)
    began = time.perf_counter()
    skipped: list[str] = []
    for done, (name, seconds, reason) in enumerate(_run(jobs), 1):
        print(
            f"[{done:2}/{len(jobs)}] {name:<24}"
            f" {f'SKIPPED: {reason}' if reason else f'{seconds:.1f} s'}",
            flush=True,
        )
        if reason:
            skipped.append(name)
    print(
        f"{len(jobs) - len(skipped)} laid out, {len(skipped)} skipped,"
        f" {time.perf_counter() - began:.0f} s"
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.parts", description=__doc__)
    parser.add_argument("--only", help="comma-separated names of families: " + ", ".join(FAMILIES))
    parser.add_argument("--dir", type=Path, help="the cache folder (default: $TRUETUNE_PARTS)")
    parser.add_argument("--data", action="store_true", help="also real training data")
    parser.add_argument(
        "--model", action="store_true", help=f"also {MODEL} (538 MB; needs torch and transformers)"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.only.split(",") if arguments.only else ()) - set(FAMILIES)
    if unknown:
        parser.error(f"unknown families: {', '.join(sorted(unknown))}")
    return arguments


def _jobs(arguments: argparse.Namespace) -> dict[str, Job]:
    names = arguments.only.split(",") if arguments.only else FAMILIES
    jobs: dict[str, Job] = {}
    if not arguments.only:
        jobs |= {
            f"templates of {origin}": partial(unpack, package)
            for origin, (package, _) in TEMPLATES.items()
        }
    jobs |= {name: partial(tokenizer_folder, name) for name in names}
    if arguments.data:
        jobs |= {f"data of {package}": partial(unpack, package) for package in DATA}
    if arguments.model:
        jobs[MODEL] = model_folder
    return jobs


def _run(jobs: dict[str, Job]) -> Iterator[tuple[str, float, str | None]]:
    """(name, seconds, reason to skip) of each job, as they end; two at a time, to spare memory."""
    with ProcessPoolExecutor(max_workers=2) as pool:
        futures = {pool.submit(_timed, job): name for name, job in jobs.items()}
        for future in as_completed(futures):
            yield futures[future], *future.result()


def _timed(job: Job) -> tuple[float, str | None]:
    began = time.perf_counter()
    try:
        job()
    except Missing as reason:
        return time.perf_counter() - began, str(reason)
    return time.perf_counter() - began, None


if __name__ == "__main__":
    main()
