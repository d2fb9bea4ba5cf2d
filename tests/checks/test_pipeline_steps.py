"""Steps of a pipeline whose product is used by no later step, which takes the model from before."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

MERGE = """
import argparse
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
p = argparse.ArgumentParser()
p.add_argument("--{base}")
p.add_argument("--adapter")
p.add_argument("--target-dir", default="merged/default")
args = p.parse_args()
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(args.{base}), args.adapter)
model.merge_and_unload().save_pretrained(args.target_dir)
AutoTokenizer.from_pretrained(args.{base}).save_pretrained(args.target_dir)
"""
ARGV = """
import sys
from peft import PeftModel
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained(sys.argv[1])
PeftModel.from_pretrained(base, sys.argv[2]).merge_and_unload().save_pretrained(sys.argv[3])
"""
FIXED = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
BASE, OUT = "m/base", "out/merged"
base = AutoModelForCausalLM.from_pretrained(BASE)
PeftModel.from_pretrained(base, "runs/a").merge_and_unload().save_pretrained(OUT)
"""
QUANTIZE = """
import fire
from awq import AutoAWQForCausalLM
def main(model, out):
    m = AutoAWQForCausalLM.from_pretrained(model)
    m.quantize(tok, quant_config={})
    m.save_quantized(out)
fire.Fire(main)
"""
EXPORT = "model_name_or_path: m/base\nadapter_name_or_path: runs/a\ntemplate: q\nexport_dir: out/export\n"
CONVERT = "python $LLAMA/convert_hf_to_gguf.py {} --outfile x.gguf --outtype f16\n"
HEAD = (
    "set -e\nBASE=models/base\nNAME=support\nRUN=runs/$NAME\nMERGED=out/$NAME\nLLAMA=$HOME/llama.cpp\n"
    "python train.py --model $BASE --out $RUN\n"
)
STEP = "python tools/join.py --start $BASE --adapter $RUN --target-dir $MERGED\n"
JOIN = MERGE.format(base="start")
FORMER = {
    "converter": {"tools/join.py": JOIN, "run.sh": HEAD + STEP + CONVERT.format('"$BASE"')},
    "default folder": {
        "tools/join.py": JOIN,
        "run.sh": HEAD
        + "python tools/join.py --start $BASE --adapter $RUN\n"
        + CONVERT.format("${BASE}"),
    },
    "server": {
        "join.py": ARGV,
        "go.sbatch": "srun python join.py m/base runs/a out/m\nsrun vllm serve m/base --port 80\n",
    },
    "harness": {
        "join.py": FIXED,
        "go.sh": "python join.py\n"
        "lm_eval --model hf --model_args pretrained=m/base --tasks a --output_path results/new\n",
    },
    "script that is not here": {
        "go.sh": "python merge_lora.py --base_model m/base --adapter a --output_dir out/m\n"
        "python -m sglang.launch_server --model-path m/base\n",
    },
    "export": {
        "export.yaml": EXPORT,
        "go.sh": "llamafactory-cli export export.yaml\npython evaluate.py --model m/base --data test.jsonl\n",
    },
    "quantized": {
        "q.py": QUANTIZE,
        "go.sh": "python q.py --model out/merged --out out/awq\nvllm serve out/merged --quantization awq\n",
    },
}
SOUND = {
    "product": {"tools/join.py": JOIN, "run.sh": HEAD + STEP + CONVERT.format("$MERGED")},
    "both": {
        "tools/join.py": JOIN,
        "run.sh": HEAD + STEP + CONVERT.format("$BASE") + CONVERT.format("$MERGED/"),
    },
    "variable is set again": {
        "join.py": ARGV,
        "go.sh": "M=m/base\npython join.py $M runs/a out/m\nM=out/m\nvllm serve $M\n",
    },
    "unknown variable": {
        "join.py": ARGV,
        "go.sh": "python join.py m/base runs/a out/m\npython deploy.py $1\nvllm serve m/base\n",
    },
    "alias": {
        "join.py": ARGV,
        "go.sh": "OUT=out/m\nexport SERVED=$OUT\npython join.py m/base runs/a $OUT\n"
        "vllm serve m/base &\npython ask.py\n",
    },
    "read by a script": {
        "join.py": ARGV,
        "ask.py": "from vllm import LLM\nLLM('out/m')\n",
        "go.sh": "python join.py m/base runs/a out/m\nvllm serve m/base --port 80\n",
    },
    "named by a Modelfile": {
        "join.py": ARGV,
        "Modelfile": "FROM ./out/m\n",
        "go.sh": "python join.py m/base runs/a out/m\nvllm serve m/base --port 80\n",
    },
    "uploaded": {
        "join.py": ARGV,
        "go.sh": "python join.py m/base runs/a out/m\nhuggingface-cli upload me/m out/m\nvllm serve m/base\n",
    },
    "results of the base": {
        "join.py": FIXED,
        "go.sh": "python join.py\n"
        "lm_eval --model hf --model_args pretrained=m/base --tasks a --output_path results/base\n",
    },
    "before the merge": {
        "join.py": FIXED,
        "go.sh": "lm_eval --model hf --model_args pretrained=m/base --tasks a\npython join.py\n",
    },
    "served with the adapter": {
        "join.py": FIXED,
        "go.sh": "python join.py\nvllm serve m/base --enable-lora --lora-modules a=runs/a\n",
    },
    "another model": {"join.py": FIXED, "go.sh": "python join.py\nvllm serve m/judge --port 80\n"},
}


def found(folder: Path, files: dict[str, str]) -> int:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    paths = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return len(lint(paths, select=["step-takes-the-unmerged-model"]).findings)


@pytest.mark.parametrize("files", FORMER.values(), ids=FORMER)
def test_the_model_before_a_step_is_used(tmp_path: Path, files: dict[str, str]) -> None:
    assert found(tmp_path, files) == 1


@pytest.mark.parametrize("files", SOUND.values(), ids=SOUND)
def test_the_product_of_a_step_is_used(tmp_path: Path, files: dict[str, str]) -> None:
    assert found(tmp_path, files) == 0
