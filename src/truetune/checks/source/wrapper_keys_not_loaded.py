"""Weights are saved under names that do not match the model, and `strict=False` silently loads nothing.

## What it does
Looks for `torch.save` of the `state_dict()` of a model that is wrapped (`DistributedDataParallel`, `DataParallel`,
`torch.compile`, a LoRA of peft), or of a dictionary that contains it as a part (`{"model": ..., "optimizer": ...}`),
and for `load_state_dict(..., strict=False)` of a file of that name that `torch.load` reads, in the same script or in
another one of the folder. A load that keeps only the names that the model has (`{k: v for k, v in saved.items() if k in
own}`) skips as much. A file that the command names (`torch.load(sys.argv[1])["model"]`) counts as the one that a script
of the folder saves under the same entry from the same base. It does not report code that removes the prefix
(`replace("module.", "")`, `.module.state_dict()`, `unwrap_model`), or extracts the part.

## Why it is bad
The wrapper's names begin with `module.` (`_orig_mod.` after `torch.compile`), and the plain model has none of them.
`strict=False` silently skips every key that does not match: the model keeps the weights of the base, and the answers
are the base's. A model that was created by `from_config` keeps its random weights, and writes garbage.

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
`strict=True` raises an error that names each key that does not match, and changes nothing if all of them match.

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
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.prompt_forms import training_scripts_beside
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

PREFIXES = (
    ("torch.nn.parallel.DistributedDataParallel", "module."),
    ("torch.nn.parallel.distributed.DistributedDataParallel", "module."),
    ("torch.nn.DataParallel", "module."),
    ("torch.nn.parallel.DataParallel", "module."),
    ("torch.compile", "_orig_mod."),
    ("peft.get_peft_model", "base_model.model."),
    ("peft.PeftModel*.from_pretrained", "base_model.model."),
)
"""Wrapper -> what stands before the names of the weights in its state"""
SAVE_THE_INSIDE = (
    "save the model inside the wrapper (model.module.state_dict(), or model._orig_mod.state_dict() if it is compiled),"
    " and load it with strict=True (for a file that already exists, first remove the prefix from its names)"
)
SAVE_THE_ADAPTER = (
    "save the adapter with model.save_pretrained(FOLDER), and load it with PeftModel.from_pretrained(base, FOLDER); or"
    " save model.merge_and_unload().state_dict(), and load that with strict=True"
)
TAKE_THE_PART = "load the part: load_state_dict(torch.load(FILE)[{part!r}]), with strict=True"
OPTIMIZER = re.compile(r"opt|sched|scaler|ema|rng|loader", re.I)
"""Names of parts that hold no model"""
MAX_DEPTH, MAX_PARTS = 6, 4
"""Assignments that a file name is followed through, and keys of a saved dictionary that are named. Chosen by hand:
names are built in two or three steps, and the bound ends the search where variables name one another"""
SPELLED = ("module.", "_orig_mod", "base_model.")
METHODS = ("unwrap_model", "extract_model_from_parallel", "removeprefix", "consume_prefix")
"""Signs that a script takes the prefix away: in a text, and as code"""


class SavedState(NamedTuple):
    """A state that is saved from a wrapper."""

    case: Case
    keys: str
    """How its names begin, or what they are instead of names of weights"""
    name: re.Pattern[str]
    """What the name of the file looks like"""
    remedy: str
    entry: str = ""
    """The entry of the file that it is; empty where it is all of it"""
    base: tuple[str, ...] = ()
    """What the wrapped model is loaded from; empty where it is not known"""


class LoadedState(NamedTuple):
    """A state that is loaded as it is into a plain model."""

    names: list[str]
    """The names of its file"""
    entry: str
    base: tuple[str, ...] = ()
    """What the model is loaded from, where the user names the file in the command; otherwise empty"""


SAME_MODEL = ("cuda", "to", "cpu", "float", "half", "bfloat16", "train", "eval")
"""Methods of a model that give the model itself"""
LOADING_FUNCTIONS = ("torch.load", "safetensors.torch.load_file")


def _non_strict_load_state_dict_calls(module: Module) -> Iterator[Call]:
    """Calls of `load_state_dict` that leave out what does not fit."""
    for call in module.methods("load_state_dict"):
        state = call.argument(0, "state_dict")
        is_lenient = module.flow.value(call.argument(1, "strict")) is False
        if is_lenient or (
            state is not None and _state_filtered_by_known_names(module, state) is not None
        ):
            yield call


def _state_filtered_by_known_names(module: Module, state: ast.expr) -> ast.expr | None:
    """The state of which only entries with a known name are taken: `{k: v for k, v in saved.items() if k in own}`,
    alone or by `own.update(...)`; None where a state is loaded whole."""
    candidates = [origin.node for origin in module.flow.origins(state)]
    if isinstance(state, ast.Name):
        candidates += _updates_of_dict(module, state.id)
    for node in candidates:
        called = _items_call_of_filter(node)
        if called is not None:
            return called.value if called.attr == "items" else None
    return None


def _updates_of_dict(module: Module, name: str) -> Iterator[ast.expr]:
    """The arguments of the updates of a dictionary of this name."""
    for call in module.methods("update"):
        if isinstance(call.receiver, ast.Name) and call.receiver.id == name and call.args:
            yield call.args[0]


def _items_call_of_filter(node: ast.AST) -> ast.Attribute | None:
    """`saved.items` of a comprehension that takes the entries whose name is known; None for anything else."""
    if not isinstance(node, ast.DictComp) or len(node.generators) != 1:
        return None
    (loop,) = node.generators
    is_by_name = any(isinstance(part, ast.In) for test in loop.ifs for part in ast.walk(test))
    called = loop.iter.func if isinstance(loop.iter, ast.Call) else None
    return called if is_by_name and isinstance(called, ast.Attribute) else None


class WrapperKeysNotLoaded(SourceRule):
    code = "SRC004"
    fault = Fault.WEIGHT_NAMES_DO_NOT_MATCH
    symptoms = ("garbage-output", "several-gpus")
    severity = "error"
    looks_at = CodePlaces(
        "states that are loaded with strict=False", _non_strict_load_state_dict_calls
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        states = [
            (call, _loaded_state(module, call))
            for call in _non_strict_load_state_dict_calls(module)
        ]
        if not any(state.names or state.base for _, state in states) or any(
            map(_mentions_or_strips_wrapper_prefix, module.self_and_files_run_together)
        ):
            return
        saved = list(_states_saved_from_wrappers_nearby(module))
        plain = _entries_saved_from_plain_models_nearby(module)
        for call, loaded in states:
            if loaded.base and loaded.entry in plain:
                continue  # The command may name a file of that training.
            fitting = next((one for one in saved if _matches_saved(loaded, one)), None)
            if fitting is not None:
                stays = _random_weights_note(module, call)
                yield self.finding(
                    f"{fitting.keys}, and {_describe_omission(module, call)} skips them all: nothing is"
                    f" loaded{stays}",
                    fitting.remedy,
                    cases=[case_of_node(module, call.node), fitting.case],
                )


def _describe_omission(module: Module, load: Call) -> str:
    """What in a load leaves out the names that do not fit, in words."""
    is_lenient = module.flow.value(load.argument(1, "strict")) is False
    return "strict=False" if is_lenient else "the test of each name"


def _matches_saved(loaded: LoadedState, saved: SavedState) -> bool:
    """Is the loaded state the one that was saved, by the names of the file and of its entry?

    A file that the command names is that of the training of the same base beside it, if it has the same entry.
    """
    is_file = bool(loaded.names) and all(map(saved.name.fullmatch, loaded.names))
    is_of_base = bool(loaded.base) and loaded.base == saved.base and bool(loaded.entry)
    return (is_file or is_of_base) and loaded.entry == saved.entry


def _loaded_state(module: Module, load: Call) -> LoadedState:
    """The state that a call loads, as it is, into a plain model; without names where that is not certain."""
    state_dict_argument = load.argument(0, "state_dict")
    fitting = (
        _state_filtered_by_known_names(module, state_dict_argument)
        if state_dict_argument is not None
        else None
    )
    state, entry = _state_file_and_entry(module, fitting or state_dict_argument)
    maker = module.flow.producing_call(state)
    if maker is None or not maker.named(*LOADING_FUNCTIONS) or load.receiver is None:
        return LoadedState([], "")
    if _prefix_of_wrapped_model(module, load.receiver) is not None:
        return LoadedState([], "")
    file = maker.argument(0, "f") or maker.keywords.get("filename")
    names = _file_names_without_folder(module, file)
    is_named_by_user = file is not None and not names and _is_argument_of_command(module, file)
    base = _base_of_model(module, load.receiver) if is_named_by_user else ()
    return LoadedState(names, entry, base)


def _is_argument_of_command(module: Module, file: ast.expr) -> bool:
    """Is a file what the command names: `sys.argv[1]`, or `args.checkpoint` without a default?"""
    nodes = [file, *(origin.node for origin in module.flow.origins(file))]
    return any(
        isinstance(node, ast.Subscript) and module.flow.name(node.value) == "sys.argv"
        for node in nodes
    ) or any(
        isinstance(node, ast.Attribute)
        and (made := module.flow.producing_call(node.value)) is not None
        and made.method == "parse_args"
        for node in nodes
    )


def _base_of_model(module: Module, model: ast.expr) -> tuple[str, ...]:
    """The names of what `from_pretrained` loads a model from, also inside a wrapper; empty where they are not known."""
    for _ in range(MAX_DEPTH):
        call = module.flow.producing_call(model)
        if call is None:
            return ()
        if call.method == "from_pretrained" or call.named("*.from_pretrained"):
            return tuple(possible_texts(module, call.argument(0, "pretrained_model_name_or_path")))
        is_wrapper = _prefix_of_wrapper_call(module, call.node) is not None
        inside = call.argument(0, "module") if is_wrapper else call.receiver
        if inside is None or not (is_wrapper or call.method in SAME_MODEL):
            return ()
        model = inside
    return ()


def _file_names_without_folder(module: Module, node: ast.expr | None, depth: int = 0) -> list[str]:
    """The names of the file, without its folder, which may be known at run time alone."""
    texts = possible_texts(module, node)
    if texts or node is None or depth > MAX_DEPTH:
        return [PurePath(text).name for text in texts]
    ends = _constant_ends_of_text(module, node)
    if ends:
        return [PurePath(text).name for text in ends if "/" in text]
    if isinstance(node, ast.BinOp) or (isinstance(node, ast.Call) and node.args):
        last = _last_part_of_path(module, node)
        return [] if last is None else _file_names_without_folder(module, last, depth + 1)
    return _file_names_of_origins(module, node, depth)


def _file_names_of_origins(module: Module, node: ast.expr, depth: int) -> list[str]:
    """The names by what may have been assigned to a variable; empty where one of these is not known."""
    origins = [one.node for one in module.flow.origins(node) if one.node is not node]
    found = [
        _file_names_without_folder(module, one, depth + 1)
        for one in origins
        if isinstance(one, ast.expr)
    ]
    return [name for names in found for name in names] if all(found) else []


def _constant_ends_of_text(module: Module, node: ast.expr) -> list[str]:
    """The constant ends of an f-string or a sum of texts: `/model.pt` of `f"{folder}/model.pt"`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return list(possible_texts(module, node.right))
    last = node.values[-1] if isinstance(node, ast.JoinedStr) and node.values else None
    return [str(last.value)] if isinstance(last, ast.Constant) else []


def _last_part_of_path(module: Module, node: ast.BinOp | ast.Call) -> ast.expr | None:
    """The last of the parts that are joined to a path; None where anything else is made."""
    if isinstance(node, ast.BinOp):
        return node.right if isinstance(node.op, ast.Div) else None
    name = module.flow.name(node.func) or ""
    is_path = name.startswith(("os.path.join", "pathlib.")) or name.endswith("joinpath")
    return node.args[-1] if is_path else None


def _random_weights_note(module: Module, load: Call) -> str:
    """A note that the weights stay random, where the model was made without any; else empty."""
    maker = module.flow.producing_call(load.receiver) if load.receiver is not None else None
    if maker is not None and (maker.method == "from_config" or maker.named("*.from_config")):
        return ", and the weights of a model created by from_config stay random"
    return ""


def _state_file_and_entry(module: Module, state: ast.expr | None) -> tuple[ast.expr | None, str]:
    """What was read from a file, and the entry of it that a state is: `blob["model"]`; else the
    state itself and no entry.
    """
    if state is None:
        return None, ""
    origins = module.flow.origins(state)
    node = origins[0].node if len(origins) == 1 else state
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.value, str(node.slice.value)
    return state, ""


def _states_saved_from_wrappers_nearby(module: Module) -> Iterator[SavedState]:
    """The states that this file, and the scripts beside it that train, save from wrappers."""
    yield from _saved_states_without_plain_weight_names(module)
    for other in training_scripts_beside(module):
        # A training that takes the prefix away writes files that fit.
        if not _mentions_or_strips_wrapper_prefix(other):
            yield from _saved_states_without_plain_weight_names(other)


def _entries_saved_from_plain_models_nearby(module: Module) -> frozenset[str]:
    """The entries under which this file, and the scripts beside it that train, save states of plain models."""
    return frozenset(
        entry
        for home in (module, *training_scripts_beside(module))
        for call in home.calls("torch.save")
        for entry, model in _models_whose_state_is_saved(home, call.argument(0, "obj"))
        if _prefix_of_wrapped_model(home, model) is None
    )


def _saved_states_without_plain_weight_names(module: Module) -> Iterator[SavedState]:
    """The states that a file saves from wrappers or among other parts, under names of which something is known."""
    for call in module.calls("torch.save", "safetensors.torch.save_file"):
        name = _file_name_pattern(module, call.argument(1, "f") or call.keywords.get("filename"))
        if name is None:
            continue
        case, saved = case_of_node(module, call.node), call.argument(0, "obj")
        parts = _keys_of_saved_dictionary(module, saved)
        if parts:
            keys = f"the file contains a dictionary of parts ({', '.join(parts)}), none of which is a weight's name"
            yield SavedState(case, keys, name, TAKE_THE_PART.format(part=parts[0]))
        for entry, model in _models_whose_state_is_saved(module, saved):
            prefix = _prefix_of_wrapped_model(module, model)
            if prefix is not None:
                base = _base_of_model(module, model)
                yield _state_with_wrapper_prefix(case, prefix, name, entry)._replace(base=base)
    for call in module.calls("safetensors.torch.save_model"):
        wrapped, name = (
            call.argument(0, "model"),
            _file_name_pattern(module, call.argument(1, "filename")),
        )
        prefix = None if wrapped is None else _prefix_of_wrapped_model(module, wrapped)
        if prefix is not None and name is not None:
            yield _state_with_wrapper_prefix(case_of_node(module, call.node), prefix, name, "")


def _state_with_wrapper_prefix(
    case: Case, prefix: str, name: re.Pattern[str], entry: str
) -> SavedState:
    """A state whose names begin with what its wrapper is called."""
    keys = f"the names of the saved weights begin with {prefix}, but the model's do not"
    remedy = SAVE_THE_ADAPTER if prefix.startswith("base_model") else SAVE_THE_INSIDE
    return SavedState(case, keys, name, remedy, entry)


def _keys_of_saved_dictionary(module: Module, saved: ast.expr | None) -> list[str]:
    """The keys of a dictionary that is saved, that of the model's state first; empty where it holds no such state."""
    nodes = [one.node for one in module.flow.origins(saved)] if saved is not None else []
    if len(nodes) != 1 or not isinstance(nodes[0], ast.Dict):
        return []
    parts = dict(_entries_with_text_keys(nodes[0]))
    models = [
        key
        for key in parts
        if not OPTIMIZER.search(key) and _is_state_dict_call(module, parts[key])
    ]
    others = [key for key in parts if key not in models]
    return [*models, *others][:MAX_PARTS] if models else []


def _entries_with_text_keys(table: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    """The entries of a dictionary whose keys are written out."""
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, value


def _is_state_dict_call(module: Module, value: ast.expr) -> bool:
    """Is it what `state_dict()` gives?"""
    call = module.flow.producing_call(value)
    return call is not None and call.method == "state_dict"


def _models_whose_state_is_saved(
    module: Module, saved: ast.expr | None
) -> Iterator[tuple[str, ast.expr]]:
    """The models whose states are saved, each with its entry of a dictionary; empty for the state alone."""
    entries = {} if saved is None else dict(module.flow.dict_entries_and_if_complete(saved)[0])
    maker = module.flow.producing_call(saved)
    if maker is not None and maker.named("dict"):
        entries |= maker.keywords
    for entry, value in ({"": saved} | entries).items():
        state = module.flow.producing_call(value)
        if state is not None and state.method == "state_dict" and state.receiver is not None:
            yield entry, state.receiver


def _file_name_pattern(module: Module, file: ast.expr | None) -> re.Pattern[str] | None:
    """A pattern of a file's name: in an f-string, each value stands for any text; None where
    nothing is known.
    """
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


def _prefix_of_wrapped_model(module: Module, model: ast.expr) -> str | None:
    """The prefix of a model that is surely wrapped; None for a plain one, and for `wrapper.module`."""
    if isinstance(model, ast.Attribute) and model.attr in ("module", "_orig_mod"):
        return None
    prefixes = {
        _prefix_of_wrapper_call(module, origin.node) for origin in module.flow.origins(model)
    }
    return prefixes.pop() if len(prefixes) == 1 else None


def _prefix_of_wrapper_call(module: Module, node: ast.AST) -> str | None:
    """The prefix that a call puts before the names; None for anything but a wrapper."""
    if not isinstance(node, ast.Call):
        return None
    call = module.flow.call(node)
    return next((prefix for name, prefix in PREFIXES if call.named(name)), None)


def _mentions_or_strips_wrapper_prefix(module: Module) -> bool:
    """Does a file speak of the prefix, in a text or by a method that takes wrappers off?"""
    texts = (node.value for node in module.nodes(ast.Constant) if isinstance(node.value, str))
    return module.mentions(*METHODS) or any(sign in text for text in texts for sign in SPELLED)
