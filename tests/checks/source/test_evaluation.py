"""Rules on evaluation (SRC047, SRC054, SRC061) and on launches (SRC062), in several spellings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import HEAD, codes
from truetune.checks.lint import lint
from truetune.report.verdict_and_next_step import next_step_of_report


def trained(train: str, held: str, head: str = "") -> str:
    return f"{head}\ntrainer = Trainer(model=model, train_dataset={train}, eval_dataset={held})\n"


SPLIT = 'parts = ds["train"].train_test_split(0.1)\n'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (trained('ds["train"]', 'ds["train"]'), True),
        (trained('ds["train"]', 'ds["train"] if args.evaluates else None'), True),
        (trained('ds["train"]', 'ds["train"].select(range(100))'), True),
        (trained('ds["train"]', 'ds["train"].select(range(len(ds) - 8, len(ds)))'), True),
        (trained('ds["train"]', 'ds["train"].select(chosen)'), True),
        (trained('ds["train"].select(some)', 'ds["train"].select(others)'), False),
        (trained("rows", "rows"), True),
        (
            trained(
                "rows", "few", 'rows = ds["train"]\nfew = rows.shuffle(seed=0).select(range(9))'
            ),
            True,
        ),
        (trained('ds["train"].map(f)', 'ds["train"].map(f)'), True),
        (
            trained(
                'load_dataset("f", split="train[:90%]")', 'load_dataset("f", split="train[80%:]")'
            ),
            True,
        ),
        (
            trained(
                'load_dataset("f", split="train[:90%]")', 'load_dataset("f", split="train[90%:]")'
            ),
            False,
        ),
        (trained("ds[a.split]", "ds[a.split]"), True),
        (
            (
                "class T:\n    def go(self):\n        Trainer(train_dataset=self.rows,"
                " eval_dataset=self.rows)"
            ),
            True,
        ),
        (trained('ds["train"]', 'ds["test"]'), False),
        (
            trained("ds[a.train_split]", "ds[a.test_split] if a.eval_strategy != 'no' else None"),
            False,
        ),
        (trained('parts["train"]', 'parts["test"]', SPLIT), False),
        (trained('ds["train"].select(range(100, 200))', 'ds["train"].select(range(100))'), False),
        (
            trained(
                "load('train')",
                "load('test')",
                "def load(split):\n    return load_dataset('x', split=split)",
            ),
            False,
        ),
        (trained("None", "None"), False),
        (trained("many", "many.take(9)", 'many = load_dataset("x", split="train")\n'), True),
        (trained("many", "many.skip(9)", 'many = load_dataset("x", split="train")\n'), True),
        (
            trained("many.skip(9)", "many.take(9)", 'many = load_dataset("x", split="train")\n'),
            False,
        ),
        (
            trained(
                "many", 'parts["test"]', 'many = ds["train"]\nparts = many.train_test_split(9)\n'
            ),
            True,
        ),
        (trained("rows[:900]", "rows[800:]"), True),
        (trained("rows[:900]", "rows[900:]"), False),
        (
            trained(
                "parts(ds)[0]",
                "parts(ds)[1]",
                "def parts(d):\n    return d['a'], d['a'].select(range(9))\n",
            ),
            True,
        ),
        (trained("rows", "{'same': rows.filter(f), 'other': other}"), True),
        (trained("rows.filter(f)", "rows.filter(g)"), False),
        (
            trained(
                "rows.shuffle(seed=0).select(range(9))", "rows.shuffle(seed=1).select(range(9))"
            ),
            False,
        ),
        (
            trained(
                'both["train"]',
                'both["test"]',
                "from datasets import concatenate_datasets\n"
                "both = concatenate_datasets([rows] + [rows.filter(rare)] * 3).train_test_split(0.1)\n",
            ),
            True,
        ),
        (
            trained(
                "concatenate_datasets([both['train']] * 4)",
                "both['test']",
                "both = rows.train_test_split(0.1)\n",
            ),
            False,
        ),
        (
            trained(
                "load('a.jsonl')",
                "load('b.jsonl')",
                "def load(f):\n    return load_dataset('json', data_files=f)\n",
            ),
            False,
        ),
        (
            trained(
                "load('a.jsonl')",
                "load('a.jsonl')",
                "def load(f):\n    return load_dataset('json', data_files=f)\n",
            ),
            True,
        ),
    ],
)
def test_evaluated_on_training_rows(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC054") == ["SRC054w"] * found


TWO_LOADERS = "from torch.utils.data import DataLoader, random_split, SubsetRandomSampler\n"
SHARED_ROWS = {
    "one object": "rows = Rows('a.jsonl')\ntrain_loader = DataLoader(rows, 8)\nval_loader = DataLoader(rows, 8)\n",
    "attributes": "class T:\n    def __init__(self, ds):\n        self.train_dl = DataLoader(ds, shuffle=True)\n"
    "        self.eval_dl = DataLoader(dataset=ds)\nT(Rows())\n",
    "a part": "rows = Rows('a.jsonl')\ntrain = DataLoader(rows)\ndev = DataLoader(rows[:100])\n",
    "methods of a data module": "class D:\n    def setup(self):\n        self.rows = Rows()\n"
    "    def train_dataloader(self):\n        return DataLoader(self.rows, shuffle=True)\n"
    "    def val_dataloader(self):\n        return DataLoader(self.rows)\n"
    "d = D()\nd.setup()\nd.train_dataloader()\nd.val_dataloader()\n",
    "one file for two splits": "from datasets import load_dataset\n"
    "d = load_dataset('json', data_files={'train': 'a.jsonl', 'val': 'a.jsonl'})\n"
    "train_loader = DataLoader(d['train'])\nval_loader = DataLoader(d['val'])\n",
}
OWN_ROWS = {
    "two objects": "a, b = Rows('a'), Rows('b')\ntrain_loader = DataLoader(a)\nval_loader = DataLoader(b)\n",
    "a division": "a, b = random_split(rows, [9, 1])\ntrain_loader = DataLoader(a)\nval_loader = DataLoader(b)\n",
    "samplers": "train_loader = DataLoader(rows, sampler=SubsetRandomSampler(a))\n"
    "val_loader = DataLoader(rows, sampler=SubsetRandomSampler(b))\n",
    "training rows measured on purpose": "train_loader = DataLoader(rows)\ntrain_eval_loader = DataLoader(rows)\n",
    "two slices": "rows = read()\ntrain_loader = DataLoader(rows[:900])\nval_loader = DataLoader(rows[900:])\n",
    "two files for two splits": "from datasets import load_dataset\n"
    "d = load_dataset('json', data_files={'train': 'a.jsonl', 'val': 'b.jsonl'})\n"
    "train_loader = DataLoader(d['train'])\nval_loader = DataLoader(d['val'])\n",
}


@pytest.mark.parametrize("text", SHARED_ROWS.values(), ids=SHARED_ROWS)
def test_loaders_of_the_same_rows(text: str, tmp_path: Path) -> None:
    assert codes(TWO_LOADERS + text, tmp_path, "SRC054") == ["SRC054w"]


@pytest.mark.parametrize("text", OWN_ROWS.values(), ids=OWN_ROWS)
def test_loaders_of_other_rows(text: str, tmp_path: Path) -> None:
    assert codes(TWO_LOADERS + text, tmp_path, "SRC054") == []


OPTIONS = (
    "import argparse\nfrom transformers import Trainer\np = argparse.ArgumentParser()\n"
    "p.add_argument('--train-file')\np.add_argument('--val-file')\nargs = p.parse_args()\n"
    "t = Trainer(m, train_dataset=f(args.train_file), eval_dataset=f(args.val_file))\n"
)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("--train-file d/a.jsonl --val-file d/a.jsonl", True),
        ("--train_file=$D/a.csv --val_file=$D/a.csv", True),
        ("--train-file d/a.jsonl --val-file d/b.jsonl", False),
        ("--train-file d --val-file d", False),
        ("--train-file d/a.jsonl", False),
    ],
)
def test_commands_that_name_one_file(given: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(
        f"#!/bin/bash\nD=data\npython train.py {given}\n", encoding="utf-8"
    )
    assert codes(OPTIONS, tmp_path, "SRC054") == ["SRC054w"] * found


METRICS = (
    "def compute_metrics(given):\n    logits, labels = given\n    picked = logits.argmax(-1)\n   "
    " {}\n"
)
TRAINER = "Trainer(model=model, eval_dataset=ds['test'], compute_metrics=compute_metrics)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            METRICS.format("return {'a': (picked == labels).mean()}") + TRAINER,
            ["SRC047e", "SRC061w"],
        ),
        (
            METRICS.format("return {'a': (picked[:, :-1] == labels[:, 1:]).mean()}") + TRAINER,
            ["SRC061w"],
        ),
        (
            METRICS.format("return {'a': (picked[:, :-1] == labels[:, 1:]).mean()}")
            + TRAINER.replace("model=", "preprocess_logits_for_metrics=pick, model="),
            [],
        ),
        ("Trainer(model=model, eval_dataset=ds['test'], compute_metrics=None)", []),
        ("Trainer(model=model, train_dataset=ds['train'], compute_metrics=f)", []),
        ("t = Trainer(model=model, compute_metrics=f)\nt.evaluate(ds['test'])", ["SRC061w"]),
    ],
)
def test_metrics(text: str, expected: list[str], tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC047", "SRC061") == expected


@pytest.mark.parametrize(
    ("text", "fires"),
    [
        ("trl.SFTTrainer('org/base', eval_dataset=held, compute_metrics=f)", True),
        ("trl.SFTTrainer(model, eval_dataset=held, compute_metrics=lambda p: {'n': 1})", True),
        ("trl.SFTTrainer('org/base', eval_dataset=held, compute_metrics=None)", False),
        ("trl.SFTTrainer('org/base', train_dataset=rows, compute_metrics=f)", False),
        (
            "trl.SFTTrainer('org/base', eval_dataset=held, compute_metrics=f,"
            " preprocess_logits_for_metrics=first)",
            False,
        ),
        ("transformers.Trainer(classifier, eval_dataset=held, compute_metrics=f)", False),
        (
            "class T(trl.SFTTrainer):\n    def prediction_step(self, *a):\n        return (0, 1, 2)\n"
            "T('org/base', eval_dataset=held, compute_metrics=f)",
            False,
        ),
    ],
)
def test_a_trainer_of_causal_models_keeps_logits_whatever_loads_them(
    text: str, fires: bool, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"import transformers\nimport trl\n{text}\n", encoding="utf-8")
    assert len(lint([path], select=("SRC061",)).findings) == fires


MAPPED = "m = AutoModelForCausalLM.from_pretrained('a', device_map='auto')\nTrainer(model=m)"
RANK = "import os\nrank = int(os.environ['LOCAL_RANK'])\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            RANK
            + "m = AutoModelForCausalLM.from_pretrained('a', device_map='auto')\nTrainer(model=m)",
            True,
        ),
        (
            RANK + "m = AutoModelForCausalLM.from_pretrained('a', device_map={'':"
            " rank})\nTrainer(model=m)",
            False,
        ),
        (
            RANK + "where = 'auto'\nif rank >= 0:\n    where = {'': rank}\n"
            "m = AutoModelForCausalLM.from_pretrained('a', device_map=where)\nTrainer(model=m)",
            False,
        ),
        (
            "m = AutoModelForCausalLM.from_pretrained('a', device_map='auto')\nTrainer(model=m)",
            False,
        ),
        ("# torchrun --nproc_per_node 4 train.py --lr 1\n" + MAPPED, True),
        ("# torchrun --nproc-per-node=gpu \\\n#     train.py\n" + MAPPED, True),
        ("# accelerate launch --multi_gpu train.py\n" + MAPPED, True),
        (
            "# accelerate launch --config_file a.yaml --num_processes 2 scripts/train.py\n"
            + MAPPED,
            True,
        ),
        ("# python -m torch.distributed.launch --nproc_per_node=8 train.py\n" + MAPPED, True),
        (
            "from accelerate import notebook_launcher\n"
            + MAPPED
            + "\nnotebook_launcher(f, (), num_processes=2)",
            True,
        ),
        ("import torch.multiprocessing as mp\n" + MAPPED + "\nmp.spawn(f, nprocs=2)", True),
        ("# torchrun --nproc_per_node 1 train.py\n" + MAPPED, False),
        ("# torchrun --nproc_per_node 4 other.py\n" + MAPPED, False),
        ("# accelerate launch train.py\n" + MAPPED, False),
        ("# python train.py\n" + MAPPED, False),
        (
            "from accelerate import notebook_launcher\n"
            + MAPPED
            + "\nnotebook_launcher(f, (), num_processes=1)",
            False,
        ),
        ("acc = Accelerator()\n" + MAPPED + "\nm = acc.prepare(m)", False),
    ],
)
def test_device_map_in_a_distributed_script(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC062") == ["SRC062e"] * found


WORLD = "import os, sys\nworld = int(os.environ.get('WORLD_SIZE', 1))\nddp = world != 1\n"
LOAD = "m = AutoModelForCausalLM.from_pretrained('a', {})\nTrainer(model=m)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "k = {}\nif ddp:\n    k['device_map'] = None\nelse:\n    k['device_map'] = 'auto'\n"
            + LOAD.format("**k"),
            False,
        ),
        ("k = {}\nif not ddp:\n    k['device_map'] = 'auto'\n" + LOAD.format("**k"), False),
        ("where = None if ddp else 'auto'\n" + LOAD.format("device_map=where"), False),
        ("where = 'auto' if world == 1 else None\n" + LOAD.format("device_map=where"), False),
        ("if gpus > 1 and not ddp:\n    where = 'auto'\n" + LOAD.format("device_map=where"), False),
        (
            "if world > 1:\n    raise SystemExit('one process only')\n"
            + LOAD.format("device_map='auto'"),
            False,
        ),
        ("if world > 1 or n > 1:\n    sys.exit(2)\n" + LOAD.format("device_map='auto'"), False),
        ("if ddp:\n    raise RuntimeError('one only')\n" + LOAD.format("device_map='auto'"), False),
        (
            "if world == 1:\n    raise RuntimeError('launch several')\n"
            + LOAD.format("device_map='auto'"),
            True,
        ),
        ("if world > 1:\n    print('several')\n" + LOAD.format("device_map='auto'"), True),
        (
            "if torch.cuda.is_available():\n    where = 'auto'\n" + LOAD.format("device_map=where"),
            True,
        ),
        ("if ddp:\n    where = 'auto'\n" + LOAD.format("device_map=where"), True),
        ("if world > 1:\n    where = 'auto'\n" + LOAD.format("device_map=where"), True),
    ],
)
def test_a_map_that_only_one_process_gets_is_left_alone(
    text: str, found: bool, tmp_path: Path
) -> None:
    assert codes(WORLD + text, tmp_path, "SRC062") == ["SRC062e"] * found


LAUNCHED = (
    "import os\nimport torch.distributed as dist\n{}\nmodel ="
    " AutoModelForCausalLM.from_pretrained('a', device_map='auto')\nTrainer(model=model).train()\n"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("rank = int(os.environ['LOCAL_RANK'])", True),
        ("rank = int(os.environ.get('LOCAL_RANK', 0))", True),
        ("world = os.getenv('WORLD_SIZE')", True),
        ("many = 'WORLD_SIZE' in os.environ", True),
        ("dist.init_process_group('nccl')", True),
        ("from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(net)", True),
        ("# os.environ['WORLD_SIZE'] = '1'", False),
        ("rank = 0  # was int(os.environ['LOCAL_RANK']), with init_process_group", False),
        ('"""Set os.environ["WORLD_SIZE"] and call init_process_group to use several."""', False),
        ("print('os.environ LOCAL_RANK is not read')", False),
        ("os.environ['WORLD_SIZE'] = '1'", False),
        ("os.environ['LOCAL_RANK'], os.environ['WORLD_SIZE'] = '0', '1'", False),
    ],
)
def test_processes_are_seen_in_code_alone(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(LAUNCHED.format(text), tmp_path, "SRC062") == ["SRC062e"] * found


BEFORE = (
    "import numpy as np\n\n\ndef keep(logits, labels):\n    return logits.argmax(dim=-1)\n\n\n{}\n"
    "Trainer(model=model, compute_metrics=score, preprocess_logits_for_metrics=keep)\n"
)


@pytest.mark.parametrize(
    ("score", "outcome"),
    [
        ("def score(e):\n    a, b = e\n    return {'x': (a == b)[b != -100].mean()}", "found"),
        (
            (
                "def score(e):\n    a, b = e.predictions, e.label_ids\n    return {'x': np.equal(a,"
                " b).mean()}"
            ),
            "found",
        ),
        ("score = lambda e: {'x': (e[0] == e[1]).mean()}", "found"),
        (
            (
                "def same(a, b):\n    return a == b\n\n\ndef score(e):\n    a, b = e\n    return"
                " {'x': same(a, b)}"
            ),
            "found",
        ),
        (
            (
                "def score(e):\n    a, b = e\n    return {'x': sum(p == q for u, v in zip(a, b) for"
                " p, q in zip(u, v))}"
            ),
            "found",
        ),
        ("def score(e):\n    a, b = e\n    return {'x': (a[:, :-1] == b[:, 1:]).mean()}", "fine"),
        ("def score(e):\n    a, b = e\n    return {'x': (a == np.roll(b, -1, 1)).mean()}", "fine"),
        (
            "def score(e):\n    a, b = e\n    return {'x': (a[:, -1] == b[:, -1]).mean()}",
            "not judged",
        ),
        (
            (
                "def score(e):\n    a, b = e\n    return rouge(tok.batch_decode(a),"
                " tok.batch_decode(b))"
            ),
            "not judged",
        ),
        ("from mine import score", "not judged"),
    ],
)
def test_tokens_picked_before_the_metrics_are_followed(
    score: str, outcome: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + BEFORE.format(score), encoding="utf-8")
    report = lint([path], select=["SRC047"])
    judged = {"found": report.findings, "fine": report.examined, "not judged": report.not_judged}
    assert [name for name, parts in judged.items() if parts] == [outcome]


ANSWERS = "out = model.generate(**ids, max_new_tokens=64)\nprint(tok.decode(out[0, 9:]))\n"


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("", "truetune score"),
        ("Trainer(model=model).train()\n", "truetune check"),
        ("model(**ids).loss.backward()\n", "truetune check"),
    ],
)
def test_code_that_trains_nothing_leads_to_its_answers(
    text: str, step: str, tmp_path: Path
) -> None:
    path = tmp_path / "script.py"
    path.write_text(HEAD + ANSWERS + text, encoding="utf-8")
    assert step in next_step_of_report(lint([path], select=["SRC076"], allow_unjudged=True))


STEP = """\
import torch
from transformers import AutoModelForCausalLM{}

model = AutoModelForCausalLM.from_pretrained("org/base")


def evaluate(model, loader):
    right = count = 0
    for batch in loader:
        {}
    return right / count


evaluate(model, [])
"""
OUTPUTS = "outputs = model(**batch)\n        picked = outputs.logits.argmax(-1)\n        "
LABELS = "labels = batch['labels']\n        keep = labels != -100\n        "


@pytest.mark.parametrize(
    ("others", "body", "outcome"),
    [
        ("", OUTPUTS + LABELS + "right += (picked[keep] == labels[keep]).sum()", "found"),
        ("", OUTPUTS + "right += (picked == batch['labels']).sum()", "found"),
        (
            "",
            "out = model(batch['ids'], labels=batch['ids'])\n        "
            "right += torch.eq(torch.argmax(out.logits, -1), batch['ids']).sum()",
            "not judged",
        ),
        (
            "",
            "labels = batch['y']\n        out = model(batch['ids'], labels=labels)\n        "
            "right += torch.eq(torch.argmax(out.logits, -1), labels).sum()",
            "found",
        ),
        ("", OUTPUTS + "right += (picked[:, :-1] == batch['labels'][:, 1:]).sum()", "fine"),
        (
            "",
            OUTPUTS
            + "labels = torch.roll(batch['labels'], -1)\n        right += (picked == labels)",
            "fine",
        ),
        (
            "",
            OUTPUTS + "right += (picked[:, start - 1 :] == batch['labels'][:, start:]).sum()",
            "not judged",
        ),
        ("", OUTPUTS + "right += (picked[:, -1] == batch['labels'][:, -1]).sum()", "not judged"),
        ("", OUTPUTS + "right += (picked == batch['targets']).sum()", "not judged"),
        (
            "",
            "labels = batch.pop('labels')\n        "
            + OUTPUTS
            + "right += (picked == labels).sum()",
            "not judged",
        ),
        (
            "",
            "logits = model(batch['ids']).logits\n        "
            "right += (logits.argmax(-1) == batch['labels']).sum()",
            "not judged",
        ),
        (
            ", AutoModelForSequenceClassification",
            OUTPUTS + "right += (picked == batch['labels']).sum()",
            "not judged",
        ),
        (
            "\nfrom torch.nn.functional import cross_entropy",
            OUTPUTS + "right += (picked == batch['labels']).sum()",
            "not judged",
        ),
    ],
)
def test_steps_that_compare_tokens_with_the_labels_of_a_model(
    others: str, body: str, outcome: str, tmp_path: Path
) -> None:
    path = tmp_path / "evaluate.py"
    path.write_text(STEP.format(others, body), encoding="utf-8")
    report = lint([path], select=["SRC047"], allow_unjudged=True)
    judged = {"found": report.findings, "fine": report.examined, "not judged": report.not_judged}
    assert [name for name, parts in judged.items() if parts] == [outcome]


LIGHTNING = """\
import lightning as L
from transformers import AutoModelForCausalLM


class Desk(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("org/base")

    def forward(self, batch):
        return self.model(**batch)

    def validation_step(self, batch, _):
        outputs = {}
        picked = outputs.logits.argmax(dim=-1)
        self.log("accuracy", (picked == batch["labels"]).float().mean())
"""


@pytest.mark.parametrize("call", ["self.model(**batch)", "self(**batch)"])
def test_a_step_of_lightning_compares_tokens_with_labels(call: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(LIGHTNING.format(call), encoding="utf-8")
    assert len(lint([path], select=["SRC047"]).findings) == 1
