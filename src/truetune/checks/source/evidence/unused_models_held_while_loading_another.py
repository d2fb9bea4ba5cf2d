"""Finds loaded models that a script still holds on the GPU where it loads another one and never
uses the first again.

How it works: each function, and the file itself, is gone through statement by statement with a
table of which names hold which loaded model. A name holds a model that it was bound to, and through
wrappers, trainers and optimizers too. Branches are followed apart and merged after them; the body
of a loop twice, since its second pass meets what the first one left. Nothing is run, and a branch
that frees a model counts as if it were taken.

The trade-off: a model that is used again after the second load is needed there (a teacher, a
reference, a comparison), so that only what is held and never used again counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from truetune.checks.source.evidence.models_trained_and_asked import TRAINERS
from truetune.checks.source.evidence.which_place_surely_runs_first import (
    FUNCTIONS,
    LOOPS,
    call_routes_to,
)
from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.parsed_source_file import Module

MODEL_LOADS = (
    "transformers.AutoModelForCausalLM.from_pretrained",
    "transformers.*ForCausalLM.from_pretrained",
    "transformers.*LMHeadModel.from_pretrained",
    "transformers.AutoModelForImageTextToText.from_pretrained",
    "transformers.AutoModelForVision2Seq.from_pretrained",
    "transformers.*ForConditionalGeneration.from_pretrained",
    "peft.AutoPeftModel*.from_pretrained",
    "unsloth.Fast*Model.from_pretrained",
)
OPTIMIZERS = ("torch.optim.*", "bitsandbytes.optim.*")
BITS = ("quantization_config", "load_in_4bit", "load_in_8bit")
"""Arguments of a load that bitsandbytes does on the GPU"""
HOLDING_TYPES = frozenset(("model", "peft-model", "trainer", "optimizer"))
"""Types of objects that hold the models which they are made from"""
HOLDING_CALLS = ("transformers.pipeline", "torch.compile", "copy.*", "deepspeed.initialize")
HOLDING_ATTRIBUTES = frozenset(("model", "base_model", "module", "model_wrapped"))
MODEL_GIVING_METHODS = frozenset(
    ("to", "cuda", "merge_and_unload", "unload", "get_base_model", "prepare", "eval", "train")
)
FREEING_CALLS = frozenset(("free_memory", "release_memory", "clear"))
"""Methods of Accelerate; `clear` is their older name, and that of what may hold the models"""
READ_ONLY_ATTRIBUTES = frozenset(("state", "args", "config", "device", "dtype"))
"""What is read of a model or trainer without its weights"""
ENDS_PROCESS = re.compile(
    r"do_shutdown|os\.kill|os\._exit|os\.exec|%reset|restart the (?:kernel|runtime|session)", re.I
)
NO_GPU = re.compile(
    r"use_cpu\s*=\s*True|no_cuda\s*=\s*True|CUDA_VISIBLE_DEVICES\W{1,6}[\"']-?1?[\"']"
)
DEVICE_NUMBER = re.compile(r"cuda:(\d+)|^\{\s*['\"]['\"]\s*:\s*(\d+)\s*\}$|^(\d+)$")
MAX_STATEMENTS = 6_000
"""Statements that are followed in one file, loops counted twice. Chosen, not measured: long scripts have a thousand"""


@dataclass(eq=False)
class HeldModel:
    """One model that was loaded, as one pass through the code made it."""

    load: ast.Call
    """What loads it, or the trainer that is given its name"""
    node: ast.AST
    """The same, or the call of a function that loads it"""
    conditions: tuple[str, ...]
    """What must hold for the code to get there"""
    is_placed: bool
    is_trained: bool = False


@dataclass(eq=False)
class SecondLoad:
    """A model that is put onto the GPU while another one is held there."""

    first: HeldModel
    second: HeldModel
    names: tuple[str, ...]
    """Names that hold the first one"""
    is_used_again: bool = False


@dataclass
class _HeldByName:
    """What the names of a function hold at a place."""

    held: dict[str, frozenset[HeldModel]] = field(default_factory=dict)
    is_left: bool = False
    """The branch has returned, raised or ended the process"""

    def copy(self) -> _HeldByName:
        """A copy of the table, for a branch."""
        return _HeldByName(dict(self.held), self.is_left)

    def names_of(self, model: HeldModel) -> tuple[str, ...]:
        """The names that hold a model."""
        return tuple(name for name, models in self.held.items() if model in models)

    def all_held_models(self) -> set[HeldModel]:
        """All models that any name holds at the place."""
        return {model for models in self.held.values() for model in models}

    def drop(self, models: frozenset[HeldModel]) -> None:
        """Forget models that are freed, or moved to the CPU: no name holds them any more."""
        self.held = {name: kept - models for name, kept in self.held.items()}


def second_loads_beside_unused_models(module: Module) -> list[SecondLoad]:
    """Models that are loaded onto a GPU which still holds one that nothing uses again; the first of
    each place.
    """
    if NO_GPU.search(module.text) or ENDS_PROCESS.search(module.file_text):
        return []
    places = _loads_by_function_and_node(module)
    if not places:
        return []
    placed = _LoadPlacements(module)
    scopes = dict.fromkeys(scope for scope, _ in places)
    walks = [_HeldModelWalk(module, scope, places, placed) for scope in scopes]
    second_loads = [one for walk in walks for one in walk.run_body()]
    unique: dict[ast.AST, SecondLoad] = {}
    for one in second_loads:
        if not one.is_used_again:
            unique.setdefault(one.second.load, one)
    return list(unique.values())


def loads_in_callbacks(module: Module) -> Iterator[Call]:
    """Loads onto the GPU in methods of callbacks, which a trainer calls while it holds its own
    model there.
    """
    if NO_GPU.search(module.text):
        return
    placed = _LoadPlacements(module)
    for call in whole_language_model_loads(module):
        if _is_in_callback(module, call.node) and placed.is_on_gpu(call.node):
            yield call


def _is_in_callback(module: Module, node: ast.AST) -> bool:
    """Does a node stand in `on_evaluate` or its like, of a class that is a callback?"""
    for parent in module.parents(node):
        if isinstance(parent, ast.FunctionDef):
            owner = module.scopes.parent.get(parent)
            is_callback = isinstance(owner, ast.ClassDef) and any(
                "Callback" in ast.unparse(base) for base in owner.bases
            )
            return is_callback and parent.name.startswith("on_")
    return False


def whole_language_model_loads(module: Module) -> Iterator[Call]:
    """Calls that load a language model whole."""
    return module.calls(*MODEL_LOADS)


def _loads_by_function_and_node(module: Module) -> dict[tuple[ast.AST, ast.AST], ast.Call]:
    """Function or file and node in it -> the load that happens there, itself or in functions that
    are called there.
    """
    places: dict[tuple[ast.AST, ast.AST], ast.Call] = {}
    for call in whole_language_model_loads(module):
        for route in call_routes_to(module, call.node):
            for stop in route:
                places.setdefault((stop.scope, stop.node), call.node)
    for call in module.calls(*TRAINERS):
        named = call.argument(0, "model")
        if named is not None and isinstance(module.flow.value(named), str):
            for route in call_routes_to(module, call.node):
                for stop in route:
                    places.setdefault((stop.scope, stop.node), call.node)
    return places


class _LoadPlacements:
    """Which loads put their model onto a GPU, and onto which."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def is_on_gpu(self, load: ast.Call) -> bool:
        """Does the load itself, or a method on its result, put the model onto a GPU?"""
        call = self.module.flow.call(load)
        if call.named(*TRAINERS):
            return True
        if "device_map" in call.keywords:
            return self._names_gpu(call.keywords["device_map"])
        if any(self._is_argument_switched_on(call.keywords.get(name)) for name in BITS):
            return True
        return call.named("unsloth.*") or self._is_moved_at_once(load)

    def _is_argument_switched_on(self, expression: ast.expr | None) -> bool:
        """Is an argument given, and neither None nor False?"""
        return expression is not None and self.module.flow.value(expression) not in (None, False)

    def _names_gpu(self, expression: ast.expr) -> bool:
        """Does a device map name a GPU? One that is not known does not."""
        value = self.module.flow.value(expression)
        if value is UNKNOWN:
            origins = [origin.node for origin in self.module.flow.origins(expression)]
            return bool(origins) and all(
                isinstance(node, ast.Dict) and "cpu" not in ast.unparse(node) for node in origins
            )
        text = repr(value)
        return value is not None and "cpu" not in text and "meta" not in text and "disk" not in text

    def _is_moved_at_once(self, load: ast.Call) -> bool:
        """Is a loaded model moved to a GPU in the same expression:
        `from_pretrained(...).eval().to("cuda")`?
        """
        node: ast.AST = load
        parent = self.module.scopes.parent.get(node)
        while isinstance(parent, ast.Attribute):
            called = self.module.scopes.parent.get(parent)
            if not isinstance(called, ast.Call) or called.func is not parent:
                return False
            if moves_to_gpu(called):
                return True
            node, parent = called, self.module.scopes.parent.get(called)
        return False

    def gpu_number(self, load: ast.Call) -> str:
        """The number of the GPU that a load names; empty where it names none, or the first."""
        call = self.module.flow.call(load)
        device_map_argument = call.keywords.get("device_map")
        text = (
            "" if device_map_argument is None else repr(self.module.flow.value(device_map_argument))
        )
        statement = self.module.statement(load)
        match = DEVICE_NUMBER.search(text.strip("'")) or (
            DEVICE_NUMBER.search(ast.unparse(statement)) if statement is not None else None
        )
        number = next((group for group in match.groups() if group), "") if match else ""
        return "" if number == "0" else number


def moves_to_gpu(call: ast.Call) -> bool:
    """Does a call move a model to a GPU: `.cuda()`, `.to("cuda")`, `.to(device)`?

    A move to what is no CPU and no dtype counts.
    """
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "cuda":
        return True
    given = " ".join(ast.unparse(arg) for arg in (*call.args, *(k.value for k in call.keywords)))
    is_device = re.search(r"cuda|device|^\d$", given) is not None
    return call.func.attr == "to" and is_device and "cpu" not in given


def _moves_to_cpu(call: ast.Call) -> bool:
    """Does a call move a model to the CPU: `.cpu()`, `.to("cpu")`?"""
    if not isinstance(call.func, ast.Attribute):
        return False
    given = " ".join(ast.unparse(arg) for arg in (*call.args, *(k.value for k in call.keywords)))
    return call.func.attr == "cpu" or (
        call.func.attr == "to" and re.search("cpu|meta", given) is not None
    )


class _HeldModelWalk:
    """One pass through a function or a file."""

    def __init__(
        self,
        module: Module,
        scope: ast.AST,
        places: dict[tuple[ast.AST, ast.AST], ast.Call],
        placements: _LoadPlacements,
    ) -> None:
        self.module, self.scope, self.placements = module, scope, placements
        self.places = {node: load for (at, node), load in places.items() if at is scope}
        self.found: list[SecondLoad] = []
        self.conditions: tuple[str, ...] = ()
        self.left = MAX_STATEMENTS

    def run_body(self) -> list[SecondLoad]:
        """Go through the body; gives the second loads in order."""
        body = getattr(self.scope, "body", [])
        if isinstance(body, list):
            self._run_block(body, _HeldByName())
        self._note_uses_in_functions()
        return self.found

    def _note_uses_in_functions(self) -> None:
        """Note the uses in functions: one that reads a name of the file, and is called after the
        load, uses what the name holds.
        """
        if not isinstance(self.scope, ast.Module):
            return
        for one in self.found:
            rebound = set(_names_bound_by(self.module.statement(one.second.node)))
            line = getattr(one.second.node, "lineno", 0)
            reads = [read for name in one.names for read in self.module.name_reads.get(name, [])]
            inside = [read for read in reads if read.id not in rebound and self._is_global(read)]
            if any(self._may_run_after(read, line) for read in inside):
                one.is_used_again = True

    def _is_global(self, name: ast.Name) -> bool:
        """Is it a name of the file that a function reads?"""
        home = self.module.scopes.scope_that_binds_name(name)
        is_inside = any(isinstance(around, FUNCTIONS) for around in self.module.parents(name))
        return is_inside and home.enclosing_file_scope is home

    def _may_run_after(self, name: ast.Name, line: int) -> bool:
        """May the function around a name run below a line of the file? One that nothing calls may."""
        for route in call_routes_to(self.module, name):
            last = route[-1]
            if last.scope is not self.scope or getattr(last.node, "lineno", 0) > line:
                return True
        return False

    def _run_block(self, body: Sequence[ast.stmt], state: _HeldByName) -> _HeldByName:
        """The state after the statements of a block, one after the other."""
        for statement in body:
            if state.is_left or self.left <= 0:
                return state
            self.left -= 1
            state = self._run_statement(statement, state)
        return state

    def _run_statement(self, statement: ast.stmt, state: _HeldByName) -> _HeldByName:
        """The state after one statement, with the blocks inside."""
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            return state
        if isinstance(statement, ast.If):
            return self._run_branches(statement, state)
        if isinstance(statement, ast.Try):
            return self._run_try(statement, state)
        if isinstance(statement, LOOPS):
            return self._run_loop(statement, state)
        if isinstance(statement, ast.With | ast.AsyncWith):
            for item in statement.items:
                self._note_uses(item.context_expr, state)
            return self._run_block(statement.body, state)
        return self._run_simple(statement, state)

    def _run_branches(self, statement: ast.If, state: _HeldByName) -> _HeldByName:
        """The state after both ways of a condition, from the same start."""
        self._note_uses(statement.test, state)
        if isinstance(statement.test, ast.Constant):
            # `if False:` marks cells that are switched off.
            return self._run_block(
                statement.body if statement.test.value else statement.orelse, state
            )
        test = ast.unparse(statement.test)
        outer = self.conditions
        # `if __name__ == "__main__"` always holds for a script.
        self.conditions = outer if "__name__" in test else (*outer, test)
        taken = self._run_block(statement.body, state.copy())
        self.conditions = outer if not statement.orelse else (*outer, f"not ({test})")
        other = self._run_block(statement.orelse, state.copy())
        self.conditions = outer
        return _states_merged_after_branches(taken, other, state)

    def _run_try(self, statement: ast.Try, state: _HeldByName) -> _HeldByName:
        """The state after a `try`: what is tried, and the other ways where it fails."""
        held_after_try = self._run_block([*statement.body, *statement.orelse], state.copy())
        for handler in statement.handlers:
            held_after_try = _states_merged_after_branches(
                held_after_try, self._run_block(handler.body, state.copy()), state
            )
        return self._run_block(statement.finalbody, held_after_try)

    def _run_loop(self, statement: ast.stmt, state: _HeldByName) -> _HeldByName:
        """The state after a loop, whose body is run twice: its second pass meets what the first one
        left.
        """
        head = getattr(statement, "iter", None) or getattr(statement, "test", None)
        if head is not None:
            self._note_uses(head, state)
        body = getattr(statement, "body", [])
        first = self._run_block(body, state.copy())
        if first.is_left:
            return state
        return _states_merged_after_branches(self._run_block(body, first.copy()), first, state)

    def _run_simple(self, statement: ast.stmt, state: _HeldByName) -> _HeldByName:
        """The state after a statement without blocks: uses, frees, loads and bindings, in this
        order.
        """
        self._note_uses(statement, state)
        self._apply_frees(statement, state)
        loaded = self._place_and_return_loaded_models(statement, state)
        # A trainer moves its model to the GPU before its name is bound: the pass before still holds the old one.
        self._apply_later_moves(statement, state)
        self._apply_bindings(statement, state, loaded)
        state.is_left = isinstance(
            statement, ast.Return | ast.Raise | ast.Break | ast.Continue
        ) or _ends_run(statement)
        return state

    def _note_uses(self, node: ast.AST, state: _HeldByName) -> None:
        """Note that a model which a second load met is used again, where a node reads a name that
        holds it.
        """
        if not self.found or isinstance(node, ast.Delete):
            return
        for name in ast.walk(node):
            if not isinstance(name, ast.Name) or not isinstance(name.ctx, ast.Load):
                continue
            if self._reads_no_weights(name):
                continue
            models = state.held.get(name.id, frozenset())
            for one in self.found:
                if one.first in models:
                    one.is_used_again = True

    def _reads_no_weights(self, name: ast.Name) -> bool:
        """Is only read what needs no weights: `model.device`, `trainer.state`?"""
        parent = self.module.scopes.parent.get(name)
        return isinstance(parent, ast.Attribute) and parent.attr in READ_ONLY_ATTRIBUTES

    def _apply_frees(self, statement: ast.stmt, state: _HeldByName) -> None:
        """Forget the models that a statement frees: `del model`, `model.cpu()`,
        `accelerator.free_memory()`.
        """
        if isinstance(statement, ast.Delete):
            for target in statement.targets:
                self._forget_name(ast.unparse(target), state)
        for call in _calls_of_statement(statement):
            if last_name_of_called(call) in FREEING_CALLS:
                state.held.clear()
            elif _moves_to_cpu(call) and isinstance(call.func, ast.Attribute):
                state.drop(self._held_by(call.func.value, state))

    def _forget_name(self, name: str, state: _HeldByName) -> None:
        """Forget what a name holds; `trainer.model` is what `trainer` held."""
        owner, _, attribute = name.partition(".")
        if attribute in HOLDING_ATTRIBUTES:
            state.held.pop(owner, None)
        state.held.pop(name, None)

    def _place_and_return_loaded_models(
        self, statement: ast.stmt, state: _HeldByName
    ) -> list[HeldModel]:
        """The models that a statement loads; each that is put onto the GPU is compared with those
        held there.
        """
        loaded = []
        for node in ast.walk(statement):
            load = self.places.get(node)
            if load is None:
                continue
            is_trained = self.module.flow.call(load).named(*TRAINERS)
            model = HeldModel(load, node, self.conditions, False, is_trained)
            if self.placements.is_on_gpu(load):
                self._place_on_gpu(model, state)
            loaded.append(model)
        return loaded

    def _place_on_gpu(self, model: HeldModel, state: _HeldByName) -> None:
        """Note a second load, if a model gets onto the GPU beside others that are held there."""
        if model.is_placed:
            return
        model.is_placed = True
        for other in sorted(state.all_held_models(), key=_line_of_load):
            if (
                other is model
                or not other.is_placed
                or _depend_on_separate_conditions(other, model)
            ):
                continue
            if self.placements.gpu_number(other.load) != self.placements.gpu_number(model.load):
                continue
            self.found.append(SecondLoad(other, model, state.names_of(other)))

    def _apply_bindings(
        self, statement: ast.stmt, state: _HeldByName, loaded: list[HeldModel]
    ) -> None:
        """Note what the names that a statement binds hold from now on."""
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            return
        models = frozenset(loaded) if self._value_holds_model(value) else frozenset()
        models |= self._held_by(value, state)
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            for part in parts:
                self._forget_name(ast.unparse(part), state)
                if models and not isinstance(part, ast.Subscript) and self._may_hold_model(part):
                    state.held[ast.unparse(part)] = models

    def _value_holds_model(self, value: ast.expr) -> bool:
        """Does a value that was loaded here hold the model: itself, or through a function of the
        file?
        """
        if value in self.places and isinstance(value, ast.Call):
            is_own = self.module.flow.call(value).named(*MODEL_LOADS, *TRAINERS)
            return (
                is_own
                or bool(self.module.flow.types(value) & HOLDING_TYPES)
                or self._returns_tuple_with_model(value)
            )
        return True

    def _returns_tuple_with_model(self, value: ast.Call) -> bool:
        """Does a function of the file return a tuple with a model in it?"""
        return any(
            isinstance(returned, ast.Tuple)
            and any(self.module.flow.types(part) & HOLDING_TYPES for part in returned.elts)
            for origin in self.module.flow.origins(value.func)
            for returned in self.module.flow.returned_expressions_by_function.get(origin.node, [])
        )

    def _may_hold_model(self, target: ast.expr) -> bool:
        """Is a name not known to hold something else, such as the tokenizer of a pair?"""
        types = self.module.flow.types(target)
        return not types or bool(types & HOLDING_TYPES) or "accelerator" in types

    def _held_by(self, value: ast.expr, state: _HeldByName) -> frozenset[HeldModel]:
        """The models that an object holds which an expression gives."""
        if isinstance(value, ast.Name):
            return state.held.get(value.id, frozenset())
        if isinstance(value, ast.Attribute):
            return self._held_by_attribute(value, state)
        if isinstance(value, ast.Tuple | ast.List):
            return frozenset().union(*(self._held_by(part, state) for part in value.elts))
        if isinstance(value, ast.IfExp):
            return self._held_by(value.body, state) | self._held_by(value.orelse, state)
        if isinstance(value, ast.Call) and self._result_holds_arguments(value):
            return frozenset().union(
                *(self._held_by_any_name_in(part, state) for part in _values_result_may_hold(value))
            )
        return frozenset()

    def _held_by_attribute(self, value: ast.Attribute, state: _HeldByName) -> frozenset[HeldModel]:
        """The models of `self.model`, where it was bound so, or of `trainer.model`, which its owner
        holds.
        """
        known = state.held.get(ast.unparse(value))
        if known is not None:
            return known
        is_part = value.attr in HOLDING_ATTRIBUTES
        return self._held_by(value.value, state) if is_part else frozenset()

    def _held_by_any_name_in(self, part: ast.expr, state: _HeldByName) -> frozenset[HeldModel]:
        """The models of any name in an argument: `AdamW(model.parameters())` has them too."""
        names = [
            one
            for one in ast.walk(part)
            if isinstance(one, ast.Name) and not self._reads_no_weights(one)
        ]
        return frozenset().union(*(state.held.get(name.id, frozenset()) for name in names))

    def _result_holds_arguments(self, value: ast.Call) -> bool:
        """Does what a call gives hold the models that it is given?"""
        call = self.module.flow.call(value)
        if call.method == "train" and "trainer" in self.module.flow.types(call.receiver):
            return False
        if self.module.flow.types(value) & HOLDING_TYPES or call.named(*HOLDING_CALLS):
            return True
        if call.method is not None:
            return call.method in MODEL_GIVING_METHODS
        name = ast.unparse(value.func).rpartition(".")[2]
        # A class of the project's own holds what it is given, as far as anybody can tell.
        return name[:1].isupper() and not name.isupper()

    def _apply_later_moves(self, statement: ast.stmt, state: _HeldByName) -> None:
        """Place on the GPU what a statement moves there after its load: `.to("cuda")`, a trainer,
        `accelerator.prepare`.
        """
        for node in _calls_of_statement(statement):
            call = self.module.flow.call(node)
            models: frozenset[HeldModel] = frozenset()
            if call.named(*OPTIMIZERS):
                for model in self._held_by_any_name_in(node, state):
                    model.is_trained = True
            if call.named(*TRAINERS):
                models = frozenset().union(
                    *(self._held_by(p, state) for p in (*call.args[:1], *call.keywords.values()))
                )
                for model in models:
                    model.is_trained = True
            elif moves_to_gpu(node) and isinstance(node.func, ast.Attribute):
                models = self._held_by(node.func.value, state)
            elif call.method == "prepare":
                models = frozenset().union(*(self._held_by(part, state) for part in call.args))
            for model in sorted(models, key=_line_of_load):
                self._place_on_gpu(model, state)


def _values_result_may_hold(call: ast.Call) -> list[ast.expr]:
    """What the result of a call may hold: its arguments, and the object whose method it is."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not isinstance(call.func, ast.Attribute):
        return arguments
    # `batch.to(model.device)` is no model; `accelerator.prepare(model)` is one.
    is_own_alone = call.func.attr in MODEL_GIVING_METHODS and call.func.attr != "prepare"
    return [call.func.value] if is_own_alone else [*arguments, call.func.value]


def _line_of_load(model: HeldModel) -> int:
    """The line of what loads a model."""
    return getattr(model.node, "lineno", 0)


def _names_bound_by(statement: ast.stmt | None) -> Iterator[str]:
    """The names that an assignment binds."""
    for node in ast.walk(statement) if isinstance(statement, ast.Assign) else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _states_merged_after_branches(
    one: _HeldByName, other: _HeldByName, start: _HeldByName
) -> _HeldByName:
    """What is held after two branches: what a branch has freed counts as freed."""
    if one.is_left and other.is_left:
        return _HeldByName({}, is_left=True)
    if one.is_left or other.is_left:
        return other if one.is_left else one
    held: dict[str, frozenset[HeldModel]] = {}
    for name in {*one.held, *other.held}:
        first, second = one.held.get(name, frozenset()), other.held.get(name, frozenset())
        freed = start.held.get(name, frozenset()) - (first & second)
        held[name] = (first | second) - freed
    return _HeldByName(held)


def _depend_on_separate_conditions(one: HeldModel, other: HeldModel) -> bool:
    """Do two places depend on conditions of their own each, which need not hold together?"""
    first, second = set(one.conditions), set(other.conditions)
    return bool(first - second and second - first)


def _calls_of_statement(node: ast.AST) -> list[ast.Call]:
    """The calls of a statement."""
    return [part for part in ast.walk(node) if isinstance(part, ast.Call)]


def _ends_run(statement: ast.stmt) -> bool:
    """Does a statement end the program: `sys.exit()`, `exit()`, `quit()`?"""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and ast.unparse(statement.value.func) in ("sys.exit", "exit", "quit")
    )
