"""One look inside a run: the record is written, the parent told, its verdict obeyed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from truetune.probe.record import Record, write

PATIENCE = 900
"""Seconds to wait for a verdict; then the run goes on"""


def session(trainer: Any, loader: Any, given: Any, orders: dict[str, Any], number: int) -> None:
    """Hand a record of this run over. Raises SystemExit where the run is to end here."""
    folder = Path(orders["folder"], f"{os.getpid()}-{number}")
    world = trainer.args.world_size
    message: dict[str, Any] = {
        "folder": str(folder),
        "rank": trainer.args.process_index,
        "expected": min(world, int(os.environ.get("LOCAL_WORLD_SIZE", world))),
        "group": [os.environ.get("MASTER_PORT"), os.getppid() if world > 1 else os.getpid(), number],
    }
    try:
        folder.mkdir()
        write(_record(trainer, loader, given, {**orders, "folder": str(folder)}), folder)
    except Exception as error:
        message["failed"] = f"{type(error).__name__}: {error}"
    answer = tell(message, orders)
    if orders["mode"] == "rehearse":
        raise SystemExit(0)
    if answer == "stop":
        raise SystemExit(1)


def _record(trainer: Any, loader: Any, given: Any, orders: dict[str, Any]) -> Record:
    """`orders["folder"]` is that of the record, whose tokenizer stands in its `tokenizer`."""
    if orders["mode"] == "rehearse":
        from truetune.probe.recite import rehearse

        return rehearse(trainer, orders, loader, given, Path(orders["folder"]))
    from truetune.probe.observe import observe
    from truetune.probe.ready import ready

    with ready(trainer, loader) as (loader, tokenizer):
        return observe(
            Path(orders["folder"]), model=trainer.model, loader=loader, tokenizer=tokenizer, trainer=trainer,
            given=given, count=orders["batches"], laws=orders["laws"], canary=orders["canary"],
        )  # fmt: skip


def tell(message: dict[str, Any], orders: dict[str, Any]) -> str:
    """The parent's verdict, `go` or `stop`; `go` where there is no parent any more."""
    from multiprocessing import AuthenticationError
    from multiprocessing.connection import Client

    address = orders["address"] if isinstance(orders["address"], str) else tuple(orders["address"])
    try:
        with Client(address, authkey=bytes.fromhex(orders["authkey"])) as parent:
            parent.send_bytes(json.dumps(message).encode())
            if parent.poll(PATIENCE):
                return parent.recv_bytes(16).decode()
    except (OSError, EOFError, AuthenticationError):
        pass
    print("truetune: no verdict came, the run goes on", file=sys.stderr)
    return "go"
