"""Settings and commands of TRL that train a chat model on plain strings, and rows that go through its template."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import truetune

RULE = "chat-model-trained-on-plain-strings"
INSTRUCT = "acme/assistant-7b-instruct"
PAIR = {"prompt": "When does shop 4 open?", "chosen": "At nine.", "rejected": "Who knows."}
ANSWER = {"prompt": "When does shop 4 open?", "completion": "At nine."}
IMPLICIT = {"chosen": "When? At nine.", "rejected": "When? Who knows."}
THUMB = {**ANSWER, "label": True}
DPO = {"model_name_or_path": INSTRUCT, "dataset_name": "rows.jsonl", "beta": 0.1}
SFT = {"model_name_or_path": INSTRUCT, "dataset_name": "rows.jsonl", "packing": False}
LISTED = {
    "model_name_or_path": INSTRUCT,
    "datasets": [{"path": "json", "data_files": "rows.jsonl", "split": "train"}],
    "loss_type": "sigmoid",
    "beta": 0.1,
}
COMMAND = f"trl dpo --model_name_or_path {INSTRUCT} --dataset_name rows.jsonl --output_dir out\n"
SFT_COMMAND = f"accelerate launch -m trl.scripts.sft --model_name_or_path {INSTRUCT} --dataset_name rows.jsonl\n"
DOCKER = f"FROM image\nCMD trl dpo --model_name_or_path {INSTRUCT} --dataset_name rows.jsonl\n"
GRPO_COMMAND = f"trl grpo --model_name_or_path {INSTRUCT} --dataset_name rows.jsonl --reward_funcs think_format_reward\n"
TEMPLATE = "ids = tok.apply_chat_template(chat, add_generation_prompt=True)\nmodel.generate(ids)\n"
BARE = """from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("out")
print(tok.decode(model.generate(**tok("How are you?", return_tensors="pt"))[0]))
"""
SHAPES = """from trl import DPOConfig, DPOTrainer, ModelConfig, ScriptArguments, TrlParser
script, args, model = TrlParser((ScriptArguments, DPOConfig, ModelConfig)).parse_args_and_config()
rows = load(script.dataset_name).map(as_messages)
DPOTrainer(model.model_name_or_path, args=args, train_dataset=rows).train()
"""


def messages(row: dict[str, Any]) -> dict[str, Any]:
    """The row as TRL takes it through the template."""
    return {
        name: [{"role": "user" if name == "prompt" else "assistant", "content": text}]
        for name, text in row.items()
    }


def messages_found(folder: Path, files: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """What the rule says of a folder with these files and eight such rows."""
    (folder / "rows.jsonl").write_text((json.dumps(row) + "\n") * 8, encoding="utf-8")
    for name, value in files.items():
        text = value if isinstance(value, str) else yaml.safe_dump(value, sort_keys=False)
        (folder / name).write_text(text, encoding="utf-8")
    report = truetune.check([str(folder)], select=[RULE])
    return [finding.message for finding in report.findings]


@pytest.mark.parametrize(
    ("files", "row"),
    [
        ({"dpo.yaml": DPO}, PAIR),
        ({"dpo.yaml": LISTED, "ask.py": TEMPLATE}, PAIR),
        ({"dpo.yaml": DPO}, IMPLICIT),
        ({"sft.yaml": SFT}, ANSWER),
        ({"run.sh": COMMAND}, PAIR),
        ({"job.slurm": "#!/bin/bash\n#SBATCH --gres=gpu:4\nsrun " + COMMAND}, PAIR),
        ({"train.sh": SFT_COMMAND}, ANSWER),
        ({"Dockerfile": DOCKER}, PAIR),
        ({"run.sh": COMMAND.replace("trl dpo", "trl kto")}, THUMB),
        ({"run.sh": GRPO_COMMAND}, {"prompt": "What is 3 + 4?", "answer": "7"}),
    ],
)
def test_plain_strings_of_a_chat_model(
    files: dict[str, Any], row: dict[str, Any], tmp_path: Path
) -> None:
    (message,) = messages_found(tmp_path, files, row)
    assert "so the chat template is not applied" in message


@pytest.mark.parametrize(
    ("files", "row"),
    [
        ({"dpo.yaml": DPO}, messages(PAIR)),
        ({"sft.yaml": SFT}, messages(ANSWER)),
        ({"dpo.yaml": DPO | {"model_name_or_path": "acme/base-7b"}}, PAIR),
        ({"dpo.yaml": DPO}, PAIR | {"prompt": "<|im_start|>user\nWhen?<|im_end|>\n<|im_start|>assistant\n"}),
        ({"dpo.yaml": DPO}, {"chosen": "\n\nHuman: When?\n\nAssistant: At nine.", "rejected": "\n\nHuman: When?\n\nAssistant: No."}),
        ({"dpo.yaml": DPO, "ask.py": BARE}, PAIR),
        ({"dpo.yaml": DPO, "train.py": SHAPES}, PAIR),
        ({"dpo.yaml": DPO | {"dataset_name": "acme/pairs"}}, PAIR),
        (
            {"sft.yaml": {
                "model_name_or_path": INSTRUCT, "stage": "dpo", "do_train": True, "finetuning_type": "lora",
                "dataset": "rows", "template": "qwen",
            }},
            PAIR,
        ),
        ({"run.yml": {"base_model": INSTRUCT, "rl": "dpo", "sequence_len": 512,
                      "datasets": [{"path": "rows.jsonl", "type": "chat_template.default"}]}}, PAIR),
        ({"run.sh": COMMAND}, {"prompt": "When?", "chosen": messages(PAIR)["chosen"], "rejected": messages(PAIR)["rejected"]}),
    ],
)  # fmt: skip
def test_rows_that_are_rendered_or_meant_as_they_are(
    files: dict[str, Any], row: dict[str, Any], tmp_path: Path
) -> None:
    assert messages_found(tmp_path, files, row) == []


OPENRLHF = (
    "python3 -m openrlhf.cli.train_ppo_ray --pretrain {model} --prompt_data rows.jsonl --input_key prompt"
    " --advantage_estimator rloo --n_samples_per_prompt 8 {more}\n"
)


@pytest.mark.parametrize(
    ("model", "more", "row", "is_found"),
    [
        (INSTRUCT, "", {"prompt": "What is 3 + 4?"}, True),
        (INSTRUCT, "--data.max_len 2048", {"prompt": "What is 3 + 4?"}, True),
        (INSTRUCT, "--apply_chat_template", {"prompt": "What is 3 + 4?"}, False),
        (INSTRUCT, "--data.apply_chat_template", {"prompt": "What is 3 + 4?"}, False),
        (INSTRUCT, "--input_template 'User: {}'", {"prompt": "What is 3 + 4?"}, False),
        (
            INSTRUCT,
            "",
            {"prompt": "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"},
            False,
        ),
        (INSTRUCT, "", {"question": "What is 3 + 4?"}, False),
        ("acme/base-7b", "", {"prompt": "What is 3 + 4?"}, False),
    ],
)
def test_commands_of_openrlhf_without_a_template(
    model: str, more: str, row: dict[str, Any], is_found: bool, tmp_path: Path
) -> None:
    command = OPENRLHF.replace("{model}", model).replace("{more}", more)
    found = messages_found(tmp_path, {"run.sh": command}, row)
    assert ["--apply_chat_template is not given" in one for one in found] == [True] * is_found
