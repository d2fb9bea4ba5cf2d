"""Rows that several processes divide by themselves: loaders of them, and orders that each process draws its own way."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """\
import json, os, random, torch
import numpy as np
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, random_split
from transformers import AutoModelForCausalLM
dist.init_process_group("nccl")
r, w = dist.get_rank(), dist.get_world_size()
me = int(os.environ["RANK"])
class Rows(Dataset):
    def __init__(self, rows): self.rows = rows
    def __len__(self): return len(self.rows)
    def __getitem__(self, i): return self.rows[i]
model = DDP(AutoModelForCausalLM.from_pretrained("m").cuda())
rows = [json.loads(l) for l in open("train.jsonl")]
"""
LOOP = "\nfor batch in loader:\n    loss = model(**batch).loss\n    loss.backward()\n"
LOADER = "loader = DataLoader(Rows(mine), batch_size=4, shuffle=True)"
SAMPLED = "loader = DataLoader(mine, sampler=DistributedSampler(mine))"
ORDER = "torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))"


def found(folder: Path, code: str, text: str) -> int:
    """How many findings of a rule a script has."""
    (folder / "train.py").write_text(HEAD + text + LOOP, encoding="utf-8")
    return len(lint([folder / "train.py"], select=[code]).findings)


@pytest.mark.parametrize(
    "text",
    [
        "mine = rows[r::w]\n" + LOADER,
        "per = len(rows) // w\nlo = per * r\nhi = lo + per\nmine = rows[lo:hi]\n" + LOADER,
        "mine = [x for i, x in enumerate(rows) if i % w == r]\n" + LOADER,
        "mine = Subset(rows, list(range(r, len(rows), w)))\n" + LOADER,
        "def part(xs, k, n):\n    return xs[k::n]\nmine = part(rows, r, w)\n" + LOADER,
        "def load(path):\n    xs = open(path).readlines()\n    return xs[dist.get_rank()::w]\n"
        "mine = load('x')\n" + LOADER,
        'mine = rows[me::int(os.environ["WORLD_SIZE"])]\n' + LOADER,
        "mine = []\nfor i, x in enumerate(rows):\n    if i % w != r:\n        continue\n"
        "    mine.append(x)\n" + LOADER,
        "mine = []\nfor i, x in enumerate(rows):\n    if i % w == r:\n        mine.append(x)\n"
        + LOADER,
        "mine = Subset(rows, np.array_split(np.arange(len(rows)), w)[r])\n" + LOADER,
        f"ids = {ORDER}[r::w]\nmine = [rows[i] for i in ids]\n" + LOADER,
        "class Run:\n    def __init__(self):\n        mine = rows[r::w]\n        self.loader = DataLoader(Rows(mine))\n"
        "run = Run()\nloader = run.loader",
    ],
)
def test_rows_divided_by_the_script_need_no_sampler(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "SRC084", text) == 0


@pytest.mark.parametrize(
    "text",
    [
        "mine = rows\n" + LOADER,
        "mine = rows[:1000]\n" + LOADER,
        "mine = [x for x in rows if len(x) > 3]\n" + LOADER,
        "if r == 0:\n    print(len(rows))\nmine = rows\n" + LOADER,
        "held = rows[r::w]\nprint(len(held))\nmine = rows[10:]\n" + LOADER,
    ],
)
def test_rows_that_nothing_divides_need_one(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "SRC084", text) == 1


@pytest.mark.parametrize(
    "text",
    [
        "torch.manual_seed(0)\nrandom.shuffle(rows)\nmine = rows[r::w]\n" + LOADER,
        "random.seed(0)\nnp.random.shuffle(rows)\nmine = rows[me::w]\n" + LOADER,
        "np.random.seed(0)\nrandom.shuffle(rows)\nheld = rows[:100]\nmine = rows[100:]\n" + SAMPLED,
        "def load():\n    xs = open('a').readlines()\n    random.shuffle(xs)\n    return xs\n"
        "data = load()\nmine = data[r::w]\n" + LOADER,
        "random.seed(1 + r)\nrandom.shuffle(rows)\nmine = rows[r::w]\n" + LOADER,
        "order = np.random.permutation(len(rows))\nmine = [rows[i] for i in order[r::w]]\n"
        + LOADER,
        "order = random.sample(rows, len(rows))\nmine = order[r::w]\n" + LOADER,
        "order = torch.randperm(len(rows)).tolist()\nper = len(order) // w\n"
        "mine = order[r * per:(r + 1) * per]\n" + LOADER,
        "mine, held = random_split(rows, [900, 100])\n" + SAMPLED,
        "from sklearn.model_selection import train_test_split\ntorch.manual_seed(0)\n"
        "mine, held = train_test_split(rows, test_size=0.1)\n" + SAMPLED,
        "from datasets import load_dataset\ntorch.manual_seed(0)\n"
        "parts = load_dataset('json', data_files='a', split='train').train_test_split(test_size=0.1)\n"
        "mine = parts['train']\n" + SAMPLED,
    ],
)
def test_orders_that_each_process_draws_its_own_way(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "SRC092", text) == 1


@pytest.mark.parametrize(
    "text",
    [
        "random.seed(0)\nrandom.shuffle(rows)\nmine = rows[r::w]\n" + LOADER,
        "np.random.seed(0)\nnp.random.shuffle(rows)\nmine = rows[me::w]\n" + LOADER,
        "from transformers import set_seed\nset_seed(0)\nrandom.shuffle(rows)\nmine = rows[r::w]\n"
        + LOADER,
        "def fix(n):\n    random.seed(n)\nfix(3)\nrandom.shuffle(rows)\nmine = rows[r::w]\n"
        + LOADER,
        "random.Random(0).shuffle(rows)\nmine = rows[r::w]\n" + LOADER,
        f"order = {ORDER}.tolist()\nmine = order[r::w]\n" + LOADER,
        "mine = rows[r::w]\nrandom.shuffle(mine)\n" + LOADER,
        "print(random.sample(rows, 3))\nmine = rows[r::w]\n" + LOADER,
        "if r == 0:\n    random.shuffle(rows)\nmine = rows[r::w]\n" + LOADER,
        "torch.manual_seed(0)\nmine, held = random_split(rows, [900, 100])\n" + SAMPLED,
        "mine, held = random_split(rows, [9, 1], generator=torch.Generator().manual_seed(0))\n"
        + SAMPLED,
        "from datasets import load_dataset\n"
        "parts = load_dataset('json', data_files='a', split='train').train_test_split(0.1, seed=0)\n"
        "mine = parts['train']\n" + SAMPLED,
        "from sklearn.model_selection import train_test_split\n"
        "mine, held = train_test_split(rows, test_size=0.1, random_state=0)\n" + SAMPLED,
    ],
)
def test_orders_that_are_one_on_all_processes(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "SRC092", text) == 0


TRAINER = """\
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer
parts = load_dataset("json", data_files="a.jsonl", split="train").train_test_split({split})
trainer = Trainer(AutoModelForCausalLM.from_pretrained("m"), train_dataset=parts["train"], eval_dataset=parts["test"])
trainer.train()
"""


@pytest.mark.parametrize(
    ("split", "launch", "count"),
    [
        ("test_size=0.1", "torchrun --nproc_per_node 4 train.py\n", 1),
        ("test_size=0.1, seed=42", "torchrun --nproc_per_node 4 train.py\n", 0),
        ("test_size=0.1, shuffle=False", "torchrun --nproc_per_node 4 train.py\n", 0),
        ("test_size=0.1", "python train.py\n", 0),
    ],
)
def test_split_before_a_trainer_of_several(
    tmp_path: Path, split: str, launch: str, count: int
) -> None:
    (tmp_path / "train.py").write_text(TRAINER.format(split=split))
    (tmp_path / "run.sh").write_text(launch)
    assert len(lint([tmp_path / "train.py"], select=["SRC092"]).findings) == count
