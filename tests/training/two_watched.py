"""A run of two processes, with or without a watcher: what each of them has at its end, in a file of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import distributed

from tests.training.watched import trainer, watcher
from truetune.render.rendering import Source
from truetune.training.watch.losses import SourceLosses

folder = Path(sys.argv[1])
rank = int(os.environ["RANK"])
said: list[str] = []
callback = watcher(folder / "watched", said, stop_on="info")
run = trainer(None, callback, max_steps=4, lr_scheduler_type="constant")
run.train()
plain = trainer(None, max_steps=run.state.global_step, lr_scheduler_type="constant")
plain.train()
sums = SourceLosses()
sums.add(torch.tensor([1.0 + rank]), torch.tensor([Source.STOP], dtype=torch.uint8), torch.tensor([rank == 0]))
same = all(map(torch.equal, run.model.parameters(), plain.model.parameters()))
found = {"same": same, "said": said, "steps": run.state.global_step, "losses": sums.take(),
         "stopped": callback.stopped_by is not None, "looks": len(callback.looks)}  # fmt: skip
torch.save(found, folder / f"{rank}.pt")
distributed.destroy_process_group()
