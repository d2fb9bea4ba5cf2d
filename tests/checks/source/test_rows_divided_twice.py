"""Rows that a script and a library both divide among processes, and rows that one of them divides."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import os, json
from itertools import islice
import torch
import torch.distributed as dist
from accelerate import Accelerator, PartialState
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Subset
from transformers import Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rows = load_dataset("json", data_files="a.jsonl", split="train")
"""
TRAINER = "\nSFTTrainer(model, args=SFTConfig('o'), train_dataset=rows).train()\n"
PREPARE = "\naccelerator = Accelerator()\nmodel, loader = accelerator.prepare(model, DataLoader(rows, batch_size=2))\n"
SAMPLER = "\nsampler = DistributedSampler(rows)\n"
TWICE = {
    "shard": "rows = rows.shuffle(seed=1).shard(num_shards=world, index=rank).map(f)" + TRAINER,
    "by node": "rows = split_dataset_by_node(rows, rank=dist.get_rank(), world_size=world)"
    + TRAINER,
    "by node, prepared": "rows = split_dataset_by_node(rows, dist.get_rank(), 4)" + PREPARE,
    "slice": "rows = [json.loads(x) for x in open('a')][rank::world]" + SAMPLER,
    "slice by bounds": "n = len(rows) // world\nrows = list(rows)[rank * n : (rank + 1) * n]"
    + SAMPLER,
    "select": "a = PartialState()\nrows = rows.select(range(a.process_index, len(rows), a.num_processes))"
    + TRAINER,
    "islice": "rows = list(islice(open('a'), rank, None, world))" + PREPARE,
    "condition": "rows = [r for i, r in enumerate(rows) if i % world == rank]" + TRAINER,
    "filter": "rows = rows.filter(lambda r, i: i % world == rank, with_indices=True)" + TRAINER,
    "file": "rows = load_dataset('json', data_files=f'part_{rank}.jsonl', split='train')" + TRAINER,
    "subset": "rows = Subset(rows, range(rank, len(rows), world))" + SAMPLER,
    "class": "class D(Dataset):\n    def __init__(self, p):\n"
    "        self.rows = open(p).readlines()[dist.get_rank()::dist.get_world_size()]\nrows = D('a')"
    + SAMPLER,
    "stream": "class S(IterableDataset):\n    def __iter__(self):\n"
    "        for i, line in enumerate(open('a')):\n            if i % world != rank:\n"
    "                continue\n            yield line\nrows = S()" + TRAINER,
    "function": "def load(p):\n    d = load_dataset('json', data_files=p, split='train')\n"
    "    return d.shard(world, int(os.environ['LOCAL_RANK']))\nrows = load('a')" + TRAINER,
    "deepspeed": "import deepspeed\nrows = rows.shard(world, rank)\n"
    "e, _, loader, _ = deepspeed.initialize(model=model, training_data=rows, config='c.json')",
    "fabric": "from lightning.fabric import Fabric\nfabric = Fabric(devices=4)\n"
    "rows = rows.shard(4, fabric.global_rank)\nloader = fabric.setup_dataloaders(DataLoader(rows))",
    "under a condition": "if world > 1:\n    rows = rows.shard(world, rank)" + TRAINER,
}
ONCE = {
    "whole": TRAINER,
    "own loop": "rows = rows.shard(world, rank)\nloader = DataLoader(rows)\nfor b in loader:\n    loss.backward()",
    "a tenth": "rows = rows.shard(num_shards=10, index=0)" + TRAINER,
    "one shard after another": "for shard in range(8):\n    rows = rows.shard(8, shard)" + TRAINER,
    "all files": "rows = load_dataset('json', data_files=[f'p{rank}.jsonl' for rank in range(4)])"
    + TRAINER,
    "seed": "rows = rows.shuffle(seed=1)\ntorch.manual_seed(1 + rank)" + TRAINER,
    "evaluation": "mine = rows.shard(world, rank)\nfor r in mine:\n    model.generate(**r)"
    + TRAINER,
    "one replica": "rows = rows.shard(world, rank)\ns = DistributedSampler(rows, num_replicas=1, rank=0)",
    "own sampler": "rows = rows.shard(world, rank)\nclass T(Trainer):\n    def get_train_dataloader(self):\n"
    "        return DataLoader(self.train_dataset)\nT(model, train_dataset=rows).train()",
    "not prepared": "accelerator = Accelerator()\nrows = rows.shard(world, accelerator.process_index)\n"
    "model, opt = accelerator.prepare(model, opt)\nloader = DataLoader(rows)",
    "rank of an adapter": "rows = rows.select(range(lora_rank))" + TRAINER,
    "rank that the script writes": "rank = 16\nrows = rows.select(range(rank * 100))" + TRAINER,
    "first rows": "rows = rows.select(range(1000))[:500]" + SAMPLER,
    "switched off": "from lightning.fabric import Fabric\nfabric = Fabric(devices=4)\nrows = rows.shard(4, rank)\n"
    "loader = fabric.setup_dataloaders(DataLoader(rows), use_distributed_sampler=False)",
}


def found(code: str) -> list[str]:
    module = parse_module(HEAD + code, "train.py")
    return [one.message for one in run_rule(module, find_rule("rows-divided-twice")).findings]


@pytest.mark.parametrize("code", TWICE.values(), ids=TWICE)
def test_divided_twice(code: str) -> None:
    (message,) = found(code)
    assert "split between the processes twice" in message


@pytest.mark.parametrize("code", ONCE.values(), ids=ONCE)
def test_divided_once(code: str) -> None:
    assert found(code) == []
