"""How long a rehearsal takes with the big vocabularies, start included: `python -m bench.rehearse`.

For each shape: `truetune rehearse -- python train.py`, where the script loads a model folder (tokenizer and config.json
of the published model, no weights) and trains TRL's SFTTrainer on the demo's chats.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.parts import available, folder
from truetune.demo import DATA

SCRIPT = """
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model", dtype="bfloat16", device_map="auto")
data = load_dataset("json", data_files="rows.jsonl", split="train")
arguments = SFTConfig("out", per_device_train_batch_size=4)
SFTTrainer(model, arguments, train_dataset=data, processing_class=tokenizer).train()
"""
COMMON = {"rms_norm_eps": 1e-6, "max_position_embeddings": 32768, "torch_dtype": "bfloat16"}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen3 8B": ("qwen3", {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936,
                           "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "head_dim": 128,
                           "num_attention_heads": 32, "num_key_value_heads": 8, "eos_token_id": 151645}),
    "Llama 3.1 8B": ("llama3.1-instruct", {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
                                           "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
                                           "num_hidden_layers": 32, "num_attention_heads": 32,
                                           "num_key_value_heads": 8, "eos_token_id": [128001, 128008, 128009]}),
    "Gemma 3 1B": ("gemma3", {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"],
                              "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912,
                              "num_hidden_layers": 26, "head_dim": 256, "num_attention_heads": 4,
                              "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "sliding_window": 512,
                              "eos_token_id": [1, 106]}),
}  # fmt: skip


def main() -> None:
    print(
        f"{'shape':<14} {'vocabulary':>10} {'kept':>6}   {'wall':>6}   {'cpu':>6}   recited and"
        " stopped"
    )
    for name, (family, config) in SHAPES.items():
        if not available(family):
            print(f"{name:<14} its tokenizer can't be had on this machine")
            continue
        with tempfile.TemporaryDirectory() as work:
            wall, cpu, said = rehearse(Path(work), family, config)
        kept = re.search(r"([\d,]+) of ([\d,]+) ids", said)
        rows = len(re.findall(r"yes +yes", said))
        size = (kept[2], kept[1]) if kept else ("?", "?")
        print(f"{name:<14} {size[0]:>10} {size[1]:>6}   {wall:5.1f} s  {cpu:5.1f} s  {rows} of 6")


def rehearse(work: Path, family: str, config: dict[str, Any]) -> tuple[float, float, str]:
    """Seconds on the clock and of the processors, and what was said."""
    model = work / "model"
    model.mkdir()
    for file in folder(family).iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    (model / "config.json").write_text(json.dumps({**COMMON, **config}))
    (model / "generation_config.json").write_text(
        json.dumps({"eos_token_id": config["eos_token_id"]})
    )
    rows = [
        row
        for line in DATA.read_text(encoding="utf-8").splitlines()
        if _alternates(row := json.loads(line))
    ]
    (work / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (work / "train.py").write_text(SCRIPT)
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "truetune", "rehearse", "--", sys.executable, "train.py"],
        cwd=work,
        env={**os.environ, "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, cpu, done.stderr


def _alternates(row: dict[str, Any]) -> bool:
    """Some templates take questions and answers in turn, and nothing else."""
    roles = [message["role"] for message in row["messages"] if message["role"] != "system"]
    return roles == ["user", "assistant"] * (len(roles) // 2)


if __name__ == "__main__":
    main()
