"""The protocols of training code: each order, broken and right, and spellings that change nothing."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from textwrap import indent

import pytest

from tests.checks.source.protocol_scripts import (
    ACCELERATOR,
    ADAPT,
    ADD,
    CLEAR,
    CLIP,
    ENCODE,
    FREEZE,
    HEAD,
    LOOP,
    OPTIMIZER,
    PREPARE,
    RESIZE,
    SCALED,
    SCALER,
    SCRIPTS,
    STEP,
    TRAIN,
    UNSCALE,
    UPDATE,
    loop,
    script,
)
from tests.protocol_page import PAGE, page
from truetune.checks.source.evidence.training_protocol.all_protocols import ALL_PROTOCOLS
from truetune.checks.source.evidence.training_protocol.follow_object_states import broken_orders
from truetune.checks.source.evidence.training_protocol.protocol_records import (
    BrokenOrder,
    Protocol,
    Releases,
    State,
    Transition,
)
from truetune.source.find_file_of_import import ImportSearch
from truetune.source.group_files_by_imports import Program
from truetune.source.parsed_source_file import Module, parse_module, read_module

ORDERS = {order.name for protocol in ALL_PROTOCOLS for order in protocol.broken_orders}
NAMES = {
    "model": "policy",
    "tokenizer": "pieces",
    "optimizer": "adam",
    "scaler": "half",
    "trainer": "runner",
    "accelerator": "cluster",
    "sampler": "shares",
}


def orders_of(*modules: Module) -> set[str]:
    """The names of the orders that are broken in some files."""
    return {place.order.name for one in modules for place in broken_orders(one, ALL_PROTOCOLS)}


def orders_of_text(text: str) -> set[str]:
    """The names of the orders that a script breaks."""
    return orders_of(parse_module(text, "train.py"))


def tail_of(text: str) -> str:
    """A script without its head."""
    return text.removeprefix(HEAD)


def test_each_order_has_its_scripts() -> None:
    """An order without a script of both kinds would be in the table unproved."""
    assert set(SCRIPTS) == ORDERS
    assert len(ORDERS) >= 20


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_broken_and_right_order(name: str) -> None:
    """The broken order is named, alone, and the right one is not."""
    broken, right = SCRIPTS[name]
    assert orders_of_text(broken) == {name}
    assert orders_of_text(right) == set()


class _Renaming(ast.NodeTransformer):
    """Gives variables other names."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """The same variable under another name."""
        return ast.Name(NAMES.get(node.id, node.id), node.ctx)


def renamed(text: str) -> str:
    """The script with other names for its variables."""
    return ast.unparse(_Renaming().visit(ast.parse(text)))


def in_function(text: str) -> str:
    """The script with its steps in a function that it calls."""
    names = sorted({node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)})
    given = [name for name in ("rows", "tokenizer", "model") if name in names]
    head = f"def prepare_and_train({', '.join(given)}):\n"
    call = f"if __name__ == '__main__':\n    prepare_and_train({', '.join(given)})\n"
    return HEAD + head + indent(tail_of(text), "    ") + call


def with_branches(text: str) -> str:
    """The script with branches between its statements that act on no object of it."""
    statements = [ast.unparse(node) for node in ast.parse(tail_of(text)).body]
    branch = "\nif rows.verbose:\n    print('step')\nelse:\n    print('no step')\n"
    return HEAD + branch.join(statements) + "\n"


def in_one_branch(text: str) -> str:
    """The script with all its steps under one condition."""
    return HEAD + "if rows.is_wanted:\n" + indent(tail_of(text), "    ")


def with_imports_of_names(text: str) -> str:
    """The script under shorter names of the modules that it imports."""
    return text.replace("import torch\n", "import torch as th\n").replace("torch.", "th.").replace(
        "from th.", "from torch."
    )  # fmt: skip


SPELLINGS = {
    "renamed": renamed,
    "in a function": in_function,
    "with branches between": with_branches,
    "under one condition": in_one_branch,
    "other names of modules": with_imports_of_names,
}


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_verdict_of_another_spelling(name: str, spelling: str) -> None:
    """Names, functions and branches that change no order change no verdict."""
    broken, right = SCRIPTS[name]
    assert orders_of_text(SPELLINGS[spelling](broken)) == {name}
    assert orders_of_text(SPELLINGS[spelling](right)) == set()


def program_of(folder: Path, texts: dict[str, str]) -> Program:
    """Files of one project, in a folder."""
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    paths = [str(folder / name) for name in texts]
    return Program([read_module(Path(path)) for path in paths], ImportSearch(paths, paths))


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_verdict_in_two_files(name: str, tmp_path: Path) -> None:
    """Objects that another file makes have the same states."""
    for order, text in zip(("broken", "right"), SCRIPTS[name], strict=True):
        folder = tmp_path / order
        folder.mkdir()
        statements = [ast.unparse(node) for node in ast.parse(tail_of(text)).body]
        first, rest = statements[0], statements[1:]
        if not rest:
            continue
        early = HEAD + first + "\n"
        bound = {
            node.id
            for node in ast.walk(ast.parse(early))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        imports = [
            line for line in HEAD.splitlines() if line.startswith(("import", "from", " ", ")"))
        ]
        late = "\n".join([*imports, f"from parts import {', '.join(sorted(bound))}", *rest]) + "\n"
        found = orders_of(*program_of(folder, {"train.py": late, "parts.py": early}).modules)
        assert found == ({name} if order == "broken" else set())


UNSURE = {
    "unscaled under a condition": script(
        SCALER, loop(SCALED, "if rows.is_half: scaler.unscale_(optimizer)", CLIP, STEP, UPDATE, CLEAR)
    ),
    "scaled in the other arm": script(
        SCALER,
        loop(
            f"if rows.is_half:\n        {SCALED}\n    else:\n        loss.backward()",
            f"if not rows.is_half:\n        {CLIP}\n        optimizer.step()",
            f"else:\n        {STEP}\n        {UPDATE}",
            CLEAR,
        ),
    ),
    "a helper that is not there": script(
        "from helpers import finish_model", ADAPT, FREEZE, "finish_model(model)", TRAIN
    ),
    "an arm that returns": script(
        "def main(model):\n"
        "    if rows.is_test:\n"
        "        model = get_peft_model(model, LoraConfig())\n"
        "        return\n"
        "    model.requires_grad_(False)\n"
        "    trainer = Trainer(model=model)\n"
        "    trainer.train()\n"
        "main(model)"
    ),
    "an arm that ends the process": script(
        "import sys",
        "if rows.is_test:\n    model = get_peft_model(model, LoraConfig())\n    sys.exit()",
        FREEZE,
        TRAIN,
    ),
    "another value of the same setting": script(
        "if rows.mode == 'lora':\n    model = get_peft_model(model, LoraConfig())",
        "if rows.mode == 'kbit':\n    model.requires_grad_(False)",
        TRAIN,
    ),
    "two models": script(
        "other = AutoModelForCausalLM.from_pretrained('other')",
        ADAPT,
        "other.requires_grad_(False)",
        TRAIN,
    ),
    "a copy that is frozen": script(
        "import copy",
        ADAPT,
        "reference = copy.deepcopy(model)",
        "reference.requires_grad_(False)",
        TRAIN,
    ),
    "some weights left out": script(ADAPT, "model.base_model.model.lm_head.requires_grad_(False)", TRAIN),
    "two optimizers under one scaler": script(
        SCALER,
        "second = torch.optim.SGD(model.parameters(), lr=1e-3)",
        loop(SCALED, UNSCALE, "scaler.unscale_(second)", CLIP, STEP, "scaler.step(second)", UPDATE, CLEAR),
    ),
    "a norm that is only measured": script(
        OPTIMIZER,
        loop(
            "loss.backward()",
            "optimizer.step()",
            "torch.nn.utils.clip_grad_norm_(model.parameters(), float('inf'))",
            CLEAR,
        ),
    ),
    "a scaler that is switched off": script(
        OPTIMIZER,
        'scaler = torch.amp.GradScaler("cuda", enabled=False)',
        loop(SCALED, CLIP, STEP, UPDATE, CLEAR),
    ),
    "gradients divided by hand": script(
        SCALER,
        loop(SCALED, "for w in model.parameters(): w.grad.div_(scaler.get_scale())", CLIP, STEP, UPDATE, CLEAR),
    ),
    "spare rows": script("model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)",
                         "tokenizer.add_tokens(['[NEW]'])", TRAIN),
    "rows encoded again": script(ENCODE, "tokenizer.add_tokens(['[NEW]'])", RESIZE, ENCODE, TRAIN),
    "a schedule brought forward": script(
        OPTIMIZER,
        "scheduler = get_linear_schedule_with_warmup(optimizer, 10, 100)",
        "for _ in range(rows.done):\n    scheduler.step()",
        loop("loss.backward()", "optimizer.step()", "scheduler.step()", CLEAR),
    ),
    "float32 under accelerate": script(
        OPTIMIZER, ACCELERATOR.format("mixed_precision='bf16'"), PREPARE,
        loop("accelerator.backward(loss)", CLIP, "optimizer.step()", CLEAR),
    ),
    "the wrapper taken off again": script(
        "model = DistributedDataParallel(model)", "score = model(**rows[0])", "model = model.module", ADAPT, TRAIN
    ),
    "an embedding that only starts checkpointing": script(
        "model = DistributedDataParallel(model)", "model.module.embed_tokens.requires_grad_(True)", OPTIMIZER, LOOP
    ),
    "code of the checkpoint": script(
        "model = AutoModelForCausalLM.from_pretrained('model', trust_remote_code=True)",
        "model.config.rope_theta = 1e6",
        TRAIN,
    ),
    "a head of one's own": script(
        "model = AutoModelForSequenceClassification.from_pretrained('model')",
        "model.config.num_labels = 7",
        "model.classifier = torch.nn.Linear(768, 7)",
        TRAIN,
    ),
}  # fmt: skip
"""What is not said, with the script: the order is right there, or can't be told"""


@pytest.mark.parametrize("case", sorted(UNSURE))
def test_nothing_where_the_order_is_not_known(case: str) -> None:
    """No order is named that another arm, object or helper makes right."""
    assert orders_of_text(UNSURE[case]) == set()


def test_scaler_that_may_be_none() -> None:
    """A scaler that is None without half precision is a scaler where it is used."""
    text = script(
        OPTIMIZER,
        "scaler = torch.amp.GradScaler('cuda') if rows.is_half else None",
        loop(
            f"if scaler is not None:\n        {SCALED}\n    else:\n        loss.backward()",
            CLIP,
            f"if scaler is not None:\n        {STEP}\n        {UPDATE}\n    else:\n        optimizer.step()",
            CLEAR,
        ),
    )
    assert orders_of_text(text) == {"clip-before-unscale"}
    unscaled = text.replace(CLIP, f"if scaler:\n        {UNSCALE}\n    {CLIP}")
    assert orders_of_text(unscaled) == set()


ACCUMULATING = (OPTIMIZER, ACCELERATOR.format("gradient_accumulation_steps=rows.parts"), PREPARE)
ACCUMULATED = "accelerator.backward(loss)"
COUNTED = {
    "a remainder under a name": script(
        *ACCUMULATING,
        "number = 0",
        loop(
            "number += 1",
            "is_last = number % rows.parts == 0 or number == len(rows)",
            ACCUMULATED,
            f"if is_last:\n        optimizer.step()\n        {CLEAR}",
        ),
    ),
    "the next batch at a remainder": script(
        *ACCUMULATING,
        "number = 0",
        loop(
            "number += 1", ACCUMULATED, "if number % rows.parts:\n        continue", "optimizer.step()", CLEAR
        ),
    ),
    "a remainder by divmod": script(
        *ACCUMULATING,
        "number = 0",
        loop(
            "number += 1", ACCUMULATED, "_, rest = divmod(number, rows.parts)",
            f"if rest == 0:\n        optimizer.step()\n        {CLEAR}",
        ),
    ),
    "a counter that begins again": script(
        *ACCUMULATING,
        "number = rows.first",
        loop(
            ACCUMULATED, "number += 1",
            f"if number >= rows.parts:\n        optimizer.step()\n        {CLEAR}\n        number = 0",
        ),
    ),
    "a function that returns": script(
        *ACCUMULATING,
        f"def update(number):\n    if number % rows.parts:\n        return\n    optimizer.step()\n    {CLEAR}",
        "number = 0",
        loop("number += 1", ACCUMULATED, "update(number)"),
    ),
    "accelerate's own flag": script(
        *ACCUMULATING,
        loop(ACCUMULATED, f"if accelerator.sync_gradients:\n        optimizer.step()\n        {CLEAR}"),
    ),
}  # fmt: skip
"""How a loop counts the batches of a step itself -> the script"""


@pytest.mark.parametrize("case", sorted(COUNTED))
def test_loops_that_count_the_batches_of_a_step(case: str) -> None:
    """Accelerate need not count the batches where the loop does, however it is written."""
    assert orders_of_text(COUNTED[case]) == set()


@pytest.mark.parametrize(
    "test", ["if torch.isfinite(loss):", "if rows.is_train:", "if number % 10 == 0:\n        print(loss)\n    if loss:"]
)  # fmt: skip
def test_other_tests_count_no_batches(test: str) -> None:
    """A step that a test of anything else guards is one after each batch."""
    step = f"{test}\n        optimizer.step()\n        {CLEAR}"
    text = script(*ACCUMULATING, "number = 0", loop("number += 1", ACCUMULATED, step))
    assert orders_of_text(text) == {"accumulation-never-entered"}


CHOSEN = (
    "if rows.is_small:\n    tokenizer = AutoTokenizer.from_pretrained('small')\n"
    "    model = AutoModelForCausalLM.from_pretrained('small')\n"
    "elif rows.is_new:\n    tokenizer = AutoTokenizer.from_pretrained('new')\n"
    "    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained('new'))"
)


def test_object_that_one_of_several_branches_makes() -> None:
    """What the branches make under one name is one object after them."""
    assert orders_of_text(script(CHOSEN, RESIZE, ADD, TRAIN)) == {"resized-before-tokens"}
    assert orders_of_text(script(CHOSEN, ADD, RESIZE, TRAIN)) == set()
    late = "if rows.is_small:\n    model.requires_grad_(False)"
    assert orders_of_text(script(CHOSEN, ADAPT, late, TRAIN)) == {"frozen-after-adapter"}
    one_arm = CHOSEN.replace(
        "from_pretrained('small')\nelif", f"from_pretrained('small')\n    {ADAPT}\nelif"
    )
    assert orders_of_text(script(one_arm, "model.requires_grad_(False)", TRAIN)) == {
        "frozen-after-adapter"
    }


def test_both_places_are_named() -> None:
    """The two places are the two calls, the earlier one first."""
    module = parse_module(script(ADAPT, FREEZE, TRAIN), "train.py")
    (place,) = broken_orders(module, ALL_PROTOCOLS)
    assert module.text_of(place.first.node).startswith("get_peft_model(")
    assert module.text_of(place.second.node).startswith("model.requires_grad_(")


def test_order_in_a_helper_is_reported_in_its_file(tmp_path: Path) -> None:
    """A step that a helper file makes is named there, and the script beside it has no finding."""
    helper = "import torch\ndef clip(model):\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    train = script(
        SCALER, "from helper import clip", loop(SCALED, "clip(model)", STEP, UPDATE, CLEAR)
    )
    program = program_of(tmp_path, {"train.py": train, "helper.py": helper})
    found = {Path(one.path).name: orders_of(one) for one in program.modules}
    assert found == {"train.py": set(), "helper.py": {"clip-before-unscale"}}


def test_method_and_object_of_a_class() -> None:
    """A loop in a method whose objects are attributes has the same states."""
    text = script(
        "class Loop:\n"
        "    def __init__(self, model):\n"
        "        self.model = model\n"
        "        self.optimizer = torch.optim.AdamW(model.parameters())\n"
        "        self.scaler = torch.amp.GradScaler('cuda')\n"
        "    def run(self):\n"
        "        for batch in DataLoader(rows):\n"
        "            self.scaler.scale(self.model(**batch).loss).backward()\n"
        "            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)\n"
        "            self.scaler.step(self.optimizer)\n"
        "            self.scaler.update()\n"
        "Loop(model).run()"
    )
    assert orders_of_text(text) == {"clip-before-unscale"}


def test_releases() -> None:
    """A pin to another release silences an order; no pin does not."""
    pinned = '# /// script\n# dependencies = ["peft==0.5.0"]\n# ///\n'
    pins = parse_module(pinned + "import peft\n", "train.py").pins
    assert not Releases("peft", first="0.6").may_run(pins)
    assert Releases("peft", gone="0.6").may_run(pins)
    assert not Releases("peft", gone="0.4").may_run(pins)
    assert Releases("peft", first="0.6").may_run(parse_module("import peft\n", "train.py").pins)
    assert str(Releases("peft", first="0.6", gone="0.9")) == "peft>=0.6,<0.9"


def test_table_refuses_unknown_names() -> None:
    """A transition or order that names no state or action of its protocol is an error at once."""
    with pytest.raises(ValueError, match="no action step"):
        Protocol("p", "P", "step", "an object", (), (), (Transition("step", "done"),), ())
    order = BrokenOrder("o", "done", "step", "message", "remedy", "https://example.org")
    with pytest.raises(ValueError, match="no action step"):
        Protocol("p", "P", "step", "an object", (State("done", "it is done"),), (), (), (order,))


def test_ordinary_loop_breaks_nothing() -> None:
    """A plain loop is in order."""
    assert orders_of_text(script(OPTIMIZER, LOOP, "model.save_pretrained('out')")) == set()


def scripts_of_package(package: str, folder: str) -> list[Path]:
    """The scripts in a folder of an installed package; none where it is not installed."""
    spec = importlib.util.find_spec(package)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return sorted(path for place in places for path in (Path(place) / folder).rglob("*.py"))


@pytest.mark.parametrize(
    ("package", "folder"),
    [("trl", "scripts"), ("accelerate", "test_utils/scripts"), ("peft", "optimizers")],
)
def test_scripts_of_the_libraries_are_in_order(package: str, folder: str) -> None:
    """The libraries' own training code breaks no order."""
    scripts = scripts_of_package(package, folder)
    if not scripts:
        pytest.skip(f"{package} is not installed")
    assert {path.name: orders_of(read_module(path)) for path in scripts} == {
        path.name: set() for path in scripts
    }


def test_page_lists_the_protocols_of_today() -> None:
    """`python -m tests.protocol_page` was run after the last change of the table."""
    assert PAGE.read_text(encoding="utf-8") == page()
