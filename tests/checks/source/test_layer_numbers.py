"""Layers that are chosen by numbers, in models that have them and in those that do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.findings import Finding
from truetune.checks.lint import lint

HEAD = "import os, re\nfrom transformers import AutoModelForCausalLM\n"
LOAD = "model = AutoModelForCausalLM.from_pretrained({})\n"
QWEN = LOAD.format("'Qwen/Qwen2.5-7B-Instruct'")
LOOP = "for name, p in model.named_parameters():\n    p.requires_grad = {}\n"
ADAPTER = "from peft import LoraConfig\nc = LoraConfig(r=8, {})\n"


def found(folder: Path, code: str, files: dict[str, str] | None = None) -> list[Finding]:
    for name, text in (files or {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "train.py").write_text(HEAD + code, encoding="utf-8")
    return list(lint([str(folder / "train.py")], select=("SRC306",)).findings)


@pytest.mark.parametrize(
    "code",
    [
        QWEN + LOOP.format("name.startswith(('model.layers.30.', 'model.layers.31.', 'lm_head'))"),
        QWEN + "K = [f'layers.{i}.' for i in range(28, 32)]\n" + LOOP.format("any(k in name for k in K)"),
        QWEN + "K = ['layers.%d.' % i for i in range(28, 32)]\n" + LOOP.format("any(k in name for k in K)"),
        QWEN + "K = ['norm'] + ['.layers.' + str(i) + '.' for i in (30, 31)]\n"
        + LOOP.format("any(k in name for k in K)"),
        QWEN + LOOP.format(r"bool(re.search(r'layers\.(29|3[01])\.', name))"),
        QWEN + r"P = re.compile(r'model\.layers\.3[01]\..*')" + "\n" + LOOP.format("P.match(name) is not None"),
        QWEN + "for name, p in model.named_parameters():\n    if 'layers.' in name:\n"
        "        n = int(name.split('.')[2])\n        p.requires_grad = n >= 28\n",
        QWEN + "for i, layer in enumerate(model.model.layers):\n    if i >= 28:\n        layer.requires_grad_(True)\n",
        QWEN + "for layer in model.model.layers[28:]:\n    layer.requires_grad_(True)\n",
        QWEN + ADAPTER.format("layers_to_transform=list(range(28, 32)), target_modules=['q_proj']"),
        QWEN + ADAPTER.format("target_modules=['layers.30.self_attn.q_proj', 'layers.31.self_attn.q_proj']"),
        "def keep(name):\n    return 'layers.31.' in name\n"
        "def freeze(m):\n    for name, p in list(m.named_parameters()):\n        p.requires_grad = keep(name)\n"
        + LOAD.format("os.environ.get('MODEL', 'Qwen/Qwen3-0.6B')") + "freeze(model)\n",
        LOAD.format("'gpt'") + LOOP.format("name.startswith('transformer.h.12.')"),
    ],
)  # fmt: skip
def test_no_layer_has_these_numbers(tmp_path: Path, code: str) -> None:
    config = json.dumps({"model_type": "gpt2", "n_layer": 12})
    where = tmp_path / "gpt"
    code = code.replace("'gpt'", repr(str(where)))
    (one,) = found(tmp_path, code, {"gpt/config.json": config})
    assert one.severity == "error"
    assert "no layer of the model is selected" in one.message


def test_some_of_a_row_of_layers_are_missing(tmp_path: Path) -> None:
    code = (
        QWEN
        + "K = [f'layers.{i}.' for i in range(24, 32)]\n"
        + LOOP.format("any(k in name for k in K)")
    )
    (one,) = found(tmp_path, code)
    assert one.severity == "warning"
    assert "only 24 to 27 exist" in one.message


@pytest.mark.parametrize(
    ("code", "files"),
    [
        (QWEN + LOOP.format("name.startswith(('model.layers.26.', 'model.layers.27.'))"), {}),
        # a model of 32 layers
        (LOAD.format("'meta-llama/Llama-3.1-8B'") + LOOP.format("'layers.31.' in name"), {}),
        # a model that nobody knows
        (LOAD.format("'me/my-model'") + LOOP.format("'layers.31.' in name"), {}),
        (LOAD.format("os.environ['MODEL']") + LOOP.format("'layers.31.' in name"), {}),
        # the job trains another model than the default
        (
            LOAD.format("os.environ.get('MODEL', 'Qwen/Qwen3-0.6B')") + LOOP.format("'layers.31.' in name"),
            {"job.sh": "export MODEL=meta-llama/Llama-3.1-8B\npython train.py\n"},
        ),
        # last layers of several sizes
        (QWEN + LOOP.format("any(k in name for k in ['layers.27.', 'layers.31.', 'layers.35.'])"), {}),
        (QWEN + LOOP.format(r"bool(re.search(r'layers\.2\d\.', name))"), {}),
        (QWEN + LOOP.format(r"bool(re.search(r'layers\.\d+\.mlp', name))"), {}),
        (QWEN + "for layer in model.model.layers[-4:]:\n    layer.requires_grad_(True)\n", {}),
        (QWEN + "for layer in model.model.layers[24:]:\n    layer.requires_grad_(True)\n", {}),
        # texts that are no names of weights
        (QWEN + "for name in os.listdir('.'):\n    print('layers.31.' in name)\n", {}),
        (QWEN + LOOP.format("'vision_tower.layers.31.' in name"), {}),
        # another model than the one of the file
        (
            QWEN + "teacher = load_teacher()\nfor name, p in teacher.named_parameters():\n"
            "    p.requires_grad = 'layers.31.' in name\n",
            {},
        ),
        (QWEN + "for name, p in net.vision.named_parameters():\n    p.requires_grad = 'layers.31.' in name\n", {}),
        # a model that the script makes deeper
        (
            QWEN + "for _ in range(8):\n    model.model.layers.append(block())\n" + LOOP.format("'layers.31.' in name"),
            {},
        ),
        # a test that no layer has such a number
        (
            QWEN + "for name, p in model.named_parameters():\n    if 'layers.' in name:\n"
            "        if int(name.split('.')[2]) >= 40:\n            raise ValueError(name)\n",
            {},
        ),
        (QWEN + ADAPTER.format("layers_to_transform=[24, 25, 26, 27], target_modules=['q_proj']"), {}),
        (
            QWEN + "n = model.config.num_hidden_layers\nK = [f'layers.{i}.' for i in range(n - 4, n)]\n"
            + LOOP.format("any(k in name for k in K)"),
            {},
        ),
    ],
)  # fmt: skip
def test_layers_that_exist_or_are_not_known(
    tmp_path: Path, code: str, files: dict[str, str]
) -> None:
    assert not found(tmp_path, code, files)
