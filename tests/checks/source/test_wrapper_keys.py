"""What is saved and loaded is not what was trained: names of a wrapper, a base that nothing touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

TRAIN = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModelForCausalLM
model = DDP(AutoModelForCausalLM.from_pretrained("some/base"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for epoch in range(3):
    for batch in batches:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save({}, f"ckpt/epoch{{epoch}}.pt")
"""
ASK = """
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("some/base")
state = torch.load("{}")
{}
"""
LENIENT = "model.load_state_dict(state, strict=False)"
OF_ENTRY = "model.load_state_dict(state['net'], strict=False)"
STRIPPED = "state = {k.replace('module.', ''): v for k, v in state.items()}\n" + LENIENT


@pytest.mark.parametrize(
    ("saved", "file", "load", "count"),
    [
        ("model.state_dict()", "ckpt/epoch2.pt", LENIENT, 1),
        ("model.module.state_dict()", "ckpt/epoch2.pt", LENIENT, 0),
        ("model.state_dict()", "ckpt/epoch2.pt", "model.load_state_dict(state)", 0),
        ("model.state_dict()", "ckpt/epoch2.pt", STRIPPED, 0),
        ("model.state_dict()", "vision/tower.bin", LENIENT, 0),
        ("{'net': model.state_dict()}", "ckpt/epoch2.pt", OF_ENTRY, 1),
        ("{'net': model.module.state_dict()}", "ckpt/epoch2.pt", OF_ENTRY, 0),
        ("{'ema': model.state_dict(), 'net': other}", "ckpt/epoch2.pt", OF_ENTRY, 0),
        ("model.state_dict()", "ckpt/epoch2.pt", "model.load_state_dict(state, False)", 1),
    ],
)
def test_names_of_a_wrapper(saved: str, file: str, load: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(saved), encoding="utf-8")
    (tmp_path / "ask.py").write_text(ASK.format(file, load), encoding="utf-8")
    findings = lint([tmp_path / "ask.py"], select=["wrapper-keys-not-loaded"]).findings
    assert len(findings) == count


NAMED = """
import argparse, sys
import torch
from transformers import AutoModelForCausalLM
parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint", required=True)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("{}").to("cuda")
state = torch.load({}, map_location="cpu")
{}
"""
OF_MODEL = "model.load_state_dict(state['model'], strict=False)"
WRAPPED_ENTRY, PLAIN_ENTRY = "{'model': model.state_dict()}", "{'model': model.module.state_dict()}"


@pytest.mark.parametrize(
    ("saved", "base", "file", "load", "count"),
    [
        (WRAPPED_ENTRY, "some/base", "sys.argv[1]", OF_MODEL, 1),
        (WRAPPED_ENTRY, "some/base", "args.checkpoint", OF_MODEL, 1),
        (WRAPPED_ENTRY, "some/base", "find_newest()", OF_MODEL, 0),
        (WRAPPED_ENTRY, "other/base", "sys.argv[1]", OF_MODEL, 0),
        (PLAIN_ENTRY, "some/base", "sys.argv[1]", OF_MODEL, 0),
        (WRAPPED_ENTRY, "some/base", "sys.argv[1]", "model.load_state_dict(state['model'])", 0),
        (WRAPPED_ENTRY, "some/base", "sys.argv[1]", OF_ENTRY, 0),
        ("model.state_dict()", "some/base", "sys.argv[1]", LENIENT, 0),
    ],
)
def test_a_file_that_the_command_names(
    saved: str, base: str, file: str, load: str, count: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(saved), encoding="utf-8")
    (tmp_path / "ask.py").write_text(NAMED.format(base, file, load), encoding="utf-8")
    findings = lint([tmp_path / "ask.py"], select=["wrapper-keys-not-loaded"]).findings
    assert len(findings) == count
    (tmp_path / "train_plain.py").write_text(TRAIN.format(PLAIN_ENTRY), encoding="utf-8")
    # The command may name a file of the other training.
    assert not lint([tmp_path / "ask.py"], select=["wrapper-keys-not-loaded"]).findings


COMPILED = """
import os
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("some/base").cuda()
{wrap}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in batches:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.save({saved}, f"{{out}}/model.pt")
"""
SAMPLE = """
import os, sys
from pathlib import Path
import torch
from transformers import AutoConfig, AutoModelForCausalLM
folder = sys.argv[1]
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("some/base"))
state = torch.load({file}, map_location="cpu")
{load}
"""
COMPILE, LORA = "model = torch.compile(model)", "model = get_peft_model(model, LoraConfig())"
PARTS = "{'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'step': 3}"


@pytest.mark.parametrize(
    ("wrap", "saved", "file", "load", "said"),
    [
        (COMPILE, "model.state_dict()", 'f"{folder}/model.pt"', LENIENT, "_orig_mod."),
        (COMPILE, "model.state_dict()", 'os.path.join(folder, "model.pt")', LENIENT, "_orig_mod."),
        (COMPILE, "model.state_dict()", 'Path(folder) / "model.pt"', LENIENT, "_orig_mod."),
        (COMPILE, "model.state_dict()", 'folder + "/model.pt"', LENIENT, "stay random"),
        (LORA, "model.state_dict()", 'f"{folder}/model.pt"', LENIENT, "base_model.model."),
        ("", PARTS, 'f"{folder}/model.pt"', LENIENT, "parts (model, optimizer, step)"),
        (
            "",
            PARTS,
            'f"{folder}/model.pt"',
            "model.load_state_dict(state['model'], strict=False)",
            "",
        ),
        ("", "model.state_dict()", 'f"{folder}/model.pt"', LENIENT, ""),
        (COMPILE, "model._orig_mod.state_dict()", 'f"{folder}/model.pt"', LENIENT, ""),
        (COMPILE, "model.state_dict()", 'f"{folder}/other.pt"', LENIENT, ""),
        (COMPILE, "model.state_dict()", 'f"{folder}{name}"', LENIENT, ""),
        (COMPILE, "model.state_dict()", 'f"{folder}/model.pt"', "model.load_state_dict(state)", ""),
        (
            COMPILE,
            "model.state_dict()",
            'f"{folder}/model.pt"',
            "state = {k.removeprefix('_orig_mod.'): v for k, v in state.items()}\n" + LENIENT,
            "",
        ),
        (LORA, "model.merge_and_unload().state_dict()", 'f"{folder}/model.pt"', LENIENT, ""),
    ],
)
def test_names_that_fit_no_weight(
    wrap: str, saved: str, file: str, load: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(COMPILED.format(wrap=wrap, saved=saved), encoding="utf-8")
    (tmp_path / "sample.py").write_text(SAMPLE.format(file=file, load=load), encoding="utf-8")
    findings = lint([tmp_path / "sample.py"], select=["wrapper-keys-not-loaded"]).findings
    assert [said in one.message for one in findings] == ([True] if said else [])


MERGE = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
other = AutoModelForCausalLM.from_pretrained("{}")
tuned = PeftModel.from_pretrained(base, "adapter").merge_and_unload()
{}
"""
OF_HUB, OF_FOLDER = "Qwen/Qwen2.5-7B-Instruct", "out/merged"


@pytest.mark.parametrize(
    ("name", "save", "count"),
    [
        (OF_HUB, "other.save_pretrained('out')", 1),
        (OF_HUB, "other.to('cpu').eval()\nother.push_to_hub('me/tuned')", 1),
        (OF_HUB, "tuned.save_pretrained('out')", 0),
        (OF_HUB, "base.save_pretrained('out')", 0),
        (OF_HUB, "other.save_pretrained('base')\ntuned.save_pretrained('out')", 0),
        (OF_HUB, "other.load_state_dict(tuned.state_dict())\nother.save_pretrained('out')", 0),
        (OF_FOLDER, "other.save_pretrained('out')", 0),
    ],
)
def test_a_base_that_is_saved_as_the_tuned_model(
    name: str, save: str, count: int, tmp_path: Path
) -> None:
    path = tmp_path / "merge.py"
    path.write_text(MERGE.format(name, save), encoding="utf-8")
    assert len(lint([path], select=["untouched-base-saved"]).findings) == count
