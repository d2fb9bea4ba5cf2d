"""Which trainings compute in float32 on a GPU, by the trainer, the load and what launches the script."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune

HEAD = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
"""
LOAD = 'model = AutoModelForCausalLM.from_pretrained("org/m-1.5B")\n'
WIDE = 'model = AutoModelForCausalLM.from_pretrained("org/m-1.5B", torch_dtype=torch.float32)\n'
TRAINER = """from transformers import Trainer, TrainingArguments
args = TrainingArguments("o", learning_rate=1e-5{more})
Trainer(model=model, args=args, train_dataset=rows).train()
"""
TRL = """from trl import DPOConfig, DPOTrainer
args = DPOConfig("o"{more})
DPOTrainer(model=model, args=args, train_dataset=rows).train()
"""
LIGHTNING = """import pytorch_lightning as pl
class M(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("org/m-7b-chat")
    def training_step(self, batch, i):
        return self.model(**batch).loss
pl.Trainer(devices=2{more}).fit(M(), loader)
"""
FABRIC = """from lightning.fabric import Fabric
fabric = Fabric(devices=1{more})
model = AutoModelForCausalLM.from_pretrained("org/m-1.5B")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
model, optimizer = fabric.setup(model, optimizer)
for batch in loader:
    fabric.backward(model(**batch).loss)
    optimizer.step()
    optimizer.zero_grad()
"""
LOOP = """model.to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
ACCELERATE = """from accelerate import Accelerator
accelerator = Accelerator({more})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
    optimizer.zero_grad()
"""
OLD = "transformers==4.55.4\n"


def trained(code: str, more: str = "") -> str:
    return HEAD + code.replace("{more}", more)


def found(
    folder: Path, code: str, pins: str = OLD, beside: dict[str, str] | None = None
) -> list[str]:
    (folder / "train.py").write_text(code, encoding="utf-8")
    (folder / "requirements.txt").write_text(pins, encoding="utf-8")
    for name, text in (beside or {}).items():
        (folder / name).write_text(text, encoding="utf-8")
    report = truetune.lint([str(folder / "train.py")], select=["training-computed-in-float32"])
    return [f"{finding.severity}: {finding.message}" for finding in report.findings]


SLOW = {
    "trainer": trained(LOAD + TRAINER),
    "trainer that says no": trained(LOAD + TRAINER, ", bf16=False, fp16=False"),
    "trainer, given dtype": trained(WIDE + TRAINER),
    "trl that says no": trained(LOAD + TRL, ", bf16=False"),
    "lightning": trained(LIGHTNING),
    "lightning of 32 bits": trained(LIGHTNING, ', precision="32-true"'),
    "fabric": trained(FABRIC),
    "loop": trained(LOAD + LOOP),
    "loop with a remark": trained("# TODO: try bf16 autocast\n" + LOAD + LOOP),
    "accelerate that says no": trained(LOAD + ACCELERATE, 'mixed_precision="no"'),
}
SOUND = {
    "trainer in bf16": trained(LOAD + TRAINER, ", bf16=True"),
    "trainer in fp16": trained(LOAD + TRAINER, ", fp16=torch.cuda.is_available()"),
    "trainer with tf32": trained(LOAD + TRAINER, ", tf32=True"),
    "trainer on the CPU": trained(LOAD + TRAINER, ", use_cpu=True"),
    "trainer with open settings": trained(LOAD + TRAINER, ", **settings"),
    "narrow weights": trained(LOAD.replace('")', '", torch_dtype=torch.bfloat16)') + TRAINER),
    "weights as stored": trained(LOAD.replace('")', '", torch_dtype="auto")') + TRAINER),
    "trl": trained(LOAD + TRL),
    "lightning mixed": trained(LIGHTNING, ', precision="bf16-mixed"'),
    "lightning true": trained(LIGHTNING, ', precision="bf16-true"'),
    "lightning on the CPU": trained(LIGHTNING, ', accelerator="cpu"'),
    "lightning with TF32": trained('torch.set_float32_matmul_precision("high")\n' + LIGHTNING),
    "lightning, precision of elsewhere": trained(LIGHTNING, ", precision=args.precision"),
    "lightning that tests": trained(LIGHTNING.replace(".fit(", ".test(")),
    "fabric mixed": trained(FABRIC, ', precision="16-mixed"'),
    "small": trained(LOAD.replace("1.5B", "0.1B") + TRAINER),
    "of unknown size": trained(LOAD.replace("-1.5B", "") + TRAINER),
    "loop with autocast": trained(
        LOAD + LOOP.replace("    loss =", '    with torch.autocast("cuda", torch.bfloat16): loss =')
    ),
    "loop without a GPU": trained(LOAD + LOOP.replace('model.to("cuda")\n', "")),
    "loop, TF32 by backend": trained("torch.backends.cuda.matmul.allow_tf32 = True\n" + LOAD + LOOP),
    "no training": trained(LOAD + 'model.to("cuda")\nmodel.generate(ids)\n'),
    "accelerate mixed": trained(LOAD + ACCELERATE, 'mixed_precision="bf16"'),
    "deepspeed": trained(LOAD + TRAINER, ', deepspeed="ds.json"'),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW)
def test_trainings_without_tensor_cores(tmp_path: Path, name: str) -> None:
    (told,) = found(tmp_path, SLOW[name])
    assert told.startswith("warning: training runs in float32")


@pytest.mark.parametrize("name", SOUND)
def test_trainings_in_another_precision(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, SOUND[name]) == []


def test_accelerate_may_have_settings_outside_of_the_project(tmp_path: Path) -> None:
    (told,) = found(tmp_path, trained(LOAD + ACCELERATE))
    assert told.startswith("info: ")


@pytest.mark.parametrize(
    "beside",
    [
        {"run.sh": "accelerate launch --mixed_precision bf16 train.py\n"},
        {"accelerate.yaml": "distributed_type: MULTI_GPU\nmixed_precision: bf16\n"},
        {"job.sbatch": "srun torchrun train.py --bf16 True\n"},
    ],
)
def test_what_launches_it_has_a_precision(tmp_path: Path, beside: dict[str, str]) -> None:
    assert found(tmp_path, trained(LOAD + TRAINER), beside=beside) == []


@pytest.mark.parametrize("pins", ["transformers>=5.1\n", "torch==2.7.1\n"])
def test_since_transformers_5_weights_keep_their_dtype(tmp_path: Path, pins: str) -> None:
    assert found(tmp_path, trained(LOAD + TRAINER), pins) == []
    (told,) = found(tmp_path, trained(WIDE + TRAINER), pins)
    assert told.startswith("warning: ")
