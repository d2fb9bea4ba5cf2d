"""A run of two processes, with or without a watcher: what each of them has at its end, in a file of its own."""

from __future__ import annotations

import os
import sys
from math import inf
from pathlib import Path
from typing import Any

import peft
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.auditing import tiny
from tests.training.watched import LIMIT, prompts, trainer, watcher
from truetune.render.rendering import Source
from truetune.training.watch.exchange_between_sampling_processes import describe_sharding
from truetune.training.watch.losses_by_source import SourceLosses
from truetune.training.watch.sample_answers import measure_row_and_token_costs

folder = Path(sys.argv[1])
rank = int(os.environ["RANK"])
said: list[str] = []
callback = watcher(folder / "watched", said, stop_on="info")
run = trainer(None, callback, max_steps=4, lr_scheduler_type="constant")
run.train()
plain = trainer(None, max_steps=run.state.global_step, lr_scheduler_type="constant")
plain.train()
sums = SourceLosses()
sums.add(
    torch.tensor([1.0 + rank]),
    torch.tensor([Source.STOP], dtype=torch.uint8),
    torch.tensor([rank == 0]),
)
same = all(map(torch.equal, run.model.parameters(), plain.model.parameters()))
model: Any = peft.get_peft_model(tiny.model(), peft.LoraConfig(r=2, target_modules="all-linear"))
alone = callback.speech.answer_prompts_greedily(model, prompts(), LIMIT, inf)
mesh = init_device_mesh("cpu", (2,))
for part in (*model.get_base_model().model.layers, model):
    fully_shard(part, mesh=mesh)
measure_row_and_token_costs(callback.speech, model, prompts())
together = [callback.speech.answer_prompts_greedily(model, prompts(), LIMIT, inf)]
ids = torch.tensor([prompts()[0].ids])
model(input_ids=ids, labels=ids).loss.backward()
together.append(callback.speech.answer_prompts_greedily(model, prompts(), LIMIT, inf))

found = {
    "same": same,
    "said": said,
    "steps": run.state.global_step,
    "losses": sums.take(),
    "stopped": callback.stopped_by is not None,
    "looks": len(callback.looks),
    "spread": describe_sharding(model),
    "together": together == [alone, alone],
}
torch.save(found, folder / f"{rank}.pt")
os._exit(0)  # gloo crashes at the end of Python where models still hold its group
