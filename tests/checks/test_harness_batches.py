"""lm_eval that asks one row at a time, and runs that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.findings import Finding
from truetune.checks.lint import lint


def found(folder: Path, text: str, name: str = "run.sh") -> list[Finding]:
    path = folder / name
    path.write_text(text)
    return list(lint([str(path)], select=("harness-asks-row-by-row",)).findings)


@pytest.mark.parametrize(
    "text",
    [
        "lm_eval --model hf --model_args pretrained=out --tasks gsm8k\n",
        "lm_eval --model_args pretrained=out,peft=adapter --tasks ifeval --device cuda:0\n",
        "python -m lm_eval --model hf --model_args pretrained=out --tasks bbh --batch_size 1\n",
        "accelerate launch -m lm_eval --model hf --model_args pretrained=out --tasks humaneval\n",
        "lm-eval --model=hf --model_args=pretrained=out --tasks=gsm8k,mmlu --limit 0.5\n",
    ],
)
def test_answers_are_generated_one_by_one(tmp_path: Path, text: str) -> None:
    [finding] = found(tmp_path, text)
    assert finding.severity == "warning"
    assert "one row at a time" in finding.message
    assert "--batch_size auto" in finding.remedy


def test_given_answers_are_compared_one_by_one(tmp_path: Path) -> None:
    text = "lm_eval --model hf --model_args pretrained=out --tasks hellaswag,arc_easy\n"
    [finding] = found(tmp_path, text)
    assert finding.severity == "info"


@pytest.mark.parametrize(
    "text",
    [
        "lm_eval --model hf --model_args pretrained=out --tasks gsm8k --batch_size auto\n",
        "lm_eval --model hf --model_args pretrained=out --tasks gsm8k -b 16\n",
        "lm_eval --model hf --model_args pretrained=out --tasks gsm8k --batch_size $BS\n",
        "lm_eval --model vllm --model_args pretrained=out --tasks gsm8k\n",
        "lm_eval --model local-completions --model_args model=m,base_url=http://h/v1 --tasks gsm8k\n",
        "lm_eval --model hf --model_args pretrained=out --tasks gsm8k --limit 20\n",
        "lm_eval --model hf --model_args pretrained=out --tasks gsm8k --limit $LIMIT\n",
    ],
)
def test_batches_and_short_runs_are_sound(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []
