"""The model that an adapter is put on, where its name is a default of the environment or of an option."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.source.script_puts_adapter_on_another_base import (
    ScriptPutsAdapterOnAnotherBase,
)
from truetune.source.parsed_source_file import read_module

TRAINED = "mistralai/Mistral-7B-Instruct-v0.3"
HEAD = """import argparse, os
from pathlib import Path
from peft import PeftModel
from transformers import AutoModelForCausalLM as M
"""
OPTIONS = """parser = argparse.ArgumentParser()
parser.add_argument("--base", default="{name}")
parser.add_argument("--adapter", default="adapter")
args = parser.parse_args()
model = PeftModel.from_pretrained(M.from_pretrained(args.base), args.adapter)
"""
READ = """BASE = {read}
ADAPTER = Path("adapter")
model = PeftModel.from_pretrained(M.from_pretrained(BASE), str(ADAPTER)).merge_and_unload()
"""


def severities(folder: Path, code: str) -> list[str]:
    """How severe the findings on a script are that puts an adapter on a model."""
    (folder / "adapter").mkdir()
    config = {"base_model_name_or_path": TRAINED, "peft_type": "LORA"}
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    path = folder / "merge.py"
    path.write_text(HEAD + code, encoding="utf-8")
    return [
        finding.severity for finding in ScriptPutsAdapterOnAnotherBase(read_module(path)).findings()
    ]


@pytest.mark.parametrize(
    "code",
    [
        OPTIONS.format(name="mistralai/Mistral-7B-Instruct-v0.1"),
        READ.format(read='os.environ.get("BASE", "mistralai/Mistral-7B-Instruct-v0.2")'),
        READ.format(read='os.getenv("BASE", "mistralai/Mistral-7B-v0.3")'),
        READ.format(read='"mistralai/Mistral-7B-v0.3"'),
        READ.format(read='str("mistralai/Mixtral-8x7B-Instruct-v0.1")'),
    ],
)
def test_another_base_is_an_error(code: str, tmp_path: Path) -> None:
    assert severities(tmp_path, code) == ["error"]


@pytest.mark.parametrize(
    "code",
    [
        OPTIONS.format(name=TRAINED),
        READ.format(read=f'os.environ.get("BASE", "{TRAINED}")'),
        READ.format(read='os.environ["BASE"]'),
        READ.format(read='os.getenv("BASE")'),
        READ.format(read='os.getenv("BASE", "unsloth/mistral-7b-instruct-v0.3-bnb-4bit")'),
    ],
)
def test_the_same_base_and_an_unknown_one_are_silent(code: str, tmp_path: Path) -> None:
    assert severities(tmp_path, code) == []
