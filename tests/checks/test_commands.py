"""Commands that serve slowly, or start another number of processes than a job has GPUs; and their near misses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from truetune.checks.check_paths import check_paths
from truetune.checks.lint import lint
from truetune.cli import truetune_group
from truetune.parsing.shell_commands import is_command_file
from truetune.settings.run_spec import RunSpec


def found(path: Path, text: str) -> list[tuple[str, str]]:
    path.write_text(text, encoding="utf-8")
    return [(finding.rule, finding.severity) for finding in lint([path]).findings]


SLOW, EMPTY = ("server-generates-slowly", "warning"), ("server-loads-no-weights", "error")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("serve.sh", "vllm serve m --enforce-eager", [SLOW]),
        (
            "serve.sh",
            "CUDA_VISIBLE_DEVICES=0 nohup /venv/bin/vllm serve m \\\n  --max-num-seqs=1 > log &",
            [SLOW],
        ),
        (
            "serve.sh",
            "python -m vllm.entrypoints.openai.api_server --model m --dtype float32",
            [SLOW],
        ),
        (
            "serve.sh",
            "docker run --gpus all vllm/vllm-openai:latest --model m --cpu-offload-gb 8",
            [SLOW],
        ),
        ("serve.sh", "vllm serve m --load-format dummy", [EMPTY]),
        ("Dockerfile", 'FROM vllm/vllm-openai\nCMD ["--model", "m", "--enforce_eager"]', [SLOW]),
        ("Dockerfile", "FROM python\nCMD vllm serve m --enforce-eager", [SLOW]),
        ("serve.sh", "vllm serve m --quantization bitsandbytes", [SLOW]),
        ("serve.sh", "docker run i python3 -m sglang.launch_server --disable-cuda-graph", [SLOW]),
        ("serve.sh", "./build/bin/llama-server -m m.gguf -ngl 0", [SLOW]),
        ("serve.sh", "llama-server -m m.gguf -ngl 12", [(SLOW[0], "info")]),
        ("serve.sh", "llama-server -m m.gguf -ngl 33 -c 8192", []),
        ("serve.sh", "llama-server -m m.gguf -c 8192", []),
        ("serve.sh", "python -m sglang.launch_server --model-path m --cuda-graph-max-bs 8", []),
        ("serve.sh", "vllm serve m --quantization awq_marlin", []),
        ("serve.sh", "vllm serve m --quantization awq", [SLOW]),
        ("serve.sh", "vllm serve m -q gptq", [SLOW]),
        ("serve.sh", "vllm serve m --quantization fp8", []),
        ("serve.sh", "text-generation-launcher --model-id m --cuda-graphs 0", [SLOW]),
        (
            "serve.sh",
            "docker run --gpus all h/text-generation-inference:3 --quantize bitsandbytes-nf4",
            [SLOW],
        ),
        ("serve.sh", "docker run --gpus all h/text-generation-inference:3 --quantize awq", []),
        ("serve.sh", "vllm serve m --max-num-seqs 64 --dtype bfloat16 --cpu-offload-gb 0", []),
        ("serve.sh", "vllm serve m --max-num-seqs $SEQS", []),
        ("serve.sh", "vllm serve m --gpu-memory-utilization 0.45", [(SLOW[0], "info")]),
        (
            "Dockerfile",
            "FROM python\nCMD vllm serve m --gpu_memory_utilization=.3",
            [(SLOW[0], "info")],
        ),
        ("serve.sh", "vllm serve m --gpu-memory-utilization 0.85", []),
        ("serve.sh", "vllm serve m --gpu-memory-utilization $SHARE", []),
        # Two servers share the GPU.
        ("serve.sh", "vllm serve a --gpu-memory-utilization 0.45 &\nvllm serve b", []),
        ("serve.sh", "# vllm serve m --enforce-eager\nvllm serve m", []),
        ("serve.sh", "echo 'vllm serve m --enforce-eager'", []),
        ("serve.sh", "vllm bench throughput --enforce-eager", []),
        ("serve.sh", "python generate.py --enforce-eager", []),
        ("serve.sh", "cat > a.sh <<EOF\nvllm serve m --enforce-eager\nEOF", []),
    ],
)
def test_servers(tmp_path: Path, name: str, text: str, expected: list[tuple[str, str]]) -> None:
    assert found(tmp_path / name, text + "\n") == expected


FEWER, MORE = (
    ("job-gpus-differ-from-processes", "warning"),
    ("job-gpus-differ-from-processes", "error"),
)
FOUR = "#SBATCH --gres=gpu:4\n"
# The script gets the option, and may read it or not.
AFTER = ("launcher-options-after-the-script", "error")
CONFIG = "distributed_type: {kind}\nnum_machines: {machines}\nnum_processes: {processes}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FOUR + "accelerate launch --num_processes 1 train.py", [FEWER]),
        (FOUR + "accelerate launch --config_file one.yaml train.py", [FEWER]),
        (FOUR + "torchrun train.py", [FEWER]),
        (FOUR + "srun trl sft --config sft.yaml --accelerate_config one.yaml", [FEWER]),
        (FOUR + "trl dpo --config sft.yaml --num_processes 8", [MORE]),
        (FOUR + "torchrun --nproc_per_node=8 train.py", [MORE]),
        (
            "#SBATCH --gpus-per-node=a100:1\naccelerate launch --config_file four.yaml train.py",
            [MORE],
        ),
        (FOUR + "#SBATCH --ntasks-per-node=4\nsrun torchrun --nproc-per-node 4 train.py", [MORE]),
        (
            "#SBATCH -N 2\n#SBATCH --gpus=8\naccelerate launch --num_machines 2 --num_processes 4 train.py",
            [FEWER],
        ),
        (FOUR + "N=2\ntorchrun --nproc_per_node $N train.py", [FEWER]),
        # What only prints or watches has no GPUs of its own.
        (
            FOUR + 'echo "cards: $CUDA_VISIBLE_DEVICES"\ntorchrun --nproc_per_node 8 train.py',
            [MORE],
        ),
        (
            FOUR + "nvidia-smi -l 60 > gpu.log &\nsrun torchrun --nproc_per_node 8 train.py",
            [MORE],
        ),
        (FOUR + "unset CUDA_VISIBLE_DEVICES\ntorchrun --nproc_per_node 8 train.py", []),
        (FOUR + "python serve.py &\ntorchrun --nproc_per_node 2 train.py", []),
        (FOUR + "torchrun --nproc_per_node 4 train.py", []),
        (FOUR + "torchrun --nproc_per_node $SLURM_GPUS_ON_NODE train.py", []),
        (FOUR + "torchrun --nproc_per_node gpu train.py", []),
        (FOUR + "accelerate launch --config_file four.yaml train.py", []),
        (FOUR + "accelerate launch --config_file missing.yaml train.py", []),
        (FOUR + "accelerate launch train.py --num_processes 1", [AFTER]),
        (FOUR + "accelerate launch --num_processes 1 spread.py", []),
        (FOUR + "python train.py", []),
        (FOUR + "trl sft --config sft.yaml --accelerate_config four.yaml", []),
        (FOUR + "trl sft --config sft.yaml --accelerate_config zero2", []),
        (FOUR + "trl sft --config sft.yaml", []),
        (FOUR + "trl env --accelerate_config one.yaml", []),
        # TRL takes the number of processes from its own settings too.
        (FOUR + "trl sft --config two.yaml --accelerate_config one.yaml", []),
        (FOUR + "trl sft --config spread.yaml --accelerate_config one.yaml", []),
        ("torchrun --nproc_per_node 2 train.py", []),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 4 train.py", [MORE]),
        ("export CUDA_VISIBLE_DEVICES=2,3\naccelerate launch --num_processes 8 train.py", [MORE]),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node 4 train.py", []),
        ("CUDA_VISIBLE_DEVICES=$GPUS torchrun --nproc_per_node 4 train.py", []),
        ("torchrun --nproc_per_node 4 a.py\nexport CUDA_VISIBLE_DEVICES=0\npython b.py", []),
        (
            "#SBATCH -N 2\n"
            + FOUR
            + "accelerate launch --num_machines 2 --num_processes 8 train.py",
            [],
        ),
        ("#SBATCH --gpus=$N\ntorchrun --nproc_per_node 2 train.py", []),
        (
            FOUR
            + "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 a.py &\ntorchrun --nproc_per_node 2 b.py\n",
            [],
        ),
        (FOUR + "trl vllm-serve --model m &\naccelerate launch --num_processes 3 train.py", []),
        (FOUR + "#SBATCH --ntasks-per-node=1\nsrun torchrun --nproc_per_node 4 train.py", []),
    ],
)
def test_jobs(tmp_path: Path, text: str, expected: list[tuple[str, str]]) -> None:
    (tmp_path / "one.yaml").write_text(
        CONFIG.format(kind="'NO'", machines=1, processes=1), encoding="utf-8"
    )
    (tmp_path / "four.yaml").write_text(
        CONFIG.format(kind="MULTI_GPU", machines=1, processes=4), encoding="utf-8"
    )
    for name, text_of_settings in (
        ("sft.yaml", "learning_rate: 1.0e-5\n"),
        ("two.yaml", "num_processes: 2\n"),
        ("spread.yaml", "model_init_kwargs: {device_map: auto}\n"),
    ):
        (tmp_path / name).write_text(text_of_settings, encoding="utf-8")
    (tmp_path / "spread.py").write_text("load(device_map='auto')\n", encoding="utf-8")
    assert found(tmp_path / "job.sbatch", f"#!/bin/bash\n{text}\n") == expected


def test_a_file_of_other_commands_is_said_to_be_beside_the_point(tmp_path: Path) -> None:
    (tmp_path / "setup.sh").write_text("pip install trl\n", encoding="utf-8")
    report = lint([tmp_path / "setup.sh"])
    assert not report.findings
    assert [part.what for part in report.not_judged if part.what.startswith("1 of")] == [
        "1 of 1 file"
    ]


def test_text_that_is_no_utf8_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_bytes(b"vllm serve \xff\n")
    assert [part.what for part in lint([tmp_path / "serve.sh"]).not_judged] == ["the commands"]


def test_check_and_lint_read_a_folder_of_commands_and_sources(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text("vllm serve m --enforce-eager\n", encoding="utf-8")
    (tmp_path / "train.py").write_text("import torch\n", encoding="utf-8")
    for arguments in (["lint", str(tmp_path)], ["check", str(tmp_path / "serve.sh")]):
        assert "server-generates-slowly" in CliRunner().invoke(truetune_group, arguments).output


PLAIN, GIVEN = (
    ("harness-run-without-chat-template", "warning"),
    ("harness-run-without-chat-template", "info"),
)
RESULTS = (
    '{"results": {"gsm8k": {}}, "config": {"model": "hf", "model_args": "pretrained=m-8b-instruct"},'
    ' "lm_eval_version": "0.4.9", "chat_template": %s}'
)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "e.sbatch",
            "M=m-7b-instruct\nlm_eval --model vllm --model_args pretrained=$M --tasks ifeval",
            [PLAIN],
        ),
        (
            "e.sh",
            "accelerate launch -m lm_eval -b 8 --model_args=pretrained=gemma-3-4b-it --tasks=gsm8k",
            [PLAIN],
        ),
        ("e.sh", "lm_eval -b 8 --model_args pretrained=m-8b-chat --tasks hellaswag", [GIVEN]),
        (
            "e.sh",
            "lm_eval -b 8 --model_args pretrained=m-8b-chat --tasks gsm8k --apply_chat_template",
            [],
        ),
        (
            "e.sh",
            "lm_eval -b 8 --model_args pretrained=m-8b-chat --tasks gsm8k --apply_chat_template -f 5",
            [GIVEN],
        ),
        ("e.sh", "lm_eval -b 8 --model_args pretrained=m-8b --tasks gsm8k", []),
        (
            "e.sh",
            "lm_eval --model local-chat-completions --model_args model=m-chat --tasks gsm8k",
            [],
        ),
        ("e.sh", "pip install lm_eval", []),
        ("results_2026.json", RESULTS % "null", [PLAIN]),
        ("results_2026.json", RESULTS % '"{{ messages }}"', []),
    ],
)
def test_chat_models_in_the_harness(
    tmp_path: Path, name: str, text: str, expected: list[tuple[str, str]]
) -> None:
    # Results of the folders beside it are read as well: those of another test are not among them.
    folder = tmp_path / "evals" / "model"
    folder.mkdir(parents=True)
    assert found(folder / name, text + "\n") == expected


RUN = "lm_eval --model hf --model_args {} --tasks gsm8k {}--output_path results/{}\n"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (
            ("pretrained=m,dtype=auto", "", "a"),
            ("pretrained=m,tokenizer=out,dtype=auto", "", "b"),
            1,
        ),
        (("pretrained=m", "", "a"), ("pretrained=m", "", "b"), 1),
        (("pretrained=m", "", "a"), ("pretrained=m,peft=out", "", "b"), 0),
        (("pretrained=m", "", "a"), ("pretrained=m,dtype=float16", "", "b"), 0),
        (("pretrained=m", "", "a"), ("pretrained=m", "--num_fewshot 5 ", "b"), 0),
        (("pretrained=$1", "", "a"), ("pretrained=$1", "", "b"), 0),
    ],
)
def test_two_runs_of_the_harness_on_one_model(
    tmp_path: Path, first: tuple[str, ...], second: tuple[str, ...], same: int
) -> None:
    names = [name for name, _ in found(tmp_path / "e.sh", RUN.format(*first) + RUN.format(*second))]
    assert names.count("harness-runs-ask-one-model") == same


HALF = [("job-trains-overflowing-model-in-float16", "warning")]
GEMMA = "run_sft.py --model_name_or_path google/gemma-2-2b-it --learning_rate 1e-5"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (f"deepspeed --num_gpus 4 {GEMMA} --fp16 --gradient_checkpointing", HALF),
        (f"accelerate launch --mixed_precision fp16 {GEMMA}", HALF),
        (f"python {GEMMA} --fp16 True", HALF),
        (f"deepspeed {GEMMA} --deepspeed half.json", HALF),
        (f"deepspeed {GEMMA} --deepspeed auto.json", []),
        (f"deepspeed {GEMMA} --deepspeed none.json", []),
        (f"python {GEMMA} --bf16", []),
        (f"python {GEMMA} --fp16 False --bf16 True", []),
        (f"python {GEMMA} --fp16 $HALF", []),
        (f"python {GEMMA} --fp16 --bf16", []),
        ("python run_sft.py --model google/gemma-2b --lr 1e-5 --fp16", []),
        ("python run_sft.py --model meta-llama/Llama-3.1-8B --lr 1e-5 --fp16", []),
        ("python ask.py --model google/gemma-2-2b-it --fp16", []),
    ],
)
def test_jobs_that_train_in_float16(
    command: str, expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "half.json").write_text('{"fp16": {"enabled": true}}', encoding="utf-8")
    (tmp_path / "auto.json").write_text('{"fp16": {"enabled": "auto"}}', encoding="utf-8")
    assert found(tmp_path / "job.sbatch", command + "\n") == expected


WEAK = [("learning-rate-far-from-published", "warning")]
STRONG = [("preference-beta-out-of-range", "warning")]
LORA = "--model_name_or_path m --dataset_name d --use_peft --output_dir out"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (f"trl dpo {LORA} \\\n  --learning_rate 5e-8", WEAK),
        (f"LR=5e-8\nsrun python -m trl.scripts.dpo {LORA} --learning_rate=$LR", WEAK),
        (f"python trl/scripts/dpo.py {LORA} --learning_rate 1e-5 --beta 10 2>&1 | tee log", STRONG),
        (
            "llamafactory-cli train --stage dpo --finetuning_type lora --learning_rate 1e-8"
            " --do_train True --model_name_or_path m --dataset d --template qwen --output_dir o",
            WEAK,
        ),
        (f"trl dpo {LORA} --learning_rate 1e-5 --beta 0.1 --warmup_steps 9 > run.log", []),
        (f"trl dpo {LORA} --learning_rate $LR --beta ${{BETA:-0.1}}", []),
        ("trl dpo --config dpo.yaml --learning_rate 5e-8", []),
        (f"echo 'trl dpo {LORA} --learning_rate 5e-8'", []),
        ("trl env", []),
    ],
)
def test_settings_in_commands(
    tmp_path: Path, command: str, expected: list[tuple[str, str]]
) -> None:
    assert found(tmp_path / "job.sh", command + "\n") == expected


def notebook(*cells: str) -> str:
    made = [{"cell_type": "code", "source": cell, "outputs": []} for cell in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4})


LOADED = (
    "from unsloth import FastLanguageModel\n"
    'model, tokenizer = FastLanguageModel.from_pretrained("out/llama-3.1-8b-instruct-sft")\n'
    'model.save_pretrained_merged("merged", tokenizer)'
)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ((LOADED, "!lm_eval -b 8 --model_args pretrained=merged --tasks gsm8k"), [PLAIN]),
        (("%%bash\nlm_eval -b 8 --model_args \\\n  pretrained=m-chat --tasks gsm8k",), [PLAIN]),
        ((LOADED, "!lm_eval -b 8 --model_args pretrained=other --tasks gsm8k"), []),
        (("# !lm_eval -b 8 --model_args pretrained=m-chat --tasks gsm8k",), []),
        (('print("!lm_eval -b 8 --model_args pretrained=m-chat --tasks gsm8k")',), []),
    ],
)
def test_commands_of_notebooks(
    tmp_path: Path, cells: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    named = found(tmp_path / "eval.ipynb", notebook(*cells))
    assert [one for one in named if one[0] == PLAIN[0]] == expected


def test_results_of_the_harness_below_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "model"
    folder.mkdir(parents=True)
    (folder / "results_2026.json").write_text(RESULTS % "null", encoding="utf-8")
    (tmp_path / "notes.md").write_text("Accuracy is low.", encoding="utf-8")
    report = check_paths([tmp_path], RunSpec())
    assert [(f.rule, f.severity) for f in report.findings] == [PLAIN]


VLLM_SERVICE = "services:\n  llm:\n    image: vllm/vllm-openai:v0.9.1\n    command: [--model, m]\n"
RESERVED = """    deploy:
      resources:
        reservations:
          devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]
"""
BUILT = "services:\n  api:\n    build: .\n    command: python serve.py\n"
CUDA_BASE = "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nCMD python serve.py\n"
GENERATES = "model = load().to('cuda')\nprint(model.generate(ids))\n"
JOB = "#!/bin/bash\n#SBATCH --time=1:00:00\n{more}srun python ask.py\n"


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        ({"compose.yaml": VLLM_SERVICE}, "warning"),
        ({"compose.yaml": VLLM_SERVICE + RESERVED}, None),
        ({"compose.yaml": VLLM_SERVICE + "    gpus: all\n"}, None),
        ({"compose.yaml": VLLM_SERVICE + "    runtime: nvidia\n"}, None),
        ({"compose.yaml": VLLM_SERVICE + "    devices: [nvidia.com/gpu=all]\n"}, None),
        ({"compose.yaml": VLLM_SERVICE, "compose.gpu.yaml": VLLM_SERVICE + RESERVED}, None),
        ({"compose.yaml": BUILT, "Dockerfile": CUDA_BASE}, "warning"),
        ({"compose.yaml": BUILT + "    gpus: all\n", "Dockerfile": CUDA_BASE}, None),
        ({"compose.yaml": BUILT, "Dockerfile": "FROM python:3.11\n"}, None),
        ({"compose.yaml": "services:\n  o:\n    image: ollama/ollama\n"}, "info"),
        ({"compose.yaml": "services:\n  db:\n    image: postgres:16\n"}, None),
        ({"run.sh": "docker run -p 80:80 vllm/vllm-openai:latest --model m\n"}, "warning"),
        ({"run.sh": "docker run --gpus all vllm/vllm-openai:latest --model m\n"}, None),
        ({"run.sh": "docker run --gpus=all vllm/vllm-openai:latest --model m\n"}, None),
        ({"run.sh": "docker run $GPU_OPTIONS vllm/vllm-openai:latest --model m\n"}, None),
        ({"run.sh": "docker run vllm/vllm-openai-cpu:latest --model m\n"}, None),
        ({"a.slurm": JOB.format(more=""), "ask.py": GENERATES}, "warning"),
        ({"a.slurm": JOB.format(more="#SBATCH --gres=gpu:1\n"), "ask.py": GENERATES}, None),
        ({"a.slurm": JOB.format(more="#SBATCH --gpus-per-node=1\n"), "ask.py": GENERATES}, None),
        ({"a.slurm": JOB.format(more="#SBATCH -p gpu\n"), "ask.py": GENERATES}, "info"),
        ({"a.slurm": JOB.format(more=""), "ask.py": "print('cuda')\n"}, None),
        ({"a.sh": "python ask.py\n", "ask.py": GENERATES}, None),
    ],
)
def test_containers_and_jobs_that_are_given_no_gpu(
    files: dict[str, str], severity: str | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = lint([tmp_path / next(iter(files))], select=("server-gets-no-gpu",)).findings
    assert [one.severity for one in found] == ([severity] if severity else [])


POD = """apiVersion: v1
kind: Service
metadata: {{name: llm}}
---
apiVersion: apps/v1
kind: {kind}
spec:
  template:
    spec:
      containers:
        - name: llm
          image: {image}
          args: {args}
          env:
            - name: CUDA_GRAPHS
              value: "{graphs}"
"""
TGI_IMAGE = "ghcr.io/huggingface/text-generation-inference:3"


@pytest.mark.parametrize(
    ("image", "args", "graphs", "lines"),
    [
        ("vllm/vllm-openai:v0.9", '["--model", "m", "--enforce-eager"]', "1", [13]),
        ("python:3.12", '["bash", "-c", "vllm serve m --max-num-seqs 1"]', "1", [13]),
        (TGI_IMAGE, '["--model-id", "m"]', "0", [15]),
        ("vllm/vllm-openai:v0.9", '["--model", "m", "--max-num-seqs", "256"]', "1", []),
        (TGI_IMAGE, '["--model-id", "m"]', "1,2", []),
        # a variable of another program
        ("vllm/vllm-openai:v0.9", '["--model", "m"]', "0", []),
    ],
)
def test_servers_of_a_cluster(
    tmp_path: Path, image: str, args: str, graphs: str, lines: list[int]
) -> None:
    file = tmp_path / "k8s" / "llm.yaml"
    file.parent.mkdir()
    file.write_text(POD.format(kind="Deployment", image=image, args=args, graphs=graphs))
    findings = lint([str(tmp_path)], select=("CMD",)).findings
    assert [case.line for one in findings for case in one.cases] == lines


HELM = """image:
  repository: {image}
  tag: v1
extraArgs:
  - "--model=m"
  - "{option}"
"""
LLAMA_CPP_VALUES = """image:
  repository: ghcr.io/ggml-org/llama.cpp
  tag: server-cuda
args: ["-m", "/models/a.gguf", "-ngl", "{layers}", "--jinja"]
"""
KSERVE = """apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
spec:
  predictor:
    containers:
      - image: vllm/vllm-openai:1
        args:
          - --model=m
          - {option}
"""
UNIT = """[Service]
Environment="OLLAMA_NUM_PARALLEL={users}" "OLLAMA_HOST=0.0.0.0"
ExecStart=-/usr/bin/vllm serve m \\
  {option}
"""


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("values.yaml", HELM.format(image="vllm/vllm-openai", option="--enforce-eager"), [6]),
        ("values-prod.yml", HELM.format(image="vllm/vllm-openai", option="--seed=1"), []),
        ("values.yaml", HELM.format(image="postgres", option="--enforce-eager"), []),
        ("values.yaml", LLAMA_CPP_VALUES.format(layers=0), [4]),
        ("values.yaml", LLAMA_CPP_VALUES.format(layers=99), []),
        ("isvc.yaml", KSERVE.format(option="--max-num-seqs=2"), [9]),
        ("isvc.yaml", KSERVE.format(option="--max-num-seqs=256"), []),
        ("llm.service", UNIT.format(users=1, option="--seed 1"), [2]),
        ("llm.service", UNIT.format(users=4, option="--enforce-eager"), [3]),
        ("llm.service", UNIT.format(users=4, option="--seed 1"), []),
        ("llm.service", "[Service]\n# Environment=OLLAMA_NUM_PARALLEL=1\nRestart=always\n", []),
    ],
)
def test_servers_of_charts_and_units(
    tmp_path: Path, name: str, text: str, lines: list[int]
) -> None:
    (tmp_path / name).write_text(text)
    findings = lint([str(tmp_path)], select=("CMD",)).findings
    assert [case.line for one in findings for case in one.cases] == lines


CHART_TEMPLATE = """apiVersion: apps/v1
kind: Deployment
spec:
  args:
    {{- range .Values.args }}
    - {{ . }}
    {{- end }}
"""


def test_the_template_of_a_chart_holds_up_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "deployment.yaml").write_text(CHART_TEMPLATE)
    (tmp_path / "values.yaml").write_text(
        HELM.format(image="vllm/vllm-openai", option="--enforce-eager")
    )
    report = lint([str(tmp_path)], select=("CMD",))
    assert [case.line for one in report.findings for case in one.cases] == [6]
    assert not any("deployment.yaml" in one.reason for one in report.not_judged)


def test_yaml_that_describes_no_pod_is_no_file_of_commands(tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(POD.format(kind="Ingress", image="i", args="[]", graphs="0"))
    assert not is_command_file(file)


@pytest.mark.parametrize(
    ("settings", "options", "places"),
    [
        ("model: m\nmax-num-seqs: 1\n", "", [("max-num-seqs: 1", 2)]),
        ("model: m\nenforce_eager: true\n", "", [("enforce-eager: true", 2)]),
        ("model: m\nmax-num-seqs: 1\n", " --max-num-seqs 64", []),
        ("model: m\nenforce_eager: false\nmax-num-seqs: 256\n", "", []),
        ("- max-num-seqs: 1\n", "", []),
    ],
)
def test_the_file_of_settings_of_a_server(
    tmp_path: Path, settings: str, options: str, places: list[tuple[str, int]]
) -> None:
    (tmp_path / "llm.yaml").write_text(settings)
    (tmp_path / "serve.sh").write_text(f"vllm serve --config llm.yaml{options}\n")
    findings = lint([str(tmp_path / "serve.sh")], select=("CMD002",)).findings
    assert [(case.text, case.line) for one in findings for case in one.cases] == places
