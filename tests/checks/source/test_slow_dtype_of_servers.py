"""LLM.int8 in files whose model is not followed: servers, classes, pipelines; and the room of the card."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.findings import Finding
from truetune.checks.lint import lint

HEAD = """
import torch
from fastapi import FastAPI
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, pipeline
"""
STATE = """
state = {{}}
def start():
    state["model"] = AutoModelForCausalLM.from_pretrained({name}, {options}, device_map={{"": 0}})
def answer(ids):
    model = state["model"]
    return model.generate(**ids, max_new_tokens=50)
"""
OWN_CLASS = """
class Engine:
    def __init__(self, path):
        self.model = AutoModelForCausalLM.from_pretrained({name}, {options})
    def ask(self, ids):
        return self.model.generate(**ids, max_new_tokens=50)
"""
PIPELINE = """
pipe = pipeline("text-generation", model={name}, model_kwargs={{{quoted}}})
def answer(text):
    return pipe(text, max_new_tokens=50)
"""
PIPELINE_OF_MODEL = """
model = AutoModelForCausalLM.from_pretrained({name}, {options})
pipe = pipeline("text-generation", model=model, tokenizer=AutoTokenizer.from_pretrained({name}))
print(pipe("Hi"))
"""
LOADED_BY_FUNCTION = """
import functools
@functools.lru_cache
def engine():
    return AutoModelForCausalLM.from_pretrained({name}, {options})
def answer(ids):
    return engine().generate(**ids)
"""
SHAPES = [STATE, OWN_CLASS, PIPELINE, PIPELINE_OF_MODEL, LOADED_BY_FUNCTION]
EIGHT = "quantization_config=BitsAndBytesConfig(load_in_8bit=True)"
SMI = """
| NVIDIA-SMI 570.172.08             Driver Version: 570.172.08     CUDA Version: 12.8     |
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA {card}          On  |   00000000:07:00.0 Off |                    0 |
| N/A   38C    P0             104W / 400W |    {used}MiB /  {total}MiB |     31%      Default |
"""


def script(shape: str, options: str, name: str = "MODEL_DIR") -> str:
    key, _, value = options.partition("=")
    quoted = f'"{key}": {value}'
    return HEAD + shape.format(name=name, options=options, quoted=quoted)


def found(folder: Path, text: str, smi: str = "") -> list[Finding]:
    (folder / "app.py").write_text(text, encoding="utf-8")
    if smi:
        (folder / "nvidia-smi.txt").write_text(smi, encoding="utf-8")
    return [
        one
        for one in lint([str(folder / "app.py")]).findings
        if one.rule == "generation-in-a-slow-dtype"
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("options", [EIGHT, "load_in_8bit=True"])
def test_a_server_in_8_bits_is_a_note(tmp_path: Path, shape: str, options: str) -> None:
    (one,) = found(tmp_path, script(shape, options))
    assert one.severity == "info"
    assert "LLM.int8" in one.message


@pytest.mark.parametrize(
    ("name", "card", "used", "total"),
    [
        ("MODEL_DIR", "A100-SXM4-80GB", 9884, 81920),
        ("'org/model-8B'", "A100-SXM4-80GB", 78000, 81920),
        ("MODEL_DIR", "L40S", 12000, 46068),
    ],
)
def test_a_card_with_room_makes_it_a_warning(
    tmp_path: Path, name: str, card: str, used: int, total: int
) -> None:
    smi = SMI.format(card=card, used=used, total=total)
    (one,) = found(tmp_path, script(STATE, EIGHT, name), smi)
    assert one.severity == "warning"
    assert "nvidia-smi.txt" in one.evidence[0]
    assert "remove the quantization" in str(one.remedy)


@pytest.mark.parametrize(
    ("name", "used", "total"),
    [("MODEL_DIR", 9884, 15360), ("'org/model-70B'", 72000, 81920), ("MODEL_DIR", 300, 81920)],
)
def test_a_card_without_room_stays_a_note(tmp_path: Path, name: str, used: int, total: int) -> None:
    smi = SMI.format(card="A100-SXM4-80GB", used=used, total=total)
    (one,) = found(tmp_path, script(STATE, EIGHT, name), smi)
    assert one.severity == "info"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "options",
    [
        "quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)",
        "dtype=torch.bfloat16",
        "load_in_8bit=False",
    ],
)
def test_other_loads_are_left_alone(tmp_path: Path, shape: str, options: str) -> None:
    assert not found(tmp_path, script(shape, options))


@pytest.mark.parametrize(
    "text",
    [
        script(STATE, EIGHT) + "trainer = Trainer(model)\ntrainer.train()\n",
        script(STATE, EIGHT, "'org/model-0.5B'"),
        script(STATE, "dtype=torch.bfloat16")
        + f"judge = AutoModelForCausalLM.from_pretrained(J, {EIGHT})\n",
        HEAD
        + f"model = AutoModelForCausalLM.from_pretrained(J, {EIGHT})\nprint(model(ids).logits)\n",
    ],
    ids=["trained", "small", "two models", "nothing asked"],
)
def test_files_that_say_nothing(tmp_path: Path, text: str) -> None:
    text = text.replace("import torch\n", "import torch\nfrom transformers import Trainer\n")
    assert not found(tmp_path, text)
