"""Streams in scripts for which Lightning starts the processes; with near misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

DATA = """
import json
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        worker = get_worker_info()
        index, count = (worker.id, worker.num_workers) if worker else (0, 1)
        for number, line in enumerate(open(self.path)):
            if number % count == index:
                yield json.loads(line)

def loader():
    return DataLoader(Lines("train.jsonl"), batch_size=4, num_workers=2)
"""
BY_RANK = DATA.replace(
    "        for number",
    "        index += count * self.trainer.global_rank\n        count *= self.trainer.world_size\n        for number",
)
TRAIN = """
import argparse
import {package} as L
from data import loader

parser = argparse.ArgumentParser()
parser.add_argument("--devices", type=int, default=1)
args = parser.parse_args()
trainer = L.{call}
"""


def count(folder: Path, data: str, call: str, package: str = "lightning") -> int:
    files = {"data.py": data, "train.py": TRAIN.format(package=package, call=call)}
    for name, text in files.items():
        folder.joinpath(name).write_text(text)
    paths = [str(folder / name) for name in files]
    return len(lint(paths, select=("stream-read-whole-by-every-rank",)).findings)


@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning", "lightning.pytorch"])
@pytest.mark.parametrize(
    "call",
    [
        "Trainer(devices=args.devices, strategy='ddp' if args.devices > 1 else 'auto')",
        "Trainer(devices=4)",
        "Trainer(devices=[0, 1])",
        "Trainer(num_nodes=2)",
        "Trainer(devices=args.devices, strategy='fsdp')",
        "Trainer(strategy='ddp_find_unused_parameters_true')",
    ],
)
def test_lightning_divides_no_stream(tmp_path: Path, call: str, package: str) -> None:
    assert count(tmp_path, DATA, call, package) == 1


def test_fabric_divides_no_stream(tmp_path: Path) -> None:
    assert count(tmp_path, DATA, "Fabric(devices=8, strategy='ddp')") == 1


@pytest.mark.parametrize(
    ("data", "call"),
    [
        (BY_RANK, "Trainer(devices=4, strategy='ddp')"),
        (DATA, "Trainer(devices=1, strategy='ddp')"),
        (DATA, "Trainer(devices=args.devices)"),  # no word of several processes
        (DATA, "Trainer(devices=[0])"),
        (DATA, "Trainer(max_epochs=2)"),
    ],
)
def test_a_stream_that_is_divided_or_read_by_one(tmp_path: Path, data: str, call: str) -> None:
    assert count(tmp_path, data, call) == 0
