"""`truetune rehearse`: a script's model becomes a miniature as it is loaded, and nothing of the run is left behind."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.preloaded import commands_python
from truetune.cli import truetune_group
from truetune.demo import TOKENIZER
from truetune.errors import UsageError
from truetune.rehearsal.find_command_to_rehearse import find_training_command

SCRIPT = """
import sys
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.bfloat16, device_map="auto",
                                             attn_implementation="flash_attention_2")
tokenizer = AutoTokenizer.from_pretrained("model")
rows = [{"messages": [{"role": "user", "content": f"Where is box {i}?"},
                      {"role": "assistant", "content": f"Box {i} is on shelf {i + 3} <|im_end|> Or so."}]}
        for i in range(1000)]
arguments = SFTConfig("out", bf16=True, optim="adamw_8bit", report_to="wandb", push_to_hub=True, deepspeed=None,
                      per_device_train_batch_size=2)
data = Dataset.from_list(rows).map(lambda row: row).select(range(900))
SFTTrainer(model, arguments, train_dataset=data, processing_class=tokenizer).train()
raise SystemExit("the training was not stopped")
"""


def rehearse(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`truetune rehearse`: the command's modules are loaded already, those of the program are not."""
    command = [
        commands_python(),
        "-m",
        "truetune",
        "rehearse",
        "--laws",
        "none",
        "--rows",
        "3",
        *arguments,
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def model(folder: Path) -> None:
    """A folder of tokenizer and config.json; no weights."""
    target = folder / "model"
    target.mkdir()
    for file in TOKENIZER.iterdir():
        target.joinpath(file.name).write_bytes(file.read_bytes())
    config = json.loads(target.joinpath("config.json").read_text())
    big = {
        "num_hidden_layers": 80,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "quantization_config": {"quant_method": "bitsandbytes"},
    }
    target.joinpath("config.json").write_text(json.dumps({**config, **big}))


def test_a_script(tmp_path: Path) -> None:
    model(tmp_path)
    tmp_path.joinpath("train.py").write_text(SCRIPT)
    done = rehearse(tmp_path, "--html", "report.html", "--select", "REC", "train.py")
    assert done.returncode == 1, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "report.html", "train.py"]
    said = " ".join(done.stderr.split())
    assert "LlamaForCausalLM, 2 layers of width 128" in said
    assert "data sets are cut to their first 256 rows" in said
    assert "attention flash_attention_2 needs a GPU" in said
    assert "error[REC002] stops-too-early: 3 of 3 answers stop before their end" in said


def test_a_script_that_ends_before(tmp_path: Path) -> None:
    done = rehearse(tmp_path, "--", sys.executable, "-c", "import sys; print('hello'); sys.exit(5)")
    assert (done.returncode, done.stdout) == (5, "hello\n")
    assert done.stderr.startswith(
        "truetune: nothing was rehearsed: no transformers Trainer reached train() before the "
    )
    assert "before the command ended with exit code 5; the command ran as it is" in done.stderr


LOOP = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM

model = {model}
optimizer = torch.optim.AdamW(model.parameters())
ids = torch.tensor([[1, 2, 3]])
model(ids)[0].sum().backward()
optimizer.step()
print("trained")
"""


def test_a_loop_of_its_own_ends_before_its_first_step(tmp_path: Path) -> None:
    model(tmp_path)
    tmp_path.joinpath("train.py").write_text(
        LOOP.format(model='AutoModelForCausalLM.from_pretrained("model")')
    )
    done = rehearse(tmp_path, "train.py")
    assert (done.returncode, done.stdout) == (3, "")
    assert (
        "with a miniature of the model, was ended before its optimizer's first step" in done.stderr
    )
    assert "truetune.audit(model, loader, tokenizer, given=rows)" in done.stderr


def test_a_side_model_of_another_kind_is_trained(tmp_path: Path) -> None:
    """Its loop is no fine-tuning that could be rehearsed, and a Trainer may follow."""
    tmp_path.joinpath("train.py").write_text(LOOP.format(model="torch.nn.Embedding(4, 2)"))
    done = rehearse(tmp_path, "train.py")
    assert (done.returncode, done.stdout) == (3, "trained\n")
    assert (
        "the command ran as it is, with miniatures for models of transformers. For a loop of"
        " your own" in done.stderr
    )


PLAIN = """
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from truetune.collate import PaddingCollator

rows = [{"input_ids": [5, 6, 7 + i, 3], "labels": [-100, 6, 7 + i, 3]} for i in range(8)]
arguments = TrainingArguments("out", remove_unused_columns=False)
collator = PaddingCollator.of(AutoTokenizer.from_pretrained("model"))
Trainer(AutoModelForCausalLM.from_pretrained("model"), arguments, collator, Dataset.from_list(rows)).train()
"""


def test_nothing_recited_is_not_judged(tmp_path: Path) -> None:
    model(tmp_path)
    tmp_path.joinpath("train.py").write_text(PLAIN)
    done = rehearse(tmp_path, "train.py")
    assert done.returncode == 3, done.stderr
    said = " ".join(done.stderr.split())
    assert "no findings" not in said
    assert (
        "not judged: recitation: nothing was recited: there is no tokenizer; give the Trainer"
        in said
    )
    assert re.search(
        r"not judged, \d+ checks examined and fine, \d+ not judged(, \d+ about other things)?"
        r" \(-v lists them\) · 8 lines",
        said,
    )


def test_own_settings(tmp_path: Path) -> None:
    model(tmp_path)
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Where is box {i}?"},
                {"role": "assistant", "content": f"Box {i} is on shelf {i + 3}."},
            ]
        }
        for i in range(8)
    ]
    tmp_path.joinpath("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tmp_path.joinpath("truetune.yaml").write_text("data: rows.jsonl\ntokenizer: model\n")
    done = rehearse(tmp_path, "truetune.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("yes      yes") == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "base_model: m\ndatasets:\n  - path: d.jsonl\n    type: chat_template\n",
            "axolotl is not installed here",
        ),
        (
            (
                "stage: sft\nmodel_name_or_path: m\ndataset: d\ntemplate: qwen3\nfinetuning_type:"
                " full\n"
            ),
            "llamafactory-cli",
        ),
        ("compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\n", "expected"),
    ],
)
def test_settings_of_others(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(Exception, match=said):
        find_training_command((str(path),), tmp_path)
    path.with_name("llamafactory-cli").touch()
    path.with_name("axolotl").touch()
    if "expected" not in said:
        command = find_training_command((str(path),), tmp_path)
        assert command[1:3] == ["train", str(path)]
        assert str(tmp_path / "out") in " ".join(command)


def test_what_cannot_be_rehearsed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        find_training_command(("missing.yaml",), tmp_path)
    assert find_training_command(("train.py", "--lr", "1"), tmp_path) == [
        sys.executable,
        "train.py",
        "--lr",
        "1",
    ]
    made = CliRunner().invoke(truetune_group, ["rehearse", "--help"])
    assert "before any weight is downloaded" in made.output
