"""Rules on what scripts do around a model: several processes, saving, what is asked afterwards, memory, and metrics."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent

import pytest

from tests.checks.source.table import codes

DDP = """
from torch.nn.parallel import DistributedDataParallel as DDP
torch.distributed.init_process_group("nccl")
"""
ACCELERATE = """
accelerator = Accelerator()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
prepared, optimizer = accelerator.prepare(model, optimizer)
"""


def steps(called: str, before: str = DDP + "ddp = DDP(model)\n") -> str:
    """A loop that trains on the loss of what is called."""
    return f"{before}for batch in loader:\n    loss = {called}.loss\n    loss.backward()\n"


WITHOUT = """
@torch.no_grad()
def score(wrapped):
    return sum(wrapped.module(**batch).loss for batch in held)

total = score(ddp)
"""
IN_FUNCTIONS = """
def forward(net, batch):
    return net.module(**batch).loss

def train(net):
    for batch in loader:
        (forward(net, batch) / 4).backward()

train(ddp)
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (steps("ddp.module(**batch)"), True),
        (steps("ddp.module.forward(**batch)"), True),
        (steps("model(**batch)"), True),
        (steps("model.to('cuda')(**batch)"), True),
        (f"{DDP}ddp = DDP(model)\n{IN_FUNCTIONS}", True),
        (steps("accelerator.unwrap_model(prepared)(**batch)", ACCELERATE), True),
        (steps("prepared.module(**batch)", ACCELERATE), True),
        (steps("model(**batch)", ACCELERATE), True),
        (steps("inner(**batch)", f"{DDP}ddp = DDP(model)\ninner = ddp.module\n"), True),
        (steps("ddp(**batch)"), False),
        (steps("ddp(**batch)") + WITHOUT, False),
        (steps("prepared(**batch)", ACCELERATE), False),
        (steps("ddp.module(**batch)") + "torch.distributed.all_reduce(p.grad)\n", False),
        (steps("model(**batch)", f"{DDP}model = DDP(model)\n"), False),
        (steps("net(**batch)", f"{DDP}net = DDP(model) if several else model\n"), False),
        (steps("model(**batch)", "# deepspeed\n" + ACCELERATE), False),
        (steps("ddp(**batch)") + "ddp.module.generate(**batch, max_new_tokens=9)\n", False),
    ],
)
def test_a_forward_pass_around_the_wrapper(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC022") == ["SRC022e"] * found


ZERO_3 = {"zero_optimization": {"stage": 3}}
FSDP = "distributed_type: FSDP\ncompute_environment: LOCAL_MACHINE\n"
SAVED = ACCELERATE + "accelerator.unwrap_model(prepared).save_pretrained('out')\n"
TRAINED = """
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer(model=model, args=SFTConfig("out", {0}), train_dataset=ds)
trainer.train()
{1}
"""


@pytest.mark.parametrize(
    ("text", "files", "found"),
    [
        (SAVED, {"ds.json": json.dumps(ZERO_3)}, "w"),
        (SAVED, {"configs/fsdp.yaml": FSDP}, "w"),
        (
            SAVED,
            {"run.sh": "accelerate launch --config_file a.yaml train.py\n", "a.yaml": FSDP},
            "e",
        ),
        (SAVED, {"run.sh": "accelerate launch --use_fsdp train.py\n"}, "e"),
        (TRAINED.format('fsdp="full_shard"', "trainer.model.save_pretrained('out')"), {}, "e"),
        (
            TRAINED.format('deepspeed="z.json"', "model.save_pretrained('out')"),
            {"z.json": json.dumps(ZERO_3)},
            "e",
        ),
        (
            "from torch.distributed.fsdp import fully_shard\nfully_shard(model)\n"
            "torch.save(model.state_dict(), 'a.pt')\n",
            {},
            "e",
        ),
        (SAVED, {}, ""),
        (SAVED, {"ds.json": json.dumps({"zero_optimization": {"stage": 2}})}, ""),
        (SAVED, {"ds.json": json.dumps(ZERO_3), "multi.yaml": "distributed_type: MULTI_GPU\n"}, ""),
        (
            SAVED.replace("'out'", "'out', state_dict=accelerator.get_state_dict(prepared)"),
            {"ds.json": json.dumps(ZERO_3)},
            "",
        ),
        (TRAINED.format('fsdp="full_shard"', "trainer.save_model('out')"), {}, ""),
        ("tok.save_pretrained('out')\n", {"ds.json": json.dumps(ZERO_3)}, ""),
    ],
)
def test_sharded_weights(text: str, files: dict[str, str], found: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert codes(text, tmp_path, "SRC023") == [f"SRC023{letter}" for letter in found]


TRAIN = """
from trl import SFTTrainer
trainer = SFTTrainer(model=model, train_dataset=ds, peft_config=LoraConfig(r=8))
trainer.train()
trainer.save_model("out")
"""
ASK = "AutoModelForCausalLM.from_pretrained('{0}').eval().generate(**batch, max_new_tokens=9)\n"
THROUGH = """
def load(name):
    return AutoModelForCausalLM.from_pretrained(name)

def train():
    from trl import SFTTrainer
    trainer = SFTTrainer(model=load("org/some"), train_dataset=ds)
    trainer.train()

def answers(asked):
    return asked.generate(**batch, max_new_tokens=9)

"""
PIPE = "from transformers import pipeline\npipe = pipeline('text-generation', model={0})\nprint(pipe('Hi'))\n"
VLLM = "from vllm import LLM\nllm = LLM(model={0})\nprint(llm.generate(prompts))\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TRAIN + ASK.format("org/some"), True),
        (TRAIN + PIPE.format("'org/some'"), True),
        (TRAIN + VLLM.format("'org/some'"), True),
        (
            THROUGH + "was = answers(load('org/some'))\ntrain()\nis_ = answers(load('org/some'))\n",
            True,
        ),
        (
            "def main():\n" + indent(TRAIN + ASK.format("org/some"), "    ") + "main()\n",
            True,
        ),
        (TRAIN + ASK.format("out"), False),
        (TRAIN + PIPE.format("'out'"), False),
        (TRAIN + PIPE.format("model"), False),
        (TRAIN + VLLM.format("'out'"), False),
        (TRAIN + "model.generate(**batch, max_new_tokens=9)\n", False),
        (TRAIN + "trainer.model.generate(**batch, max_new_tokens=9)\n", False),
        (ASK.format("org/some") + TRAIN, False),
        (TRAIN + ASK.format("org/some") + ASK.format("out"), False),
        (THROUGH + "was = answers(load('org/some'))\ntrain()\nis_ = answers(load('out'))\n", False),
        (
            TRAIN + "tuned = PeftModel.from_pretrained(model, 'out')\n" + ASK.format("org/some"),
            False,
        ),
        (TRAIN + ASK.format("other/judge"), False),
    ],
)
def test_the_base_is_asked_after_training(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC024") == ["SRC024e"] * found


LOOP = "for batch in loader:\n    model(**batch).loss.backward()\n{0}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("model.save_pretrained('out')\n" + LOOP.format(""), True),
        ("torch.save(model.state_dict(), 'a.pt')\n" + LOOP.format(""), True),
        ("model.save_pretrained('out')\n" + TRAINED.format('save_strategy="no"', ""), True),
        ("model.save_pretrained('out')\n" + TRAINED.format("", ""), False),
        (LOOP.format("    model.save_pretrained('out')\n"), False),
        (LOOP.format("model.save_pretrained('out')\n"), False),
        ("model.save_pretrained('first')\n" + LOOP.format("model.save_pretrained('out')\n"), False),
        ("tok.save_pretrained('out')\n" + LOOP.format(""), False),
        (
            "for epoch in range(3):\n    model.save_pretrained('out')\n    for batch in loader:\n"
            "        model(**batch).loss.backward()\n",
            False,
        ),
    ],
)
def test_saved_before_training(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC025") == ["SRC025e"] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("m = torch.compile(model)\nm = get_peft_model(m, LoraConfig())\n", ["SRC026e"]),
        ("m = torch.compile(model)\ntorch.save(m.state_dict(), 'a.pt')\n", ["SRC026w"]),
        ("m = torch.compile(model)\ntorch.save({'model': m.state_dict()}, 'a.pt')\n", ["SRC026w"]),
        ("m = torch.compile(model)\nm.save_pretrained('out')\n", []),
        ("m = get_peft_model(model, LoraConfig())\nm = torch.compile(m)\n", []),
        ("m = torch.compile(model)\ntorch.save(m._orig_mod.state_dict(), 'a.pt')\n", []),
        ("m = torch.compile(model)\ntorch.save(model.state_dict(), 'a.pt')\n", []),
    ],
)
def test_a_compiled_model_is_saved(text: str, found: list[str], tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC026") == found


def kept(line: str, loop: str = "for batch in loader:", before: str = "kept = []") -> str:
    """A loop that keeps something of each step."""
    return f"{before}\n{loop}\n    out = model(**batch, output_hidden_states=True)\n    {line}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (kept("kept.append(out.hidden_states[-1])"), True),
        (kept("kept.append(out.logits)"), True),
        (kept("kept.append(out.logits.detach())"), True),
        (kept("kept.append(out)"), True),
        (kept("kept += [out.logits.float()]"), True),
        (kept("kept.append(torch.nn.functional.softmax(out.logits, dim=-1))"), True),
        (
            kept("kept[step] = out.logits", "for step, batch in enumerate(loader):", "kept = {}"),
            True,
        ),
        (kept("kept.append(out.logits.cpu())"), False),
        (kept("kept.append(out.logits.to('cpu', torch.float32))"), False),
        (kept("kept.append(out.logits.argmax(-1))"), False),
        (kept("kept.append(out.logits[:, -1])"), False),
        (kept("kept.append(out.loss.item())"), False),
        (kept("kept.append(out.hidden_states[-1].mean(1))"), False),
        (
            kept(
                "kept.append(out.logits)",
                "for batch in islice(loader, 4):",
                "from itertools import islice\nkept = []",
            ),
            False,
        ),
        (kept("kept.append(out.logits); kept.clear()"), False),
        (kept("kept = []; kept.append(out.logits)"), False),
        (kept("if step == 3: kept.append(out.logits)"), False),
    ],
)
def test_outputs_kept_on_the_device(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC027") == ["SRC027w"] * found


def averaged(term: str, mean: str, loader: str = "loader") -> str:
    """An evaluation that averages something of each batch."""
    return (
        "import math\nimport numpy as np\nfrom torch.utils.data import DataLoader\n"
        "loader = DataLoader(ds, batch_size=4, collate_fn=DataCollatorWithPadding(tok))\n"
        f"values, total, n = [], 0.0, 0\nwith torch.no_grad():\n    for batch in {loader}:\n"
        f"        out = model(**batch)\n        {term}\nprint({mean})\n"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            averaged("values.append(torch.exp(out.loss).item())", "sum(values) / len(values)"),
            ["SRC028w"],
        ),
        (averaged("values.append(math.exp(out.loss.item()))", "np.mean(values)"), ["SRC028w"]),
        (averaged("values.append(out.loss.exp())", "torch.stack(values).mean()"), ["SRC028w"]),
        (averaged("total += torch.exp(out.loss).item(); n += 1", "total / n"), ["SRC028w"]),
        (
            "import numpy as np\ndef ppl(t):\n    return torch.exp(model(**tok(t)).loss).item()\n"
            "scores = [ppl(t) for t in ds]\nprint(np.mean(scores))\n",
            ["SRC028w"],
        ),
        (averaged("total += out.loss.item()", "math.exp(total / len(loader))"), ["SRC028w"]),
        (averaged("values.append(out.loss.item())", "math.exp(np.mean(values))"), ["SRC028w"]),
        (averaged("values.append(torch.exp(out.loss).item())", "np.median(values)"), []),
        (averaged("total += out.loss.item() * 7; n += 7", "math.exp(total / n)"), []),
        (averaged("values.append(out.loss.item())", "np.mean(values)"), []),
        (
            averaged("total += out.loss.item()", "math.exp(total / len(loader))")
            + "block_size = 9\n",
            [],
        ),
        ("import numpy as np\nw = [np.exp(x) for x in ds]\nprint(sum(w) / len(w))\n", []),
    ],
)
def test_averages_of_perplexities(text: str, found: list[str], tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC028") == found


ROWS = """
from torch.utils.data import DataLoader
import random
rows = [json.loads(line) for line in open("test.jsonl")]
prompts = [row["prompt"] for row in rows]
gold = [row["answer"] for row in rows]
"""
ANSWERS = """
answers = []
for i in range(0, len(prompts), 8):
    batch = tok(prompts[i : i + 8], return_tensors="pt", padding=True)
    ids = model.generate(**batch, max_new_tokens=9)
    answers += tok.batch_decode(ids, skip_special_tokens=True)
"""
SCORE = "hits = sum(a == g for a, g in zip(answers, gold))\n"
LOADED = """
answers = []
for batch in DataLoader({0}, batch_size=4{1}):
    answers.extend(tok.batch_decode(model.generate(**batch, max_new_tokens=9)))
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{ROWS}prompts = sorted(prompts, key=len){ANSWERS}{SCORE}", True),
        (f"{ROWS}prompts.sort(key=len){ANSWERS}{SCORE}", True),
        (f"{ROWS}random.shuffle(prompts){ANSWERS}{SCORE}", True),
        (f"{ROWS}prompts = list(set(prompts)){ANSWERS}{SCORE}", True),
        (f"{ROWS}{LOADED.format('rows', ', shuffle=True')}{SCORE}", True),
        (
            f"ordered = ds.sort('length')\ngold = ds['answer']\n{LOADED.format('ordered', '')}{SCORE}",
            True,
        ),
        (f"gold = ds['answer']\n{LOADED.format('ds.shuffle(seed=1)', '')}{SCORE}", True),
        (
            f"{ROWS}prompts = sorted(prompts, key=len){ANSWERS}m.compute(predictions=answers, references=gold)\n",
            True,
        ),
        (f"{ROWS}gold = sorted(gold){ANSWERS}{SCORE}", True),
        (f"{ROWS}{ANSWERS}{SCORE}", False),
        (
            f"{ROWS.replace('prompts =', 'rows.sort(key=len)' + chr(10) + 'prompts =')}{ANSWERS}{SCORE}",
            False,
        ),
        (
            f"{ROWS}labels = sorted(set(gold))\nprompts = [p + str(labels) for p in prompts]{ANSWERS}{SCORE}",
            False,
        ),
        (
            f"{ROWS}prompts = sorted(prompts, key=len){ANSWERS}found = dict(zip(prompts, answers))\n",
            False,
        ),
        (f"{ROWS}{LOADED.format('rows', '')}{SCORE}", False),
        (f"ds = ds.shuffle(seed=1)\ngold = ds['answer']\n{LOADED.format('ds', '')}{SCORE}", False),
        (
            f"{ROWS}prompts = [p for _, p in sorted(enumerate(prompts), key=len)]{ANSWERS}{SCORE}",
            False,
        ),
        (
            f"{ROWS}names = sorted(prompts)\nfor a, b in zip(names, prompts): print(a, b){ANSWERS}",
            False,
        ),
    ],
)
def test_answers_in_another_order(text: str, found: bool, tmp_path: Path) -> None:
    assert codes("import json\n" + text, tmp_path, "SRC029") == ["SRC029e"] * found


SERVER = """
import json
from concurrent.futures import ThreadPoolExecutor, as_completed
from openai import OpenAI
client = OpenAI()
rows = [json.loads(line) for line in open("test.jsonl")]

def ask(text):
    return client.chat.completions.create(model="m", messages=[text]).choices[0].message.content

pool = ThreadPoolExecutor(8)
futures = [pool.submit(ask, row["prompt"]) for row in rows]
answers = {0}
gold = [row["answer"] for row in rows]
hits = sum(a == g for a, g in zip(answers, gold))
"""
FRAME = """
import pandas as pd
from vllm import LLM
frame = pd.read_csv("test.csv")
asked = {0}
outputs = LLM("out").generate(asked["prompt"].tolist())
frame["prediction"] = [output.outputs[0].text for output in outputs]
"""
PREDICTED = """
trainer = Trainer(model, TrainingArguments("out", {0}))
texts = tok.batch_decode(trainer.predict(ds).predictions)
hits = sum(a == g for a, g in zip(texts, ds["answer"]))
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SERVER.format("[future.result() for future in as_completed(futures)]"), True),
        (FRAME.format("frame.sort_values('length')"), True),
        (PREDICTED.format("group_by_length=True"), True),
        (PREDICTED.format("train_sampling_strategy='group_by_length'"), True),
        (SERVER.format("[future.result() for future in futures]"), False),
        (SERVER.format("list(pool.map(ask, [row['prompt'] for row in rows]))"), False),
        (FRAME.format("frame"), False),
        (
            "import pandas as pd\n"
            + FRAME.format("frame").replace('"test.csv")', '"test.csv").sort_values("length")'),
            False,
        ),
        (PREDICTED.format("seed=1"), False),
    ],
)
def test_orders_of_servers_frames_and_trainers(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC029") == ["SRC029e"] * found


COLLATED = """
from torch.utils.data import DataLoader

def collate(rows):
    return rows, tok([row["text"] for row in rows], padding={0}, max_length=4096, return_tensors="pt")

for rows, batch in DataLoader(ds, batch_size=8, collate_fn=collate):
    batch = batch.to("cuda")
    model.generate(**batch, max_new_tokens=9)
"""
PADDED = "b = tok(texts, padding='max_length', {0}return_tensors='pt')\n{1}.generate(**b, max_new_tokens=9)\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (COLLATED.format("'max_length'"), True),
        (PADDED.format("max_length=2048, ", "model"), True),
        (PADDED.format("", "model"), True),
        (PADDED.format("max_length=2048, ", "model").replace("**b", "b['input_ids']"), True),
        (COLLATED.format("True"), False),
        (PADDED.format("max_length=64, ", "model"), False),
        ("model = torch.compile(model)\n" + PADDED.format("max_length=2048, ", "model"), False),
        (
            "b = tok(texts, padding='max_length', max_length=2048)\nmodel(**b).loss.backward()\n",
            False,
        ),
    ],
)
def test_prompts_padded_to_a_fixed_length(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC030") == ["SRC030w"] * found


PLAIN = "trainer = Trainer(model=model, train_dataset=ds)\ntrainer.train()\n"


@pytest.mark.parametrize(
    ("text", "command", "found"),
    [
        (PLAIN, "CUDA_VISIBLE_DEVICES=0,1 python train.py\n", True),
        (PLAIN, "export CUDA_VISIBLE_DEVICES=0,1,2\nnohup python3 -u train.py &\n", True),
        (PLAIN, "#SBATCH --gres=gpu:a100:4\nsrun python train.py --lr 1e-5\n", True),
        (PLAIN, "#SBATCH --gpus-per-node=2\npython \\\n  train.py\n", True),
        (f"import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0,1'\n{PLAIN}", "", True),
        (PLAIN, "CUDA_VISIBLE_DEVICES=1 python train.py\n", False),
        (PLAIN, "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py\n", False),
        (PLAIN, "CUDA_VISIBLE_DEVICES=0,1 python -m torch.distributed.run train.py\n", False),
        (PLAIN, "#SBATCH --gres=gpu:4\n#SBATCH --ntasks-per-node=4\nsrun python train.py\n", False),
        (PLAIN, "CUDA_VISIBLE_DEVICES=0,1 python other.py\n", False),
        (PLAIN, "python train.py\n", False),
        (
            f"m = AutoModelForCausalLM.from_pretrained('m', device_map='auto')\n{PLAIN}",
            "CUDA_VISIBLE_DEVICES=0,1 python train.py\n",
            False,
        ),
    ],
)
def test_several_gpus_in_one_process(text: str, command: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(command, encoding="utf-8")
    assert codes(text, tmp_path, "SRC031") == ["SRC031w"] * found


LOADED = "m = AutoModelForCausalLM.from_pretrained('{0}', device_map={1}{2})\n"
ADAPTED = "m = get_peft_model(m, LoraConfig(r=8))\n"
OF_TRL = "from trl import SFTTrainer\n" + ADAPTED
TRAINED = "t = Trainer(model=m, train_dataset=ds)\nt.train()\n"
OWN_LOOP = "opt = torch.optim.AdamW(m.parameters())\nm(**b).loss.backward()\nopt.step()\n"
SPREAD = LOADED.format("Qwen/Qwen3-8B", "'auto'", "") + ADAPTED + TRAINED
FOUR = "export CUDA_VISIBLE_DEVICES=0,1,2,3\npython train.py\n"


@pytest.mark.parametrize(
    ("text", "command", "level"),
    [
        (SPREAD, FOUR, "w"),
        (
            SPREAD.replace("auto", "balanced"),
            "#SBATCH --gres=gpu:a100-80:4\nsrun python train.py\n",
            "w",
        ),
        (
            SPREAD.replace("Trainer", "SFTTrainer"),
            "#PBS -l select=1:ngpus=4\npython train.py\n",
            "w",
        ),
        (SPREAD, '#BSUB -gpu "num=4"\npython train.py\n', "w"),
        (SPREAD, "#SBATCH --gres=gpu:4\naccelerate launch --num_processes 1 train.py\n", "w"),
        (SPREAD.replace(TRAINED, OWN_LOOP), FOUR, "w"),
        (f'"""CUDA_VISIBLE_DEVICES=0,1 python train.py"""\n{SPREAD}', "", "w"),
        ("a = dict(device_map='auto')\n" + SPREAD.replace("device_map='auto'", "**a"), FOUR, "w"),
        (SPREAD.replace("Qwen3-8B", "Qwen3-14B"), "# 4 x A6000\n" + FOUR, "w"),
        (SPREAD.replace("Qwen3-8B", "Qwen3-14B"), FOUR, "i"),
        (OF_TRL + "SFTTrainer(model='Qwen/Qwen3-4B', train_dataset=ds).train()\n", FOUR, "w"),
        (OF_TRL + "SFTTrainer(model='Qwen/Qwen3-32B', train_dataset=ds).train()\n", FOUR, None),
        (SPREAD.replace("Qwen3-8B", "Qwen3-32B"), "# 4 x A6000\n" + FOUR, "i"),
        (SPREAD.replace(ADAPTED, ""), FOUR, "i"),
        (SPREAD.replace("'auto'", "'auto', max_memory={0: '20GB'}"), FOUR, None),
        (SPREAD.replace("'auto'", "{'': 0}"), "CUDA_VISIBLE_DEVICES=0 python train.py\n", None),
        (SPREAD, "CUDA_VISIBLE_DEVICES=2 python train.py\n", None),
        (SPREAD, "python train.py\n", None),
        (SPREAD, "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py\n", None),
        (SPREAD.replace(TRAINED, "m.generate(**b)\n"), FOUR, None),
        (SPREAD.replace("t.train()", "t.evaluate()"), FOUR, None),
        (
            LOADED.format("Qwen/Qwen3-8B", "'auto'", "").replace("m =", "judge =")
            + LOADED.format("Qwen/Qwen3-8B", "None", "")
            + ADAPTED
            + OWN_LOOP,
            FOUR,
            None,
        ),
    ],
)
def test_a_model_that_one_process_spreads(
    text: str, command: str, level: str | None, tmp_path: Path
) -> None:
    # A model that may be too large for one GPU is spread on purpose: a note.
    (tmp_path / "run.sh").write_text(command, encoding="utf-8")
    assert codes(text, tmp_path, "SRC031") == [f"SRC031{level}"] * (level is not None)


SERVES = (
    "m = PeftModel.from_pretrained(model, 'adapter')\n{0}m.generate(**batch, max_new_tokens=9)\n"
)


@pytest.mark.parametrize(
    ("text", "dora", "found"),
    [
        (SERVES.format(""), True, True),
        (SERVES.format("m = m.merge_and_unload()\n"), True, False),
        (SERVES.format(""), False, False),
        (SERVES.format("").replace("'adapter'", "'org/adapter'"), True, False),
    ],
)
def test_an_adapter_with_dora(text: str, dora: bool, found: bool, tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    config = {"peft_type": "LORA", "r": 8, "use_dora": dora}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    assert codes(text, tmp_path, "SRC032") == ["SRC032w"] * found


ASKS_JSON = "prompt = 'Extract all items of the invoice as a JSON list.'\n"
ASKED = "out = model.generate(**batch, max_new_tokens=9, {0})\ntext = tok.decode(out[0])\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (ASKS_JSON + ASKED.format("no_repeat_ngram_size=3"), ["SRC033e"]),
        (
            ASKED.format("no_repeat_ngram_size=3") + "import json\nrow = json.loads(text)\n",
            ["SRC033e"],
        ),
        (
            ASKED.format("repetition_penalty=1.2")
            + "import json\nrow = json.loads(text.strip())\n",
            ["SRC033w"],
        ),
        (ASKS_JSON + "kw = dict(repetition_penalty=1.5)\n" + ASKED.format("**kw"), ["SRC033w"]),
        (
            ASKS_JSON
            + "model.generation_config.no_repeat_ngram_size = 4\n"
            + ASKED.format("num_beams=1"),
            ["SRC033e"],
        ),
        (
            "from vllm import SamplingParams\n"
            + ASKS_JSON
            + "s = SamplingParams(frequency_penalty=0.5)\n",
            ["SRC033w"],
        ),
        (ASKED.format("no_repeat_ngram_size=3"), []),
        (
            ASKED.format("no_repeat_ngram_size=3")
            + "import json\nrow = json.loads(open('a').read())\n",
            [],
        ),
        (ASKS_JSON + ASKED.format("repetition_penalty=1.05"), []),
        (ASKS_JSON + ASKED.format("no_repeat_ngram_size=0"), []),
        ("print('the file must be a JSON list')\n" + ASKED.format("no_repeat_ngram_size=3"), []),
    ],
)
def test_repetition_in_structured_answers(text: str, found: list[str], tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC033") == found


REWARD = """
from datasets import load_dataset
from trl import GRPOTrainer

def reward(completions, solution, **kwargs):
    return [float(a == b) for a, b in zip(completions, solution, strict=True)]

def evaluate(trainer, rows):
    inputs = trainer.processing_class(text=rows["prompt"], return_tensors="pt")
    texts = trainer.processing_class.batch_decode(trainer.model.generate(**inputs))
    return reward([[text] for text in texts], solution=rows["solution"])

rows = load_dataset("x", split="test").shuffle(seed=1)
evaluate(GRPOTrainer(model="m", reward_funcs=reward), rows)
"""


def test_an_order_that_is_not_followed_to_its_rows_is_not_judged(tmp_path: Path) -> None:
    """The answers come from the same shuffled rows, by a keyword that is not followed."""
    assert codes(REWARD, tmp_path, "SRC029") == []
