"""Merged weights that get the adapter again which is in them: over scripts, settings and commands."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune

RULES = ["server-applies-the-adapter-twice", "adapter-applied-twice"]
MERGE = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
ADAPTER, MERGED = "out/lora", "out/merged"
base = AutoModelForCausalLM.from_pretrained("some/base")
model = PeftModel.from_pretrained(base, ADAPTER)
model = model.merge_and_unload()
model.save_pretrained(MERGED)
"""
MERGE_BY_OPTIONS = """
import argparse
from peft import PeftModel
from transformers import AutoModelForCausalLM
parser = argparse.ArgumentParser()
parser.add_argument("--adapter")
parser.add_argument("--output")
args = parser.parse_args()
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("some/base"), args.adapter)
model.merge_and_unload().save_pretrained(args.output)
"""
ASK = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("BASE")
model = PeftModel.from_pretrained(model, "ADAPTER")
model.generate(**batch)
"""
EXPORT = """
model_name_or_path: some/base
adapter_name_or_path: out/lora
template: qwen
export_dir: out/merged
"""
SERVE = "vllm serve out/merged --enable-lora --lora-modules tuned=out/lora\n"
BY_FACTORY = (
    "llamafactory-cli export --model_name_or_path b --adapter_name_or_path out/lora"
    " --export_dir out/merged\n"
)
COMPOSE = """
services:
  vllm:
    image: vllm/vllm-openai:latest
    volumes: ["./out:/models"]
    command: --model /models/MODEL --enable-lora --lora-modules tuned=/models/lora
"""
AXOLOTL = "base_model: some/base\nadapter: lora\noutput_dir: ./out/lora\ndatasets: [{path: a.jsonl, type: alpaca}]\n"
TWICE = {
    "script and server": {"merge.py": MERGE, "serve.sh": SERVE},
    "options": {
        "merge.py": MERGE_BY_OPTIONS,
        "job.slurm": "#!/bin/bash\npython merge.py --adapter out/lora --output out/merged\n"
        + SERVE,
    },
    "one shell script": {"run.sh": BY_FACTORY + SERVE},
    "settings and server": {"export.yaml": EXPORT, "serve.sh": SERVE},
    "script and script": {
        "merge.py": MERGE,
        "ask.py": ASK.replace("BASE", "out/merged").replace("ADAPTER", "./out/lora"),
    },
    "compose": {"merge.py": MERGE, "compose.yaml": COMPOSE.replace("MODEL", "merged")},
    "axolotl": {
        "lora.yml": AXOLOTL,
        "run.sh": "axolotl merge-lora lora.yml\n" + SERVE.replace("out/merged", "out/lora/merged"),
    },
}
ONCE = {
    "the base": {"merge.py": MERGE, "serve.sh": SERVE.replace("out/merged", "some/base")},
    "the merged model alone": {"merge.py": MERGE, "serve.sh": "vllm serve out/merged\n"},
    "another adapter": {"merge.py": MERGE, "serve.sh": SERVE.replace("=out/lora", "=out/dpo")},
    "the base in a script": {
        "merge.py": MERGE,
        "ask.py": ASK.replace("BASE", "some/base").replace("ADAPTER", "out/lora"),
    },
    "no merge here": {"serve.sh": SERVE},
    "base in compose": {"merge.py": MERGE, "compose.yaml": COMPOSE.replace("MODEL", "base")},
}


def _count(folder: Path, files: dict[str, str]) -> int:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return len(truetune.check([str(folder)], select=RULES).findings)


@pytest.mark.parametrize("case", TWICE)
def test_adapter_that_is_applied_twice(case: str, tmp_path: Path) -> None:
    assert _count(tmp_path, TWICE[case]) == 1


@pytest.mark.parametrize("case", ONCE)
def test_adapter_that_is_applied_once(case: str, tmp_path: Path) -> None:
    assert _count(tmp_path, ONCE[case]) == 0
