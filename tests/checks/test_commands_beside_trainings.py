"""Commands that evaluate, serve or convert, beside a training in another file: the base, or another run."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

TRAIN = """
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("{base}")
trainer = SFTTrainer(model=model, args=SFTConfig(output_dir="{out}"), train_dataset=rows)
trainer.train()
trainer.save_model("{out}/final")
"""
MERGE = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained("m/base")
PeftModel.from_pretrained(base, "runs/3/final").merge_and_unload().save_pretrained("runs/merged")
"""
ASK = """
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("runs/3/final")
model.generate(**inputs, max_new_tokens=20)
"""
PY = TRAIN.format(base="m/base", out="runs/3")
LOCAL = TRAIN.format(base="./models/base", out="runs/3")
HARNESS = (
    "lm_eval --model hf --model_args pretrained=m/base{} --tasks a --output_path results/tuned\n"
)
GGUF = "python llama.cpp/convert_hf_to_gguf.py {} --outfile tuned.gguf --outtype bf16\n"
COMPOSE = "services:\n  llm:\n    image: vllm/vllm-openai\n    command: --model m/base --port 80\n"
AXOLOTL = (
    "base_model: m/base\nadapter: lora\nlora_r: 8\noutput_dir: ./runs/3\ndatasets:\n"
    "  - path: a.jsonl\n    type: chat_template\nmicro_batch_size: 1\n"
)
FACTORY = (
    "model_name_or_path: m/base\nstage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: qwen\ndataset: a\n"
    "output_dir: runs/3\n"
)
ADAPTER = {
    "runs/3/adapter_config.json": '{"peft_type": "LORA", "base_model_name_or_path": "m/base"}'
}
RECIPE = (
    "output_dir: ./runs/3\nmodel: {_component_: torchtune.models.llama3_2.lora_llama3_2_1b}\n"
    "checkpointer:\n  checkpoint_dir: ./models/base\n  checkpoint_files: [model.safetensors]\n"
    "  output_dir: ${output_dir}\n"
)
ASKED = (
    "model: {{_component_: torchtune.models.llama3_2.llama3_2_1b}}\n"
    "checkpointer:\n  checkpoint_dir: {}\n  checkpoint_files: [model.safetensors]\n"
)
TUNE = "tune run lora_finetune_single_device --config sft.yaml\ntune run {} --config ask.yaml {}\n"
SWIFT = (
    "swift sft --model m/base --dataset a.jsonl --max_length 2048 --output_dir runs/3\n"
    "swift infer --model m/base --max_new_tokens 512 {}\n"
)
BASE_USED = {
    "torchtune": {
        "sft.yaml": RECIPE,
        "ask.yaml": ASKED.format("./models/base"),
        "run.sh": TUNE.format("eleuther_eval", ""),
    },
    "torchtune, by an override": {
        "sft.yaml": RECIPE,
        "ask.yaml": ASKED.format("./elsewhere"),
        "run.sh": TUNE.format("generate", "checkpointer.checkpoint_dir=./models/base"),
    },
    "ms-swift": {"run.sh": SWIFT.format("")},
    "settings": {"axolotl.yml": AXOLOTL, "eval.sh": HARNESS.format("")} | ADAPTER,
    "settings of another stack": {"sft.yaml": FACTORY, "eval.sh": HARNESS.format("")} | ADAPTER,
    "harness": {"train.py": PY, "eval.sh": HARNESS.format("")},
    "harness, more arguments": {"train.py": PY, "eval.sh": HARNESS.format(",dtype=bfloat16")},
    "module": {
        "train.py": PY,
        "eval.sh": "python -m lm_eval --model vllm --model_args pretrained=m/base --tasks a\n",
    },
    "converter": {"train.py": LOCAL, "merge.py": MERGE, "x.sh": GGUF.format("./models/base")},
    "converter, options first": {
        "train.py": LOCAL,
        "x.sh": "python convert_hf_to_gguf.py --outtype f16 --outfile a.gguf models/base/\n",
    },
    "server": {"train.py": PY, "serve.sh": "vllm serve m/base --max-model-len 4096\n"},
    "container": {"train.py": PY, "compose.yaml": COMPOSE},
    "training in another file": {
        "train.sh": "trl sft --model_name_or_path m/base --dataset_name a --output_dir runs/3\n",
        "eval.sh": HARNESS.format(""),
    },
}
BASE_FINE = {
    "torchtune": {
        "sft.yaml": RECIPE,
        "ask.yaml": ASKED.format("./runs/3/epoch_1"),
        "run.sh": TUNE.format("eleuther_eval", ""),
    },
    "torchtune, by an override": {
        "sft.yaml": RECIPE,
        "ask.yaml": ASKED.format("./models/base"),
        "run.sh": TUNE.format("generate", "checkpointer.checkpoint_dir=./runs/3/epoch_0"),
    },
    "torchtune, written beside the base": {
        "sft.yaml": RECIPE.replace("./runs/3", "./models/base"),
        "ask.yaml": ASKED.format("./models/base"),
        "run.sh": TUNE.format("eleuther_eval", ""),
    },
    "torchtune, settings that are not here": {
        "sft.yaml": RECIPE,
        "run.sh": TUNE.format("eleuther_eval", ""),
    },
    "ms-swift": {"run.sh": SWIFT.format("--adapters runs/3/v0-1/checkpoint-10")},
    "settings, not run": {"axolotl.yml": AXOLOTL, "eval.sh": HARNESS.format("")},
    "settings, adapter asked": {"a.yml": AXOLOTL, "eval.sh": HARNESS.format(",peft=runs/3")}
    | ADAPTER,
    "settings, merged by others": {
        "sft.yaml": FACTORY,
        "merge.yaml": "model_name_or_path: m/base\nadapter_name_or_path: runs/3\nexport_dir: merged\ntemplate: qwen\n",
        "eval.sh": HARNESS.format(""),
    }
    | ADAPTER,
    "adapter": {"train.py": PY, "eval.sh": HARNESS.format(",peft=runs/3/final")},
    "both": {"train.py": PY, "eval.sh": HARNESS.format("") + HARNESS.format(",peft=runs/3/final")},
    "both in two files": {
        "train.py": PY,
        "eval.sh": HARNESS.format(""),
        "more.sh": HARNESS.format(",peft=runs/3/final"),
    },
    "a name of the base": {
        "train.py": PY,
        "eval.sh": HARNESS.format("").replace("results/tuned", "results/base"),
    },
    "a file of the base": {"train.py": PY, "eval_baseline.sh": HARNESS.format("")},
    "another model": {"train.py": PY, "eval.sh": HARNESS.format("").replace("m/base", "m/other")},
    "variable": {"train.py": PY, "eval.sh": HARNESS.format("") + HARNESS.format(",peft=$1")},
    "script asks": {"train.py": PY, "ask.py": ASK, "eval.sh": HARNESS.format("")},
    "merged is converted": {
        "train.py": LOCAL,
        "merge.py": MERGE,
        "x.sh": GGUF.format("runs/merged"),
    },
    "adapter is converted": {
        "train.py": LOCAL,
        "x.sh": GGUF.format("models/base") + "python convert_lora_to_gguf.py runs/3/final\n",
    },
    "two trainings": {
        "train.py": PY,
        "train_two.py": TRAIN.format(base="m/base", out="runs/4"),
        "eval.sh": HARNESS.format(""),
    },
    "served with the adapter": {
        "train.py": PY,
        "serve.sh": "vllm serve m/base --enable-lora --lora-modules a=runs/3/final\n",
    },
    "no training": {"eval.sh": HARNESS.format("")},
}
EVALUATE = "python evaluate.py --model {} --output results/{}.json\n"
OTHER_RUN = {
    "checkpoint": {"train.py": PY, "eval.sh": EVALUATE.format("runs/1/checkpoint-50", "3")},
    "final": {"train.py": PY, "eval.sh": EVALUATE.format("./runs/2/final", "new")},
    "harness": {
        "train.py": PY,
        "eval.sh": HARNESS.format(",peft=runs/1/checkpoint-900"),
    },
    "server": {"train.py": PY, "serve.sh": "vllm serve --model runs/2/checkpoint-10\n"},
    "names with numbers": {
        "train.sh": "trl sft --model_name_or_path m/b --dataset_name a --output_dir out/v3-lora\n",
        "eval.sh": EVALUATE.format("out/v2-lora/checkpoint-9", "v3-lora"),
    },
    "training in the same file": {
        "run.sh": "trl sft --model_name_or_path m/b --dataset_name a --output_dir out/run3\n"
        + EVALUATE.format("out/run1", "run3")
    },
}
OWN_RUN = {
    "own": {"train.py": PY, "eval.sh": EVALUATE.format("runs/3/final", "3")},
    "own checkpoint": {"train.py": PY, "eval.sh": EVALUATE.format("runs/3/checkpoint-50", "3")},
    "both": {
        "train.py": PY,
        "eval.sh": EVALUATE.format("runs/1/final", "1") + EVALUATE.format("runs/3/final", "3"),
    },
    "no sibling": {"train.py": PY, "eval.sh": EVALUATE.format("models/qwen/instruct", "3")},
    "another kind": {"train.py": PY, "eval.sh": EVALUATE.format("runs/merged", "3")},
    "baseline": {"train.py": PY, "eval.sh": EVALUATE.format("runs/1/final", "baseline")},
    "written by a command": {
        "train.py": PY,
        "train.sh": "python train.py --output_dir runs/1\n",
        "eval.sh": EVALUATE.format("runs/1/final", "3"),
    },
    "variable": {"train.py": PY, "eval.sh": EVALUATE.format("runs/1/final", "1") + "python evaluate.py --model $1\n"},
}  # fmt: skip


def _found(folder: Path, rule: str, files: dict[str, str]) -> int:
    (folder / ".git").mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    paths = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return len(lint(paths, select=[rule]).findings)


@pytest.mark.parametrize("case", BASE_USED)
def test_a_command_uses_the_base_of_a_training(case: str, tmp_path: Path) -> None:
    assert _found(tmp_path, "base-evaluated-after-training", BASE_USED[case]) == 1


@pytest.mark.parametrize("case", BASE_FINE)
def test_a_command_that_may_use_the_base_is_left_alone(case: str, tmp_path: Path) -> None:
    assert _found(tmp_path, "base-evaluated-after-training", BASE_FINE[case]) == 0


@pytest.mark.parametrize("case", OTHER_RUN)
def test_a_command_evaluates_another_run(case: str, tmp_path: Path) -> None:
    assert _found(tmp_path, "evaluates-another-run", OTHER_RUN[case]) == 1


@pytest.mark.parametrize("case", OWN_RUN)
def test_a_command_that_evaluates_its_run_is_left_alone(case: str, tmp_path: Path) -> None:
    assert _found(tmp_path, "evaluates-another-run", OWN_RUN[case]) == 0
