"""Which second loads meet a model on the GPU that nothing uses again, and which are meant."""

from __future__ import annotations

import json

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import gc
import torch
from accelerate import Accelerator
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, pipeline
from trl import DPOTrainer, SFTTrainer
B = "Qwen/Qwen2.5-7B"
"""
LOADED = 'model = AutoModelForCausalLM.from_pretrained(B, device_map="auto")\n'
TRAINED = (
    LOADED + "trainer = SFTTrainer(model=model, train_dataset=d)\ntrainer.train()\n"
    'trainer.save_model("out")\n'
)
SECOND = 'base = AutoModelForCausalLM.from_pretrained(B, dtype=torch.bfloat16, device_map="auto")\n'
MERGED = SECOND + 'PeftModel.from_pretrained(base, "out").merge_and_unload().save_pretrained("m")\n'
HELD = {
    "merge": TRAINED + MERGED,
    "same name, trainer alive": TRAINED
    + 'model = AutoPeftModelForCausalLM.from_pretrained("out", device_map="cuda")\n',
    "model deleted, trainer alive": TRAINED + "del model\ntorch.cuda.empty_cache()\n" + MERGED,
    "trainer deleted, model alive": TRAINED + "del trainer\ngc.collect()\n" + MERGED,
    "moved after the load": TRAINED
    + 'again = AutoModelForCausalLM.from_pretrained(B)\nagain.to("cuda")\nagain.generate(x)\n',
    "moved at once": TRAINED + "m2 = AutoModelForCausalLM.from_pretrained(B).half().cuda()\n",
    "in functions": "def merge():\n    base = AutoModelForCausalLM.from_pretrained(B, device_map={'': 0})\n"
    "    return PeftModel.from_pretrained(base, 'out').merge_and_unload()\n"
    "def main():\n    model = AutoModelForCausalLM.from_pretrained(B)\n    t = Trainer(model=model)\n"
    "    t.train()\n    merge()\nif __name__ == '__main__':\n    main()\n",
    "loader helper": "def load():\n    return AutoModelForCausalLM.from_pretrained(B, device_map='cuda')\n"
    "model = load()\ntrainer = Trainer(model=model)\ntrainer.train()\nother = load()\nother.generate(x)\n",
    "own loop": "model = AutoModelForCausalLM.from_pretrained(B).cuda()\n"
    "opt = torch.optim.AdamW(model.parameters())\nfor b in d:\n    model(**b).loss.backward()\n    opt.step()\n"
    "model.save_pretrained('out')\n"
    "test = AutoModelForCausalLM.from_pretrained('out').to('cuda')\ntest.generate(x)\n",
    "accelerate": "acc = Accelerator()\nmodel = AutoModelForCausalLM.from_pretrained(B)\n"
    "opt = torch.optim.AdamW(model.parameters())\nmodel, opt = acc.prepare(model, opt)\n"
    "for b in d:\n    acc.backward(model(**b).loss)\n    opt.step()\n"
    "final = AutoModelForCausalLM.from_pretrained(B, device_map={'': 'cuda:0'})\n",
    "next stage": TRAINED + "policy = AutoModelForCausalLM.from_pretrained(B, device_map='auto')\n"
    "dpo = DPOTrainer(model=policy, train_dataset=p)\ndpo.train()\n",
    "loop": "for lr in rates:\n    model = AutoModelForCausalLM.from_pretrained(B)\n"
    "    trainer = Trainer(model=model)\n    trainer.train()\n",
    "named to the trainer": "trainer = SFTTrainer(model=B, train_dataset=d)\ntrainer.train()\n"
    + MERGED,
    "base asked before": LOADED + "model.generate(x)\n"
    "tuned = AutoPeftModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B-tuned', device_map='auto')\n"
    "tuned.generate(x)\n",
    "on the main process": TRAINED + "if trainer.is_world_process_zero():\n    base = "
    "AutoModelForCausalLM.from_pretrained(B, device_map={'': 0})\n",
    "unsloth": "from unsloth import FastLanguageModel\n"
    "model, tok = FastLanguageModel.from_pretrained(model_name='unsloth/llama-3-8b', load_in_4bit=True)\n"
    "model = FastLanguageModel.get_peft_model(model, r=8)\n"
    "trainer = SFTTrainer(model=model, train_dataset=d)\ntrainer.train()\nmodel.save_pretrained('lora')\n"
    "m2, t2 = FastLanguageModel.from_pretrained(model_name='lora', load_in_4bit=True)\n"
    "m2.generate(x)\n",
    "history read behind": TRAINED + MERGED + "print(trainer.state.log_history)\n",
}
SOUND = {
    "all deleted": TRAINED
    + "del model, trainer\ngc.collect()\ntorch.cuda.empty_cache()\n"
    + MERGED,
    "set to None": TRAINED + "model = None\ntrainer = None\n" + MERGED,
    "on the CPU": TRAINED + MERGED.replace('"auto"', '"cpu"'),
    "without a device": TRAINED + MERGED.replace(', device_map="auto"', ""),
    "first moved away": TRAINED + "model.cpu()\n" + MERGED,
    "first moved by to": TRAINED + 'trainer.model.to("cpu")\n' + MERGED,
    "memory freed": TRAINED + "acc.free_memory()\n" + MERGED,
    "teacher and student": 'teacher = AutoModelForCausalLM.from_pretrained(B, device_map="cuda")\n'
    + LOADED
    + "for b in d:\n    t = teacher(**b).logits\n    model(**b).loss.backward()\n",
    "reference of DPO": LOADED
    + 'ref = AutoModelForCausalLM.from_pretrained(B, device_map="auto")\n'
    "dpo = DPOTrainer(model=model, ref_model=ref, train_dataset=p)\ndpo.train()\n",
    "compared": TRAINED + SECOND + "print(base.generate(x), model.generate(x))\n",
    "evaluated again": TRAINED + SECOND + "trainer.evaluate()\n",
    "function of its own": "def train():\n    model = AutoModelForCausalLM.from_pretrained(B)\n"
    "    t = Trainer(model=model)\n    t.train()\ndef merge():\n"
    "    base = AutoModelForCausalLM.from_pretrained(B, device_map={'': 0})\ntrain()\nmerge()\n",
    "other branch": "if go:\n    model = AutoModelForCausalLM.from_pretrained(B, device_map='auto')\nelse:\n"
    "    model = AutoModelForCausalLM.from_pretrained(B, device_map='auto', load_in_4bit=True)\n"
    "t = Trainer(model=model)\nt.train()\n",
    "other mode": "if mode == 'train':\n    model = AutoModelForCausalLM.from_pretrained(B, device_map='auto')\n"
    "    t = Trainer(model=model)\n    t.train()\nif mode == 'merge':\n"
    "    base = AutoModelForCausalLM.from_pretrained(B, device_map='auto')\n",
    "mode that returns": "def main(mode):\n    if mode == 'train':\n"
    "        model = AutoModelForCausalLM.from_pretrained(B, device_map='auto')\n"
    "        t = Trainer(model=model)\n        t.train()\n        return\n"
    "    base = AutoModelForCausalLM.from_pretrained(B, device_map='auto')\nmain(m)\n",
    "other GPU": LOADED.replace('"auto"', '"cuda:0"')
    + "model.generate(x)\nb = AutoModelForCausalLM.from_pretrained(B, device_map='cuda:1')\n",
    "small model": TRAINED.replace("B,", '"gpt2",') + SECOND.replace("B,", '"gpt2",'),
    "half a billion": TRAINED + SECOND.replace("B,", '"Qwen/Qwen2.5-0.5B",') + "base.generate(x)\n",
    "loop that deletes": "for lr in rates:\n    model = AutoModelForCausalLM.from_pretrained(B)\n"
    "    trainer = Trainer(model=model)\n    trainer.train()\n    del model, trainer\n",
    "loop over a function": "def run(lr):\n    model = AutoModelForCausalLM.from_pretrained(B)\n"
    "    trainer = Trainer(model=model)\n    trainer.train()\nfor lr in rates:\n    run(lr)\n",
    "adapter of the same base": LOADED
    + 'model = PeftModel.from_pretrained(model, "out")\nmodel.generate(x)\n',
    "tried twice": "try:\n    model = "
    "AutoModelForCausalLM.from_pretrained(B, device_map='auto', attn_implementation=x)\n"
    "except ImportError:\n    model = AutoModelForCausalLM.from_pretrained(B, device_map='auto')\n",
    "used by a function": LOADED + "def ask(q):\n    return model.generate(q)\n"
    "judge = AutoModelForCausalLM.from_pretrained('j/J-8B', device_map='auto')\n"
    "for q in d:\n    judge.generate(ask(q))\n",
    "wrapped in a class": LOADED + "bot = Bot(model)\n" + SECOND + "bot.answer(base)\n",
    "pipeline": LOADED
    + "pipe = pipeline('text-generation', model=model)\n"
    + SECOND
    + "pipe(base)\n",
    "switched off": TRAINED + "if False:\n    " + SECOND,
    "inputs moved": LOADED
    + "inputs = tok(x).to(model.device)\nmodel.generate(**inputs)\ndel model\n"
    + SECOND,
    "restart": TRAINED + "import os\nos.kill(os.getpid(), 9)\n" + MERGED,
    "tokenizer": TRAINED + "tok = AutoTokenizer.from_pretrained(B)\n",
}


def messages(code: str) -> list[tuple[str, str]]:
    rule = find_rule("model-loaded-beside-another")
    judged = run_rule(parse_module(HEAD + code, "s.py"), rule)
    assert not judged.not_judged
    return [(one.severity, one.message) for one in judged.findings]


@pytest.mark.parametrize("name", HELD)
def test_a_model_that_is_held_beside_the_second_is_named(name: str) -> None:
    found = messages(HELD[name])
    severity = "info" if "load_in_4bit" in HELD[name] else "warning"
    assert [one for one, _ in found] == [severity], found


@pytest.mark.parametrize("name", SOUND)
def test_a_second_model_that_is_meant_or_alone_is_not(name: str) -> None:
    assert not messages(SOUND[name])


def test_what_still_holds_it_is_named() -> None:
    assert (
        "while trainer still holds the one that was trained"
        in messages(HELD["model deleted, trainer alive"])[0][1]
    )


def test_a_size_that_is_not_known_is_a_note() -> None:
    code = HELD["merge"].replace("from_pretrained(B", "from_pretrained(args.base")
    assert [severity for severity, _ in messages(code)] == ["info"]


def test_in_a_notebook_it_is_a_note() -> None:
    """A tutorial fits the card that it was written for."""
    cell: dict[str, object] = {
        "cell_type": "code",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    cell["source"] = HEAD + HELD["merge"]
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    module = parse_module(json.dumps(notebook), "s.ipynb")
    judged = run_rule(module, find_rule("model-loaded-beside-another"))
    assert [one.severity for one in judged.findings] == ["info"]


CALLBACK = """
class Samples({base}):
    def {method}(self, args, state, control, **kwargs):
        other = AutoModelForCausalLM.from_pretrained(args.output_dir + "/checkpoint-500"){placed}
        other.generate(x)

model = AutoModelForCausalLM.from_pretrained("{name}")
trainer = SFTTrainer(model=model, train_dataset=d, callbacks=[Samples()])
trainer.train()
"""


@pytest.mark.parametrize(
    ("base", "method", "placed", "name", "expected"),
    [
        ("TrainerCallback", "on_evaluate", ".cuda()", "Qwen/Qwen2.5-7B", ["warning"]),
        (
            "transformers.TrainerCallback",
            "on_epoch_end",
            '.to("cuda")',
            "Qwen/Qwen2.5-7B",
            ["warning"],
        ),
        (
            "pl.Callback",
            "on_validation_end",
            ".half().cuda()",
            "meta-llama/Llama-3.1-8B",
            ["warning"],
        ),
        ("TrainerCallback", "on_evaluate", ".to(device)", "folder", ["info"]),
        ("TrainerCallback", "on_save", ".eval().cuda()", "Qwen/Qwen2.5-14B", ["warning"]),
        ("TrainerCallback", "on_evaluate", "", "Qwen/Qwen2.5-7B", []),
        ("TrainerCallback", "on_evaluate", '.to("cpu")', "Qwen/Qwen2.5-7B", []),
        ("TrainerCallback", "on_evaluate", ".cuda()", "Qwen/Qwen2.5-0.5B", []),
        ("object", "on_evaluate", ".cuda()", "Qwen/Qwen2.5-7B", []),
        ("TrainerCallback", "prepare", ".cuda()", "Qwen/Qwen2.5-7B", []),
    ],
)
def test_models_of_callbacks(
    base: str, method: str, placed: str, name: str, expected: list[str]
) -> None:
    text = HEAD + CALLBACK.format(base=base, method=method, placed=placed, name=name)
    judged = run_rule(parse_module(text, "s.py"), find_rule("model-loaded-beside-another"))
    assert [one.severity for one in judged.findings] == expected
