"""What a path is: real artefacts of each kind, and what is refused, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests.parts import data, model
from truetune.demo import DATA, TOKENIZER
from truetune.errors import UsageError
from truetune.settings.recognise_input_kind import recognise_kinds, title_of_kind

LOG = (
    '{"step": 1, "loss": 2.5, "learning_rate": 1e-4}\n{"step": 2, "loss": 2.1, "learning_rate":'
    " 9e-5}\n"
)
ROW = json.dumps(
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]}
)


def laid(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.jsonl", ROW + "\n" + ROW, "data"),
        ("a.json", f"[{ROW}]", "data"),
        ("a.json", f"{ROW}\n{ROW}", "data"),
        ("a.json", '{"data": [{"text": "x"}]}', "data"),
        ("a.csv", "prompt,completion\na,b\n", "data"),
        ("a.parquet", b"PAR1", "data"),
        ("a.jsonl.zst", b"\x28\xb5\x2f\xfd", "data"),
        ("rows", ROW + "\n" + ROW, "data"),
        ("losses.jsonl", '{"text": "x", "loss": 1.0, "step": 3}\n', "data"),
        ("log.jsonl", LOG, "log"),
        ("log.json", LOG, "log"),
        (
            "trainer_log.jsonl",
            '{"current_steps": 5, "total_steps": 9, "loss": 1.2, "lr": 1e-5}\n',
            "log",
        ),
        ("log.csv", "step,train_loss\n1,2.5\n", "log"),
        (
            "trainer_state.json",
            '{"best_metric": null, "log_history": [{"loss": 1.0, "step": 1}]}',
            "log",
        ),
        ("events.out.tfevents.1.host.1.0", b"\x18\0\0", "log"),
        ("run-1.wandb", b":W&B", "log"),
        ("train.py", "import trl\n", "source"),
        ("train.ipynb", '{"cells": [], "nbformat": 4}', "notebook"),
        ("log.txt", "step 0 loss 2.7\nstep 1 loss 2.6\n", "log"),
        ("train.txt", "{'loss': 2.1, 'epoch': 0.1}\n", "log"),
        ("out.txt", "[INFO|trainer.py:2134] 2026-01-01 >> ***** Running training *****\n", "log"),
        ("rows.txt", '{"messages": []}\n{"messages": []}\n', "data"),
        ("rows.txt", '[{"messages": []}]', "data"),
        ("truetune.yaml", "data: a.jsonl\ntokenizer: t\n", "truetune"),
        ("any.yaml", "data: [a.jsonl]\nmax-length: 5\ntokeniser: t\n", "truetune"),
        ("pyproject.toml", "[tool.truetune]\ndata = 'a.jsonl'\n", "truetune"),
        (
            "a.yml",
            "base_model: m\ndatasets: [{path: a, type: alpaca}]\nmicro_batch_size: 2\n",
            "axolotl",
        ),
        (
            "a.json",
            '{"base_model": "m", "datasets": [{"path": "a"}], "sequence_len": 9}',
            "axolotl",
        ),
        ("axolotl.yaml", "model_name_or_path: m\nstage: sft\ntemplate: qwen\n", "llama-factory"),
        ("a.json", '{"model_name_or_path": "m", "stage": "sft", "cutoff_len": 9}', "llama-factory"),
        ("a.yaml", "model_name_or_path: m\ndataset_name: d\nassistant_only_loss: true\n", "trl"),
        ("ds.json", '{"zero_optimization": {"stage": 2}}', "deepspeed"),
    ],
)
def test_files(tmp_path: Path, name: str, content: str | bytes, kind: str) -> None:
    assert recognise_kinds(laid(tmp_path / name, content)) == (kind,)
    assert title_of_kind(kind)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "config.json",
            '{"architectures": ["X"], "model_type": "x"}',
            "found a model's config.json",
        ),
        ("a.yaml", "name: CI\non: push\njobs: {}\n", "found the keys name, True, jobs"),
        ("a.yaml", "", "found an empty file"),
        ("a.yaml", "- 1\n- 2\n", "found a list"),
        ("a.yaml", "a: [1", "not YAML"),
        ("a.yaml", b"\x7fELF\0", "a binary file"),
        ("a.bin", b"\x7fELF\0\1\2", "found a binary file"),
        ("a.txt", b"MZ\0\1\2", "found a binary file"),
        ("a.txt", "", "found an empty file"),
        ("a.md", "# Title\n", "found a file of the kind .md"),
        ("a.toml", "[tool.ruff]\n", "there is no [tool.truetune]"),
    ],
)
def test_what_is_none_of_them(tmp_path: Path, name: str, content: str | bytes, said: str) -> None:
    with pytest.raises(UsageError) as error:
        recognise_kinds(laid(tmp_path / name, content))
    assert said in str(error.value)
    assert "expected data (JSONL" in str(error.value)


def test_a_launch_configuration_of_accelerate(tmp_path: Path) -> None:
    path = laid(tmp_path / "acc.yaml", "distributed_type: FSDP\nnum_processes: 2\n")
    assert recognise_kinds(path)[0] == "accelerate"


def test_folders_that_are_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found an empty folder"):
        recognise_kinds(tmp_path)
    laid(tmp_path / "notes.md", "")
    with pytest.raises(UsageError, match=r"found a folder with notes\.md; expected"):
        recognise_kinds(tmp_path)
    with pytest.raises(UsageError, match="no such file or folder"):
        recognise_kinds(tmp_path / "none")


def test_folders(tmp_path: Path, family: Path) -> None:
    assert recognise_kinds(family)[-1] == "tokenizer"
    assert recognise_kinds(TOKENIZER) == ("tokenizer",)
    assert recognise_kinds(DATA.parent) == ("data",)
    assert recognise_kinds(Path(truetune.__file__).parent) == ("source",)
    laid(tmp_path / "scripts/train.py", "")
    laid(tmp_path / "scripts/explore.ipynb", "{}")
    assert recognise_kinds(tmp_path / "scripts") == ("source", "notebook")
    laid(tmp_path / "work/truetune.yaml", "data: a.jsonl\n")
    laid(tmp_path / "work/a.jsonl", ROW)
    assert recognise_kinds(tmp_path / "work") == ("truetune", "data")


LLAMA = '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "use_cache": false}'


def test_the_json_files_of_a_model_without_its_weights(tmp_path: Path) -> None:
    laid(tmp_path / "merged/config.json", LLAMA)
    laid(tmp_path / "merged/generation_config.json", "{}")
    assert recognise_kinds(tmp_path / "merged") == ("model config",)
    laid(tmp_path / "run/config.json", LLAMA)
    laid(tmp_path / "run/trainer_state.json", '{"log_history": []}')
    assert recognise_kinds(tmp_path / "run") == ("run", "model config")
    laid(tmp_path / "whole/config.json", LLAMA)
    laid(tmp_path / "whole/model.safetensors", b"")
    assert recognise_kinds(tmp_path / "whole") == ("model",)


@pytest.mark.parametrize("config", ['{"port": 8000}', "[1]", "{", '{"model_type": 3}'])
def test_the_config_of_another_program_is_no_model(tmp_path: Path, config: str) -> None:
    laid(tmp_path / "app/config.json", config)
    with pytest.raises(UsageError, match="found a folder with"):
        recognise_kinds(tmp_path / "app")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("events.out.tfevents.1.host.1.0", b"\x18\0"),
        ("runs/Nov21_host/events.out.tfevents.1.host.1.0", b"\x18\0"),
        ("wandb/offline-run-1/run-1.wandb", b":W&B"),
        ("run-1.wandb", b":W&B"),
        ("log.jsonl", LOG.encode()),
        ("trainer_log.jsonl", b'{"current_steps": 5, "loss": 1.2}\n'),
    ],
)
def test_folders_of_a_run(tmp_path: Path, name: str, content: bytes) -> None:
    laid(tmp_path / "out" / name, content)
    assert recognise_kinds(tmp_path / "out") == ("run",)


def test_real_weights_and_data() -> None:
    assert recognise_kinds(model()) == ("model", "tokenizer")
    assert recognise_kinds(data("llamafactory/alpaca_en_demo.json")) == ("data",)


def test_encoded_data(tmp_path: Path) -> None:
    truetune.encode(data=str(DATA), tokenizer=str(TOKENIZER), out=str(tmp_path / "encoded"))
    assert recognise_kinds(tmp_path / "encoded") == ("encoded",)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a real Trainer with an adapter: two steps, a checkpoint after each."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    out = tmp_path_factory.mktemp("run") / "out"
    config = transformers.GPT2Config(vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    adapted = peft.get_peft_model(
        transformers.GPT2LMHeadModel(config), peft.LoraConfig(task_type="CAUSAL_LM")
    )
    row: dict[str, Any] = {"input_ids": torch.arange(4), "labels": torch.arange(4)}
    arguments = transformers.TrainingArguments(
        output_dir=str(out),
        max_steps=2,
        save_steps=1,
        logging_steps=1,
        use_cpu=True,
        report_to="none",
    )
    trainer = transformers.Trainer(model=adapted, args=arguments, train_dataset=[row] * 8)
    trainer.train()
    trainer.save_model()
    return out


def test_a_real_run(run: Path) -> None:
    assert recognise_kinds(run) == ("run", "adapter")
    assert recognise_kinds(run / "checkpoint-2") == ("adapter", "run")
    assert recognise_kinds(run / "checkpoint-2" / "trainer_state.json") == ("log",)


@pytest.mark.parametrize(
    "name", ["serve.sh", "job.sbatch", "run.slurm", "Dockerfile", "Dockerfile.gpu"]
)
def test_a_file_of_commands(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("#!/bin/bash\nvllm serve model --enforce-eager\n")
    assert recognise_kinds(tmp_path / name) == ("commands",)
