"""Rules on evaluation (TT742, TT749, TT756) and on launches (TT757), in several spellings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import codes


def trained(train: str, held: str, head: str = "") -> str:
    return f"{head}\ntrainer = Trainer(model=model, train_dataset={train}, eval_dataset={held})\n"


SPLIT = 'parts = ds["train"].train_test_split(0.1)\n'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (trained('ds["train"]', 'ds["train"]'), True),
        (trained('ds["train"]', 'ds["train"] if args.evaluates else None'), True),
        (trained('ds["train"]', 'ds["train"].select(range(100))'), True),
        (trained("rows", "rows"), True),
        (trained("rows", "few", 'rows = ds["train"]\nfew = rows.shuffle(seed=0).select(range(9))'), True),
        (trained('ds["train"].map(f)', 'ds["train"].map(f)'), True),
        (trained("ds[a.split]", "ds[a.split]"), True),
        ("class T:\n    def go(self):\n        Trainer(train_dataset=self.rows, eval_dataset=self.rows)", True),
        (trained('ds["train"]', 'ds["test"]'), False),
        (trained("ds[a.train_split]", "ds[a.test_split] if a.eval_strategy != 'no' else None"), False),
        (trained('parts["train"]', 'parts["test"]', SPLIT), False),
        (trained('ds["train"].select(range(100, 200))', 'ds["train"].select(range(100))'), False),
        (
            trained("load('train')", "load('test')", "def load(split):\n    return load_dataset('x', split=split)"),
            False,
        ),
        (trained("None", "None"), False),
    ],
)
def test_evaluated_on_training_rows(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "TT749") == ["TT749w"] * found


METRICS = "def compute_metrics(given):\n    logits, labels = given\n    picked = logits.argmax(-1)\n    {}\n"
TRAINER = "Trainer(model=model, eval_dataset=ds['test'], compute_metrics=compute_metrics)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (METRICS.format("return {'a': (picked == labels).mean()}") + TRAINER, ["TT742e", "TT756w"]),
        (METRICS.format("return {'a': (picked[:, :-1] == labels[:, 1:]).mean()}") + TRAINER, ["TT756w"]),
        (
            METRICS.format("return {'a': (picked[:, :-1] == labels[:, 1:]).mean()}")
            + TRAINER.replace("model=", "preprocess_logits_for_metrics=pick, model="),
            [],
        ),
        ("Trainer(model=model, eval_dataset=ds['test'], compute_metrics=None)", []),
        ("Trainer(model=model, train_dataset=ds['train'], compute_metrics=f)", []),
        ("t = Trainer(model=model, compute_metrics=f)\nt.evaluate(ds['test'])", ["TT756w"]),
    ],
)
def test_metrics(text: str, expected: list[str], tmp_path: Path) -> None:
    assert codes(text, tmp_path, "TT742", "TT756") == expected


RANK = "import os\nrank = int(os.environ['LOCAL_RANK'])\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (RANK + "m = AutoModelForCausalLM.from_pretrained('a', device_map='auto')\nTrainer(model=m)", True),
        (RANK + "m = AutoModelForCausalLM.from_pretrained('a', device_map={'': rank})\nTrainer(model=m)", False),
        (
            RANK + "where = 'auto'\nif rank >= 0:\n    where = {'': rank}\n"
            "m = AutoModelForCausalLM.from_pretrained('a', device_map=where)\nTrainer(model=m)",
            False,
        ),
        ("m = AutoModelForCausalLM.from_pretrained('a', device_map='auto')\nTrainer(model=m)", False),
    ],
)
def test_device_map_in_a_distributed_script(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "TT757") == ["TT757e"] * found


WORLD = "import os, sys\nworld = int(os.environ.get('WORLD_SIZE', 1))\nddp = world != 1\n"
LOAD = "m = AutoModelForCausalLM.from_pretrained('a', {})\nTrainer(model=m)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "k = {}\nif ddp:\n    k['device_map'] = None\nelse:\n    k['device_map'] = 'auto'\n" + LOAD.format("**k"),
            False,
        ),
        ("k = {}\nif not ddp:\n    k['device_map'] = 'auto'\n" + LOAD.format("**k"), False),
        ("where = None if ddp else 'auto'\n" + LOAD.format("device_map=where"), False),
        ("where = 'auto' if world == 1 else None\n" + LOAD.format("device_map=where"), False),
        ("if gpus > 1 and not ddp:\n    where = 'auto'\n" + LOAD.format("device_map=where"), False),
        ("if world > 1:\n    raise SystemExit('one process only')\n" + LOAD.format("device_map='auto'"), False),
        ("if world > 1 or n > 1:\n    sys.exit(2)\n" + LOAD.format("device_map='auto'"), False),
        ("if ddp:\n    raise RuntimeError('one only')\n" + LOAD.format("device_map='auto'"), False),
        ("if world == 1:\n    raise RuntimeError('launch several')\n" + LOAD.format("device_map='auto'"), True),
        ("if world > 1:\n    print('several')\n" + LOAD.format("device_map='auto'"), True),
        ("if torch.cuda.is_available():\n    where = 'auto'\n" + LOAD.format("device_map=where"), True),
        ("if ddp:\n    where = 'auto'\n" + LOAD.format("device_map=where"), True),
        ("if world > 1:\n    where = 'auto'\n" + LOAD.format("device_map=where"), True),
    ],
)
def test_a_map_that_only_one_process_gets_is_left_alone(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(WORLD + text, tmp_path, "TT757") == ["TT757e"] * found
