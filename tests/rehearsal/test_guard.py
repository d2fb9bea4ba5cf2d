"""A rehearsal fails closed: whatever order a script imports in, whatever it tries, what was there stays as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest

from tests.confinement.escapes import WAYS
from tests.confinement.test_launch import ears, outside_of, tree
from tests.preloaded import commands_python
from tests.rehearsal.test_command import model, rehearse
from truetune.confinement import confined_launcher

ROOT = Path(__file__).parents[2]
HOOKED = ROOT / "src" / "truetune" / "probe" / "hooked"
PACKAGES = ("datasets", "peft", "transformers", "trl")

ORDERS = """
import gc, importlib, json, os, sys

PACKAGES = ("datasets", "peft", "transformers", "trl")


def names_of_all_else():
    # What the four import besides themselves takes most of the time, and has no part in their order.
    reader, writer = os.pipe()
    if os.fork() == 0:
        for package in PACKAGES:
            importlib.import_module(package)
        importlib.import_module("trl.trainer.sft_trainer")
        names = [name for name in sys.modules if name.partition(".")[0] not in PACKAGES]
        with os.fdopen(writer, "w") as pipe:
            pipe.write(json.dumps(names))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return json.load(pipe)


def shrinks():
    from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments
    from datasets import Dataset
    import peft

    small = AutoModelForCausalLM.from_pretrained("model")
    assert small.config.num_hidden_layers == 2, small.config
    built = AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt2", n_layer=48, vocab_size=100))
    assert built.config.num_hidden_layers == 2
    assert TrainingArguments("out", report_to="wandb", push_to_hub=True).report_to == []
    assert TrainingArguments("out").output_dir != "out"
    assert Trainer.__new__ is not object.__new__
    assert len(Dataset.from_list([{"x": i} for i in range(300)]).map(lambda row: row)) == 256
    assert hasattr(peft.PeftModel.from_pretrained, "_truetune_shrunk")


def in_a_child(order, act):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for package in order:
                importlib.import_module(package)
            act()
            code = 0
        except SystemExit as error:
            code = error.code
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

ALL_ORDERS = (
    ORDERS
    + """
for name in names_of_all_else():
    try:
        importlib.import_module(name)
    except Exception:
        pass
assert not set(PACKAGES) & set(sys.modules)
gc.freeze()  # else each child's collections copy all of that


def go_on(order):
    # A child for each next package: orders that begin alike share those imports.
    rest = [package for package in PACKAGES if package not in order]
    if not rest:
        shrinks()
        print(json.dumps(order), flush=True)
    for package in rest:
        assert in_a_child([package], lambda: go_on([*order, package])) == 0, (order, package)


go_on([])
"""
)

TRAINS = (
    ORDERS
    + """
def train():
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    open("train.log", "a").write("begins")
    rows = [{"messages": [{"role": "user", "content": f"Where is box {i}?"},
                          {"role": "assistant", "content": f"Box {i} is on shelf {i + 3}."}]} for i in range(8)]
    tokenizer = AutoTokenizer.from_pretrained("model")
    trainer = SFTTrainer(AutoModelForCausalLM.from_pretrained("model"), SFTConfig("run", report_to="none", max_steps=1),
                         train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
                         peft_config=LoraConfig(r=4, target_modules="all-linear"))
    try:
        trainer.train()
    finally:
        trainer.save_model("adapter")
        trainer.model.merge_and_unload().save_pretrained("merged")
        tokenizer.save_pretrained("adapter")


def train_and_try():
    # A little before, and with all that a training has loaded.
    sys.path.insert(0, sys.argv[2])
    from tests.confinement.escapes import KEPT, try_all

    print(json.dumps(try_all("open_for_writing", "c_library_unlink", "program_that_moves")), flush=True)
    try:
        train()
    finally:
        import torch

        print(json.dumps(try_all()), flush=True)
        torch.save({}, KEPT)


if __name__ == "__main__":  # one of the ways is a process that imports this again
    # What takes longest of what the four import, once for all orders.
    import accelerate, pandas, pyarrow.dataset, torch, torch._dynamo, torch.distributed.fsdp

    gc.freeze()
    for number, order in enumerate(json.loads(sys.argv[1])):
        print(order, in_a_child(order, train if number else train_and_try), flush=True)
"""
)


def test_every_order_of_imports_shrinks(tmp_path: Path) -> None:
    """Beneath the real launcher; one process with all else loaded is the parent of one for each order.

    35 s of processor time: in each of 24 orders transformers' own modules are imported, which is what is tested.
    """
    model(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    orders = {"mode": "rehearse", "folder": str(work), "address": "", "authkey": ""}
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HOOKED), str(ROOT / "src")]),
        "OMP_NUM_THREADS": "1",
    }
    command = confined_launcher.confined_command_line([sys.executable, "-c", ALL_ORDERS], [work])
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=600,
        env={**variables, confined_launcher.ORDERS_VARIABLE: json.dumps(orders)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]
    assert found == list(permutations(PACKAGES))


def test_the_adapter_stays_as_it_was(tmp_path: Path) -> None:
    """Three orders, the alphabetical one first; each saves after its training, and the first tries all ways out."""
    outside, folder = outside_of(tmp_path), tmp_path / "project"
    folder.mkdir()
    model(folder)
    for name in (
        "adapter/adapter_model.safetensors",
        "merged/model.safetensors",
        "run/checkpoint-1/optimizer.pt",
    ):
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"trained for a week")
    folder.joinpath("train.log").write_text("of the real run")
    folder.joinpath("train.py").write_text(TRAINS)
    orders = [
        PACKAGES,
        ("peft", "trl", "transformers", "datasets"),
        ("trl", "transformers", "peft", "datasets"),
    ]
    before = tree(folder), tree(outside)
    with ears(tmp_path) as (places, heard):
        targets = {"outside": str(outside), "skipped": [], "native": True, **places}
        command = [
            commands_python(),
            "-m",
            "truetune",
            "rehearse",
            "--laws",
            "none",
            "--rows",
            "1",
            "train.py",
        ]
        done = subprocess.run(
            [*command, json.dumps(orders), str(ROOT)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "ESCAPES": json.dumps(targets)},
        )
        assert (tree(folder), tree(outside)) == before, done.stdout
        assert heard == []
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("['")] == [
        f"{list(order)} 0" for order in orders
    ], done.stderr
    assert [len(json.loads(line)) for line in lines if line.startswith('{"open_for')] == [
        3,
        len(WAYS),
    ]
    assert done.stderr.count("memorised in ") == 3, done.stderr


def test_a_hook_that_fails_ends_the_command(tmp_path: Path) -> None:
    """A package that is not what it was: before anything is loaded, not one line later."""
    tmp_path.joinpath("datasets").mkdir()
    for name in ("__init__.py", "arrow_dataset.py"):
        tmp_path.joinpath("datasets", name).write_text("class Other: pass\n")
    tmp_path.joinpath("train.py").write_text("import datasets.arrow_dataset\nprint('went on')\n")
    done = rehearse(tmp_path, "train.py")
    assert (done.returncode, done.stdout) == (3, "")
    assert "the rehearsal ends here, nothing was trained: AttributeError" in done.stderr
    assert "truetune: nothing was rehearsed: the hook failed (AttributeError" in done.stderr


@pytest.mark.parametrize(
    "claim", [{"landlock": 7, "covered": []}, {"landlock": 0, "covered": ["/"]}]
)
def test_a_guard_that_does_not_stand_is_found(claim: dict[str, object], tmp_path: Path) -> None:
    """A process that got the variables but is not confined runs none of the program."""
    folder = tmp_path / "work"
    folder.mkdir()
    guard = {
        "writable": [str(folder)],
        "refused": str(folder),
        "signals": True,
        "gaps": [],
        **claim,
    }
    variables = {
        "PYTHONPATH": str(HOOKED),
        confined_launcher.GUARD_VARIABLE: json.dumps(guard),
        confined_launcher.ORDERS_VARIABLE: json.dumps({"folder": ""}),
    }
    done = subprocess.run(
        [sys.executable, "-c", "print('went on')"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **variables},
    )
    assert (done.returncode, done.stdout) == (125, "")
    assert "truetune: the rehearsal ends here, nothing was trained: UnguardedError" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_refusals_are_told_with_their_line(tmp_path: Path) -> None:
    tmp_path.joinpath("train.py").write_text("import os\n\nos.remove('/etc/passwd')\n")
    done = rehearse(tmp_path, "train.py")
    assert done.returncode == 1
    assert (
        "truetune: a rehearsal keeps the program from this (train.py:3 removes): '/etc/passwd'"
        in done.stderr
    )
    assert "truetune: kept from the program: train.py:3 removes /etc/passwd\n" in done.stderr
