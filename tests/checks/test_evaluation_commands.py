"""Commands and settings that evaluate in float16 a model that overflows in it; and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.lint import lint
from truetune.settings.run_spec import RunSpec

LM_EVAL = (
    "lm_eval --model hf --model_args pretrained={},dtype={} --tasks hellaswag --batch_size 8\n"
)


def told(folder: Path, text: str) -> list[str]:
    """What the rule says of a script."""
    path = folder / "eval.sh"
    path.write_text(text, encoding="utf-8")
    return [one.message for one in lint([path], select=["CMD136"]).findings]


@pytest.mark.parametrize(
    "text",
    [
        LM_EVAL.format("google/gemma-2-9b", "float16"),
        LM_EVAL.format("google/gemma-3-4b-it", "half").replace("lm_eval", "python -m lm_eval"),
        "lm-eval run --model hf --model_args pretrained=out/gemma-2-9b-sft,dtype=float16 --tasks mmlu\n",
        'lighteval accelerate "model_name=google/gemma-2-9b-it,dtype=float16" "leaderboard|mmlu|0"\n',
        "python run_clm.py --model_name_or_path google/gemma-2-2b --do_eval --fp16_full_eval\n",
        "python run_summarization.py --model_name_or_path google/flan-t5-xl --do_predict --fp16_full_eval True\n",
    ],
)
def test_commands_that_overflow(tmp_path: Path, text: str) -> None:
    assert len(told(tmp_path, text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        LM_EVAL.format("google/gemma-2-9b", "bfloat16"),
        LM_EVAL.format("google/gemma-2-9b", "auto"),
        LM_EVAL.format("meta-llama/Llama-3.1-8B", "float16"),
        LM_EVAL.format("google/flan-t5-xl", "float16"),
        LM_EVAL.format("$MODEL", "float16"),
        "python run_clm.py --model_name_or_path google/gemma-2-2b --do_eval --fp16_full_eval False\n",
        "python run_clm.py --model_name_or_path google/gemma-2-2b --do_eval --bf16_full_eval\n",
        "echo lm_eval dtype=float16 google/gemma-2-9b\n",
    ],
)
def test_commands_that_are_sound(tmp_path: Path, text: str) -> None:
    assert told(tmp_path, text) == []


YAML = (
    "model_name_or_path: {}\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: mine\n"
    "template: {}\n{}: true\noutput_dir: out\n{}"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            YAML.format(
                "google/gemma-2-9b-it", "gemma", "bf16", "do_eval: true\nfp16_full_eval: true\n"
            ),
            ["warning"],
        ),
        (
            YAML.format(
                "org/some-7b", "default", "bf16", "do_predict: true\nfp16_full_eval: true\n"
            ),
            ["info"],
        ),
        (YAML.format("google/gemma-2-9b-it", "gemma", "bf16", "fp16_full_eval: true\n"), []),
        (
            YAML.format(
                "google/gemma-2-9b-it", "gemma", "bf16", "do_eval: true\nbf16_full_eval: true\n"
            ),
            [],
        ),
    ],
)
def test_settings_of_an_evaluation(tmp_path: Path, text: str, expected: list[str]) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text(text, encoding="utf-8")
    findings = check_paths([str(path)], RunSpec()).findings
    assert [one.severity for one in findings if one.code == "CFG011"] == expected
