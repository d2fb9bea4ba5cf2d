"""The work for a file grows with its length, whatever it is full of: a long test file takes as long as its lines."""

from __future__ import annotations

import cProfile
import json
import subprocess
import sys
from collections.abc import Callable

from truetune.checks.lint import lint_module
from truetune.settings.run_spec import RunSpec
from truetune.source.parsed_source_file import parse_module

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


def count_function_calls(text: str) -> int:
    """How many functions a lint of the text calls: a measure of work that does not depend on the machine."""
    module = parse_module(text, "test_long.py")
    assert not module.broken
    # Written in C: a hook of ours would take four times as long.
    profile = cProfile.Profile()
    profile.enable()
    try:
        lint_module(module, RunSpec())
    finally:
        profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def print_counts() -> None:
    """Print, for each part by name, the calls for a file of 50 and of 100 of it, as JSON."""
    count_function_calls(IMPORTS)  # the rules are loaded once
    counts = {}
    for part in PARTS:
        texts = [IMPORTS + "settings = {}\n" + "".join(map(part, range(n))) for n in (50, 100)]
        counts[part.__name__] = [count_function_calls(text) for text in texts]
    print(json.dumps(counts))


MAX_RATIO = 2.25
"""Of the calls for a file of twice the lines; 1.9 to 2.1 were measured. Work of which a fifth grows with the square of
the length at 100 parts comes above it."""
PARTS: tuple[Callable[[int], str], ...] = (
    trainers,
    calls_of_one_helper,
    one_dictionary_written_again,
    methods_that_set_the_same,
    branches,
    assertions,
)


def test_twice_the_lines_are_twice_the_work() -> None:
    """In a process of its own: behind some thousand other tests, CPython 3.11 hung at the first profiled call."""
    command = "from tests.source.test_long_files import print_counts; print_counts()"
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, timeout=300, check=True
    )
    for part, (short, long) in json.loads(done.stdout).items():
        assert long < MAX_RATIO * short, part
