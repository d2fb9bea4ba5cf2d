"""Length limits that a failed tensor reaches, and who loads the weights, by the files beside a log."""

# ruff: noqa: E501 - files and logs stand as they are written
from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.test_files_beside_logs import LOGITS, RECORDS, failed, found, words

AXOLOTL = "base_model: m\nadapter: lora\nlora_r: 8\ndatasets: [{{path: x.jsonl, type: alpaca}}]\n{}"
SHORT_ROWS = '{"instruction": "Say yes", "input": "", "output": "yes"}\n' * 8
TRL = """
from trl import SFTConfig, SFTTrainer
from datasets import load_dataset
rows = load_dataset("json", data_files="x.jsonl", split="train")
args = SFTConfig(output_dir="o", {settings})
SFTTrainer(model="Qwen/Qwen2.5-7B", args=args, train_dataset=rows).train()
"""
TOKENIZED = """
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B")
def encode(row):
    return tokenizer(row["text"], truncation=True, {padding}max_length=16384)
"""
FACTORY = "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ndataset: x\n{}"
# 2 x 16,384 x 152,064 x 4 bytes, and the same of one row of 12,000 tokens
OF_16384, OF_12000 = "18.56 GiB", "6.80 GiB"


@pytest.mark.parametrize(
    ("asked", "name", "text", "said"),
    [
        pytest.param(OF_16384, "a.yaml", AXOLOTL.format("sequence_len: 16384\nsample_packing: true\nmicro_batch_size: 2\n"), "lower sequence_len from 16,384 to 1,024 (a.yaml:5): the longest row has 10 bytes of text", id="Axolotl, packed"),
        pytest.param(OF_16384, "a.yaml", AXOLOTL.format("sequence_len: 16384\npad_to_sequence_len: true\nmicro_batch_size: 2\n"), "pad_to_sequence_len: true (a.yaml:6) fills each row", id="Axolotl, padded"),
        pytest.param(OF_16384, "train.py", TRL.format(settings="max_length=16384, packing=True, per_device_train_batch_size=2"), "lower max_length from 16,384", id="TRL, packed"),
        pytest.param(OF_12000, "a.yaml", AXOLOTL.format("sequence_len: 12000\nsample_packing: true\nmicro_batch_size: 1\n"), "12,000 is sequence_len (a.yaml:5)", id="a length of no published model"),
        pytest.param(OF_16384, "f.yaml", FACTORY.format("cutoff_len: 16384\npacking: true\nper_device_train_batch_size: 2\n"), "lower cutoff_len from 16,384", id="LLaMA-Factory, packed"),
        pytest.param("9.28 GiB", "train.py", TOKENIZED.format(padding='padding="max_length", '), 'padding="max_length" (train.py:5) fills', id="padded by the tokenizer's call"),
    ],
)  # fmt: skip
def test_the_limit_that_fills_rows_is_named(
    tmp_path: Path, asked: str, name: str, text: str, said: str
) -> None:
    files = {"run.log": RECORDS + failed(LOGITS, asked), name: text, "x.jsonl": SHORT_ROWS}
    advice = words(found(tmp_path, files), "LOG030")
    assert said in advice
    assert "model_max_length" not in advice


@pytest.mark.parametrize(
    ("asked", "name", "text"),
    [
        pytest.param(OF_16384, "a.yaml", AXOLOTL.format("sequence_len: 16384\nmicro_batch_size: 2\n"), id="not filled"),
        pytest.param(OF_16384, "a.yaml", AXOLOTL.format("sequence_len: 4096\nsample_packing: true\nmicro_batch_size: 2\n"), id="another limit"),
        pytest.param("2.32 GiB", "a.yaml", AXOLOTL.format("sequence_len: 1024\nsample_packing: true\nmicro_batch_size: 4\n"), id="a short limit"),
        pytest.param("9.28 GiB", "train.py", TOKENIZED.format(padding=""), id="padded to the longest"),
        pytest.param(OF_16384, "train.py", TRL.format(settings="max_length=16384, packing=False, per_device_train_batch_size=2"), id="TRL, not packed"),
    ],
)  # fmt: skip
def test_a_limit_that_fills_no_row_is_not_to_be_lowered(
    tmp_path: Path, asked: str, name: str, text: str
) -> None:
    files = {"run.log": RECORDS + failed(LOGITS, asked), name: text, "x.jsonl": SHORT_ROWS}
    assert "from 16,384 to" not in words(found(tmp_path, files), "LOG030")
    assert "fills each row" not in words(found(tmp_path, files), "LOG030") or "1024" in text


def test_advice_names_the_key_that_stands_in_the_file(tmp_path: Path) -> None:
    text = AXOLOTL.format("sequence_len: 4096\nmicro_batch_size: 4\n")
    advice = words(
        found(tmp_path, {"run.log": RECORDS + failed(LOGITS, "3.91 GiB"), "a.yaml": text}), "LOG030"
    )
    assert "lower micro_batch_size from 4 to 2 (a.yaml:6)" in advice


KILLED = (
    "Loading checkpoint shards:  47%|####7     | 8/17 [00:32<00:27,  3.62s/it]\n"
    "E0203 11:42:33.120000 1 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 6"
    " (pid: 181503) of binary: /usr/bin/python\n"
)
OF_SLURM = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
JOB = (
    "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --mem={mem}\n"
    "srun accelerate launch --config_file f.yaml train.py\n"
)
FLAG = "distributed_type: FSDP\nfsdp_config:\n  fsdp_cpu_ram_efficient_loading: {}\nnum_machines: 1\nnum_processes: 4\n"
SCRIPT = TRL.replace("Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-70B").format(
    settings="max_length=512"
)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param({"f.yaml": FLAG.format("false"), "j.sbatch": JOB.format(mem="500G"), "train.py": SCRIPT}, "526 GiB, more than --mem=500G (j.sbatch:3)", id="more than the job asked for"),
        pytest.param({"f.yaml": FLAG.format("false")}, "fsdp_cpu_ram_efficient_loading: false (f.yaml:3)", id="the flag alone"),
        pytest.param({"f.yaml": FLAG.format("'no'")}, "set fsdp_cpu_ram_efficient_loading to true (f.yaml:3)", id="in words"),
        pytest.param({"run.sh": "accelerate launch --use_fsdp --fsdp_cpu_ram_efficient_loading false t.py\n"}, "(run.sh:1)", id="an option"),
        pytest.param({"train.py": TRL.format(settings='fsdp="full_shard", fsdp_config={"cpu_ram_efficient_loading": False}')}, "set cpu_ram_efficient_loading to true (train.py:5)", id="a script"),
    ],
)  # fmt: skip
def test_who_loads_the_weights_is_named(tmp_path: Path, files: dict[str, str], said: str) -> None:
    told = words(found(tmp_path, {"run.log": KILLED + OF_SLURM, **files}), "LOG031")
    assert said in told
    assert "the operating system killed the process" in told
    assert "dataloader_num_workers" not in told


@pytest.mark.parametrize(
    ("log", "files"),
    [
        pytest.param(KILLED + OF_SLURM, {"f.yaml": FLAG.format("true")}, id="one process loads"),
        pytest.param(KILLED + OF_SLURM, {}, id="no files"),
        pytest.param(RECORDS + KILLED + OF_SLURM, {"f.yaml": FLAG.format("false")}, id="steps were made"),
        pytest.param("slurmstepd: error: *** JOB 7 CANCELLED AT 2026-02-03 DUE TO TIME LIMIT ***\n", {"f.yaml": FLAG.format("false")}, id="a time limit"),
        pytest.param(KILLED + OF_SLURM, {"f.yaml": "distributed_type: MULTI_GPU\nnum_processes: 4\n"}, id="no FSDP"),
    ],
)  # fmt: skip
def test_loading_is_not_blamed(tmp_path: Path, log: str, files: dict[str, str]) -> None:
    told = words(found(tmp_path, {"run.log": log, **files}), "LOG031")
    assert told
    assert "every process loads" not in told


def test_memory_that_suffices_is_not_called_too_little(tmp_path: Path) -> None:
    files = {
        "f.yaml": FLAG.format("false"),
        "j.sbatch": JOB.format(mem="900G"),
        "train.py": SCRIPT,
    }
    told = words(found(tmp_path, {"run.log": KILLED, **files}), "LOG031")
    assert "more than --mem" not in told
