"""Rows of a process that are filtered after they were divided, and those whose numbers are equal."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune

HEAD = (
    "import itertools\nimport os\nimport torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\nfrom torch.utils.data import DataLoader\n"
    "dist.init_process_group('nccl')\nrank, world = dist.get_rank(), dist.get_world_size()\nmodel = DDP(net)\n"
)
TRAIN = "for batch in DataLoader(items, batch_size=8):\n    model(**batch).loss.backward()\n    opt.step()\n"
SLICE = "items = []\nfor row in rows[rank::world]:\n    if len(row) > 512:\n        continue\n    items.append(row)\n"
FAULTY = {
    "slice": SLICE,
    "kept": SLICE.replace("> 512:\n        continue\n    items", "< 512:\n        items"),
    "named": "mine = rows[rank::world]\nitems = [one for one in mine if one['label']]\n",
    "environment": "import os\nR, W = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
    "items = [one for one in rows[R::W] if len(one) < 9]\n",
    "remainder": "items = []\nfor i, row in enumerate(rows):\n    if i % world != rank:\n        continue\n"
    "    if len(row) > 512:\n        continue\n    items.append(row)\n",
    "one test": "items = [row for i, row in enumerate(rows) if i % world == rank and len(row) < 9]\n",
    "islice": "items = []\nfor row in itertools.islice(rows, rank, None, world):\n    ids = tok(row)\n"
    "    if len(ids) <= 512:\n        items.append(ids)\n",
    "shard": "items = rows.shard(num_shards=world, index=rank).filter(lambda row: len(row['ids']) < 9)\n",
    "generator": "class Rows(torch.utils.data.IterableDataset):\n    def __iter__(self):\n"
    "        for i, row in enumerate(self.rows):\n            if i % world == rank:\n"
    "                if len(row) < 9:\n                    yield row\nitems = Rows()\n",
    "method of a data set": "class Rows(torch.utils.data.IterableDataset):\n    def docs(self):\n"
    "        for n, line in enumerate(open('a.jsonl')):\n            if n % self.world == self.rank:\n"
    "                yield line\n    def __iter__(self):\n        buf = []\n        for text in self.docs():\n"
    "            if len(text) < 200:\n                continue\n            buf.extend(tok(text))\n"
    "            while len(buf) >= 9:\n                yield buf[:9]\n                buf = buf[9:]\nitems = Rows()\n",
}
HEALTHY = {
    "method of all rows": "class Rows(torch.utils.data.IterableDataset):\n    def docs(self):\n"
    "        for n, line in enumerate(open('a.jsonl')):\n            if n % 2 == 0:\n"
    "                yield line\n    def __iter__(self):\n        buf = []\n        for text in self.docs():\n"
    "            if len(text) < 200:\n                continue\n            yield text\nitems = Rows()\n",
    "method that keeps all": "class Rows(torch.utils.data.IterableDataset):\n    def docs(self):\n"
    "        for n, line in enumerate(open('a.jsonl')):\n            if n % self.world == self.rank:\n"
    "                yield line\n    def __iter__(self):\n        buf = []\n        for text in self.docs():\n"
    "            yield text\nitems = Rows()\n",
    "whole": SLICE.replace("    if len(row) > 512:\n        continue\n", ""),
    "before": "items = [row for row in rows if len(row) < 9][rank::world]\n",
    "sampler": SLICE
    + "from torch.utils.data import DistributedSampler\nsampler = DistributedSampler(rows)\n",
    "agreed": SLICE
    + "n = torch.tensor(len(items))\ndist.all_reduce(n, op=dist.ReduceOp.MIN)\nitems = items[:int(n)]\n",
    "join": SLICE
    + "from torch.distributed.algorithms.join import Join\nwith Join([model]):\n    pass\n",
    "steps": SLICE + "max_steps = 100\n",
    "blank lines": "items = []\nfor line in open('a.jsonl').readlines()[rank::world]:\n"
    "    if not line.strip():\n        continue\n    items.append(line)\n",
    "evaluation": "items = rows[rank::world]\ndef evaluate(test_rows):\n    hits = []\n"
    "    for row in test_rows[rank::world]:\n        if row['label']:\n            hits.append(row)\n",
    "skipped batch": "items = rows[rank::world]\nlosses = []\n",
}


def codes(text: str, folder: Path) -> set[str]:
    path = folder / "train.py"
    path.write_text(text)
    return {finding.code for finding in truetune.lint([str(path)], select=["SRC314"]).findings}


@pytest.mark.parametrize("form", FAULTY)
def test_parts_that_are_filtered(form: str, tmp_path: Path) -> None:
    assert codes(HEAD + FAULTY[form] + TRAIN, tmp_path) == {"SRC314"}


@pytest.mark.parametrize("form", HEALTHY)
def test_parts_of_equal_numbers(form: str, tmp_path: Path) -> None:
    assert codes(HEAD + HEALTHY[form] + TRAIN, tmp_path) == set()


def test_one_process_and_a_library_that_steers(tmp_path: Path) -> None:
    text = HEAD + SLICE + TRAIN
    assert codes(text.replace("DDP(net)", "net").replace("as DDP", ""), tmp_path) == set()
    steered = text + "from accelerate import Accelerator\naccelerator = Accelerator()\n"
    assert codes(steered, tmp_path) == set()
