"""Rules on loops of one's own that run as several processes, and on memory that they waste; with their near misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """\
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM

dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
"""
PLACED = HEAD + "torch.cuda.set_device(local)\n"
MODEL = 'model = DDP(AutoModelForCausalLM.from_pretrained("m").to("cuda"))\n'
PLAIN = (
    "import torch\nfrom transformers import AutoModelForCausalLM\n"
    'model = AutoModelForCausalLM.from_pretrained("m")\n'
)
OPTIMIZER = "opt = torch.optim.AdamW(model.parameters(), lr=1e-5)\n"
STEP = "loss = model(**batch).loss; loss.backward(); opt.step(); opt.zero_grad()\n"
LOOP = f"for batch in loader:\n    {STEP}"
SAMPLED = "sampler = DistributedSampler(rows)\nloader = DataLoader(rows, sampler=sampler)\n"
EPOCHS = f"for epoch in range(3):\n    for batch in loader:\n        {STEP}"


def codes(text: str, folder: Path, code: str) -> int:
    """How many findings of this code a script has."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    found = lint([folder / "train.py"], select=[code]).findings
    assert all(finding.code == code for finding in found)
    return len(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HEAD + MODEL, 1),
        (HEAD + MODEL.replace('.to("cuda")', ".cuda()"), 1),
        (PLACED + MODEL, 0),
        (HEAD + MODEL.replace('.to("cuda")', ".to(local)"), 0),
        (HEAD + MODEL.replace('.to("cuda")', '.to(f"cuda:{local}")'), 0),
        (HEAD + 'os.environ["CUDA_VISIBLE_DEVICES"] = str(local)\n' + MODEL, 0),
        (PLAIN + 'model.to("cuda")\n', 0),
    ],
)
def test_processes_on_one_gpu(text: str, found: int, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC093") == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PLACED + 'state = torch.load("a.pt")\nmodel.load_state_dict(state["model"])\n', 1),
        (PLACED + 'opt.load_state_dict(torch.load("a.pt")["opt"])\n', 1),
        (PLACED + 'state = torch.load("a.pt", "cpu")\nmodel.load_state_dict(state)\n', 0),
        (PLACED + 'rows = torch.load("rows.pt")\n', 0),
        (PLAIN + 'model.load_state_dict(torch.load("a.pt"))\n', 0),
    ],
)
def test_checkpoints_that_are_loaded_onto_one_gpu(text: str, found: int, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC095") == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PLACED + SAMPLED + EPOCHS, 1),
        (PLACED + SAMPLED + EPOCHS.replace("    for", "    sampler.set_epoch(epoch)\n    for"), 0),
        (PLACED + SAMPLED.replace("(rows)", "(rows, shuffle=False)", 1) + EPOCHS, 0),
        (PLACED + SAMPLED + EPOCHS.replace("range(3)", "range(1)"), 0),
        (PLACED + SAMPLED + LOOP, 0),
        (
            PLACED + "from accelerate import Accelerator\nacc = Accelerator()\n" + SAMPLED + EPOCHS,
            0,
        ),
    ],
)
def test_samplers_without_an_epoch(text: str, found: int, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC097") == found


SAVE = 'torch.save(model.module.state_dict(), "a.pt")\n'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PLACED + MODEL + SAVE, 1),
        (PLACED + MODEL + "if local == 0:\n    " + SAVE, 0),
        (PLACED + MODEL + SAVE.replace('"a.pt"', 'f"a-{local}-rank.pt"'), 0),
        (PLACED + MODEL + f"def keep():\n    {SAVE}\nif dist.get_rank() == 0:\n    keep()\n", 0),
        (PLACED + MODEL + f"def keep():\n    {SAVE}\nkeep()\n", 1),
        (
            PLACED
            + MODEL
            + f"def keep(rank):\n    if rank != 0:\n        return\n    {SAVE}\nkeep(local)\n",
            0,
        ),
        (PLAIN + 'torch.save(model.state_dict(), "a.pt")\n', 0),
    ],
)
def test_checkpoints_that_every_process_writes(text: str, found: int, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC099") == found


CHECKPOINTS = "model.gradient_checkpointing_enable()\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PLAIN + CHECKPOINTS + OPTIMIZER + LOOP, 1),
        (PLAIN + CHECKPOINTS + "model.train()\n" + OPTIMIZER + LOOP, 0),
        (PLAIN + CHECKPOINTS + "Trainer(model).train()\n", 0),
        (PLAIN + OPTIMIZER + LOOP, 0),
    ],
)
def test_checkpointing_of_a_model_in_eval_mode(text: str, found: int, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC037") == found


KBIT = """\
import torch
from peft import prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained({})
model = prepare_model_for_kbit_training(model)
"""


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ('"mistralai/Mistral-7B-v0.3", dtype=torch.bfloat16', 1),
        ('"mistralai/Mistral-7B-v0.3", quantization_config=config', 0),
        ('"mistralai/Mistral-7B-v0.3", load_in_4bit=args.four', 0),
        ('"unsloth/mistral-7b-bnb-4bit"', 0),
        ('"TheBloke/Mistral-7B-GPTQ"', 0),
        ("args.model", 0),
        ('"mistralai/Mistral-7B-v0.3", torch_dtype=torch.float32', 0),
        ('"mistralai/Mistral-7B-v0.3", **kwargs', 0),
    ],
)
def test_kbit_preparation(arguments: str, found: int, tmp_path: Path) -> None:
    assert codes(KBIT.format(arguments), tmp_path, "SRC088") == found


VALIDATE = """\
def validate():
    model.eval()
    total = 0
    for batch in held:
        total += model(**batch).loss.item()
    model.train()
    return total
"""
TEACHER = 'teacher = AutoModelForCausalLM.from_pretrained("t").eval()\n'
DISTILL = f"for batch in loader:\n    t = teacher(**batch).logits\n    {STEP}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PLAIN + OPTIMIZER + VALIDATE + LOOP + "validate()\n", 1),
        (PLAIN + OPTIMIZER + "@torch.no_grad()\n" + VALIDATE + LOOP + "validate()\n", 0),
        (PLAIN + OPTIMIZER + VALIDATE + LOOP + "with torch.inference_mode():\n    validate()\n", 0),
        (PLAIN + VALIDATE + "validate()\n", 1),
        (PLAIN + TEACHER + OPTIMIZER + DISTILL, 1),
        (PLAIN + TEACHER + "teacher.requires_grad_(False)\n" + OPTIMIZER + DISTILL, 0),
        (
            PLAIN
            + TEACHER
            + OPTIMIZER
            + DISTILL.replace("    t =", "    with torch.no_grad(): t ="),
            0,
        ),
        (PLAIN + TEACHER + OPTIMIZER.replace("model.p", "teacher.p") + DISTILL, 1),
        (PLAIN + OPTIMIZER + LOOP, 0),
    ],
)
def test_forward_passes_without_no_grad(text: str, found: int, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC091") == found


PAD = """\
from transformers import AutoTokenizer, Trainer
tok = AutoTokenizer.from_pretrained("m")
rows = rows.map(lambda b: tok(b["text"], truncation=True{}))
{}
"""


@pytest.mark.parametrize(
    ("arguments", "after", "found"),
    [
        (', padding="max_length", max_length=4096', 'Trainer("m", train_dataset=rows)', 1),
        (', padding="max_length", max_length=512', 'Trainer("m", train_dataset=rows)', 0),
        (", padding=True, max_length=4096", 'Trainer("m", train_dataset=rows)', 0),
        (', padding="max_length", max_length=4096', "model.generate(rows)", 0),
        (', padding="max_length", max_length=4096', 'Trainer("m", args=A(torch_compile=True))', 0),
    ],
)
def test_padding_to_a_fixed_length(arguments: str, after: str, found: int, tmp_path: Path) -> None:
    assert codes(PAD.format(arguments, after), tmp_path, "SRC101") == found


ZERO = """\
from transformers import AutoModelForCausalLM, TrainingArguments
{}
args = TrainingArguments("out", deepspeed={{"zero_optimization": {{"stage": {}}}}})
{}
"""
LOAD = 'model = AutoModelForCausalLM.from_pretrained("m")'


@pytest.mark.parametrize(
    ("before", "stage", "after", "found"),
    [
        (LOAD, 3, "", 1),
        ("", 3, LOAD, 0),
        (LOAD, 2, "", 0),
        ("from transformers.integrations import HfDeepSpeedConfig\n" + LOAD, 3, "", 0),
    ],
)
def test_models_that_are_made_before_zero3(
    before: str, stage: int, after: str, found: int, tmp_path: Path
) -> None:
    assert codes(ZERO.format(before, stage, after), tmp_path, "SRC103") == found


@pytest.mark.parametrize(
    ("place", "found"), [('{"": 0}', 1), ('"cuda:0"', 1), ('{"": local}', 0), ('"cpu"', 0)]
)
def test_a_device_map_that_names_one_gpu(place: str, found: int, tmp_path: Path) -> None:
    text = PLACED + f'net = AutoModelForCausalLM.from_pretrained("m", device_map={place})\n'
    assert codes(text + "opt = torch.optim.AdamW(net.parameters())\n", tmp_path, "SRC062") == found


REDUCE = "dist.all_reduce(loss)\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"def mean(loss, rank):\n    if rank != 0:\n        return\n    {REDUCE}", 1),
        (f"def mean(loss):\n    {REDUCE}\nif local_rank == 0:\n    mean(1)\n", 1),
        (f"def mean(loss):\n    {REDUCE}\nif local_rank == 0:\n    mean(1)\nmean(2)\n", 1),
        (
            f"def mean(loss, all):\n    if all:\n        {REDUCE}\nif local_rank == 0:\n    mean(1, 0)\nmean(2, 1)\n",
            0,
        ),
        (
            f"def mean(loss):\n    if not loss:\n        return\n    {REDUCE}\nif rank == 0:\n    mean(1)\nmean(2)\n",
            0,
        ),
        (
            f"def mean(loss):\n    {REDUCE}\nif rank == 0:\n    mean(1)\nelse:\n    mean(2)\nmean(3)\n",
            0,
        ),
        (
            f"class M:\n    def mean(self):\n        {REDUCE}\nif rank == 0:\n    frame.mean()\nM().mean()\n",
            0,
        ),
        (f"main = dist.get_rank() == 0\nif main:\n    {REDUCE}", 1),
        (f"main = dist.get_rank() == 0 or world == 1\nif main:\n    {REDUCE}", 0),
        (f"@accelerator.on_main_process\ndef mean(loss):\n    {REDUCE}", 1),
        (f"for loss in losses:\n    if rank != 0:\n        continue\n    {REDUCE}", 1),
        (f"for loss in losses:\n    if loss is None:\n        continue\n    {REDUCE}", 0),
        (
            f"def mean(loss, rank):\n    if rank != 0:\n        {REDUCE}        return\n    {REDUCE}",
            0,
        ),
        (f"if rank == 0:\n    {REDUCE}else:\n    {REDUCE}", 0),
        (f"def mean(loss, rank):\n    if loss is None:\n        return\n    {REDUCE}", 0),
    ],
)
def test_collective_calls_of_one_process(text: str, found: int, tmp_path: Path) -> None:
    assert codes(PLACED + text, tmp_path, "SRC050") == found


GATHERED = """\
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from transformers import AutoModelForCausalLM

accelerator = Accelerator({})
model = accelerator.prepare(AutoModelForCausalLM.from_pretrained("m"))


def save(accelerator, model):
{}

save(accelerator, model)
"""
PLUGIN = "fsdp_plugin=FullyShardedDataParallelPlugin()"
ON_ONE = """\
    if accelerator.is_main_process:
        state = accelerator.get_state_dict(model)
        accelerator.unwrap_model(model).save_pretrained("out", state_dict=state)
"""
ON_ALL = """\
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained("out", state_dict=state)
"""
ON_BOTH = """\
    if accelerator.is_main_process:
        state = accelerator.get_state_dict(model)
    else:
        accelerator.get_state_dict(model)
"""
HELPED = """\
    gather(accelerator, model)

def gather(accelerator, model):
    return accelerator.get_state_dict(model)

for step, _ in enumerate(rows):
    if step % 9 == 0 and accelerator.is_main_process:
        gather(accelerator, model)
"""
BY_TORCH = """\
    if accelerator.is_main_process:
        from torch.distributed.checkpoint.state_dict import get_model_state_dict
        get_model_state_dict(model)
"""
BY_FSDP = """\
    with FSDP.state_dict_type(model, kind):
        if accelerator.is_main_process:
            model.state_dict()
"""
OF_A_BUFFER = ON_ONE.replace("accelerator.get_state_dict", "buffer.get_state_dict")
RESUMED = '    if accelerator.is_main_process:\n        accelerator.save_state("last")\n'


@pytest.mark.parametrize(
    ("arguments", "save", "found"),
    [
        (PLUGIN, ON_ONE, 1),
        (PLUGIN, RESUMED, 1),
        (PLUGIN, HELPED, 1),
        (PLUGIN, BY_TORCH, 1),
        (PLUGIN, BY_FSDP, 1),
        ("", HELPED, 0),
        ("", BY_TORCH, 0),
        (PLUGIN, ON_ALL, 0),
        (PLUGIN, ON_BOTH, 0),
        (PLUGIN, OF_A_BUFFER, 0),
        ("", ON_ONE, 0),
        ("", RESUMED, 0),
    ],
)
def test_sharded_weights_are_gathered_by_all_processes(
    arguments: str, save: str, found: int, tmp_path: Path
) -> None:
    assert codes(GATHERED.format(arguments, save), tmp_path, "SRC050") == found


@pytest.mark.parametrize(
    ("setup", "found"),
    [
        ("distributed_type: FSDP\n", ["warning"]),
        ("distributed_type: MULTI_GPU\n", []),
        ("zero_optimization: {stage: 3}\n", ["warning"]),
        ("zero_optimization: {stage: 2}\n", []),
    ],
)
def test_a_configuration_beside_a_script_shards_its_weights(
    setup: str, found: list[str], tmp_path: Path
) -> None:
    (tmp_path / "launch.yaml").write_text(setup, encoding="utf-8")
    path = tmp_path / "train.py"
    path.write_text(GATHERED.format("", ON_ONE), encoding="utf-8")
    report = lint([path], select=["SRC050"], allow_unjudged=True)
    assert [finding.severity for finding in report.findings] == found


BREAKS = "        if loss.item() < 0.1:\n            break\n"
SLICED = "import random\nrandom.shuffle(rows)\nR, W = dist.get_rank(), dist.get_world_size()\npart = rows[R::W]\n"
UNDER_NO_SYNC = "for batch in loader:\n    with model.no_sync():\n        loss = model(**batch).loss; loss.backward()\n"


@pytest.mark.parametrize(
    ("code", "text", "found"),
    [
        ("SRC050", PLACED + MODEL + OPTIMIZER + SAMPLED + EPOCHS + BREAKS, 1),
        (
            "SRC050",
            PLACED
            + MODEL
            + OPTIMIZER
            + SAMPLED
            + EPOCHS
            + BREAKS.replace("        if loss", "        dist.all_reduce(loss)\n        if loss"),
            0,
        ),
        (
            "SRC050",
            PLACED
            + MODEL
            + OPTIMIZER
            + SAMPLED
            + EPOCHS
            + "        if epoch == 1:\n            break\n",
            0,
        ),
        (
            "SRC050",
            PLACED
            + MODEL
            + OPTIMIZER
            + SAMPLED.replace("sampler=sampler", "shuffle=True")
            + EPOCHS
            + BREAKS,
            0,
        ),
        ("SRC022", PLACED + MODEL + UNDER_NO_SYNC, 1),
        (
            "SRC022",
            PLACED + MODEL + UNDER_NO_SYNC + "loss = model(**last).loss\nloss.backward()\n",
            0,
        ),
        (
            "SRC022",
            PLACED
            + MODEL
            + UNDER_NO_SYNC.replace(
                "with model.no_sync()", "with model.no_sync() if skip else nullcontext()"
            ),
            0,
        ),
        ("SRC092", PLACED + MODEL + SLICED, 1),
        ("SRC092", PLACED + MODEL + "import random\nrandom.seed(0)\n" + SLICED, 0),
        ("SRC092", PLACED + MODEL + SLICED.replace("rows[R::W]", "rows[:100]"), 0),
        ("SRC084", PLACED + MODEL + OPTIMIZER + SLICED + "loader = DataLoader(part)\n" + LOOP, 0),
        ("SRC084", PLACED + MODEL + OPTIMIZER + "loader = DataLoader(rows[2::4])\n" + LOOP, 1),
        (
            "SRC099",
            PLACED
            + MODEL
            + 'R, W = dist.get_rank(), 2\nif R == 0:\n    torch.save(model, "m.pt")\n',
            0,
        ),
    ],
)  # each row with its near misses behind it
def test_what_processes_do_apart(code: str, text: str, found: int, tmp_path: Path) -> None:
    assert codes(text, tmp_path, code) == found


TWO = (
    PLAIN
    + 'ref = AutoModelForCausalLM.from_pretrained("m")\n'
    + OPTIMIZER.replace("model.", "ref.")
)
FROZEN = "for batch in loader:\n    with torch.no_grad():\n        r = ref(**batch)\n" + "".join(
    f"    {part.strip()}\n" for part in STEP.split(";")
)
AGAIN = 'for epoch in range(3):\n    model = AutoModelForCausalLM.from_pretrained("m")\n'
INNER = f"    for batch in loader:\n        {STEP}"
FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nmodel = FSDP(model)\n"
ENGINE = (
    "import deepspeed\nengine, _, _, _ = deepspeed.initialize(model=model)\n"
    "for batch in loader:\n    engine.backward(engine(**batch).loss)\n"
)
LIGHTNING = """\
import lightning as L
class M(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, i):
        return self.net(**batch).loss
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TWO + FROZEN, 1),
        (TWO.replace("ref.parameters", "model.parameters") + FROZEN, 0),
        (PLAIN + OPTIMIZER + AGAIN + INNER, 1),
        (PLAIN + AGAIN + "    " + OPTIMIZER + INNER, 0),
        (PLAIN + OPTIMIZER + "model = torch.compile(model)\n" + LOOP, 0),
        (PLAIN + OPTIMIZER + FSDP + LOOP, 1),
        (PLAIN + FSDP + OPTIMIZER + LOOP, 0),
        (PLAIN + OPTIMIZER + ENGINE + "    opt.step()\n", 1),
        (PLAIN + ENGINE + "    engine.step()\n", 0),
        (LIGHTNING, 1),
        (
            LIGHTNING.replace("return self", "self.manual_backward(self").replace(
                ".loss", ".loss)"
            ),
            0,
        ),
        (LIGHTNING.replace("= False", "= True"), 0),
    ],
)
def test_optimizers_that_train_nothing(text: str, found: int, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC087") == found


@pytest.mark.parametrize(
    ("head", "others", "found"),
    [
        ("Full fine-tune of 8B with FSDP.", {}, "w"),
        ("accelerate launch --config_file configs/fsdp.yaml train.py", {}, "w"),
        (
            "accelerate launch --config_file fsdp.yaml train.py",
            {"fsdp.yaml": "distributed_type: FSDP\n"},
            "e",
        ),
        ("Trains without FSDP.", {}, ""),
        ("DDP or FSDP.", {}, ""),
        ("With FSDP.", {"ddp.yaml": "distributed_type: MULTI_GPU\n"}, ""),
        (
            "accelerate launch --config_file fsdp.yaml train.py",
            {"fsdp.yaml": "distributed_type: MULTI_GPU\n"},
            "",
        ),
    ],
)
def test_what_says_that_weights_are_sharded(
    head: str, others: dict[str, str], found: str, tmp_path: Path
) -> None:
    for name, text in others.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(f'"""{head}"""\n' + GATHERED.format("", ON_ONE), encoding="utf-8")
    severities = [one.severity[0] for one in lint([script]).findings if one.code == "SRC050"]
    assert "".join(severities) == found


ENGINE = """\
import deepspeed
import torch.distributed as dist

engine, optimizer, _, _ = deepspeed.initialize(model=model, config={"zero_optimization": {"stage": 2}})
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("if dist.get_rank() == 0:\n    engine.save_checkpoint('out')\n", 1),
        ("engine.save_checkpoint('out')\n", 0),
        ("if dist.get_rank() == 0:\n    store.save_checkpoint('out')\n", 0),
    ],
)
def test_checkpoints_of_a_deepspeed_engine(text: str, found: int, tmp_path: Path) -> None:
    assert codes(ENGINE + text, tmp_path, "SRC050") == found


SHARDS = """
class TextShards(torch.utils.data.IterableDataset):
    def __init__(self, files{parameter}):
        self.files = files{kept}
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for shard in self.files{part}:
            yield from open(shard)
"""
STREAMED = MODEL + "loader = DataLoader(TextShards({made}), batch_size=2)\n" + OPTIMIZER + LOOP
ENGINE = """\
import deepspeed, torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler
from transformers import AutoModelForCausalLM
engine, _, own, _ = deepspeed.initialize(model=AutoModelForCausalLM.from_pretrained("m"), training_data=rows)
loader = {loader}
for batch in loader:
    engine.backward(engine(**batch).loss)
    engine.step()
"""
DISPATCHED = """
from accelerate import dispatch_model, infer_auto_device_map
model = AutoModelForCausalLM.from_pretrained("m")
where = infer_auto_device_map(model{limits})
model = dispatch_model(model, device_map=where)
"""
PREFERENCES = """\
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("m")
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
inner = accelerator.unwrap_model(model)
def score(net, batch):
    return net(**batch).logits.sum()
for batch in rows:
    with torch.no_grad():
        before = score(inner, batch)
    loss = score({trained}, batch) - before
    accelerator.backward(loss)
    optimizer.step()
"""
SAVER = """
class Saver:
    def __init__(self):
        self.writes = {writes}
    def save(self, state):
        if not self.writes:
            return
        dist.barrier()
"""


@pytest.mark.parametrize(
    ("code", "text", "found"),
    [
        (
            "SRC063",
            HEAD + SHARDS.format(parameter="", kept="", part="") + STREAMED.format(made="names"),
            1,
        ),
        (
            "SRC063",
            HEAD
            + SHARDS.format(parameter="", kept="", part="[info.id :: info.num_workers]")
            + STREAMED.format(made="names"),
            1,
        ),
        (
            "SRC063",
            HEAD
            + SHARDS.format(parameter=", at, of", kept="[at::of]", part="")
            + STREAMED.format(made="names, dist.get_rank(), dist.get_world_size()"),
            0,
        ),
        ("SRC084", ENGINE.format(loader="DataLoader(rows, sampler=RandomSampler(rows))"), 1),
        ("SRC084", ENGINE.format(loader="DataLoader(rows, shuffle=True)"), 1),
        ("SRC084", ENGINE.format(loader="DataLoader(rows, sampler=DistributedSampler(rows))"), 0),
        (
            "SRC084",
            ENGINE.format(
                loader="DataLoader(rows, batch_sampler=BatchSampler(DistributedSampler(rows), 2, False))"
            ),
            0,
        ),
        ("SRC084", ENGINE.format(loader="own"), 0),
        ("SRC062", HEAD + DISPATCHED.format(limits="") + OPTIMIZER, 1),
        ("SRC062", HEAD + DISPATCHED.format(limits=', max_memory={local: "20GB"}') + OPTIMIZER, 0),
        ("SRC022", PREFERENCES.format(trained="inner"), 1),
        ("SRC022", PREFERENCES.format(trained="model"), 0),
        ("SRC050", HEAD + SAVER.format(writes="dist.get_rank() == 0"), 1),
        ("SRC050", HEAD + SAVER.format(writes="dist.is_initialized()"), 0),
    ],
)
def test_the_same_faults_written_otherwise(
    code: str, text: str, found: int, tmp_path: Path
) -> None:
    assert codes(text, tmp_path, code) == found


def test_a_stream_that_another_file_loads(tmp_path: Path) -> None:
    text = HEAD.replace('dist.init_process_group("nccl")\n', "") + SHARDS.format(
        parameter="", kept="", part=""
    )
    made = text + "def make(names):\n    return DataLoader(TextShards(names), batch_size=2)\n"
    (tmp_path / "reader.py").write_text(made, encoding="utf-8")
    loop = "from reader import make\n" + HEAD + MODEL + OPTIMIZER + "loader = make(names)\n" + LOOP
    (tmp_path / "train.py").write_text(loop, encoding="utf-8")
    assert len(lint([tmp_path], select=["SRC063"]).findings) == 1


SHOWN = """\
import os
{shown}
from transformers import AutoModelForCausalLM, Trainer
Trainer(model=AutoModelForCausalLM.from_pretrained("m"), train_dataset=rows).train()
"""
TASK = """\
resources:
  accelerators: {gpus}
run: |
  {command} train.py
"""
POD = """\
spec:
  containers:
    - command: ["bash", "-c", "{command} train.py"]
      resources:
        limits:
          nvidia.com/gpu: {gpus}
"""


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ('os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(4)))', 1),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(n) for n in [0, 1])', 1),
        ('os.environ.update(CUDA_VISIBLE_DEVICES="0,1")', 1),
        ('os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0,1")', 1),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(1)))', 0),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(n) for n in [0, 1] if n)', 0),
        ('os.environ.update(OTHER="0,1")', 0),
    ],
)
def test_gpus_that_a_script_shows_itself(shown: str, found: int, tmp_path: Path) -> None:
    assert codes(SHOWN.format(shown=shown), tmp_path, "SRC031") == found


@pytest.mark.parametrize(
    ("task", "gpus", "command", "found"),
    [
        (TASK, "H100:8", "python", 1),
        (TASK, "{A100-80GB: 4}", "python", 1),
        (TASK, "H100:1", "python", 0),
        (TASK, "H100:8", "torchrun --nproc_per_node 8", 0),
        (POD, "4", "python", 1),
        (POD.replace(" train.py", '", "train.py'), "4", "python", 1),
        (POD, "1", "python", 0),
        (POD, "4", "accelerate launch --num_processes 4", 0),
    ],
)
def test_gpus_of_a_task(task: str, gpus: str, command: str, found: int, tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(task.format(gpus=gpus, command=command), encoding="utf-8")
    assert codes(SHOWN.format(shown=""), tmp_path, "SRC031") == found


UNWRAPPED = (
    PLACED + 'model = AutoModelForCausalLM.from_pretrained("m").cuda()\n' + OPTIMIZER + SAMPLED
)
REDUCED_LOSS = "    shown = loss.detach().clone()\n    dist.all_reduce(shown)\n"
REDUCED_COUNT = '    n = (batch["labels"] != -100).sum()\n    dist.all_reduce(n)\n'
ALL_GRADIENTS = "[p.grad for p in model.parameters() if p.grad is not None]"
SYNC = "def sync(parts):\n    for part in parts:\n        dist.all_reduce(part)\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (UNWRAPPED + LOOP, 1),
        (UNWRAPPED + LOOP + REDUCED_LOSS, 1),
        (UNWRAPPED + LOOP + REDUCED_COUNT, 1),
        (UNWRAPPED + "note = [None]\ndist.broadcast_object_list(note)\n" + LOOP, 1),
        (
            UNWRAPPED
            + 'scaler = torch.amp.GradScaler("cuda")\nfor batch in loader:\n'
            + "    scaler.scale(model(**batch).loss).backward()\n    scaler.step(opt)\n",
            1,
        ),
        (UNWRAPPED.replace(OPTIMIZER, "model = DDP(model)\n" + OPTIMIZER) + LOOP, 0),
        (
            UNWRAPPED.replace(OPTIMIZER, f"if local > 0:\n    model = DDP(model)\n{OPTIMIZER}")
            + LOOP,
            0,
        ),
        (SYNC + UNWRAPPED + LOOP.replace("opt.step", f"sync({ALL_GRADIENTS}); opt.step"), 0),
        (UNWRAPPED + LOOP + "for p in model.parameters():\n    dist.all_reduce(p.data)\n", 0),
        (UNWRAPPED + LOOP + "for v in model.state_dict().values():\n    dist.broadcast(v, 0)\n", 0),
        (
            "from ours import prepare\n"
            + UNWRAPPED.replace(OPTIMIZER, "model = prepare(model)\n" + OPTIMIZER)
            + LOOP,
            0,
        ),
        (
            "from torch.distributed.fsdp import fully_shard\n"
            + UNWRAPPED
            + "fully_shard(model)\n"
            + LOOP,
            0,
        ),
        (UNWRAPPED + "for p in model.parameters():\n    p.register_hook(print)\n" + LOOP, 0),
        (UNWRAPPED + LOOP.replace("loss.backward(); ", ""), 0),
        (PLAIN + OPTIMIZER + LOOP, 0),
    ],
)
def test_gradients_that_nothing_averages(text: str, found: int, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC022") == found


COPIED = (
    "{shown}\nimport torch\nfrom torch import nn\nfrom transformers import AutoModelForCausalLM\n"
    "model = AutoModelForCausalLM.from_pretrained('m').cuda()\n{wrap}\n"
    "for batch in loader:\n    {step}\n"
)
SHOWS_FOUR = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0,1,2,3'"
BACKWARD = "model(**batch).loss.mean().backward()"


@pytest.mark.parametrize(
    ("shown", "wrap", "step", "found"),
    [
        (SHOWS_FOUR, "model = nn.DataParallel(model)", BACKWARD, 1),
        ("", "model = torch.nn.DataParallel(model, device_ids=[0, 1])", BACKWARD, 1),
        ("", "model = nn.DataParallel(model, device_ids=list(range(1)))", BACKWARD, 0),
        # nothing says that there are several
        ("", "model = nn.DataParallel(model)", BACKWARD, 0),
        (SHOWS_FOUR, "model = nn.DataParallel(model)", "print(model(**batch))", 0),
        (SHOWS_FOUR, "model = nn.parallel.DistributedDataParallel(model)", BACKWARD, 0),
    ],
)
def test_models_that_a_loop_copies_to_all_gpus(
    shown: str, wrap: str, step: str, found: int, tmp_path: Path
) -> None:
    text = COPIED.format(shown=shown, wrap=wrap, step=step)
    assert codes(text, tmp_path, "SRC031") == found
