"""Evaluations in float16 of models that overflow in it, and evaluations that are sound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = "import torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
NAMED = (
    HEAD + 'model = AutoModelForCausalLM.from_pretrained("google/gemma-2-9b-it", dtype="auto")\n'
)
BY_OPTION = (
    HEAD
    + "import argparse\np = argparse.ArgumentParser()\np.add_argument('model')\na = p.parse_args()\n"
    + 'model = AutoModelForCausalLM.from_pretrained(a.model, dtype="auto")\n'
)
TRAINER = (
    'args = TrainingArguments("eval", fp16_full_eval=True)\n'
    "trainer = Trainer(model=model, args=args, eval_dataset=rows)\nprint(trainer.evaluate())\n"
)
LOOP = (
    "total = 0\nfor batch in loader:\n    with torch.no_grad():\n        out = model(**batch)\n"
    "    total += out.loss.item()\n"
)
T5 = HEAD + (
    "from transformers import T5ForConditionalGeneration\n"
    'model = T5ForConditionalGeneration.from_pretrained("google/flan-t5-xl"{}){}\n'
)
TRAINING = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'model = AutoModelForCausalLM.from_pretrained("{}")\n'
    'Trainer(model=model, args=TrainingArguments("out", {}), train_dataset=rows).train()\n'
)
COMMAND = "python evaluate.py {}\n"

FIRING: dict[str, tuple[str, dict[str, str], str]] = {
    "setting": (NAMED + TRAINER, {}, "w"),
    "setting in a table": (
        NAMED
        + TRAINER.replace('"eval", fp16_full_eval=True', "**options").replace(
            "args =", 'options = {"output_dir": "eval", "fp16_full_eval": True}\nargs ='
        ),
        {},
        "w",
    ),
    "setting behind": (
        NAMED
        + TRAINER.replace(", fp16_full_eval=True", "").replace(
            "trainer =", "args.fp16_full_eval = True\ntrainer ="
        ),
        {},
        "w",
    ),
    "predict of T5": (T5.format("", "") + TRAINER.replace("evaluate()", "predict(rows)"), {}, "w"),
    "loaded, own loop": (
        NAMED.replace('"auto"', "torch.float16").replace("gemma-2-9b", "gemma-3-4b") + LOOP,
        {},
        "w",
    ),
    "half T5, own loop": (
        T5.format("", ".half().cuda()") + LOOP.replace("out.loss.item()", "out.logits.sum()"),
        {},
        "w",
    ),
    "autocast": (
        NAMED
        + LOOP.replace("no_grad():", "no_grad(), torch.autocast('cuda', dtype=torch.float16):"),
        {},
        "w",
    ),
    "cast in place": (NAMED + "model.half()\n" + LOOP, {}, "w"),
    "moved and cast in place": (NAMED + "model.to('cuda', torch.float16)\n" + LOOP, {}, "w"),
    "fp16 of what only evaluates": (NAMED + TRAINER.replace("fp16_full_eval", "fp16"), {}, "w"),
    "a job names it": (BY_OPTION + TRAINER, {"run.sh": COMMAND.format("google/gemma-2-2b")}, "w"),
    "a console names it": (
        BY_OPTION + TRAINER,
        {"out.txt": "$ " + COMMAND.format("google/gemma-2-2b")},
        "w",
    ),
    "its folder names it": (
        NAMED.replace("google/gemma-2-9b-it", "merged") + TRAINER,
        {"merged/config.json": json.dumps({"model_type": "gemma2"})},
        "w",
    ),
    "the training beside it": (
        BY_OPTION + TRAINER,
        {"train.py": TRAINING.format("google/gemma-2-9b-it", "bf16=True")},
        "i",
    ),
    "the training, and a loss that is NaN": (
        BY_OPTION + TRAINER,
        {
            "train.py": TRAINING.format("google/gemma-2-9b-it", "bf16=True"),
            "eval.log": '{"eval_loss": NaN, "perplexity": NaN}\n',
        },
        "w",
    ),
    "trained in bfloat16": (
        BY_OPTION + TRAINER,
        {"train.py": TRAINING.format("Qwen/Qwen2.5-7B", "bf16=True")},
        "i",
    ),
}
SILENT: dict[str, tuple[str, dict[str, str]]] = {
    "bfloat16": (NAMED + TRAINER.replace("fp16_full", "bf16_full"), {}),
    "switched off": (NAMED + TRAINER.replace("eval=True", "eval=False"), {}),
    "another family": (
        NAMED.replace("google/gemma-2-9b-it", "meta-llama/Llama-3.2-3B") + TRAINER,
        {},
    ),
    "only trained": (NAMED + TRAINER.replace("print(trainer.evaluate())", "trainer.train()"), {}),
    "T5 loaded in float16": (T5.format(", dtype=torch.float16", "") + LOOP, {}),
    "own loop in bfloat16": (NAMED.replace('"auto"', "torch.bfloat16") + LOOP, {}),
    "cast back": (
        NAMED.replace('"auto")', "torch.float16).to(torch.bfloat16)") + LOOP,
        {},
    ),
    "moved in place": (NAMED + "model.to('cuda')\n" + LOOP, {}),
    "cast back in place": (
        NAMED.replace('"auto"', "torch.float16") + "model.float()\n" + LOOP,
        {},
    ),
    "fp16 of what trains": (
        NAMED
        + TRAINER.replace("fp16_full_eval", "fp16").replace("print(", "trainer.train()\nprint("),
        {},
    ),
    "generates": (
        NAMED.replace('"auto"', "torch.float16") + "out = model.generate(**batch)\n",
        {},
    ),
    "trains in a loop": (NAMED.replace('"auto"', "torch.float16") + LOOP + "loss.backward()\n", {}),
    "a job names another": (BY_OPTION + TRAINER, {"run.sh": COMMAND.format("Qwen/Qwen2.5-7B")}),
    "two trainings beside it": (
        BY_OPTION + TRAINER,
        {
            "a.py": TRAINING.format("google/gemma-2-9b-it", "bf16=True"),
            "b.py": TRAINING.format("Qwen/Qwen2.5-7B", "bf16=True"),
        },
    ),
    "trained in float16": (
        BY_OPTION + TRAINER,
        {"train.py": TRAINING.format("meta-llama/Llama-2-7b", "fp16=True")},
    ),
    "named apart from the training": (
        NAMED.replace("google/gemma-2-9b-it", "Qwen/Qwen2.5-7B") + TRAINER,
        {"train.py": TRAINING.format("google/gemma-2-9b-it", "bf16=True")},
    ),
}


def told(folder: Path, text: str, files: dict[str, str], code: str = "SRC340") -> list[str]:
    """The first letters of the severities that a rule gives a script."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
    script = folder / "evaluate.py"
    script.write_text(text, encoding="utf-8")
    return [one.severity[0] for one in lint([script], select=[code]).findings]


@pytest.mark.parametrize("case", FIRING)
def test_an_evaluation_that_overflows(case: str, tmp_path: Path) -> None:
    text, files, severity = FIRING[case]
    assert told(tmp_path, text, files) == [severity]


@pytest.mark.parametrize("case", SILENT)
def test_an_evaluation_that_is_sound(case: str, tmp_path: Path) -> None:
    text, files = SILENT[case]
    assert told(tmp_path, text, files) == []


SAME_ROWS = (
    "from datasets import load_dataset\nfrom trl import SFTTrainer\n"
    'rows = load_dataset("json", data_files="test.jsonl", split="train")\n'
    'trainer = SFTTrainer(model="m", train_dataset=rows, eval_dataset=rows)\n'
)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("print(trainer.evaluate())\n", []),
        ("m = trainer\nprint(m.predict(rows))\n", []),
        ("def report(t):\n    print(t.evaluate())\nreport(trainer)\n", []),
        ("trainer.train()\nprint(trainer.evaluate())\n", ["w"]),
        ("if go:\n    trainer.train()\nprint(trainer.evaluate())\n", ["w"]),
        ("trainer.train()\n", ["w"]),
        ("", ["w"]),
    ],
)
def test_rows_of_a_trainer_that_trains_nothing(
    asked: str, expected: list[str], tmp_path: Path
) -> None:
    assert told(tmp_path, SAME_ROWS + asked, {}, "SRC054") == expected
