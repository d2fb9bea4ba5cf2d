"""Weights are saved from a wrapper and loaded with `strict=False`: no name fits, and nothing is loaded.

## What it does
Looks for `torch.save` of the `state_dict()` of a model that is wrapped (`DistributedDataParallel`, `DataParallel`,
`torch.compile`), and for `load_state_dict(..., strict=False)` of a file of that name that `torch.load` reads, in one
script or in one beside the script that trains. A state among others in a dictionary is read too, and a load that keeps
only the names that the model has (`{k: v for k, v in saved.items() if k in own}`). What takes the prefix away again
(`replace("module.", "")`, `.module.state_dict()`, `unwrap_model`) is left alone.

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


def _lenient_loads(module: Module) -> Iterator[Call]:
    """Calls of `load_state_dict` that leave out what does not fit."""
    for call in module.methods("load_state_dict"):
        state = call.argument(0, "state_dict")
        is_lenient = module.flow.value(call.argument(1, "strict")) is False
        if is_lenient or (state is not None and _fitting_entries_of(module, state) is not None):
            yield call


def _fitting_entries_of(module: Module, state: ast.expr) -> ast.expr | None:
    """The state of which only entries with a known name are taken: `{k: v for k, v in saved.items() if k in own}`,
    alone or by `own.update(...)`; None where a state is loaded whole."""
    candidates = [origin.node for origin in module.flow.origins(state)]
    if isinstance(state, ast.Name):
        candidates += [
            call.args[0]
            for call in module.methods("update")
            if isinstance(call.receiver, ast.Name) and call.receiver.id == state.id and call.args
        ]
    for node in candidates:
        if not isinstance(node, ast.DictComp) or len(node.generators) != 1:
            continue
        tests = node.generators[0].ifs
        source = node.generators[0].iter
        is_by_name = any(isinstance(part, ast.In) for test in tests for part in ast.walk(test))
        if is_by_name and isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
            return source.func.value if source.func.attr == "items" else None
    return None


class WrapperKeysNotLoaded(SourceRule):
    code = "SRC004"
    symptoms = ("garbage-output", "several-gpus")
    severity = "error"
    looks_at = CodePlaces("states that are loaded with strict=False", _lenient_loads)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        names = [(call, _loaded_names(module, call)) for call in _lenient_loads(module)]
        if not any(pattern for _, pattern in names) or any(map(_strips_prefix, module.with_linked)):
            return
        saved = list(_saved_states(module))
        for call, loaded in names:
            fitting = next(
                (one for one in saved if loaded and all(map(one.name.fullmatch, loaded))), None
            )
            if fitting is not None:
                yield self.finding(
                    f"the names of the saved weights begin with {fitting.prefix}, the model's do not, and"
                    f" {_leaves_out(module, call)} leaves them all out: nothing is loaded",
                    "save the state of the model inside the wrapper (model.module.state_dict(), of a compiled one"
                    " model._orig_mod), and load with strict=True",
                    cases=[case_at(module, call.node), fitting.case],
                )


def _leaves_out(module: Module, load: Call) -> str:
    """What in a load leaves out the names that do not fit."""
    is_lenient = module.flow.value(load.argument(1, "strict")) is False
    return "strict=False" if is_lenient else "the test of each name"


def _loaded_names(module: Module, load: Call) -> list[str]:
    """The names of the file that is loaded as it is into a plain model; empty where that is not certain."""
    state = load.argument(0, "state_dict")
    entries = _fitting_entries_of(module, state) if state is not None else None
    maker = _reader_of(module, entries or state)
    if maker is None or not maker.named("torch.load") or load.receiver is None:
        return []
    if _prefix_of(module, load.receiver) is not None:
        return []
    return [PurePath(name).name for name in possible_texts(module, maker.argument(0, "f"))]


def _reader_of(module: Module, state: ast.expr | None) -> Call | None:
    """The call that reads a state: `torch.load(file)`, or an entry of it, `torch.load(file)["model"]`."""
    if state is None:
        return None
    for origin in module.flow.origins(state):
        node: ast.AST = origin.node
        while isinstance(node, ast.Subscript):
            node = node.value
        maker = module.flow.producing_call(node)
        if maker is not None:
            return maker
    return None


def _states_in(module: Module, saved: ast.expr | None) -> Iterator[Call]:
    """The `state_dict()` calls of what is saved: it alone, or the entries of a dictionary."""
    parts = [saved] if saved is not None else []
    if saved is not None:
        parts += module.flow.entries(saved)[0].values()
        maker = module.flow.producing_call(saved)
        if maker is not None and maker.named("dict"):
            parts += maker.keywords.values()
    for part in parts:
        state = module.flow.producing_call(part)
        if state is not None and state.method == "state_dict" and state.receiver is not None:
            yield state


def _saved_states(module: Module) -> Iterator[Saved]:
    """The states that this file, and the scripts beside it that train, save from wrappers."""
    yield from _saved_from_wrappers(module)
    for other in training_scripts_beside(module):
        # A training that takes the prefix away writes files that fit.
        if not _strips_prefix(other):
            yield from _saved_from_wrappers(other)


def _saved_from_wrappers(module: Module) -> Iterator[Saved]:
    """The states that a file saves from wrappers, under names of which something is known."""
    for call in module.calls("torch.save"):
        name = _file_pattern(module, call.argument(1, "f"))
        for state in _states_in(module, call.argument(0, "obj")) if name is not None else ():
            prefix = _prefix_of(module, state.receiver) if state.receiver is not None else None
            if prefix is not None and name is not None:
                yield Saved(case_at(module, call.node), prefix, name)


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
