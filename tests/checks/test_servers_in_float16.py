"""Servers that cast a bfloat16 checkpoint to float16, beside its answers or alone; with near misses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

BF16 = {"model_type": "qwen2", "torch_dtype": "bfloat16", "architectures": ["Qwen2ForCausalLM"]}
V100 = "#!/bin/bash\n#SBATCH --partition=v100\n"
PLAIN = "#!/bin/bash\n"
JOB = "vllm serve /scratch/$USER/merged --dtype half"
COMPOSE = (
    "services:\n  llm:\n    image: vllm/vllm-openai:latest\n"
    "    command: --model /models/merged --dtype float16\n"
)


def found(
    folder: Path, job: str, config: dict[str, object] | None, answer: str = ""
) -> dict[str, tuple[str, str]]:
    """Severity and help of the findings by their code."""
    name = "docker-compose.yml" if job.startswith("services") else "serve.sh"
    (folder / name).write_text(job + "\n", encoding="utf-8")
    if config is not None:
        (folder / "merged").mkdir()
        (folder / "merged" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if answer:
        rows = [
            {"prompt": f"What is {n}?", "prediction": answer, "reference": f"It is {n}."}
            for n in range(30)
        ]
        text = "\n".join(json.dumps(row) for row in rows)
        (folder / "preds.jsonl").write_text(text, encoding="utf-8")
    report = truetune.check(str(folder))
    return {one.code: (one.severity, one.remedy) for one in report.findings}


@pytest.mark.parametrize(
    ("job", "config", "answer", "severity", "advice"),
    [
        (V100 + JOB, BF16, "!" * 60, "error", "--dtype float32"),
        (PLAIN + JOB, BF16, "!" * 60, "error", "remove --dtype half"),
        (PLAIN + JOB, BF16, "", "info", "remove --dtype half"),
        (COMPOSE, BF16, "", "info", "remove --dtype float16"),
        (PLAIN + "vllm serve google/gemma-3-4b-it --dtype half", None, "", "warning", "remove --dtype half"),
        (
            PLAIN + "python -m sglang.launch_server --model-path ./merged --dtype float16",
            {**BF16, "model_type": "gemma2"},
            "",
            "warning",
            "remove --dtype float16",
        ),
        (
            "#!/bin/bash\n#SBATCH --gres=gpu:t4:1\ntext-generation-launcher --model-id ./merged --dtype float16",
            BF16,
            "",
            "info",
            "--dtype float32",
        ),
    ],
)  # fmt: skip
def test_casts_to_float16(
    job: str,
    config: dict[str, object] | None,
    answer: str,
    severity: str,
    advice: str,
    tmp_path: Path,
) -> None:
    findings = found(tmp_path, job, config, answer)
    assert findings["CMD152"][0] == severity
    assert advice in findings["CMD152"][1]
    if answer:
        assert advice in findings["ANS003"][1]
        assert list(findings).index("CMD152") < list(findings).index("ANS003")


@pytest.mark.parametrize(
    ("job", "config"),
    [
        (JOB, {**BF16, "torch_dtype": "float16"}),
        (JOB.replace("half", "auto"), BF16),
        (JOB.replace("half", "bfloat16"), BF16),
        (JOB + " --quantization awq", BF16),
        (JOB, {**BF16, "quantization_config": {"quant_method": "gptq"}}),
        (JOB, {"model_type": "gemma2", "quantization_config": {"quant_method": "gptq"}}),
        (
            "vllm serve /models/gemma-3/merged --dtype half",
            {**BF16, "model_type": "gemma3", "quantization_config": {"quant_method": "gptq"}},
        ),
        ("vllm serve Qwen/Qwen2.5-7B-Instruct-AWQ --dtype half", None),
        ("vllm serve Qwen/Qwen2.5-7B-Instruct --dtype half", None),
    ],
)
def test_casts_that_are_none_or_needed(
    job: str, config: dict[str, object] | None, tmp_path: Path
) -> None:
    assert "CMD152" not in found(tmp_path, PLAIN + job, config)
