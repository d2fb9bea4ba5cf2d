"""What the hook changes in the user's process: nothing that a program could see."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import weakref
from typing import Any

import pytest

from tests.auditing.running import environment
from truetune.probe.hook import _New


class Trainer:
    def __init__(self, model: Any = None, train_dataset: Any = None, *, other: int = 0) -> None:
        self.train_dataset = train_dataset


class Derived(Trainer):
    def __init__(self, model: Any, **settings: Any) -> None:
        settings["train_dataset"] = [row.upper() for row in settings["train_dataset"]]
        super().__init__(model, **settings)


class Inherits(Derived):
    pass


def test_the_data_of_the_outermost_class_is_noted() -> None:
    given: Any = weakref.WeakKeyDictionary()
    signatures = [inspect.signature(kind) for kind in (Trainer, Derived, Inherits)]
    Trainer.__new__ = _New(Trainer, given)  # type: ignore[method-assign, assignment]
    assert [inspect.signature(kind) for kind in (Trainer, Derived, Inherits)] == signatures
    made = [Trainer(None, ["a"]), Derived(None, train_dataset=["b"]), Inherits(None, train_dataset=["c"])]
    assert [given[trainer] for trainer in made] == [["a"], ["b"], ["c"]]
    assert made[1].train_dataset == ["B"]
    made.clear()
    gc.collect()
    assert not given


def test_a_wrong_call_fails_as_it_would() -> None:
    Trainer.__new__ = _New(Trainer, weakref.WeakKeyDictionary())  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError, match=r"__init__\(\) got an unexpected") as caught:
        Trainer(bad=1)  # type: ignore[call-arg]
    assert len(caught.traceback) == 1


def test_the_probe_needs_no_package_of_the_parent() -> None:
    """It is loaded into other environments, without pydantic, rich, pyarrow or click."""
    code = (
        "import sys\n"
        "absent = ('pydantic', 'rich', 'pyarrow', 'click', 'tokenizers', 'jinja2', 'loky')\n"
        "sys.modules.update(dict.fromkeys(absent))\n"
        "import truetune.probe.hook, truetune.probe.session, truetune.probe.record\n"
        "print(sorted(name for name in sys.modules if name in ('torch', 'transformers')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert done.stdout == "[]\n", done.stderr
