"""The work for a file grows with its length, whatever it is full of: a long test file takes as long as its lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from truetune.checks.lint import look_at
from truetune.source.module import parse
from truetune.spec.run import RunSpec

IMPORTS = """
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer
"""


def trainers(number: int) -> str:
    """One more test with a trainer of its own."""
    return f"""
def test_{number}(data, folder):
    tokenizer = AutoTokenizer.from_pretrained("some/model")
    model = AutoModelForCausalLM.from_pretrained("some/model")
    args = TrainingArguments(output_dir=folder, learning_rate=0.1, per_device_train_batch_size={number + 1})
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.train()
    assert trainer.state.global_step == {number}
"""


def calls_of_one_helper(number: int) -> str:
    return f"""
check(model, tokenizer, "text {number}", expected={number}, max_new_tokens={number})
def check(model, tokenizer, text, expected=None, **more):
    inputs = tokenizer(text, return_tensors="pt")
    tokenizer.pad_token = tokenizer.eos_token
    return check(model.generate(**inputs, **more), tokenizer, text)
"""


def one_dictionary_written_again(number: int) -> str:
    return f"""
settings["a{number}"] = {number}
settings.update(b={number})
train(**settings)
"""


def methods_that_set_the_same(number: int) -> str:
    return f"""
class Part{number // 100}:
    def method_{number}(self, text):
        self.model = self.wrap(self.model, self.tokenizer)
        self.tokenizer.pad_token = self.tokenizer.eos_token
        return self.method_{number - 1}(self.model(self.tokenizer(text, return_tensors="pt").input_ids))
"""


def branches(number: int) -> str:
    return f"""
if step == {number}:
    model = model.to({number})
else:
    tokenizer = tokenizer or model
"""


def assertions(number: int) -> str:
    return f"""
self.assertEqual(tokenizer.encode("a{number}", add_special_tokens=False), [{number}, 2, 3])
"""


def _function_calls(text: str) -> int:
    """How many functions a lint of the text calls: a measure of work that does not depend on the machine."""
    count = 0

    def counted(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    module = parse(text, "test_long.py")
    assert not module.broken
    sys.setprofile(counted)
    try:
        look_at(module, RunSpec())
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "part",
    [
        trainers,
        calls_of_one_helper,
        one_dictionary_written_again,
        methods_that_set_the_same,
        branches,
        assertions,
    ],
)
def test_twice_the_lines_are_twice_the_work(part: Callable[[int], str]) -> None:
    _function_calls(IMPORTS)  # the rules are loaded once
    short, long = (
        _function_calls(IMPORTS + "settings = {}\n" + "".join(map(part, range(count))))
        for count in (150, 300)
    )
    assert long < 2.4 * short
