"""Runs of evaluation harnesses that are compared with each other, in several files and by their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truetune
from truetune.checks.findings import Finding

BASE = "pretrained=org/base-8b,dtype=bfloat16,max_model_len=8192"
TUNED = "pretrained=out/tuned,dtype=bfloat16"


def run(model: str, more: str = "", tasks: str = "arc_challenge,gsm8k") -> str:
    return f"#!/bin/bash\nlm_eval --model vllm --model_args {model} \\\n --tasks {tasks} {more}\n"


def results(model: str, shots: dict[str, int], **more: Any) -> dict[str, Any]:
    return {
        "results": {task: {"acc,none": 0.5} for task in shots},
        "configs": {task: {"num_fewshot": count} for task, count in shots.items()},
        "n-shot": shots,
        "config": {"model": "hf", "model_args": f"pretrained={model}", "limit": None},
        "lm_eval_version": "0.4.9",
    } | more


def compared(folder: Path, files: dict[str, Any]) -> list[Finding]:
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = value if isinstance(value, str) else json.dumps(value, indent=1)
        path.write_text(text, encoding="utf-8")
    report = truetune.check([str(folder)])
    assert "Python sources" not in " ".join(one.kind for one in report.subjects)
    return [one for one in report.findings if one.rule == "harness-runs-not-comparable"]


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (
            {"a.sh": run(BASE, "--num_fewshot 25"), "b.sh": run(TUNED)},
            "25 and the default of the task",
        ),
        ({"a.sh": run(BASE, "--num_fewshot=5"), "b.slurm": run(TUNED, "-f 0")}, "5 and 0"),
        ({"a.sh": run(BASE), "b.sh": run(TUNED, "--limit 100")}, "rows: all and 100"),
        (
            {"a.sh": run(BASE, "--apply_chat_template"), "b.sh": run(TUNED)},
            "chat template on and off",
        ),
        (
            {"jobs/a.sh": run(BASE, "-f 3"), "jobs/b.sh": "C=${1:-out}\n" + run("pretrained=$C")},
            "3 and the default",
        ),
        (
            {
                "base.json": results("org/base", {"arc_easy": 25}),
                "tuned.json": results("out/t", {"arc_easy": 0}),
            },
            "arc_easy 25 and 0",
        ),
        (
            {
                "x/before.json": results("org/base", {"a": 5, "b": 0}),
                "x/after.json": results("out/t", {"a": 0, "b": 0}),
            },
            "a 0 and 5",
        ),
        (
            {
                "r/results_1.json": results("org/b", {"a": 0}, chat_template_sha="f"),
                "r/results_2.json": results("out/t", {"a": 0}, chat_template_sha=None),
            },
            "chat template on and off",
        ),
        (
            {
                "r/1.json": results("org/b", {"a": 0}),
                "r/2.json": results(
                    "out/t", {"a": 0}, config={"model_args": "pretrained=out/t", "limit": 50.0}
                ),
            },
            "rows: all and 50",
        ),
    ],
)
def test_two_models_in_two_ways(files: dict[str, Any], named: str, tmp_path: Path) -> None:
    (finding,) = compared(tmp_path, files)
    assert named in finding.message
    assert len({case.file for case in finding.cases}) == 2


@pytest.mark.parametrize(
    "files",
    [
        {"a.sh": run(BASE, "--num_fewshot 5"), "b.sh": run(TUNED, "--num_fewshot 5")},
        # The default of the task, said aloud.
        {"a.sh": run(BASE, "--num_fewshot 0", "hellaswag"), "b.sh": run(TUNED, "", "hellaswag")},
        # One model, loaded in two ways, measured with and without examples.
        {
            "a.sh": run("pretrained=m,max_model_len=4096", "-f 5"),
            "b.sh": run("pretrained=m,gpu_memory_utilization=0.9"),
        },
        {"a.sh": run(BASE, "-f 5", "arc_easy"), "b.sh": run(TUNED, "-f 0", "mmlu")},
        {"a.sh": run(BASE, "-f $N"), "b.sh": run(TUNED, "-f 0")},
        {"a.sh": run("pretrained=$M", "-f 5"), "b.sh": run("pretrained=$M", "-f 0")},
        # Another task of the same run has examples; the shared one has none in both.
        {
            "a.json": results("org/b", {"arc_easy": 0, "gsm8k": 5}),
            "b.json": results("out/t", {"arc_easy": 0}),
        },
        {"a.json": results("org/b", {"x": 5}), "b.json": results("org/b", {"x": 0})},
        # One of two releases records no template.
        {
            "a.json": results("org/b", {"x": 5}, chat_template="t"),
            "b.json": results("out/t", {"x": 5}),
        },
        {"a.json": {"results": [1, 2], "config": {"n": 1}}, "b.sh": run(TUNED)},
    ],
)
def test_runs_that_may_be_compared(files: dict[str, Any], tmp_path: Path) -> None:
    assert compared(tmp_path, files) == []
