"""Cells of a notebook that ran in another order than they stand in."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent

import pytest

from truetune.checks.lint import lint

LOAD = (
    "from peft import LoraConfig, get_peft_model, PeftModel\nfrom transformers import AutoModelForCausalLM, Trainer\n"
    "from trl import SFTTrainer\nbase = AutoModelForCausalLM.from_pretrained('m/base')"
)
WRAP = "model = get_peft_model(base, LoraConfig())"
UNSLOTH = (
    "from unsloth import FastLanguageModel\nmodel = FastLanguageModel.get_peft_model(base, r=16)"
)
MAKE = "trainer = SFTTrainer(model=model, train_dataset=rows)"
TRAIN = "trainer.train()"
SAVE = "model.save_pretrained('lora')"
ASK = "print(model.generate(**inputs, max_new_tokens=20))"
PUSH = "model.push_to_hub('me/lora')"
GGUF = "model.save_pretrained_gguf('gguf', tokenizer)"
Cells = list[tuple[int | None, str]]
WRONG: dict[str, Cells] = {
    "saved": [(1, LOAD), (5, WRAP), (3, MAKE), (4, TRAIN), (6, SAVE)],
    "asked": [(1, LOAD), (5, WRAP), (3, MAKE), (4, TRAIN), (6, ASK)],
    "pushed": [(1, LOAD), (15, WRAP), (3, MAKE), (14, TRAIN), (16, PUSH)],
    "loaded again too": [(15, LOAD), (16, WRAP), (3, MAKE), (14, TRAIN), (17, SAVE)],
    "unsloth": [(1, LOAD), (5, UNSLOTH), (3, MAKE), (4, TRAIN), (7, GGUF)],
    "made by a function": [
        (1, LOAD), (9, f"def fresh():\n    {WRAP}\n    return model\nmodel = fresh()"),
        (3, MAKE), (4, TRAIN), (10, SAVE),
    ],
    "a later copy of the cell": [(1, LOAD), (2, WRAP), (3, MAKE), (4, TRAIN), (5, WRAP), (6, SAVE)],
}  # fmt: skip
RIGHT: dict[str, Cells] = {
    "in order": [(1, LOAD), (2, WRAP), (3, MAKE), (4, TRAIN), (5, SAVE)],
    "trained again": [(1, LOAD), (5, WRAP), (6, MAKE), (7, TRAIN), (8, SAVE)],
    "cleared": [(None, LOAD), (None, WRAP), (None, MAKE), (None, TRAIN), (None, SAVE)],
    "training of which the order is unknown": [(1, LOAD), (5, WRAP), (3, MAKE), (None, TRAIN), (6, SAVE)],
    "saved before": [(1, LOAD), (6, WRAP), (3, MAKE), (4, TRAIN), (5, SAVE)],
    "saved by the trainer": [(1, LOAD), (5, WRAP), (3, MAKE), (4, TRAIN), (6, "trainer.save_model('lora')")],
    "weights loaded": [
        (1, LOAD), (5, WRAP), (3, MAKE), (4, TRAIN), (6, "model.load_adapter('out', 'default')"), (7, SAVE),
    ],
    "another model": [(1, LOAD), (5, WRAP.replace("model =", "fresh =")), (2, WRAP), (3, MAKE), (4, TRAIN), (6, SAVE)],
}  # fmt: skip


def notebook_of(cells: Cells) -> str:
    """A notebook with these cells, each with the number that its kernel gave it."""
    return json.dumps(
        {
            "cells": [
                {
                    "cell_type": "code",
                    "execution_count": count,
                    "metadata": {},
                    "outputs": [{"output_type": "execute_result", "execution_count": 99}],
                    "source": text.splitlines(keepends=True),
                }
                for count, text in cells
            ],
            "metadata": {},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )


def _count(cells: Cells, folder: Path) -> int:
    path = folder / "train.ipynb"
    path.write_text(notebook_of(cells), encoding="utf-8")
    return len(lint([path], select=["adapter-made-again-after-training"]).findings)


@pytest.mark.parametrize("case", WRONG)
def test_an_adapter_that_was_made_anew_is_told(case: str, tmp_path: Path) -> None:
    assert _count(WRONG[case], tmp_path) == 1


@pytest.mark.parametrize("case", RIGHT)
def test_cells_that_may_be_right_are_left_alone(case: str, tmp_path: Path) -> None:
    assert _count(RIGHT[case], tmp_path) == 0


@pytest.mark.parametrize(("cells", "expected"), [(WRONG["saved"], 1), (RIGHT["in order"], 0)])
def test_a_script_that_was_exported(cells: Cells, expected: int, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("".join(f"# In[{n}]:\n\n\n{text}\n\n\n" for n, text in cells), encoding="utf-8")
    assert len(lint([path], select=["adapter-made-again-after-training"]).findings) == expected


BUILD = (
    LOAD
    + """
def build(rank=16):
    return get_peft_model(AutoModelForCausalLM.from_pretrained("m/base"), LoraConfig(r=rank))
def save(model, folder="lora"):
    model.save_pretrained(folder)
"""
)
TRAIN_BUILT = (
    "model = build()\ntrainer = SFTTrainer(model=model, train_dataset=rows)\ntrainer.train()\n"
)
LOST = {
    "saved by a function": TRAIN_BUILT + "save(build())\n",
    "asked": TRAIN_BUILT + "build().eval().generate(**inputs)\n",
    "the name again": TRAIN_BUILT + "model = build()\nmodel.push_to_hub('me/lora')\n",
    "merged": TRAIN_BUILT + "save(build().merge_and_unload(), 'whole')\n",
    "main": f"def main():\n{indent(TRAIN_BUILT, '    ')}main()\nsave(build())\n",
}
KEPT = {
    "the trained one": TRAIN_BUILT + "save(model)\n",
    "of the trainer": TRAIN_BUILT + "save(trainer.model)\n",
    "weights loaded": TRAIN_BUILT + "new = build()\nnew.load_state_dict(state)\nsave(new)\n",
    "a second training": TRAIN_BUILT + TRAIN_BUILT + "save(model)\n",
    "before the training": "save(build(), 'first')\n" + TRAIN_BUILT,
    "another adapter for the next stage": TRAIN_BUILT
    + "save(get_peft_model(base, LoraConfig(r=4)), 'next')\n",
    "a branch": f"if train:\n{indent(TRAIN_BUILT, '    ')}else:\n    save(build())\n",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [*((one, 1) for one in LOST.values()), *((one, 0) for one in KEPT.values())],
)
def test_a_script_that_makes_its_adapter_again(text: str, expected: int, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(BUILD + text, encoding="utf-8")
    assert len(lint([path], select=["adapter-made-again-after-training"]).findings) == expected
