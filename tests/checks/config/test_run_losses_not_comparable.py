"""Runs side by side whose losses are means over different tokens or rows, and pairs that may be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import truetune
from truetune.checks.findings import Finding

ROWS = [
    {
        "messages": [
            {"role": "system", "content": "You are the desk of a bank. Never ask for a password."},
            {"role": "user", "content": f"Where is order {n}?"},
            {"role": "assistant", "content": f"It is in hall {n}."},
        ]
    }
    for n in range(30)
]
PAIRS = [{"prompt": f"Where is order {n}?", "completion": f"In hall {n}."} for n in range(30)]
TRL = {
    "model_name_or_path": "some/model",
    "dataset_name": "rows",
    "max_length": 2048,
    "eval_strategy": "steps",
    "learning_rate": 1e-5,
}
AXOLOTL = {
    "base_model": "some/model",
    "sequence_len": 2048,
    "micro_batch_size": 1,
    "adapter": "lora",
    "val_set_size": 0.05,
    "eval_steps": 10,
    "datasets": [{"path": "org/chats", "type": "chat_template"}],
}
FACTORY = {
    "model_name_or_path": "some/model",
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "lora",
    "dataset": "chats",
    "cutoff_len": 2048,
    "val_size": 0.1,
    "eval_strategy": "steps",
    "eval_steps": 10,
}
RUN = {"a.log": "{'loss': 1.2, 'epoch': 0.5}\\n{'eval_loss': 1.1, 'epoch': 1.0}\\n"}
THREE = {"c.yaml": TRL | {"output_dir": "out/c", "learning_rate": 3e-5}}
SCRIPT = """
from datasets import load_dataset
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("some/model")
rows = load_dataset("org/chats", split="train")
args = SFTConfig(output_dir="{out}", max_length=2048, eval_strategy="epoch"{more})
SFTTrainer(model, args=args, train_dataset=rows, eval_dataset=rows).train()
"""


def losses(folder: Path, files: dict[str, Any]) -> list[Finding]:
    (folder / "rows").mkdir()
    rows = files.pop("rows", ROWS)
    text = "\n".join(map(json.dumps, rows))
    (folder / "rows" / "train.jsonl").write_text(text, encoding="utf-8")
    for name, value in files.items():
        content = value if isinstance(value, str) else yaml.safe_dump(value)
        (folder / name).write_text(content, encoding="utf-8")
    report = truetune.check([str(folder)])
    return [one for one in report.findings if one.rule == "run-losses-not-comparable"]


def pair(base: dict[str, Any], one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        "a.yaml": base | {"output_dir": "out/a"} | one,
        "b.yaml": base | {"output_dir": "out/b"} | other,
    }


@pytest.mark.parametrize(
    ("files", "named", "severity"),
    [
        (
            pair(TRL, {}, {"assistant_only_loss": True}),
            "assistant_only_loss: false and true",
            "warning",
        ),
        (
            pair(TRL, {"assistant_only_loss": True}, {"assistant_only_loss": False}),
            "different tokens",
            "warning",
        ),
        (
            pair(TRL, {}, {"completion_only_loss": False}) | {"rows": PAIRS},
            "completion_only_loss: none and false",
            "warning",
        ),
        (pair(TRL, {}, {"label_smoothing_factor": 0.1}), "different quantities", "warning"),
        (pair(TRL, {"packing": True}, {}) | RUN, "weighted differently", "info"),
        (
            pair(AXOLOTL, {"train_on_inputs": True}, {}),
            "train_on_inputs: true and false",
            "warning",
        ),
        (
            pair(
                AXOLOTL,
                {},
                {
                    "datasets": [
                        {
                            "path": "org/chats",
                            "type": "chat_template",
                            "roles_to_train": ["user", "assistant"],
                        }
                    ]
                },
            ),
            "roles_to_train",
            "warning",
        ),
        (pair(AXOLOTL, {}, {"val_set_size": 0.2}), "different evaluation rows", "warning"),
        (
            pair(FACTORY, {}, {"train_on_prompt": True}),
            "train_on_prompt: false and true",
            "warning",
        ),
        (pair(FACTORY, {}, {"mask_history": True}), "mask_history", "warning"),
        (
            {
                "a.py": SCRIPT.format(out="a", more=""),
                "b.py": SCRIPT.format(out="b", more=", assistant_only_loss=True"),
            },
            "assistant_only_loss",
            "warning",
        ),
        (
            pair(
                TRL,
                {"model_name_or_path": "Qwen/Qwen3-4B"},
                {"model_name_or_path": "meta-llama/Llama-3.1-8B"},
            )
            | RUN,
            "different vocabularies",
            "info",
        ),
        (
            pair(TRL | {"eval_strategy": "no"}, {}, {"assistant_only_loss": True}),
            "different tokens",
            "info",
        ),
        (
            pair(AXOLOTL, {}, {"val_set_size": 0.2})
            | {"c.yaml": AXOLOTL | {"base_model": "m/n", "output_dir": "out/c"}}
            | RUN,
            "different evaluation rows",
            "warning",
        ),
    ],
)
def test_losses_of_different_tokens(
    files: dict[str, Any], named: str, severity: str, tmp_path: Path
) -> None:
    (finding,) = losses(tmp_path, files)
    assert named in finding.message
    assert finding.severity == severity
    assert {Path(case.file or "").suffix for case in finding.cases} <= {".yaml", ".py"}
    assert len({case.file for case in finding.cases}) == 2


def test_shares_and_lines(tmp_path: Path) -> None:
    (finding,) = losses(tmp_path, pair(TRL, {}, {"assistant_only_loss": True}))
    assert "by default" in finding.cases[0].text
    assert finding.cases[1].line == 1
    assert "81% of the characters are in prompts" in " ".join(finding.evidence)


@pytest.mark.parametrize(
    "files",
    [
        pair(TRL, {}, {"learning_rate": 2e-5}),
        pair(TRL, {}, {"assistant_only_loss": False, "label_smoothing_factor": 0.0}),
        # A switch for completions does nothing to rows of messages.
        pair(TRL, {}, {"completion_only_loss": True}),
        # A second stage goes on from the first.
        pair(TRL, {}, {"model_name_or_path": "out/a", "assistant_only_loss": True}),
        pair(TRL, {}, {"dataset_name": "org/other", "assistant_only_loss": True}),
        pair(FACTORY, {}, {"stage": "dpo", "train_on_prompt": True}),
        pair(FACTORY, {}, {"stage": "pt", "packing": True}),
        pair(AXOLOTL, {"seed": 1}, {"seed": 2}),
        # Another model of the same family, with the same tokens.
        pair(TRL, {"model_name_or_path": "Qwen/Qwen3-4B"}, {"model_name_or_path": "Qwen/Qwen3-8B"}),
        pair(TRL, {}, {"model_name_or_path": "other/model", "assistant_only_loss": True}),
        # Examples of a library: none was run, so that there is no loss to compare.
        pair(TRL, {}, {"assistant_only_loss": True}) | THREE,
        pair(AXOLOTL, {}, {"val_set_size": 0.2})
        | {"c.yaml": AXOLOTL | {"base_model": "m/n", "output_dir": "out/c"}},
        pair(TRL, {"packing": True}, {}),
        pair(
            TRL,
            {"model_name_or_path": "Qwen/Qwen3-4B"},
            {"model_name_or_path": "meta-llama/Llama-3.1-8B"},
        ),
        {"a.yaml": TRL | {"output_dir": "out/a"}, "train.sh": "python train.py --config a.yaml\n"},
        {
            f"{n}.yaml": TRL | {"output_dir": f"out/{n}", "assistant_only_loss": n % 2 == 0}
            for n in range(8)
        },
    ],
)
def test_runs_that_may_be_compared(files: dict[str, Any], tmp_path: Path) -> None:
    assert losses(tmp_path, files) == []
