"""A script is run symbolically: what reaches the calls of libraries, however it is written."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from truetune.source.find_file_of_import import ImportSearch
from truetune.source.group_files_by_imports import Program
from truetune.source.parsed_source_file import parse_module, read_module
from truetune.source.symbolic_execution.fold_constants import constant_of, constants_among_options
from truetune.source.symbolic_execution.interpreter import run_symbolically
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Element,
    Parameter,
    Sequence,
    Slice,
    Value,
    options_of_choice,
)


def run(text: str) -> Trace:
    return run_symbolically(parse_module(dedent(text), "train.py"))


def only_call(trace: Trace, pattern: str) -> CallEvent:
    found = list(trace.calls(pattern))
    assert len({event.node for event in found}) == 1
    return found[0]


WAYS_TO_GIVE_A_RATE = {
    "plain": "f(lr=1e-4)",
    "name": "rate = 1e-4\nf(lr=rate)",
    "dictionary": "settings = {'lr': 1e-4}\nf(**settings)",
    "dictionary changed": "settings = dict(a=1)\nsettings['lr'] = 1e-4\nf(**settings)",
    "merged": "f(**{**{'lr': 1}, **{'lr': 1e-4}})",
    "or": "f(**({'lr': 2} | {'lr': 1e-4}))",
    "function": "def make(rate):\n    return rate / 10\nf(lr=make(1e-3))",
    "default": "def main(rate=1e-4):\n    f(lr=rate)\nmain()",
    "closure": "def outer():\n    rate = 1e-4\n    def inner():\n        f(lr=rate)\n    return inner\nouter()()",
    "lambda": "(lambda rate: f(lr=rate))(1e-4)",
    "partial": "import functools\ndef start(rate, x):\n    f(lr=rate)\nfunctools.partial(start, 1e-4)(3)",
    "class attribute": "class C:\n    lr = 1e-4\nf(lr=C.lr)",
    "instance": "class C:\n    def __init__(self, rate):\n        self.rate = rate\n"
    "    def run(self):\n        f(lr=self.rate)\nC(1e-4).run()",
    "property": "class C:\n    @property\n    def rate(self):\n        return 1e-4\nf(lr=C().rate)",
    "inherited": "class A:\n    def __init__(self):\n        self.rate = 1e-4\nclass B(A):\n"
    "    def __init__(self):\n        super().__init__()\nf(lr=B().rate)",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass C:\n    rate: float = 1e-4\nf(lr=C().rate)",
    "dataclass argument": "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int\n"
    "    rate: float = 1\nf(lr=C(1, rate=1e-4).rate)",
    "field": "from dataclasses import dataclass, field\n@dataclass\nclass C:\n"
    "    rate: float = field(default=1e-4)\nf(lr=C().rate)",
    "argparse": "import argparse\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--lr', type=float, default=1e-4)\nargs = parser.parse_args()\nf(lr=args.lr)",
    "argparse group": "import argparse\nparser = argparse.ArgumentParser()\ngroup = parser.add_argument_group('a')\n"
    "group.add_argument('--learning-rate', default=1e-4)\nargs = parser.parse_args()\nf(lr=args.learning_rate)",
    "vars": "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', default=1e-4)\n"
    "f(lr=vars(parser.parse_args())['lr'])",
    "parser of dataclasses": "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n"
    "@dataclass\nclass C:\n    rate: float = 1e-4\n(c,) = HfArgumentParser(C).parse_args_into_dataclasses()\n"
    "f(lr=c.rate)",
    "click": "import click\n@click.command()\n@click.option('--rate', default=1e-4)\ndef main(rate):\n"
    "    f(lr=rate)\nmain()",
    "environment": "import os\nf(lr=float(os.environ.get('LR', '1e-4')))",
    "main guard": "def main():\n    f(lr=1e-4)\nif __name__ == '__main__':\n    main()",
    "loop over settings": "for rate in [1e-4]:\n    f(lr=rate)",
    "items": "for name, rate in {'a': 1e-4}.items():\n    f(lr=rate)",
    "comprehension": "[f(lr=rate) for rate in (1e-4,)]",
    "unpacked": "a, (rate, b) = 1, (1e-4, 2)\nf(lr=rate)",
    "get": "f(lr={'lr': 1e-4}.get('lr', 3))",
    "namespace": "from types import SimpleNamespace\ncfg = SimpleNamespace(lr=1e-4)\nf(lr=cfg.lr)",
    "getattr": "class C:\n    lr = 1e-4\nf(lr=getattr(C, 'lr'))",
    "both arms": "import torch\nrate = 1e-4 if torch.cuda.is_available() else 1e-4\nf(lr=rate)",
    "try": "try:\n    rate = 1e-4\nexcept ValueError:\n    raise\nf(lr=rate)",
    "with": "with open('x') as handle:\n    rate = 1e-4\nf(lr=rate)",
    "generator": "def rates():\n    yield 1e-4\nfor rate in rates():\n    f(lr=rate)",
    "method handed on": "class C:\n    def go(self, start):\n        start(1e-4)\n"
    "def start(rate):\n    f(lr=rate)\nC().go(start)",
}


@pytest.mark.parametrize("way", WAYS_TO_GIVE_A_RATE)
def test_a_value_reaches_a_call_however_it_is_given(way: str) -> None:
    trace = run("from lib import f\n" + WAYS_TO_GIVE_A_RATE[way])
    assert trace.is_whole
    assert constant_of(only_call(trace, "lib.f").keywords["lr"]) == pytest.approx(1e-4)


OPEN_VALUES = {
    "two arms": "import torch\nf(lr=1 if torch.cuda.is_available() else 2)",
    "assigned in one arm": "import torch\nrate = 1\nif torch.cuda.is_available():\n    rate = 2\nf(lr=rate)",
    "a library's result": "import torch\nf(lr=torch.rand(1))",
    "a huge text": "f(lr='a' * 10 ** 12)",
    "a huge power": "f(lr=9 ** 9 ** 9)",
    "recursion": "def g(n):\n    return g(n - 1)\nf(lr=g(3))",
}


@pytest.mark.parametrize("way", OPEN_VALUES)
def test_a_value_that_is_not_decided_is_no_constant(way: str) -> None:
    trace = run("from lib import f\n" + OPEN_VALUES[way])
    assert constant_of(only_call(trace, "lib.f").keywords["lr"]) is NO_CONSTANT


def test_both_arms_leave_their_values_as_a_choice() -> None:
    trace = run(
        """
        from lib import f, ask
        rate = 1
        if ask():
            rate = 2
        f(rate)
        """
    )
    assert sorted(constants_among_options(only_call(trace, "lib.f").args[0])) == [1, 2]


def test_an_arm_that_returns_leaves_no_value_behind_it() -> None:
    trace = run(
        """
        from lib import f, ask
        def main():
            rate = 1
            if ask():
                rate = 2
                return
            f(rate)
        main()
        """
    )
    assert constant_of(only_call(trace, "lib.f").args[0]) == 1


def test_a_test_on_an_option_runs_both_arms() -> None:
    trace = run(
        """
        import argparse
        from lib import f, g
        parser = argparse.ArgumentParser()
        parser.add_argument("--fast", action="store_true")
        if parser.parse_args().fast:
            f()
        else:
            g()
        """
    )
    assert list(trace.calls("lib.f"))
    assert list(trace.calls("lib.g"))


def test_a_constant_test_runs_one_arm() -> None:
    trace = run("from lib import f, g\nFAST = False\nif FAST:\n    f()\nelse:\n    g()")
    assert not list(trace.calls("lib.f"))
    assert list(trace.calls("lib.g"))


def test_frames_tell_loops_and_managers_of_functions_that_were_entered() -> None:
    trace = run(
        """
        import torch
        from lib import f, rows
        @torch.no_grad()
        def ask(row):
            f(row)
        for row in rows():
            ask(row)
        """
    )
    call = only_call(trace, "lib.f")
    assert [frame.kind for frame in call.frames("loop", "with", "call")] == ["with", "call", "loop"]


def test_functions_that_a_library_is_handed_are_run() -> None:
    trace = run(
        """
        from datasets import load_dataset
        from lib import f
        rows = load_dataset("x")
        rows = rows.map(lambda row: {"text": row["a"] + row["b"]})
        for row in rows:
            f(row["text"], row["c"])
        """
    )
    text, other = only_call(trace, "lib.f").args
    assert type(text).__name__ == "Operation"
    assert type(other).__name__ == "Item"


def test_methods_that_a_trainer_calls_see_the_object() -> None:
    trace = run(
        """
        from transformers import Trainer
        from lib import f
        class Mine(Trainer):
            def __init__(self, *args, weight=2, **kwargs):
                super().__init__(*args, **kwargs)
                self.weight = weight
            def compute_loss(self, model, inputs, **kwargs):
                return f(self.weight, inputs["labels"])
        Mine(model=1, weight=3).train()
        """
    )
    call = only_call(trace, "lib.f")
    assert constant_of(call.args[0]) == 3
    assert [event.keywords.keys() for event in trace.calls("transformers.Trainer")] == [{"model"}]


def test_functions_that_nobody_calls_are_run_with_unknown_arguments() -> None:
    trace = run("from lib import f\ndef helper(a, b=2):\n    f(a, b)")
    first, second = only_call(trace, "lib.f").args
    assert isinstance(first, Parameter)
    assert constant_of(second) == 2


WAYS_TO_WRAP = {
    "plain": "m = load()",
    "moved": "m = load().to('cuda').eval()",
    "adapter": "import peft\nm = peft.PeftModel.from_pretrained(load(), 'a').merge_and_unload()",
    "compiled": "import torch\nm = torch.compile(load())",
    "prepared": "from accelerate import Accelerator\nm, o = Accelerator().prepare(load(), 1)",
    "distributed": "from torch.nn.parallel import DistributedDataParallel as DDP\nm = DDP(load()).module",
    "in a class": "class C:\n    def __init__(self):\n        self.m = load()\nm = C().m",
    "in a dictionary": "m = {'policy': load()}['policy']",
}


@pytest.mark.parametrize("way", WAYS_TO_WRAP)
def test_a_model_is_followed_to_its_load(way: str) -> None:
    trace = run(
        "from transformers import AutoModelForCausalLM\nfrom lib import f\n"
        "def load():\n    return AutoModelForCausalLM.from_pretrained('base')\n"
        f"{WAYS_TO_WRAP[way]}\nf(m)\n"
    )
    model: Value = only_call(trace, "lib.f").args[0]
    loads = [one.call_that_gave_origin for one in lineages_back_to_origins(model)]
    assert [load.names for load in loads if load is not None] == [
        ("transformers.AutoModelForCausalLM.from_pretrained",)
    ]


def test_settings_beside_the_script_and_helpers_of_other_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "cfg.yaml").write_text("train:\n  lr: 1.0e-4\n")
    (tmp_path / "helpers.py").write_text(
        "from lib import f\ndef start(cfg):\n    f(lr=cfg['train']['lr'])\n"
    )
    (tmp_path / "train.py").write_text(
        "import yaml\nfrom helpers import start\nstart(yaml.safe_load(open('cfg.yaml')))\n"
    )
    paths = [str(tmp_path / name) for name in ("train.py", "helpers.py")]
    program = Program([read_module(Path(path)) for path in paths], ImportSearch(paths, paths))
    (trace,) = traces_of_scripts_that_reach_file(program.modules[1])
    assert trace.entry.path == paths[0]
    call = only_call(trace, "lib.f")
    assert call.home.path == paths[1]
    assert constant_of(call.keywords["lr"]) == pytest.approx(1e-4)


def test_a_run_without_end_is_cut_and_says_so() -> None:
    body = "\n".join(f"    f{n}()" for n in range(40))
    functions = "\n".join(
        f"def f{n}():\n" + "\n".join(f"    f{n + 1}()" for _ in range(30)) for n in range(12)
    )
    trace = run(f"{functions}\ndef f12():\n    pass\ndef main():\n{body}\n" + "f0()\n" * 60_000)
    assert not trace.is_whole


@pytest.mark.parametrize(
    "line", ["texts += load(i)", "texts.extend(load(i))", "texts = [*texts, *load(i)]"]
)
def test_a_list_holds_what_it_is_extended_by(line: str) -> None:
    trace = run(
        f"from lib import load, use\ntexts = []\nfor i in range(n):\n    {line}\nfor one in texts:\n    use(one)"
    )
    loaded = next(trace.calls("lib.load"))
    given = [one for call in trace.calls("lib.use") for one in options_of_choice(call.args[0])]
    assert any(isinstance(one, Element) and one.iterable is loaded.result for one in given)


@pytest.mark.parametrize(
    "line", ["loader = acc.prepare(loader)", "model, loader = acc.prepare(model, loader)"]
)
def test_a_prepared_loader_gives_the_same_batches(line: str) -> None:
    trace = run(
        "from accelerate import Accelerator\nfrom lib import f\nfrom torch.utils.data import DataLoader\n"
        "acc = Accelerator()\n"
        "loader = DataLoader(rows, collate_fn=lambda rows: {'ids': 5})\n"
        f"{line}\nfor batch in loader:\n    f(batch['ids'])"
    )
    assert constant_of(only_call(trace, "lib.f").args[0]) == 5


BOMBS = {
    "text": "a = 'xy'\n" + "a = f'{a}{a}'\n" * 60,
    "sum of texts": "a = 'xy'\n" + "a = a + a\n" * 60,
    "replaced text": "a = 'x' * 5\n" + "a = a.replace('x', 'xxxxxxxxxxxxxxxx')\n" * 60,
    "width": "a = '%999999999d' % 3\n",
    "format": "a = '{:999999999}'.format(3)\n",
    "list": "a = [1]\n" + "a = a + a\n" * 60,
    "list in place": "a = [1]\n" + "a += a\n" * 60,
    "extended": "a = [1]\n" + "a.extend(a)\n" * 60,
    "unknown sums": "a = ask()\n" + "a = a + a\n" * 60,
    "sums of options": "import os\na = os.getenv('A', 'xy')\n" + "a = a + a\n" * 60,
    "branches": "a = ask()\n" + "if ask():\n    a = a.to(1)\nelse:\n    a = a.eval()\n" * 60,
    "loops": "a = 1\n"
    + "".join("    " * n + "for x in ask():\n" for n in range(18))
    + "    " * 18
    + "a = a + 1\n",
    "power": "a = 99\n" + "a = a ** a\n" * 9,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_no_script_takes_the_memory_or_the_time(bomb: str) -> None:
    trace = run(f"from lib import ask, f\n{BOMBS[bomb]}f(a)\n")
    value = next(iter(trace.calls("lib.f"))).args[0]
    constant_of(value)
    assert len(list(lineages_back_to_origins(value))) < 40


def test_rows_of_a_data_set_that_a_loader_is_handed_are_those_of_its_batches() -> None:
    trace = run(
        """
        from lib import f, make, rows
        from torch.utils.data import DataLoader, Dataset
        class Rows(Dataset):
            def __getitem__(self, i):
                return {"kind": 7}
        for batch in DataLoader(Rows(), batch_size=2):
            f(kind=batch["kind"])
        """
    )
    assert constant_of(only_call(trace, "lib.f").keywords["kind"]) == 7


def test_columns_that_are_added_to_an_encoding_are_columns_of_the_row() -> None:
    trace = run(
        """
        from lib import f, make, rows
        from datasets import load_dataset
        from transformers import AutoTokenizer
        tok = AutoTokenizer.from_pretrained("m")
        def encode(row):
            made = tok(row["text"])
            made["kind"] = 7
            return made
        for row in load_dataset("a").map(encode):
            f(kind=row["kind"])
        """
    )
    assert constant_of(only_call(trace, "lib.f").keywords["kind"]) == 7


def test_rows_of_tensors_are_elements_of_each() -> None:
    trace = run(
        """
        from lib import f, make, rows
        from torch.utils.data import DataLoader, TensorDataset
        x = make()
        y = make()
        for a, b in DataLoader(TensorDataset(x, y)):
            f(b=b, y=y)
        """
    )
    call = only_call(trace, "lib.f")
    element = call.keywords["b"]
    assert isinstance(element, Element)
    assert element.iterable is call.keywords["y"]


def test_a_slice_of_an_open_list_knows_the_list() -> None:
    trace = run(
        """
        from lib import f, make, rows
        ids = [make(row) for row in rows]
        f(part=ids[1:])
        """
    )
    part = only_call(trace, "lib.f").keywords["part"]
    assert isinstance(part, Sequence)
    assert part.part_of is not None
    assert isinstance(part.part_of.key, Slice)
    assert constant_of(part.part_of.key.start) == 1


def test_methods_that_a_library_calls_run_after_the_constructor() -> None:
    trace = run(
        """
        import lightning
        from lib import f
        class Net(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.save_hyperparameters()
                self.kind = 7
            def training_step(self, batch, number):
                f(kind=self.kind)
        lightning.Trainer().fit(Net())
        """
    )
    assert constant_of(only_call(trace, "lib.f").keywords["kind"]) == 7


COUNTED = """
import torch
n = 0
for batch in torch.load("batches.pt"):
    n += 1
    if n % 8 == 0:
        torch.save(batch, "x")
    inside = 0
    inside += 1
    torch.add(inside, n)
whole = 0
whole += 4
for size in (1, 2):
    whole += size
torch.mul(whole)
"""


def test_a_counter_of_passes_is_no_constant() -> None:
    trace = run_symbolically(parse_module(COUNTED, "train.py"))
    saved = next(trace.calls("torch.save"))
    assert [frame.taken for frame in saved.frames("branch")] == [True]
    added = next(trace.calls("torch.add"))
    assert [constant_of(one) for one in added.args] == [1, NO_CONSTANT]
    assert constant_of(next(trace.calls("torch.mul")).args[0]) == 7
