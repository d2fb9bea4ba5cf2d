"""What names and expressions stand for."""

from __future__ import annotations

import ast

import pytest

from tests.source.modules import last, module
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.shorten_qualified_names import shorten_library_name

IMPORTS = """
import torch
import transformers as tf
import torch.nn.functional as F
from transformers import AutoTokenizer as AT, Trainer
from trl.trainer.sft_trainer import SFTTrainer
from peft import *
"""


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("AT.from_pretrained", "transformers.AutoTokenizer.from_pretrained"),
        ("tf.AutoTokenizer.from_pretrained", "transformers.AutoTokenizer.from_pretrained"),
        ("tf.trainer.Trainer", "transformers.Trainer"),
        ("SFTTrainer", "trl.SFTTrainer"),
        ("F.cross_entropy", "torch.nn.functional.cross_entropy"),
        ("torch.bfloat16", "torch.bfloat16"),
        ("LoraConfig", "peft.LoraConfig"),
        ("len", "len"),
        ("nothing", None),
    ],
)
def test_names(expression: str, name: str | None) -> None:
    made = module(f"{IMPORTS}\n{expression}\n")
    assert made.flow.name(last(made)) == name


def test_modules_inside_a_library_are_left_out() -> None:
    assert (
        shorten_library_name("transformers.models.auto.AutoTokenizer.from_pretrained")
        == "transformers.AutoTokenizer.from_pretrained"
    )
    assert (
        shorten_library_name("transformers.optimization.get_scheduler")
        == "transformers.get_scheduler"
    )
    assert (
        shorten_library_name("torch.nn.functional.cross_entropy")
        == "torch.nn.functional.cross_entropy"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x = 3\nx", 3),
        ("x = y = 1e-4\n-y", -1e-4),
        ("a, (b, c) = 1, (2, 3)\nc", 3),
        ("x = 1\nx = 2\nx", 2),
        ("x = 1\nif cond:\n    x = 2\nx", UNKNOWN),
        ("if cond:\n    x = 2\nelse:\n    x = 2\nx", 2),
        ("x = 1\nif cond:\n    x = 2\n    raise SystemExit\nx", 1),
        ("x = 2 * 4 + 1\nx", 9),
        ("x = 10 ** 10 ** 10\nx", UNKNOWN),
        ("x = 1 // 0\nx", UNKNOWN),
        ("d = dict(a=1)\nd['b'] = [2]\nd.update(c=None)\nd", {"a": 1, "b": [2], "c": None}),
        ("d = {'a': 1}\ne = {**d, 'b': 2}\ne", {"a": 1, "b": 2}),
        ("d = {'a': 1}\nd[key] = 2\nd", UNKNOWN),
        ("d = {'a': {'b': 5}}\nd['a']['b']", 5),
        ("class C:\n    lr = 1e-4\nC.lr", 1e-4),
        ("class C:\n    lr = 1e-4\nc = C()\nc.lr", 1e-4),
        ("def f(n=7):\n    return n\nf()", 7),
        ("def f(n=7):\n    return n\nf(n=8)", 8),
        ("f = lambda: 5\nf()", 5),
        ("def f():\n    return 1, 2\na, b = f()\nb", 2),
        ("x = None\nx", None),
        ("x = f'{y}'\nx", UNKNOWN),
        ("for x in [1, 2]:\n    pass\nx", UNKNOWN),
        ("x = x\nx", UNKNOWN),
        ("def f(n):\n    return f(n)\nf(1)", UNKNOWN),
    ],
)
def test_values(text: str, value: object) -> None:
    made = module(text)
    found = made.flow.value(last(made))
    assert found is UNKNOWN if value is UNKNOWN else found == value


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("t = AT.from_pretrained('x')\nu = t\nu", {"tokenizer"}),
        ("m = tf.AutoModelForCausalLM.from_pretrained('x').to('cuda').eval()\nm", {"model"}),
        ("m = get_peft_model(tf.GPT2LMHeadModel(c), LoraConfig())\nm", {"peft-model", "model"}),
        ("m = PeftModel.from_pretrained(b, 'x').merge_and_unload()\nm", {"model"}),
        (
            "def load():\n    t = AT.from_pretrained('x')\n    return 1, t\n_, tok = load()\ntok",
            {"tokenizer"},
        ),
        ("class MyTrainer(Trainer):\n    pass\nMyTrainer()", {"trainer"}),
        (
            "def f(tokenizer):\n    tokenizer\ndef g(t):\n    return t\ng(AT.from_pretrained('x'))",
            {"tokenizer"},
        ),
        (
            "from datasets import load_dataset\nd = load_dataset('x')['train'].map(f)\nd",
            {"dataset"},
        ),
        ("t = AT.from_pretrained('x')\nt.apply_chat_template(m)", {"chat"}),
        ("t = AT.from_pretrained('x')\nt(text)", {"encoding"}),
        (
            (
                "from accelerate import Accelerator\na = Accelerator()\nm, o = a.prepare(1,"
                " torch.optim.AdamW(p))\no"
            ),
            {"optimizer"},
        ),
        ("t = other()\nt", set()),
    ],
)
def test_kinds(text: str, kinds: set[str]) -> None:
    made = module(IMPORTS + text)
    assert made.flow.types(last(made)) == kinds


def test_objects_of_a_class_are_followed() -> None:
    made = module(
        IMPORTS
        + """
class Data:
    def __init__(self, tok):
        self.tok, self.n = tok, 3

    def encode(self, text):
        return self.tok(text)

Data(AT.from_pretrained("x"))
"""
    )
    call = next(c for c in made.all_calls if c.method == "tok")
    assert made.flow.types(call.node.func) == {"tokenizer"}


def test_keywords_of_a_dictionary_are_laid_out() -> None:
    made = module(
        "kw = dict(a=1)\nkw['b'] = 2\nf(*x, c=3, **kw)\nf(**other)\nf(**{'a': 1}, **kw)\n"
    )
    calls = [call for call in made.all_calls if made.text_of(call.node.func) == "f"]
    assert [(sorted(call.keywords), call.open) for call in calls] == [
        (["a", "b", "c"], True),
        ([], True),
        (["a", "b"], False),
    ]


def test_a_binding_in_the_other_arm_does_not_reach() -> None:
    made = module("if a:\n    x = 1\nelse:\n    x = 2\n    x\n")
    name = next(n for n in made.nodes(ast.Name) if isinstance(n.ctx, ast.Load) and n.id == "x")
    assert made.flow.value(name) == 2


def test_long_chains_come_to_an_end() -> None:
    lines = ["from datasets import load_dataset", "d = load_dataset('x')"]
    lines += [f"if c{i}:\n    d = d.map(f)\nelse:\n    d = d.filter(f)" for i in range(40)]
    made = module("\n".join([*lines, "d"]) + "\n")
    assert "dataset" in made.flow.types(last(made))
    made = module("x = 1\n" + "x = x + x\n" * 3000 + "x\n")
    made.flow.value(last(made))


ATTRIBUTES = """
class Run:
    model = None
    def __init__(self, small):
        self.model = load("base")
        self.model = compile(self.model)
        {init}
    def train(self):
        {before}
        for row in rows:
            self.model
            {after}
    def other(self):
        {other}
"""


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ({}, ["compile(self.model)"]),
        ({"before": "self.model = wrap(1)"}, ["wrap(1)"]),
        # The next pass of the loop reads what this one sets.
        ({"after": "self.model = wrap(1)"}, ["compile(self.model)", "wrap(1)"]),
        ({"before": "if x: self.model = wrap(1)"}, ["compile(self.model)", "wrap(1)"]),
        ({"init": "if small: self.model = half(1)"}, ["compile(self.model)", "half(1)"]),
        # Which of the other methods ran before is not known.
        ({"other": "self.model = wrap(1)"}, ["compile(self.model)", "wrap(1)"]),
        (
            {"before": "self.model = wrap(1)", "other": "self.model = half(1)"},
            ["wrap(1)", "half(1)"],
        ),
    ],
)
def test_of_an_attribute_the_last_value_before_a_reading_holds(
    parts: dict[str, str], texts: list[str]
) -> None:
    blank = dict.fromkeys(("init", "before", "after", "other"), "pass")
    made = module(ATTRIBUTES.format(**{**blank, **parts}))
    read = next(node for node in made.nodes(ast.Expr) if isinstance(node.value, ast.Attribute))
    assert sorted(made.text_of(one.node) for one in made.flow.origins(read.value)) == sorted(texts)
