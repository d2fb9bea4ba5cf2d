"""Files of settings that a script's parser reads into a class of a trainer's arguments."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

import truetune

TRL = """from dataclasses import dataclass
from transformers import HfArgumentParser
from trl import {name}

@dataclass
class Paths:
    model_name: str = "org/model"
    rows: str = "rows"

paths, args = HfArgumentParser((Paths, {name})).{call}
"""
OWN_CLASS = """import sys
from transformers import HfArgumentParser, TrainingArguments
from settings_of_ours import ModelPart

class Arguments(TrainingArguments):
    margin: float = 0.1

PARTS = [ModelPart, Arguments]
parser = HfArgumentParser(PARTS)
part, args = parser.parse_json_file(sys.argv[1])
"""
KEYS = "model_name: org/model\nrows: r\noutput_dir: out\nlearning_rate: {rate}\nnum_train_epochs: 1\nseed: 3\n"


def judged(folder: Path, script: str, name: str, settings: str) -> truetune.Report:
    """The report on a folder of a script and a file of settings."""
    (folder / "train.py").write_text(script, encoding="utf-8")
    (folder / name).write_text(settings, encoding="utf-8")
    return truetune.check([str(folder)], allow_unjudged=True)


def codes(report: truetune.Report) -> set[str]:
    return {finding.code for finding in report.findings if finding.severity != "info"}


@pytest.mark.parametrize(
    ("script", "name", "settings", "code"),
    [
        (TRL.format(name="CPOConfig", call='parse_yaml_file("run.yaml")'), "run.yaml",
         KEYS.format(rate=5e-7) + "loss_type: simpo\nbeta: 0.05\n", "CFG016"),
        (TRL.format(name="DPOConfig", call='parse_yaml_file(yaml_file="run.yml")'), "run.yml",
         KEYS.format(rate=5e-7) + "beta: 0\n", "CFG016"),
        (TRL.format(name="ORPOConfig", call='parse_yaml_file("run.yaml")'), "run.yaml",
         KEYS.format(rate=5e-6) + "beta: 0.0001\n", "CFG016"),
        (TRL.format(name="KTOConfig", call='parse_yaml_file("run.yaml")'), "run.yaml",
         KEYS.format(rate=0), "CFG010"),
        (OWN_CLASS, "args.json",
         '{"base": "org/m", "margin": 1, "output_dir": "o", "learning_rate": 0, "seed": 1}', "CFG010"),
    ],
)  # fmt: skip
def test_settings_are_judged_as_the_class_that_the_script_names(
    tmp_path: Path, script: str, name: str, settings: str, code: str
) -> None:
    report = judged(tmp_path, script, name, settings)
    found = [finding for finding in report.findings if finding.code == code]
    assert found, codes(report)
    assert found[0].cases[0].file == str(tmp_path / name)


@pytest.mark.parametrize(
    ("script", "name", "settings"),
    [
        (TRL.format(name="CPOConfig", call='parse_yaml_file("run.yaml")'), "run.yaml",
         KEYS.format(rate=5e-7) + "loss_type: simpo\nbeta: 2.5\nsimpo_gamma: 1.2\n"),
        (TRL.format(name="CPOConfig", call='parse_yaml_file("run.yaml")'), "run.yaml",
         KEYS.format(rate=5e-7) + "beta: 0.1\n"),
        (TRL.format(name="DPOConfig", call='parse_yaml_file("run.yaml")'), "run.yaml",
         KEYS.format(rate=5e-7) + "beta: 0.1\n"),
        (OWN_CLASS, "args.json",
         '{"base": "org/m", "margin": 1, "output_dir": "o", "learning_rate": 2e-5, "seed": 1}'),
    ],
)  # fmt: skip
def test_sound_settings_are_left_alone(
    tmp_path: Path, script: str, name: str, settings: str
) -> None:
    report = judged(tmp_path, script, name, settings)
    assert not codes(report) & {"CFG010", "CFG016", "CFG001"}
    assert not any("was not read" in one.reason for one in report.not_judged)


COMMANDED = """from dataclasses import dataclass
import transformers
from transformers import AutoModelForCausalLM, Trainer
{imports}

@dataclass
class ModelArguments:
    model_name_or_path: str = "facebook/opt-125m"
    {field}: float = 0.5

@dataclass
class TrainingArguments(transformers.TrainingArguments):
    model_max_length: int = 512

def train():
    parser = transformers.HfArgumentParser((ModelArguments, TrainingArguments))
    names, args = parser.parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(names.model_name_or_path)
    {adapter}
    Trainer(model, args, train_dataset=rows()).train()
"""
COMMAND = """RATE={rate}
torchrun --nproc_per_node 4 train.py --model_name_or_path org/model-3b --output_dir out \\
  --bf16 True --no_remove_unused_columns --learning_rate $RATE {more} --model_max_length 256 > run.log 2>&1
"""


def commanded(
    folder: Path, rate: object, *, more: str = "", lora: bool = False, field: str = "margin"
) -> truetune.Report:
    """The report on a script whose arguments a shell script gives."""
    adapter = (
        'model = get_peft_model(model, LoraConfig(r=8, task_type="CAUSAL_LM"))' if lora else ""
    )
    imports = "from peft import LoraConfig, get_peft_model" if lora else ""
    script = COMMANDED.format(imports=imports, adapter=adapter, field=field)
    return judged(folder, script, "run.sh", COMMAND.format(rate=rate, more=more))


def test_options_of_the_command_are_the_settings_of_the_class(tmp_path: Path) -> None:
    report = commanded(tmp_path, "5e-3", more="--warmup_steps 500 --max_steps 60")
    found = {finding.code: finding for finding in report.findings}
    assert {"CFG015", "CFG004"} <= found.keys()
    case = found["CFG015"].cases[0]
    assert (case.file, case.line) == (str(tmp_path / "run.sh"), 3)


class Commanded(NamedTuple):
    """A script and the command that starts it, as `commanded` takes them."""

    rate: str
    more: str = ""
    lora: bool = False
    field: str = "margin"


@pytest.mark.parametrize(
    "run",
    [
        Commanded("2e-5"),
        Commanded("5e-4", lora=True),
        Commanded("$1"),
        # The rate is the script's own, and the trainer keeps its default.
        Commanded("5e-3", field="learning_rate"),
        # A file of settings decides too.
        Commanded("5e-3", more="--config run.yaml"),
    ],
)
def test_sound_options_are_left_alone(tmp_path: Path, run: Commanded) -> None:
    report = commanded(tmp_path, run.rate, more=run.more, lora=run.lora, field=run.field)
    assert not codes(report) & {"CFG015", "CFG010", "CFG004", "CFG001"}


def test_settings_that_no_class_is_seen_to_take_are_named(tmp_path: Path) -> None:
    script = "import our_library\nour_library.train('run.yaml')\n"
    report = judged(tmp_path, script, "run.yaml", KEYS.format(rate=2e-5) + "our_key: 1\n")
    told = [one for one in report.not_judged if one.place == str(tmp_path / "run.yaml")]
    assert [one.always_told for one in told] == [True]
    assert told[0].unlock


def test_other_yaml_is_no_settings_of_a_training(tmp_path: Path) -> None:
    report = judged(tmp_path, "print(1)\n", "service.yaml", "name: app\nport: 1\nseed: 2\n")
    assert not any(one.always_told for one in report.not_judged)


@pytest.mark.parametrize(
    ("command", "script", "fires"),
    [
        ("scripts/run.sh", "src/train.py", True),
        ("run.sh", "src/train.py", True),
        ("scripts/run.sh", "train.py", True),
        # Another script of that name.
        ("scripts/run.sh", "other/train.py", False),
    ],
)
def test_commands_in_the_folders_around_a_script(
    tmp_path: Path, command: str, script: str, fires: bool
) -> None:
    for file in (command, script):
        (tmp_path / file).parent.mkdir(exist_ok=True)
    started = script.replace("other", "src")
    (tmp_path / command).write_text(
        COMMAND.format(rate="5e-3", more="").replace("train.py", started)
    )
    (tmp_path / script).write_text(COMMANDED.format(imports="", adapter="", field="margin"))
    report = truetune.check([str(tmp_path)], allow_unjudged=True)
    assert ("CFG015" in codes(report)) is fires
