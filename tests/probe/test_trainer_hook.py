"""What the hook changes in the user's process: nothing that a program could see."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from tests.auditing.running import environment
from truetune.probe.find_trainers_and_their_datasets import MadeTrainers, NewTrainer


class Classes(NamedTuple):
    """Trainers of a test's own, and what was noted of them."""

    trainer: Any
    derived: Any
    inherits: Any
    made: MadeTrainers


@pytest.fixture
def classes() -> Classes:
    class Trainer:
        def __init__(self, model: Any = None, train_dataset: Any = None, *, other: int = 0) -> None:
            self.train_dataset = train_dataset

    class Derived(Trainer):
        def __init__(self, model: Any, **settings: Any) -> None:
            settings["train_dataset"] = [row.upper() for row in settings["train_dataset"]]
            super().__init__(model, **settings)

    class Inherits(Derived):
        pass

    kinds = (Trainer, Derived, Inherits)
    signatures = [inspect.signature(kind) for kind in kinds]
    made = MadeTrainers()
    Trainer.__new__ = NewTrainer(Trainer, made.note)  # type: ignore[method-assign, assignment]
    assert [inspect.signature(kind) for kind in kinds] == signatures
    return Classes(*kinds, made)


def test_the_data_of_the_outermost_class_is_noted(classes: Classes) -> None:
    trainers = [
        classes.trainer(None, ["a"]),
        classes.derived(None, train_dataset=["b"]),
        classes.inherits(None, train_dataset=["c"]),
    ]
    assert [classes.made.take_dataset(trainer) for trainer in trainers] == [["a"], ["b"], ["c"]]
    assert trainers[1].train_dataset == ["B"]


def test_data_of_a_trainer_that_died_is_let_go(classes: Classes) -> None:
    trainer = classes.trainer(None, ["a"])
    assert len(classes.made._made) == 1
    del trainer
    gc.collect()
    assert not classes.made._made


def test_a_wrong_call_fails_as_it_would(classes: Classes) -> None:
    with pytest.raises(TypeError, match=r"__init__\(\) got an unexpected") as caught:
        classes.trainer(bad=1)
    assert len(caught.traceback) == 1


def test_a_new_of_a_users_own_class_gets_what_it_would(classes: Classes) -> None:
    """Around and behind the Trainer in the order of classes."""
    seen: list[Any] = []
    trainer: Any = classes.trainer

    class Behind:
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            seen.append((args, kwargs))
            return object.__new__(cls)

    class Mixed(trainer, Behind):
        pass

    class Around(trainer):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return super().__new__(cls)

    class Passes(trainer):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return super().__new__(cls, *args, **kwargs)

    mixed, around = Mixed(None, train_dataset=["a"]), Around(None, train_dataset=["b"])
    assert (seen, around.train_dataset) == ([((None,), {"train_dataset": ["a"]})], ["b"])
    assert classes.made.take_dataset(mixed) == ["a"]
    with pytest.raises(TypeError, match=r"object\.__new__"):
        Passes(None, train_dataset=["c"])


def test_the_probe_needs_no_package_of_the_parent() -> None:
    """It is loaded into other environments, without pydantic, rich, pyarrow or click."""
    code = (
        "import sys\n"
        "absent = ('pydantic', 'rich', 'pyarrow', 'click', 'tokenizers', 'jinja2', 'loky')\n"
        "sys.modules.update(dict.fromkeys(absent))\n"
        "import truetune.probe.trainer_hook, truetune.probe.audit_session, truetune.probe.run_record\n"
        "print(sorted(name for name in sys.modules if name in ('torch', 'transformers')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment()
    )
    assert done.stdout == "[]\n", done.stderr
