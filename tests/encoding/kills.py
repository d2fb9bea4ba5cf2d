"""`python -m tests.encoding.kills DATA TOKENIZER OUT`: encode, killed at every operation that changes a file, in turn.

A child is forked for each run; an audit hook sends it SIGKILL at its n-th operation inside OUT. After each kill the
folder must hold nothing that passes for whole, or whole data; then the run is taken up again and must end well. Prints
a line of JSON: the points, and what stood there after each.

Runs that nobody kills are of this process: its modules and its template process are loaded once. A child that is
killed inherits the modules, and starts a template process of its own. Nothing waits for the disk: what a killed process
wrote, the system holds; fsync is for a power cut, which no process can stage.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import truetune.encoding.encode_data_set as encoding
from truetune.encoding.encoded_folder_on_disk import DATA, EncodedFolderOnDisk
from truetune.settings.run_spec import RunSpec

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


def forked(work: Callable[[], int]) -> int:
    """What a child process makes of it: its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(work())
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(point: int, out: Path, run: Callable[[], int]) -> Callable[[], int]:
    """The run, killed before its operation number `point` in the folder."""

    def work() -> int:
        seen = 0

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal seen
            if (
                event in EVENTS
                and str(out) in str(arguments[0])
                and not _only_reads(event, arguments)
            ):
                seen += 1
                if seen == point:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        return run()

    return work


def _only_reads(event: str, arguments: tuple[object, ...]) -> bool:
    """Does this operation leave the folder as it is?"""
    flags = arguments[2] if event == "open" else None
    return isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)


def state(out: Path) -> str:
    """What a reader finds: nothing, or the key of whole data."""
    entry = EncodedFolderOnDisk(out)
    manifest = entry.manifest()
    if manifest is None:
        return "nothing"
    damage = entry.find_missing_file(manifest) or entry._first_foreign_file()
    if damage or names(out) != sorted(shard["file"] for shard in manifest["shards"]):
        return f"DAMAGED: {damage or names(out)}"
    return str(manifest["key"])


def names(out: Path) -> list[str]:
    """The shards."""
    return sorted(path.name for path in (out / DATA).iterdir())


def main(data: str, tokenizer: str, out: Path) -> None:
    """Kill at each point, over an empty folder and over one that holds other data."""
    encoding.MIN_SHARD_BYTES = 400
    vars(os)["fsync"] = lambda handle: None

    def run(**settings: Any) -> int:
        encoding.encode(RunSpec(data=(data,), tokenizer=tokenizer, **settings), out, jobs=1)
        return 0

    run()
    wanted, new = names(out), state(out)
    found: Counter[str] = Counter()
    points = 0
    shutil.rmtree(out)
    run(max_length=4096)
    other = out.rename(out.with_name("other"))
    for before in (None, other):
        point = 0
        while True:
            point += 1
            shutil.rmtree(out, ignore_errors=True)
            if before is not None:
                shutil.copytree(before, out)
            code = forked(killed_at(point, out, run))
            if code == 0:
                break
            assert code == -signal.SIGKILL, code
            points += 1
            here = state(out)
            found[
                "new" if here == new else here if here == "nothing" or "DAMAGED" in here else "old"
            ] += 1
            run()
            assert state(out) == new
            assert names(out) == wanted
    print(json.dumps({"points": points, "found": found}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
