"""Batches that one process skips (SRC225), files that every process changes (SRC226), judges that see one order (SRC228)
and engines whose requests name no adapter (SRC036)."""

# ruff: noqa: E501 - scripts stand as they are written
from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

CODES = ("SRC225", "SRC226", "SRC228", "SRC036", "SRC050")


def found(folder: Path, text: str, **files: str) -> list[str]:
    """The rules among those above that fire on a script with files beside it."""
    (folder / ".git").mkdir()  # the project ends here
    for name, other in files.items():
        (folder / name.replace("__", ".")).write_text(other, encoding="utf-8")
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return [finding.code for finding in lint([str(path)], select=CODES).findings]


ACCELERATE = """
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model, opt, loader = accelerator.prepare(model, opt, loader)
for step, batch in enumerate(loader):
{body}
    opt.step()
accelerator.wait_for_everyone()
"""
BACKWARD = "    loss = model(**batch).loss\n    accelerator.backward(loss)"
DDP = """
import torch, os
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
net = DDP(build())
data = DataLoader(rows, sampler=DistributedSampler(rows))
for epoch in range(3):
    for x, y in data:
{body}
        opt.step()
"""
STEPPED = """
import deepspeed
engine, _, data, _ = deepspeed.initialize(model=net, training_data=rows, config="ds.json")
deepspeed.init_distributed()
rank = int(os.environ["LOCAL_RANK"])
def train_step(engine, batch):
    if batch["labels"].ne(-100).sum() == 0:
        return None
    loss = engine(**batch).loss
    engine.backward(loss)
    engine.step()
for batch in data:
    train_step(engine, batch)
"""
SKIPS = {
    "no labels": ACCELERATE.format(
        body="    if (batch['labels'] != -100).sum() == 0:\n        continue\n" + BACKWARD
    ),
    "loss is nan": ACCELERATE.format(
        body="    loss = model(**batch).loss\n    if torch.isnan(loss):\n        print('nan')\n        continue\n"
        "    accelerator.backward(loss)"
    ),
    "too long": ACCELERATE.format(
        body="    ids = batch['input_ids']\n    if ids.shape[1] > 4096:\n        continue\n"
        + BACKWARD
    ),
    "empty batch of a collator": ACCELERATE.format(
        body="    if batch is None:\n        continue\n" + BACKWARD
    ),
    "out of memory": DDP.format(
        body="        try:\n            loss = net(x, y)\n            loss.backward()\n"
        "        except torch.cuda.OutOfMemoryError:\n            torch.cuda.empty_cache()\n            continue"
    ),
    "out of memory by its text": DDP.format(
        body="        try:\n            net(x, y).backward()\n        except RuntimeError as e:\n"
        "            if 'out of memory' in str(e):\n                continue\n            raise"
    ),
    "a step of DeepSpeed": "import os\n" + STEPPED,
}
SOUND_LOOPS = {
    "agreed": ACCELERATE.format(
        body="    bad = torch.tensor([float((batch['labels'] != -100).sum() == 0)])\n"
        "    if accelerator.gather(bad).max() > 0:\n        continue\n" + BACKWARD
    ),
    "agreed in a function": "def any_rank(flag):\n    t = torch.tensor([flag])\n    torch.distributed.all_reduce(t)\n"
    "    return bool(t)\n"
    + ACCELERATE.format(
        body="    if any_rank(batch['labels'].max() < 0):\n        continue\n" + BACKWARD
    ),
    "by the step": ACCELERATE.format(
        body="    if step < resume_step:\n        continue\n" + BACKWARD
    ),
    "behind the backward": ACCELERATE.format(
        body=BACKWARD + "\n    if loss.item() > 5:\n        continue"
    ),
    "a last batch that is not full": ACCELERATE.format(
        body="    if len(batch['input_ids']) < batch_size:\n        continue\n" + BACKWARD
    ),
    "the loss is made 0": ACCELERATE.format(
        body="    loss = model(**batch).loss\n    if torch.isnan(loss):\n        loss = loss * 0\n"
        "    accelerator.backward(loss)"
    ),
    "one process": "for batch in loader:\n    if batch['labels'].max() < 0:\n        continue\n"
    "    loss = model(**batch).loss\n    loss.backward()\n",
    "an error that ends the run": DDP.format(
        body="        try:\n            net(x, y).backward()\n        except RuntimeError:\n            print(x)\n"
        "            raise"
    ),
}


@pytest.mark.parametrize("text", SKIPS.values(), ids=SKIPS)
def test_a_batch_that_one_process_skips(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) in (["SRC225"], ["SRC050"])


@pytest.mark.parametrize("text", SOUND_LOOPS.values(), ids=SOUND_LOOPS)
def test_batches_that_all_processes_train(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


SEVERAL = "import os, shutil, json\nfrom pathlib import Path\nimport torch\ntorch.distributed.init_process_group('nccl')\n"
RUN = "torchrun --nproc-per-node 4 train.py\n"
RACES = {
    "rmtree at the top": SEVERAL + "shutil.rmtree('out/old')\n",
    "a path of pathlib": SEVERAL + "for p in Path('out').glob('step-*'):\n    p.unlink()\n",
    "a rename": SEVERAL + "os.rename('out/tmp', 'out/last')\n",
    "in a function that main calls": SEVERAL
    + "def prune(d):\n    shutil.rmtree(d)\ndef main():\n    prune('out/1')\nif __name__ == '__main__':\n    main()\n",
    "a folder that is made": SEVERAL + "os.makedirs('out')\n",
    "a folder that is looked for first": SEVERAL
    + "if not os.path.exists('out'):\n    os.makedirs('out')\n",
    "by a job": "import os\nfrom transformers import Trainer\nos.remove('cache.bin')\n",
    "in a callback": "import shutil\nfrom transformers import TrainerCallback\nclass P(TrainerCallback):\n"
    "    def on_save(self, args, state, control, **kw):\n        shutil.rmtree('out/old')\n",
}
SOUND_FILES = {
    "guarded": SEVERAL + "if torch.distributed.get_rank() == 0:\n    shutil.rmtree('out/old')\n",
    "guarded by a name": SEVERAL
    + "is_main = int(os.environ['RANK']) == 0\nif is_main and os.path.exists('o'):\n    shutil.rmtree('o')\n",
    "left before": SEVERAL
    + "rank = torch.distributed.get_rank()\ndef prune(d):\n    if rank != 0:\n        return\n    shutil.rmtree(d)\n"
    "prune('o')\n",
    "a folder of each process": SEVERAL
    + "rank = torch.distributed.get_rank()\nd = f'tmp/{rank}'\nshutil.rmtree(d)\n",
    "errors are ignored": SEVERAL + "shutil.rmtree('out/old', ignore_errors=True)\n",
    "errors are caught": SEVERAL
    + "try:\n    os.remove('a')\nexcept FileNotFoundError:\n    pass\n",
    "exist_ok": SEVERAL + "os.makedirs('out', exist_ok=True)\nPath('x').mkdir(exist_ok=True)\n",
    "texts and frames": SEVERAL + "t = 'a'.replace('a', 'b')\ndf = df.rename({'a': 'b'})\n",
    "called by the caller": SEVERAL + "if torch.distributed.get_rank() == 0:\n    prune()\n"
    "def prune():\n    shutil.rmtree('o')\n",
    "before processes are spawned": "import shutil\nimport torch.multiprocessing as mp\nimport torch\n"
    "def work(rank):\n    torch.distributed.init_process_group('nccl')\nshutil.rmtree('o')\nmp.spawn(work, nprocs=4)\n",
    "by a decorator": SEVERAL
    + "from lightning.pytorch.utilities import rank_zero_only\n@rank_zero_only\n"
    "def prune():\n    shutil.rmtree('o')\nprune()\n",
}


@pytest.mark.parametrize("name", RACES)
def test_files_that_every_process_changes(tmp_path: Path, name: str) -> None:
    files = {"run__sh": RUN} if name in ("by a job", "in a callback") else {}
    assert found(tmp_path, RACES[name], **files) == ["SRC226"]


@pytest.mark.parametrize("text", SOUND_FILES.values(), ids=SOUND_FILES)
def test_files_that_one_process_changes(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


def test_a_script_of_one_process_may_delete(tmp_path: Path) -> None:
    text = "import shutil\nfrom accelerate import Accelerator\naccelerator = Accelerator()\nshutil.rmtree('o')\n"
    assert found(tmp_path, text) == []


PREDICT = """
import json, os
import torch
import torch.distributed as dist
from pathlib import Path
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
rows = [json.loads(line) for line in open("test.jsonl")]
{body}
"""
PART = "mine = rows[rank::world]\n"
LOSES_ROWS = {
    "in a block": PART
    + "with open('p.jsonl', 'w') as f:\n    for r in mine:\n        f.write(ask(r))",
    "a list": PART + "out = [ask(r) for r in mine]\njson.dump(out, open('p.json', 'w'))",
    "a path": PART + "with Path('p.jsonl').open('w') as f:\n    f.writelines(ask(r) for r in mine)",
    "blocks of rows": "n = len(rows) // world\nmine = rows[rank * n : (rank + 1) * n]\n"
    "with open('p.jsonl', mode='w') as f:\n    for r in mine:\n        print(ask(r), file=f)",
    "a shard": "import datasets\nmine = datasets.load_dataset('json', data_files='t.jsonl').shard(num_shards=world, index=rank)\n"
    "f = open('p.jsonl', 'w')\nfor r in mine:\n    f.write(ask(r))",
    "collected": PART
    + "out = []\nfor r in mine:\n    out.append(ask(r))\nwith open('p.jsonl', 'w') as f:\n    json.dump(out, f)",
    "a main": PART
    + "def main():\n    with open('p.jsonl', 'w') as f:\n        for r in mine:\n            f.write(ask(r))\nmain()",
}
KEEPS_ROWS = {
    "a file for each": PART
    + "with open(f'p{rank}.jsonl', 'w') as f:\n    for r in mine:\n        f.write(ask(r))",
    "added to": PART
    + "with open('p.jsonl', 'a') as f:\n    for r in mine:\n        f.write(ask(r))",
    "the first process": PART
    + "if rank == 0:\n    with open('p.jsonl', 'w') as f:\n        f.write(ask(mine[0]))",
    "gathered": PART
    + "out = [None] * world\ndist.all_gather_object(out, [ask(r) for r in mine])\njson.dump(out, open('p.json', 'w'))",
    "settings": PART
    + "with open('settings.json', 'w') as f:\n    json.dump({{'lr': 1}}, f)\nfor r in mine:\n    ask(r)",
    "whole rows": PART
    + "json.dump(len(rows), open('count.json', 'w'))\nfor r in mine:\n    ask(r)",
    "in turn": PART
    + "from filelock import FileLock\nwith FileLock('l'):\n    with open('p.jsonl', 'w') as f:\n        f.write(ask(mine[0]))",
    "read": PART + "with open('p.jsonl') as f:\n    for r in mine:\n        ask(f.readline())",
}


@pytest.mark.parametrize("body", LOSES_ROWS.values(), ids=LOSES_ROWS)
def test_rows_of_all_processes_but_one_are_lost(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, PREDICT.format(body=body)) == ["SRC226"]


@pytest.mark.parametrize("body", KEEPS_ROWS.values(), ids=KEEPS_ROWS)
def test_files_that_keep_the_rows_of_all_processes(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, PREDICT.format(body=body)) == []


JUDGE = """
from openai import OpenAI
client = OpenAI()
def ask(text):
    return client.chat.completions.create(model="m", messages=[dict(role="user", content=text)])
{body}
"""
PROMPT = 'P = "Which response is better? Response 1: {r1} Response 2: {r2} Reply 1 or 2."\n'
ONE_ORDER = {
    "letters of a format": JUDGE.format(
        body=PROMPT + "for o, b in rows:\n    ask(P.format(r1=o, r2=b))"
    ),
    "f-string": JUDGE.format(
        body="for o, b in rows:\n    ask(f'Compare the answers.\\nAssistant A: {o}\\nAssistant B: {b}')"
    ),
    "concatenated": JUDGE.format(
        body="for o, b in rows:\n    ask('You are a judge. Output (a): ' + o + ' Output (b): ' + b)"
    ),
    "named places": JUDGE.format(
        body="T = 'As an impartial evaluator, pick the winner.\\n{answer_a}\\n---\\n{answer_b}'\n"
        "ask(T.format(answer_a=x, answer_b=y))"
    ),
    "letters": JUDGE.format(
        body="for s, d in rows:\n    p = (f'Q: {s[1]}\\n\\nWhich answer is better? A or B.\\n\\n'\n"
        "         f'A: {d[2]}\\n\\nB: {s[2]}')\n    ask(p)"
    ),
    "letters in brackets": JUDGE.format(
        body="for s, d in rows:\n    ask(f'Which do you prefer?\\n\\n[A]: {s}\\n\\n[B]: {d}')"
    ),
    "bold letters": JUDGE.format(
        body="for s, d in rows:\n    ask(f'You judge two texts.\\n**A**: {s}\\n**B**: {d}\\nBest?')"
    ),
    "format": JUDGE.format(
        body="T = 'Say which text is better.\\n(A) {old}\\n(B) {new}'\nask(T.format(old=x, new=y))"
    ),
    "posted": "import requests\nT = 'Which summary do you prefer? Summary A: {a} Summary B: {b}'\n"
    "requests.post(URL, json={'prompt': T.format(a=x, b=y)})\n",
}
BOTH_ORDERS = {
    "letters of a choice": JUDGE.format(
        body="p = f'Which is better to do? A: {r[\"sol1\"]}\\nB: {r[\"sol2\"]}'\nhits += ask(p) == r['label']"
    ),
    "letters of four": JUDGE.format(
        body="ask(f'Pick the better one.\\nA: {w}\\nB: {x}\\nC: {y}\\nD: {z}')"
    ),
    "letters without a comparison": JUDGE.format(body="ask(f'Translate.\\nA: {w}\\nB: {x}')"),
    "letters in both orders": JUDGE.format(
        body="for x, y in ((s, d), (d, s)):\n    ask(f'Which is better?\\nA: {x}\\nB: {y}')"
    ),
    "answer first": JUDGE.format(body="ask(f'Is this a better Q: {q} A: {a}')"),
    "twice": JUDGE.format(
        body=PROMPT + "for o, b in rows:\n    ask(P.format(r1=o, r2=b)); ask(P.format(r1=b, r2=o))"
    ),
    "drawn": JUDGE.format(
        body="import random\n"
        + PROMPT
        + "for o, b in rows:\n    x, y = (o, b) if random.random() < 0.5 else (b, o)\n    ask(P.format(r1=x, r2=y))"
    ),
    "one answer and a reference": JUDGE.format(
        body="ask(f'You are a judge. Compare the answer to the reference. Answer: {a} Reference: {r}')"
    ),
    "a choice of four": JUDGE.format(
        body="ask(f'Question: {q} A) {a} B) {b} C) {c} D) {d} Which is right?')"
    ),
    "pairs for training": PROMPT
    + "rows = [dict(prompt=P, chosen=a, rejected=b) for a, b in pairs]\n",
    "swap": JUDGE.format(
        body=PROMPT
        + "for o, b in rows:\n    for swap in (0, 1):\n        ask(P.format(r1=o, r2=b))"
    ),
}


@pytest.mark.parametrize("text", ONE_ORDER.values(), ids=ONE_ORDER)
def test_a_judge_that_sees_one_order(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == ["SRC228"]


@pytest.mark.parametrize("text", BOTH_ORDERS.values(), ids=BOTH_ORDERS)
def test_other_prompts_of_pairs(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


RUBRIC = "Compare the two answers. End with A or B, the better one.\n"
WITH_FILES = {
    "a rubric in a file": (
        {"judge.txt": RUBRIC},
        JUDGE.format(
            body="R = open('judge.txt').read()\nask(f'{R}\\n[Answer A]\\n{x}\\n[Answer B]\\n{y}')"
        ),
        True,
    ),
    "a template of Jinja": (
        {
            "prompts/pair.j2": "Response 1: {{ first }}\nResponse 2: {{ second|trim }}\nWhich response is better?"
        },
        JUDGE.format(
            body="from jinja2 import Template\nT = Template(open('prompts/pair.j2').read())\n"
            "ask(T.render(first=x, second=y))"
        ),
        True,
    ),
    "a rubric of one answer": (
        {"judge.txt": "Rate the answer from 1 to 10.\n"},
        JUDGE.format(body="R = open('judge.txt').read()\nask(f'{R}\\n{q}\\n{a}')"),
        False,
    ),
    "a rubric beside other texts": (
        {"judge.txt": RUBRIC},
        JUDGE.format(body="R = open('judge.txt').read()\nprint(f'{x} of {y}')\nask(R)"),
        False,
    ),
    "both orders of a template": (
        {"pair.j2": "Response 1: {{ a }}\nResponse 2: {{ b }}\nWhich response is better?"},
        JUDGE.format(
            body="T = Template(open('pair.j2').read())\nask(T.render(a=x, b=y)); ask(T.render(a=y, b=x))"
        ),
        False,
    ),
    "a file that is not there": (
        {},
        JUDGE.format(body="T = Template(open('pair.j2').read())\nask(T.render(a=x, b=y))"),
        False,
    ),
}


@pytest.mark.parametrize(("files", "text", "fires"), WITH_FILES.values(), ids=WITH_FILES)
def test_prompts_of_pairs_in_files(
    tmp_path: Path, files: dict[str, str], text: str, fires: bool
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert found(tmp_path, text) == ["SRC228"] * fires


VLLM = "from vllm import LLM, SamplingParams\n"
UNNAMED = {
    "a dictionary": VLLM
    + "kw = dict(enable_lora=True)\nllm = LLM('b', **kw)\nprint(llm.chat(c))\n",
    "a key": VLLM
    + "kw = {}\nif adapter:\n    kw['enable_lora'] = True\nllm = LLM(model='b', **kw)\nllm.generate(p)\n",
    "an option": VLLM + "llm = LLM('b', enable_lora=bool(args.adapter))\nprint(llm.generate(p))\n",
    "sglang": "import sglang as sgl\ne = sgl.Engine(model_path='b', lora_paths=['out'])\nprint(e.generate(p))\n",
    "lmdeploy": "from lmdeploy import pipeline, PytorchEngineConfig\n"
    "pipe = pipeline('b', backend_config=PytorchEngineConfig(adapters=dict(t='out')))\nprint(pipe(p))\n",
    "unload": "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n"
    "m = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained('b'), 'out')\nm = m.unload()\n"
    "print(m.generate(**x))\n",
}
NAMED = {
    "named": VLLM + "from vllm.lora.request import LoRARequest\nllm = LLM('b', enable_lora=True)\n"
    "llm.chat(c, lora_request=LoRARequest('t', 1, 'out'))\n",
    "off": VLLM + "llm = LLM('b', enable_lora=False)\nprint(llm.generate(p))\n",
    "a merged model": VLLM + "llm = LLM('out/merged')\nprint(llm.generate(p))\n",
    "what is passed on": VLLM
    + "llm = LLM('b', enable_lora=True)\ndef ask(p, **kw):\n    return llm.generate(p, **kw)\n",
    "sglang": "import sglang as sgl\ne = sgl.Engine(model_path='b', lora_paths=['out'])\n"
    "print(e.generate(p, lora_path=['out']))\n",
    "merged": "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n"
    "m = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained('b'), 'out')\nm = m.merge_and_unload()\n"
    "print(m.generate(**x))\n",
}


@pytest.mark.parametrize("text", UNNAMED.values(), ids=UNNAMED)
def test_engines_whose_requests_name_no_adapter(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == ["SRC036"]


@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED)
def test_engines_that_answer_as_they_should(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []
