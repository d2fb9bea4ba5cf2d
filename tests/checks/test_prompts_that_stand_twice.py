"""Prompts that stand twice in rows and answers, and references without the adapter that training starts from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.lint import lint
from truetune.evaluation.score_predictions import score
from truetune.settings.run_spec import RunSpec

SHAPING = """\
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer
TURN = "\\n\\nAssistant:"
def split(row):
    cut = row["chosen"].rfind(TURN) + len(TURN)
    return {{"prompt": row["chosen"][:cut], "chosen": row["chosen"]{0}, "rejected": row["rejected"]{0}}}
rows = load_dataset("json", data_files="pairs.jsonl", split="train").map(split)
trainer = DPOTrainer(model="m/7b", args=DPOConfig(output_dir="o"), train_dataset=rows)
trainer.train()
"""
LOOP = """\
import torch
import torch.nn.functional as F
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained("m/7b")
{load}
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-6)
for batch in pairs:
    {reference}
    chosen, rejected = logps(model, batch)
    loss = -F.logsigmoid(0.1 * ((chosen - ref_chosen) - (rejected - ref_rejected))).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LOAD = 'model = PeftModel.from_pretrained(base, "out/sft", is_trainable=True)'
OFF = "with torch.no_grad(), model.disable_adapter():\n        ref_chosen, ref_rejected = logps(model, batch)"


def question(number: int) -> str:
    return f"How many litres does plant number {number} need each week in summer?"


def answer(number: int) -> str:
    return f"It needs {number + 2} litres, on two days."


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("before", "behind", "every"),
    [
        ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", 4),
        ("User: ", "\nAssistant: ", 2),
        ("### Instruction:\n", "\n\n### Response:\n", 3),
        ("\n\nHuman: ", "\n\nAssistant: ", 5),
        ("[INST] ", " [/INST] ", 3),
    ],
)
def test_a_part_of_the_answers_begins_with_the_prompt(
    before: str, behind: str, every: int, tmp_path: Path
) -> None:
    rows = [
        {
            "prompt": f"{before}{question(n)}{behind}",
            "prediction": (f"{before}{question(n)}{behind}" if n % every else "") + answer(n),
            "reference": answer(n),
            "finish_reason": "stop",
        }
        for n in range(24)
    ]
    (finding,) = score(write(tmp_path / "p.jsonl", rows)).findings
    assert finding.code == "ANS008"
    assert "the model writes it" in finding.message


@pytest.mark.parametrize(
    "form",
    ["{a}", "You ask: {q} {a}", "As to plant {n}: {a}"],
)
def test_answers_that_speak_of_the_question_are_fine(form: str, tmp_path: Path) -> None:
    rows = [
        {
            "prompt": f"Human: {question(n)}\n\nAssistant:",
            "prediction": form.format(q=question(n), a=answer(n), n=n) if n < 2 else answer(n),
            "reference": answer(n),
            "finish_reason": "stop",
        }
        for n in range(24)
    ]
    assert not score(write(tmp_path / "p.jsonl", rows)).findings


@pytest.mark.parametrize(("cut", "is_wrong"), [("", True), ("[cut:]", False)])
def test_the_rows_that_a_script_makes(
    cut: str, is_wrong: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            side: f"\n\nHuman: {question(n)}\n\nAssistant: {text}{answer(n)}"
            for side, text in (("chosen", "Well. "), ("rejected", "Perhaps so, perhaps not. "))
        }
        for n in range(40)
    ]
    write(tmp_path / "pairs.jsonl", rows)
    (tmp_path / "train.py").write_text(SHAPING.format(cut), encoding="utf-8")
    codes = [finding.code for finding in check_paths(["."], RunSpec()).findings]
    assert ("PREF007" in codes) == is_wrong
    assert "ROW005" not in codes


@pytest.mark.parametrize(
    ("prompt", "completion", "is_wrong"),
    [
        ("Human: {q}\n\nAssistant:", "Human: {q}\n\nAssistant: {a}", True),
        ("{q}", "<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n{a}", True),
        (
            "### Instruction:\n{q}\n\n### Response:\n",
            "### Instruction:\n{q}\n\n### Response:\n{a}",
            True,
        ),
        ("Human: {q}\n\nAssistant:", " {a}", False),
        ("{q}", "{q} {a}", False),
        ("{q}", "You ask: {q} {a}", False),
    ],
)
@pytest.mark.parametrize("verdict", [False, True])
def test_completions_that_begin_with_their_prompt(
    prompt: str, completion: str, is_wrong: bool, verdict: bool, tmp_path: Path
) -> None:
    rows = [
        {
            "prompt": prompt.format(q=question(n)),
            "completion": completion.format(q=question(n), a=answer(n)),
            **({"label": n % 2 == 0} if verdict else {}),
        }
        for n in range(40)
    ]
    report = check_paths([write(tmp_path / "rows.jsonl", rows)], RunSpec())
    assert ("PREF025" in [finding.code for finding in report.findings]) == is_wrong


@pytest.mark.parametrize(
    ("load", "reference", "is_wrong"),
    [
        (LOAD, OFF, True),
        (
            'model = AutoPeftModelForCausalLM.from_pretrained("out/sft", is_trainable=True)',
            OFF,
            True,
        ),
        ("model = PeftModel.from_pretrained(base, ADAPTER, is_trainable=True)", OFF, True),
        (LOAD.replace("base, ", "model=base, model_id="), OFF, True),
        (f"def step():\n    pass\n{LOAD}", OFF.replace("torch.no_grad(), ", ""), True),
        (
            'model = get_peft_model(PeftModel.from_pretrained(base, "out/sft").merge_and_unload(), LoraConfig())',
            OFF,
            False,
        ),
        (f'{LOAD}\nmodel.load_adapter("out/sft", "reference")', OFF, False),
        (LOAD.replace("out/sft", "out/dpo/checkpoint-200"), OFF, False),
        (
            f"if resume:\n    {LOAD}\nelse:\n    model = get_peft_model(base, LoraConfig())",
            OFF,
            False,
        ),
        (f'{LOAD}\nother = PeftModel.from_pretrained(base2, "out/sft")', OFF, False),
    ],
)
def test_a_reference_without_the_trained_adapter(
    load: str, reference: str, is_wrong: bool, tmp_path: Path
) -> None:
    path = tmp_path / "dpo.py"
    path.write_text(LOOP.format(load=load, reference=reference), encoding="utf-8")
    assert ("SRC215" in [finding.code for finding in lint([path]).findings]) == is_wrong
