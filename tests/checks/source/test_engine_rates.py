"""DeepSpeed engines that train at the rate of their settings, beside a rate of the script that nothing reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint

PARSER = """\
import argparse, json
import deepspeed
from pathlib import Path
from transformers import AutoModelForCausalLM
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=1e-5)
p.add_argument("--ds", default="zero.json")
p.add_argument("--debug", action="store_true")
args = p.parse_args()
model = AutoModelForCausalLM.from_pretrained("m")
"""
ENGINE = "engine, opt, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={})\n"
ENGINE_OF_ARGS = ENGINE.replace("model=model,", "args=args, model=model,", 1)
OPENED = "with open(args.ds) as f:\n    made = json.load(f)\n"
FILE = {"optimizer": {"type": "AdamW", "params": {"lr": 0.001}}, "zero_optimization": {"stage": 2}}
AS_SAID = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}
WITHOUT_RATE = {"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.95]}}}
AUTOMATIC = {"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}
IN_FUNCTION = """\
def settings(path):
    return json.loads(Path(path).read_text())
"""
IN_CODE = (
    'made = {"optimizer": {"type": "Adam", "params": {"lr": 2e-4}}, "bf16": {"enabled": True}}\n'
)
FIELDS = """\
import json
import deepspeed
from dataclasses import dataclass
from transformers import AutoModelForCausalLM
@dataclass
class Options:
    learning_rate: float = 2e-6
    rows: str = "rows.npy"
options = Options()
model = AutoModelForCausalLM.from_pretrained("m")
"""
CONSTANT = """\
import json
import deepspeed
from transformers import AutoModelForCausalLM
LEARNING_RATE = 1e-5
model = AutoModelForCausalLM.from_pretrained("m")
"""
NAMED = 'made = json.load(open("zero.json"))\n'
GIVEN = ENGINE.format("made")


@pytest.mark.parametrize(
    ("script", "file", "found"),
    [
        (PARSER + OPENED + GIVEN, FILE, 1),
        (PARSER + 'print("args:", json.dumps(vars(args)))\n' + OPENED + GIVEN, FILE, 1),
        (PARSER + ENGINE_OF_ARGS.format("args.ds"), FILE, 1),
        (PARSER + IN_FUNCTION + "made = settings(args.ds)\n" + GIVEN, FILE, 1),
        (PARSER + IN_CODE + GIVEN, {}, 1),
        (PARSER + OPENED + GIVEN, WITHOUT_RATE, 1),
        (PARSER + OPENED + GIVEN + 'print(opt.param_groups[0]["lr"])\n', FILE, 1),
        (FIELDS + NAMED + GIVEN, FILE, 1),
        (CONSTANT + NAMED + GIVEN, FILE, 1),
        # The same rate, or one that somebody fills in.
        (PARSER + OPENED + GIVEN, AS_SAID, 0),
        (PARSER + OPENED + GIVEN, AUTOMATIC, 0),
        # 0 stands for the rate of the settings.
        (PARSER.replace("1e-5", "0.0") + OPENED + GIVEN, FILE, 0),
        # The script writes its rate into the settings, or into the groups.
        (PARSER + OPENED + 'made["optimizer"]["params"]["lr"] = args.lr\n' + GIVEN, FILE, 0),
        (PARSER + OPENED + 'made["optimizer"]["params"].update(vars(args))\n' + GIVEN, FILE, 0),
        (PARSER + OPENED + GIVEN + "for g in opt.param_groups:\n    g['lr'] = 1e-5\n", FILE, 0),
        (PARSER + IN_CODE.replace("2e-4", "args.lr") + GIVEN, {}, 0),
        # An optimizer, or a schedule, of its own.
        (
            PARSER
            + "import torch\nadam = torch.optim.AdamW(model.parameters(), lr=args.lr)\n"
            + OPENED
            + GIVEN.replace("model=model,", "model=model, optimizer=adam,"),
            FILE,
            0,
        ),
        # Settings without an optimizer, and options that code which is not seen takes.
        (PARSER + OPENED + GIVEN, {"zero_optimization": {"stage": 2}}, 0),
        (PARSER + "from ours import fill\n" + OPENED + "fill(args, made)\n" + GIVEN, FILE, 0),
        (PARSER + OPENED + "run = dict(rate=args.lr)\n" + GIVEN, FILE, 0),
        (CONSTANT + NAMED + "made = fill(made, LEARNING_RATE)\n" + GIVEN, FILE, 0),
    ],
)
def test_the_rate_of_an_engine(
    script: str, file: dict[str, object], found: int, tmp_path: Path
) -> None:
    (tmp_path / "go.py").write_text(script, encoding="utf-8")
    (tmp_path / "zero.json").write_text(json.dumps(file, indent=1), encoding="utf-8")
    assert len(lint([tmp_path / "go.py"], select=["SRC420"]).findings) == found


@pytest.mark.parametrize(("rate", "is_found"), [("3e-5", True), ("1e-3", False)])
def test_a_command_names_both(rate: str, is_found: bool, tmp_path: Path) -> None:
    (tmp_path / "go.py").write_text(PARSER + OPENED + GIVEN, encoding="utf-8")
    (tmp_path / "other.json").write_text(json.dumps(FILE, indent=1), encoding="utf-8")
    (tmp_path / "zero.json").write_text(json.dumps(AS_SAID), encoding="utf-8")
    command = tmp_path / "run.sh"
    command.write_text(f"deepspeed go.py --ds other.json --lr {rate}\n", encoding="utf-8")
    findings = lint([tmp_path / "go.py"], select=["SRC420"]).findings
    assert bool(findings) == is_found
    if not is_found:
        return
    (finding,) = findings
    assert finding.severity == "error"
    assert "0.001 of other.json (33.3 times as high)" in finding.message
    assert [Path(str(case.file)).name for case in finding.cases] == [
        "other.json",
        "go.py",
        "run.sh",
    ]


YAML = "model: org/m\nlr: 1.0e-5\ndeepspeed:\n  optimizer: {type: Adam, params: {lr: RATE}}\n"
READ = """\
import deepspeed, yaml
from transformers import AutoModelForCausalLM
cfg = yaml.safe_load(open("train.yaml"))
model = AutoModelForCausalLM.from_pretrained(cfg["model"])
engine, opt, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=cfg["deepspeed"])
"""


@pytest.mark.parametrize(
    ("rate", "more", "found"),
    [
        ("3.0e-3", "", 1),
        ("1.0e-5", "", 0),
        ("3.0e-3", "use(cfg['lr'])\n", 0),
        ("3.0e-3", "fill(cfg)\n", 0),
    ],
)
def test_both_rates_stand_in_one_file(rate: str, more: str, found: int, tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text(YAML.replace("RATE", rate), encoding="utf-8")
    (tmp_path / "go.py").write_text(READ + more, encoding="utf-8")
    assert len(lint([tmp_path / "go.py"], select=["SRC420"]).findings) == found
