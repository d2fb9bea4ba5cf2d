"""Faults of several processes in forms that spread over functions, files and settings; with their near misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """\
import os, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
from transformers import AutoModelForCausalLM

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
"""
MODEL = 'model = DDP(AutoModelForCausalLM.from_pretrained("m").to(rank))\n'
OPTIMIZER = "opt = torch.optim.AdamW(model.parameters(), lr=1e-5)\n"
STEP = "    model(**batch).loss.backward()\n    opt.step()\n    opt.zero_grad()\n"
TORCHRUN = "torchrun --nproc_per_node=4 train.py\n"


def codes(files: dict[str, str], folder: Path, code: str) -> int:
    """How many findings of this code the scripts have that lie in one folder."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return len(lint([folder], select=[code]).findings)


MAKER = "from torch.utils.data import DataLoader, DistributedSampler, RandomSampler\ndef make(rows):\n    return "
READER = "from data import make\n" + HEAD + MODEL + OPTIMIZER + "for batch in make(rows):\n" + STEP
BY_HAND = "def batches(rows):\n    for at in range(0, len(rows), 8):\n        yield collate(rows[at:at + 8])\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"data.py": MAKER + "DataLoader(rows, 8, shuffle=True)\n", "train.py": READER}, 1),
        (
            {
                "data.py": MAKER + "DataLoader(rows, sampler=RandomSampler(rows))\n",
                "train.py": READER,
            },
            1,
        ),
        (
            {
                "data.py": MAKER + "DataLoader(rows, sampler=DistributedSampler(rows))\n",
                "train.py": READER,
            },
            0,
        ),
        (
            {
                "train.py": HEAD
                + MODEL
                + OPTIMIZER
                + BY_HAND
                + "for batch in batches(rows):\n"
                + STEP
            },
            1,
        ),
        (
            {
                "train.py": HEAD
                + MODEL
                + OPTIMIZER
                + "for at in range(0, len(rows), 8):\n    batch = rows[at:at + 8]\n"
                + STEP
            },
            1,
        ),
        (
            {
                "train.py": HEAD
                + MODEL
                + OPTIMIZER
                + "rows = rows[rank::world]\n"
                + BY_HAND
                + "for batch in batches(rows):\n"
                + STEP
            },
            0,
        ),
        (
            {
                "train.py": HEAD
                + MODEL
                + OPTIMIZER
                + "for at in range(rank * 8, len(rows), 8 * world):\n    batch = rows[at:at + 8]\n"
                + STEP
            },
            0,
        ),
        # Drawn at random: no epoch that could be divided.
        (
            {
                "train.py": HEAD
                + MODEL
                + OPTIMIZER
                + "for _ in range(1000):\n    batch = rows.sample(8)\n"
                + STEP
            },
            0,
        ),
    ],
)
def test_rows_that_every_process_reads(files: dict[str, str], found: int, tmp_path: Path) -> None:
    assert codes(files, tmp_path, "SRC084") == found


LOADER = "loader = DataLoader(rows, 8, sampler=DistributedSampler(rows))\n"
FOREVER = (
    "def forever(loader):\n    while True:\n        for batch in loader:\n            yield batch\n"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            FOREVER
            + "stream = forever(loader)\nfor _ in range(9000):\n    batch = next(stream)\n"
            + STEP,
            1,
        ),
        (
            "from itertools import cycle\nfor number, batch in enumerate(cycle(loader)):\n" + STEP,
            1,
        ),
        (
            "def epoch():\n    for batch in loader:\n        step(batch)\n"
            "def step(batch):\n" + STEP + "for _ in range(3):\n    epoch()\n",
            1,
        ),
        (
            "def epoch():\n    for batch in loader:\n        step(batch)\n"
            "def step(batch):\n" + STEP + "for _ in range(1):\n    epoch()\n",
            0,
        ),
        ("def step(batch):\n" + STEP + "for batch in loader:\n    step(batch)\n", 0),
        (FOREVER.replace("while True", "if True") + "for batch in forever(loader):\n" + STEP, 0),
    ],
)
def test_samplers_of_loops_in_functions(text: str, found: int, tmp_path: Path) -> None:
    files = {"train.py": HEAD + MODEL + OPTIMIZER + LOADER + text}
    assert codes(files, tmp_path, "SRC097") == found


CALLBACK = """\
from transformers import Trainer, TrainerCallback


class Watch(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
{guard}        self.{name}.evaluate()


watch = Watch()
trainer = Trainer(model=model, args=args, callbacks=[watch])
watch.{name} = trainer
trainer.train()
"""


@pytest.mark.parametrize(
    ("guard", "name", "found"),
    [
        ("        if not state.is_world_process_zero:\n            return\n", "trainer", 1),
        ("        if not state.is_world_process_zero:\n            return\n", "_trainer", 1),
        ("        if state.epoch < 1:\n            return\n", "trainer", 0),
        ("        if not state.is_world_process_zero:\n            return\n", "scorer", 0),
    ],
)
def test_trainers_of_callbacks(guard: str, name: str, found: int, tmp_path: Path) -> None:
    text = CALLBACK.format(guard=guard, name=name)
    assert codes({"train.py": text}, tmp_path, "SRC050") == found


LOADS = """\
import torch
from transformers import AutoModelForCausalLM

tuned = AutoModelForCausalLM.from_pretrained("m")
saved = torch.load("tuned.pt")
"""
FITTING = "own = tuned.state_dict()\nown.update({k: v for k, v in saved.items() if k in own})\n"


@pytest.mark.parametrize(
    ("saves", "loads", "found"),
    [
        (
            '{"model": model.state_dict()}',
            'tuned.load_state_dict(saved["model"], strict=False)\n',
            1,
        ),
        (
            "dict(model=model.state_dict())",
            'tuned.load_state_dict(saved["model"], strict=False)\n',
            1,
        ),
        ("model.state_dict()", FITTING + "tuned.load_state_dict(own)\n", 1),
        (
            "model.state_dict()",
            "own = tuned.state_dict()\nfit = {k: v for k, v in saved.items() if k in own}\n"
            "tuned.load_state_dict(fit, strict=False)\n",
            1,
        ),
        ("model.module.state_dict()", FITTING + "tuned.load_state_dict(own)\n", 0),
        (
            '{"model": model.module.state_dict()}',
            'tuned.load_state_dict(saved["model"], strict=False)\n',
            0,
        ),
        ('{"model": model.state_dict()}', 'tuned.load_state_dict(saved["model"])\n', 0),
        (
            "model.state_dict()",
            "tuned.load_state_dict({k: v for k, v in saved.items() if v.ndim > 1})\n",
            0,
        ),
    ],
)
def test_states_of_wrappers(saves: str, loads: str, found: int, tmp_path: Path) -> None:
    train = (
        HEAD + MODEL + OPTIMIZER + f"for batch in loader:\n{STEP}torch.save({saves}, 'tuned.pt')\n"
    )
    assert codes({"train.py": train, "infer.py": LOADS + loads}, tmp_path, "SRC004") == found


PREDICTS = (
    "import os\nimport pandas as pd\nfrom accelerate import PartialState\nstate = PartialState()\n"
)
SPLIT = "with state.split_between_processes(rows) as mine:\n    table = pd.DataFrame([answer(row) for row in mine])\n"
OWN_ROWS = "rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PREDICTS + SPLIT + 'table.to_csv("preds.csv")\n', 1),
        (PREDICTS + SPLIT + 'table.to_csv(f"preds_{state.process_index}.csv")\n', 0),
        (PREDICTS + SPLIT + 'table.to_csv("preds.csv", mode="a")\n', 0),
        (
            PREDICTS
            + OWN_ROWS
            + "mine = [row for i, row in enumerate(rows) if i % world == rank]\n"
            'pd.DataFrame(mine).to_json("preds.jsonl", lines=True)\n',
            1,
        ),
        (
            PREDICTS + OWN_ROWS + "out = [answer(rows[i]) for i in range(rank, len(rows), world)]\n"
            'pd.DataFrame(out).to_parquet("preds.parquet")\n',
            1,
        ),
        (
            PREDICTS + OWN_ROWS + "out = [answer(row) for row in rows]\nif rank == 0:\n"
            '    pd.DataFrame(out).to_parquet("preds.parquet")\n',
            0,
        ),
        (
            PREDICTS
            + 'table = pd.DataFrame([answer(row) for row in rows])\ntable.to_csv("all.csv")\n',
            0,
        ),
    ],
)
def test_tables_of_every_process(text: str, found: int, tmp_path: Path) -> None:
    files = {"predict.py": text, "run.sh": TORCHRUN.replace("train", "predict")}
    assert codes(files, tmp_path, "SRC226") == found


NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.extra = {layer}

    def forward(self, x):
        return self.body(x){use}


model = DDP(Net().to(rank){options})
"""


@pytest.mark.parametrize(
    ("layer", "use", "options", "found"),
    [
        ("nn.Linear(8, 2)", "", "", 1),
        ("nn.Embedding(9, 8)", "", ", device_ids=[rank]", 1),
        ("nn.LayerNorm(8)", "", "", 1),
        ("nn.Linear(8, 2)", " + self.extra(x)", "", 0),
        ("nn.Linear(8, 2)", "", ", find_unused_parameters=True", 0),
        ("nn.Dropout(0.1)", "", "", 0),
        ("nn.Linear(8, 2)", " + getattr(self, 'extra')(x)", "", 0),
        ("nn.Linear(8, 2).requires_grad_(False)", "", "", 0),
    ],
)
def test_layers_without_gradient(
    layer: str, use: str, options: str, found: int, tmp_path: Path
) -> None:
    text = HEAD + NET.format(layer=layer, use=use, options=options)
    assert codes({"train.py": text}, tmp_path, "SRC377") == found


def test_layers_of_another_base_may_be_read_there(tmp_path: Path) -> None:
    text = HEAD + NET.format(layer="nn.Linear(8, 2)", use="", options="")
    text = text.replace("class Net(nn.Module)", "from base import Base\nclass Net(Base)")
    assert codes({"train.py": text}, tmp_path, "SRC377") == 0


ADAPTED = """\
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("m")
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("model = FSDP(get_peft_model(base, LoraConfig()))\n", 1),
        ("model = FSDP(get_peft_model(base, LoraConfig()), use_orig_params=False)\n", 1),
        (
            "def shard(net):\n    return FSDP(net, device_id=0)\nmodel = shard(get_peft_model(base, LoraConfig()))\n",
            1,
        ),
        ("model = FSDP(get_peft_model(base, LoraConfig()), use_orig_params=True)\n", 0),
        ("model = FSDP(get_peft_model(base, LoraConfig()), **options)\n", 0),
        ("model = FSDP(base)\n", 0),
        (
            "from peft.utils.other import fsdp_auto_wrap_policy\nnet = get_peft_model(base, LoraConfig())\n"
            "model = FSDP(net, auto_wrap_policy=fsdp_auto_wrap_policy(net))\n",
            0,
        ),
    ],
)
def test_frozen_and_trained_weights_in_one(text: str, found: int, tmp_path: Path) -> None:
    assert codes({"train.py": ADAPTED + text}, tmp_path, "SRC378") == found


RARE = "for i, batch in enumerate(loader):\n    model(**batch).loss.backward()\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (RARE + "    if (i + 1) % 8 == 0:\n        opt.step()\n        opt.zero_grad()\n", 1),
        (RARE + "    if i % accum == accum - 1:\n        opt.step()\n        opt.zero_grad()\n", 1),
        (RARE + "    pending += 1\n    if pending == accumulate:\n        opt.step()\n", 1),
        (RARE + "    opt.step()\n    if i % 8 == 0:\n        print(i)\n", 0),
        (
            "for i, batch in enumerate(loader):\n    with model.no_sync():\n        model(**batch).loss.backward()\n"
            "    if i % 8 == 0:\n        opt.step()\n",
            0,
        ),
        (RARE + "    if scaler_ok:\n        opt.step()\n", 0),
    ],
)
def test_gradients_averaged_at_each_micro_batch(text: str, found: int, tmp_path: Path) -> None:
    assert codes({"train.py": HEAD + MODEL + OPTIMIZER + text}, tmp_path, "SRC379") == found


SETTINGS = '{{"train_batch_size": {0}, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}}'


@pytest.mark.parametrize(
    ("whole", "command", "found"),
    [
        ("64", TORCHRUN, 1),
        ("32", TORCHRUN, 0),
        ("64", "", 0),
        ("60", "", 1),
        ("size", TORCHRUN, 0),
        ("64", TORCHRUN + "torchrun --nproc_per_node=8 train.py\n", 0),
    ],
)
def test_batches_of_another_world_size(
    whole: str, command: str, found: int, tmp_path: Path
) -> None:
    text = f"import deepspeed\nengine, *_ = deepspeed.initialize(model=m, config={SETTINGS.format(whole)})\n"
    assert codes({"train.py": text, "run.sh": command}, tmp_path, "SRC380") == found


GATHERS = (
    HEAD
    + "answers = [answer(q) for q in rows[rank::world]]\nparts = [None] * world\n"
    + "dist.all_gather_object(parts, answers)\n"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (GATHERS + 'table["answer"] = [one for part in parts for one in part]\n', 1),
        (GATHERS + "flat = sum(parts, [])\nhits = [a == b for a, b in zip(flat, golds)]\n", 1),
        (GATHERS + "flat = sum(parts, [])\nprint(len(flat))\n", 0),
        (GATHERS.replace("[rank::world]", "[:9]") + "hits = list(zip(sum(parts, []), golds))\n", 0),
        (
            GATHERS
            + "flat = [one for group in zip(*parts) for one in group]\nhits = zip(flat, golds)\n",
            0,
        ),
        (
            GATHERS.replace("answer(q)", "(q['id'], answer(q))")
            + "flat = dict(sum(parts, []))\nhits = zip(flat, golds)\n",
            0,
        ),
    ],
)
def test_answers_in_order_of_processes(text: str, found: int, tmp_path: Path) -> None:
    assert codes({"train.py": text}, tmp_path, "SRC381") == found


FSDP_SCRIPT = """\
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM
from saving import save

dist.init_process_group("nccl")
rank = dist.get_rank()
model = FSDP(AutoModelForCausalLM.from_pretrained("m"))
for step in range(900):
{}
"""
ON_FIRST = "    if rank == 0 and step % 250 == 0:\n        save(model, rank)\n"
ON_EACH = "    if step % 250 == 0:\n        save(model, rank)\n"
FULL_STATE = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType

def save(model, rank):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        state = model.state_dict()
    if rank == 0:
        torch.save(state, "out.pt")
"""
SUMMONED = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def save(model, rank):
    with FSDP.summon_full_params(model, writeback=False):
        model.module.save_pretrained("out")
"""
BY_OPTIONS = """\
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

def save(model, rank):
    if rank != 0:
        return
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    torch.save(state, "out.pt")
"""
FIRST_LATER = """\
import torch
from torch.distributed.checkpoint.state_dict import get_model_state_dict

def save(model, rank):
    state = get_model_state_dict(model)
    if rank != 0:
        return
    torch.save(state, "out.pt")
"""


@pytest.mark.parametrize(
    ("call", "helper", "found"),
    [
        (ON_FIRST, FULL_STATE, 1),
        (ON_FIRST, SUMMONED, 1),
        (ON_EACH, BY_OPTIONS, 1),
        (ON_EACH, FULL_STATE, 0),
        (ON_EACH, SUMMONED, 0),
        (ON_EACH, FIRST_LATER, 0),
    ],
)
def test_a_helper_of_another_file_gathers_the_weights(
    call: str, helper: str, found: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(FSDP_SCRIPT.format(call), encoding="utf-8")
    (tmp_path / "saving.py").write_text(helper, encoding="utf-8")
    assert len(lint([tmp_path], select=["SRC050"]).findings) == found


def test_a_ddp_script_beside_shares_the_helper_of_fsdp(tmp_path: Path) -> None:
    plain = FSDP_SCRIPT.format(ON_FIRST).replace(
        "fsdp import FullyShardedDataParallel as FSDP", "checkpoint import state_dict"
    )
    plain = plain.replace("FSDP(", "torch.nn.parallel.DistributedDataParallel(")
    (tmp_path / "train_ddp.py").write_text(plain, encoding="utf-8")
    (tmp_path / "train.py").write_text(FSDP_SCRIPT.format(ON_EACH), encoding="utf-8")
    (tmp_path / "saving.py").write_text(FIRST_LATER, encoding="utf-8")
    assert not lint([tmp_path], select=["SRC050"]).findings


LOOP_SCRIPT = """\
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModelForCausalLM
from loop import Loop

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = AutoModelForCausalLM.from_pretrained("m").cuda()
if dist.get_world_size() > 1:
    model = DDP(model)
loop = Loop(model, torch.optim.AdamW(model.parameters()))
for batch in loader:
    loop.step(batch)
loop.save()
"""
LOOP = """\
from torch.nn.parallel import DistributedDataParallel as DDP

def bare(model):
    return model.module if hasattr(model, "module") else model

class Loop:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.inner = getattr(model, "module", model)

    @property
    def net(self):
        return self.model.module if isinstance(self.model, DDP) else self.model

    def step(self, batch):
        loss = {}(**batch).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self):
        {}
"""


@pytest.mark.parametrize(
    ("called", "saved", "found"),
    [
        ("self.net", "self.net.save_pretrained('out')", 1),
        ("self.inner", "self.inner.save_pretrained('out')", 1),
        ("bare(self.model)", "self.net.save_pretrained('out')", 1),
        ("getattr(self.model, 'module', self.model)", "pass", 1),
        ("self.model", "self.net.save_pretrained('out')", 0),
        ("self.model", "bare(self.model).save_pretrained('out')", 0),
        ("self.model", "print(self.net.generate(self.prompt))", 0),
        ("self.model", "self.model = self.model.module", 0),
    ],
)
def test_a_loop_of_another_file_holds_the_model_inside(
    called: str, saved: str, found: int, tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text(LOOP_SCRIPT, encoding="utf-8")
    (tmp_path / "loop.py").write_text(LOOP.format(called, saved), encoding="utf-8")
    assert len(lint([tmp_path], select=["SRC022"]).findings) == found


@pytest.mark.parametrize(
    ("called", "found"), [("accelerator.unwrap_model(model)", 1), ("model", 0)]
)
def test_a_step_in_another_file_unwraps_what_accelerate_prepared(
    called: str, found: int, tmp_path: Path
) -> None:
    (tmp_path / "steps.py").write_text(
        "def train_step(accelerator, model, batch):\n"
        f"    loss = {called}(**batch).loss\n    accelerator.backward(loss)\n",
        encoding="utf-8",
    )
    (tmp_path / "main.py").write_text(
        "from accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\n"
        "from steps import train_step\n\naccelerator = Accelerator()\n"
        "model = accelerator.prepare(AutoModelForCausalLM.from_pretrained('m'))\n"
        "for batch in loader:\n    train_step(accelerator, model, batch)\n",
        encoding="utf-8",
    )
    assert len(lint([tmp_path], select=["SRC022"]).findings) == found


FIT = """\
import lightning as L
from module import Rated

trainer = L.Trainer(accelerator="gpu", devices=2, strategy="{}")
trainer.fit(Rated())
"""
RATED = """\
import lightning as L
from torch import nn

class Rated(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 64)
        self.rating = nn.Sequential(nn.Linear(64, 8), nn.GELU(), nn.Linear(8, 1))

    def training_step(self, batch, _):
        hidden = self.body(batch["x"])
        loss = hidden.mean()
        rated = batch["rating"] >= 0
{}
        return loss

    def validation_step(self, batch, _):
        self.log("rating", self.rating(self.body(batch["x"])).mean())
"""
IN_A_BRANCH = (
    "        if rated.any():\n            loss = loss + self.rating(hidden[rated]).mean()\n"
)
COUNTED = "        if int(rated.sum()) > 0:\n            loss = loss + self.rating(hidden[rated]).mean()\n"
ALWAYS = "        loss = loss + (self.rating(hidden) * rated).mean()\n"
ELSE_ZERO = (
    IN_A_BRANCH + "        else:\n            loss = loss + 0.0 * self.rating(hidden).sum()\n"
)
ZERO_TERM = (
    IN_A_BRANCH + "        loss = loss + 0.0 * sum(p.sum() for p in self.rating.parameters())\n"
)
BY_SETTING = "        if self.hparams.rate:\n            loss = loss + self.rating(hidden).mean()\n"


@pytest.mark.parametrize(
    ("strategy", "step", "found"),
    [
        ("ddp", IN_A_BRANCH, 1),
        ("ddp", COUNTED, 1),
        ("ddp_find_unused_parameters_true", IN_A_BRANCH, 0),
        ("auto", IN_A_BRANCH, 0),
        ("ddp", ALWAYS, 0),
        ("ddp", ELSE_ZERO, 0),
        ("ddp", ZERO_TERM, 0),
        ("ddp", BY_SETTING, 0),
    ],
)
def test_a_head_that_some_batches_use(strategy: str, step: str, found: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FIT.format(strategy), encoding="utf-8")
    (tmp_path / "module.py").write_text(RATED.format(step), encoding="utf-8")
    assert len(lint([tmp_path], select=["SRC377"]).findings) == found


def test_a_head_that_some_batches_use_in_a_module_of_ddp(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 64)
        self.aux = nn.Linear(64, 1)

    def forward(self, x, mask):
        out = self.body(x)
        if mask.any():
            out = out + self.aux(out)
        return out


model = DDP(Scorer().to(rank){})
"""
    )
    for flag, found in (("", 1), (", find_unused_parameters=True", 0)):
        (tmp_path / "train.py").write_text(text.replace("{}", flag), encoding="utf-8")
        assert len(lint([tmp_path], select=["SRC377"]).findings) == found
