"""Lengths of what a tokenizer returns, and merges by hand, with and without their scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("model")
"""
KEYS = {
    "length": "n = len(tok(prompt))",
    "by a name": "enc = tok(prompt, add_special_tokens=False)\nn = len(enc)",
    "list": "ids = list(tok(prompt))",
    "encode_plus": "n = len(tok.encode_plus(prompt))",
    "in a function": "def count(tokenizer, text):\n    return len(tokenizer(text))\nn = count(tok, prompt)",
}
IDS = {
    "ids": 'n = len(tok(prompt)["input_ids"])',
    "attribute": "n = len(tok(prompt).input_ids)",
    "encode": "n = len(tok.encode(prompt))",
    "tokenize": "n = len(tok.tokenize(prompt))",
    "vocabulary": "n = len(tok)",
    "other": "n = len(other(prompt))",
    "names of columns": 'columns = list(tok("x"))',
}
MERGE = """
from safetensors.torch import load_file
base, lora = load_file("base.safetensors"), load_file("adapter/adapter_model.safetensors")
for name in base:
    {body}
"""
BARE = {
    "operator": "base[name] += lora[name + '.lora_B.weight'] @ lora[name + '.lora_A.weight']",
    "names": "a, b = lora[name + '.lora_A'], lora[name + '.lora_B']\n"
    "    base[name] = base[name] + b.float() @ a.float()",
    "function": "import torch\n    base[name] += torch.matmul(lora[name + '.lora_B'], lora[name + '.lora_A'])",
    "transposed": "d = lora[name + '.lora_A'].T @ lora[name + '.lora_B'].T\n    base[name] += d.T",
    "sum over indices": "import torch\n"
    "    base[name] += torch.einsum('or,ri->oi', lora[name + '.lora_B'], lora[name + '.lora_A'])",
}


def count(rule: str, text: str) -> int:
    return len(run_rule(parse_module(text, "train.py"), find_rule(rule)).findings)


@pytest.mark.parametrize("way", KEYS)
def test_a_length_of_keys_is_reported(way: str) -> None:
    assert count("encoding-counted-by-its-keys", HEAD + KEYS[way] + "\n") == 1


@pytest.mark.parametrize("way", IDS)
def test_a_length_of_ids_is_fine(way: str) -> None:
    assert count("encoding-counted-by-its-keys", HEAD + IDS[way] + "\n") == 0


@pytest.mark.parametrize("way", BARE)
def test_a_merge_without_a_scale_is_reported(way: str) -> None:
    assert count("merged-without-its-scale", MERGE.format(body=BARE[way])) == 1


@pytest.mark.parametrize(
    "body",
    [
        "base[name] += 2.0 * (lora[name + '.lora_B.weight'] @ lora[name + '.lora_A.weight'])",
        "d = lora[name + '.lora_B'] @ lora[name + '.lora_A']\n    base[name] += d.mul(2.0)",
        "d = lora[name + '.lora_B'] @ lora[name + '.lora_A']\n    print(name, d.norm())",
        "d = lora[name + '.lora_B'] @ lora[name + '.lora_A']\n    smaller[name + '.lora_A'] = halve(d)",
    ],
)
def test_products_with_a_factor_and_products_that_nothing_adds_are_fine(body: str) -> None:
    assert count("merged-without-its-scale", MERGE.format(body=body)) == 0


def test_a_product_that_a_method_adds_is_reported() -> None:
    body = "d = lora[name + '.lora_B'] @ lora[name + '.lora_A']\n    base[name].add_(d.float())"
    assert count("merged-without-its-scale", MERGE.format(body=body)) == 1


def test_a_merge_with_a_scale_is_fine() -> None:
    scaled = MERGE.format(body=BARE["operator"].replace("+= ", "+= scale * (") + ")")
    assert count("merged-without-its-scale", scaled) == 0


@pytest.mark.parametrize(("alpha", "findings"), [(32, 1), (8, 0)])
def test_the_scale_of_the_adapter_beside_decides(alpha: int, findings: int, tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    settings = json.dumps({"r": 8, "lora_alpha": alpha})
    (tmp_path / "adapter" / "adapter_config.json").write_text(settings, encoding="utf-8")
    script = tmp_path / "fuse.py"
    script.write_text(MERGE.format(body=BARE["operator"]), encoding="utf-8")
    found = lint([str(script)], select=("merged-without-its-scale",)).findings
    assert len(found) == findings
