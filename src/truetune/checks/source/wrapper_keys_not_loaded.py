"""Weights are saved from a wrapper and loaded with `strict=False`: no name fits, and nothing is loaded.

## What it does
Looks for `torch.save` of the `state_dict()` of a model that is wrapped (`DistributedDataParallel`, `DataParallel`,
`torch.compile`), and for `load_state_dict(..., strict=False)` of a file of that name that `torch.load` reads, in one
script or in one beside the script that trains. What takes the prefix away again (`replace("module.", "")`,
`.module.state_dict()`, `unwrap_model`) is left alone.

## Why it is bad
The wrapper's names begin with `module.` (`_orig_mod.` where it was compiled), and the plain model has none of them.
`strict=False` leaves out every key that does not fit, without a word: the model keeps the weights of the base, and the
answers are the base's.

## Example
```python
import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

model = DistributedDataParallel(AutoModelForCausalLM.from_pretrained("base"))
torch.save(model.state_dict(), "tuned.pt")
tuned = AutoModelForCausalLM.from_pretrained("base")
tuned.load_state_dict(torch.load("tuned.pt"), strict=False)
```

## Use instead
```python
import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

model = DistributedDataParallel(AutoModelForCausalLM.from_pretrained("base"))
torch.save(model.module.state_dict(), "tuned.pt")
tuned = AutoModelForCausalLM.from_pretrained("base")
tuned.load_state_dict(torch.load("tuned.pt"), strict=True)
```

## Fix safety
`strict=True` raises an error that names each key that does not fit, and changes nothing where all of them fit.

## References
- https://pytorch.org/tutorials/intermediate/ddp_tutorial.html; pytorch/pytorch#9176
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.possible_values import possible_texts
from truetune.checks.source.evidence.prompt_forms import training_scripts_beside
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

PREFIXES = (
    ("torch.nn.parallel.DistributedDataParallel", "module."),
    ("torch.nn.parallel.distributed.DistributedDataParallel", "module."),
    ("torch.nn.DataParallel", "module."),
    ("torch.nn.parallel.DataParallel", "module."),
    ("torch.compile", "_orig_mod."),
)
"""Wrapper -> what stands before the names of the weights in its state"""
SPELLED = ("module.", "_orig_mod")
METHODS = ("unwrap_model", "extract_model_from_parallel", "removeprefix", "consume_prefix")
"""Signs that a script takes the prefix away: in a text, and as code"""


class Saved(NamedTuple):
    """A state that is saved from a wrapper."""

    case: Case
    prefix: str
    name: re.Pattern[str]
    """What the name of the file looks like"""
    entry: str
    """The entry of the file that it is; empty where it is all of it"""


class Loaded(NamedTuple):
    """A state that is loaded as it is into a plain model."""

    names: list[str]
    """The names of its file"""
    entry: str


LOADING_FUNCTIONS = ("torch.load", "safetensors.torch.load_file")


def _lenient_loads(module: Module) -> Iterator[Call]:
    """Calls of `load_state_dict` that leave out what does not fit."""
    for call in module.methods("load_state_dict"):
        if module.flow.value(call.argument(1, "strict")) is False:
            yield call


class WrapperKeysNotLoaded(SourceRule):
    code = "SRC004"
    symptoms = ("garbage-output",)
    severity = "error"
    looks_at = CodePlaces("states that are loaded with strict=False", _lenient_loads)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        states = [(call, _loaded_state(module, call)) for call in _lenient_loads(module)]
        if not any(state.names for _, state in states) or any(
            map(_strips_prefix, module.with_linked)
        ):
            return
        saved = list(_saved_states(module))
        for call, loaded in states:
            fitting = next((one for one in saved if _is_of_file(loaded, one)), None)
            if fitting is not None:
                yield self.finding(
                    f"the names of the saved weights begin with {fitting.prefix}, the model's do not, and strict=False"
                    " leaves them all out: nothing is loaded",
                    "save the state of the model inside the wrapper (model.module.state_dict(), of a compiled one"
                    " model._orig_mod), and load with strict=True",
                    cases=[case_at(module, call.node), fitting.case],
                )


def _is_of_file(loaded: Loaded, saved: Saved) -> bool:
    """Is what is loaded what was saved, by the names of the file and of its entry?"""
    is_file = bool(loaded.names) and all(map(saved.name.fullmatch, loaded.names))
    return is_file and loaded.entry == saved.entry


def _loaded_state(module: Module, load: Call) -> Loaded:
    """The state that a call loads, as it is, into a plain model; without names where that is not certain."""
    state, entry = _whole_and_entry(module, load.argument(0, "state_dict"))
    maker = module.flow.producing_call(state)
    if maker is None or not maker.named(*LOADING_FUNCTIONS) or load.receiver is None:
        return Loaded([], "")
    if _prefix_of(module, load.receiver) is not None:
        return Loaded([], "")
    file = maker.argument(0, "f") or maker.keywords.get("filename")
    return Loaded([PurePath(name).name for name in possible_texts(module, file)], entry)


def _whole_and_entry(module: Module, state: ast.expr | None) -> tuple[ast.expr | None, str]:
    """What was read from a file, and the entry of it that a state is: `blob["model"]`; else the state itself."""
    if state is None:
        return None, ""
    origins = module.flow.origins(state)
    node = origins[0].node if len(origins) == 1 else state
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.value, str(node.slice.value)
    return state, ""


def _saved_states(module: Module) -> Iterator[Saved]:
    """The states that this file, and the scripts beside it that train, save from wrappers."""
    yield from _saved_from_wrappers(module)
    for other in training_scripts_beside(module):
        # A training that takes the prefix away writes files that fit.
        if not _strips_prefix(other):
            yield from _saved_from_wrappers(other)


def _saved_from_wrappers(module: Module) -> Iterator[Saved]:
    """The states that a file saves from wrappers, under names of which something is known."""
    for call in module.calls("torch.save", "safetensors.torch.save_file"):
        name = _file_pattern(module, call.argument(1, "f") or call.keywords.get("filename"))
        for entry, state in _states_saved(module, call.argument(0, "obj")):
            prefix = _prefix_of(module, state)
            if prefix is not None and name is not None:
                yield Saved(case_at(module, call.node), prefix, name, entry)
    for call in module.calls("safetensors.torch.save_model"):
        model, name = call.argument(0, "model"), _file_pattern(module, call.argument(1, "filename"))
        prefix = None if model is None else _prefix_of(module, model)
        if prefix is not None and name is not None:
            yield Saved(case_at(module, call.node), prefix, name, "")


def _states_saved(module: Module, saved: ast.expr | None) -> Iterator[tuple[str, ast.expr]]:
    """The models whose states are saved, each with its entry of a dictionary; empty for the state alone."""
    entries = {} if saved is None else module.flow.entries(saved)[0]
    for entry, value in ({"": saved} | entries).items():
        state = module.flow.producing_call(value)
        if state is not None and state.method == "state_dict" and state.receiver is not None:
            yield entry, state.receiver


def _file_pattern(module: Module, file: ast.expr | None) -> re.Pattern[str] | None:
    """What a file's name looks like: of an f-string, each value stands for any text; None where nothing is known."""
    if isinstance(file, ast.JoinedStr):
        parts = [
            str(part.value) if isinstance(part, ast.Constant) else "\0" for part in file.values
        ]
        name = PurePath("".join(parts)).name
        # A name of values alone fits every file.
        known = "".join(name.split("\0"))
        return re.compile(re.escape(name).replace("\0", ".*")) if known else None
    texts = possible_texts(module, file)
    return re.compile(re.escape(PurePath(texts[0]).name)) if len(texts) == 1 else None


def _prefix_of(module: Module, model: ast.expr) -> str | None:
    """The prefix of a model that is surely wrapped; None for a plain one, and for `wrapper.module`."""
    if isinstance(model, ast.Attribute) and model.attr in ("module", "_orig_mod"):
        return None
    prefixes = {_prefix_of_call(module, origin.node) for origin in module.flow.origins(model)}
    return prefixes.pop() if len(prefixes) == 1 else None


def _prefix_of_call(module: Module, node: ast.AST) -> str | None:
    """The prefix that a call puts before the names; None for anything but a wrapper."""
    if not isinstance(node, ast.Call):
        return None
    call = module.flow.call(node)
    return next((prefix for name, prefix in PREFIXES if call.named(name)), None)


def _strips_prefix(module: Module) -> bool:
    """Does a file speak of the prefix, in a text or by a method that takes wrappers off?"""
    texts = (node.value for node in module.nodes(ast.Constant) if isinstance(node.value, str))
    return module.mentions(*METHODS) or any(sign in text for text in texts for sign in SPELLED)
