"""Finds loops over a model's parameters that freeze every weight of an adapter, by what their tests
say of the weights' names.

How it works: the body of `for name, p in model.named_parameters()` is evaluated for names as PEFT
gives them to LoRA's weights, in models of several families and at each layer. The loop freezes the
adapter where the last thing that it sets is False for all of them.

The trade-off: a test that is not written out (a pattern, a list from elsewhere) leaves the loop
alone, and so does any other place that sets `requires_grad`, for it may come later.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.parsed_source_file import Module

BODIES = {
    "model.layers": ("self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.down_proj"),
    "model.language_model.layers": ("self_attn.q_proj", "mlp.up_proj"),
    "transformer.h": ("attn.c_attn", "mlp.c_fc", "self_attention.query_key_value"),
    "gpt_neox.layers": ("attention.query_key_value", "mlp.dense_h_to_4h"),
    "model.decoder.layers": ("self_attn.k_proj", "fc1", "fc2"),
    # Of models that see or hear: `"vision_tower" in name` keeps the adapter of that part.
    "model.vision_tower.vision_model.encoder.layers": ("self_attn.q_proj", "mlp.fc1"),
    "model.visual.blocks": ("attn.qkv", "mlp.up_proj"),
    "model.multi_modal_projector.layers": ("linear_1",),
    "model.audio_tower.layers": ("self_attn.q_proj",),
    "encoder.block": ("layer.0.SelfAttention.q", "layer.1.DenseReluDense.wi_0"),
}
"""Where layers stand in models of transformers, and modules that LoRA is put on"""
LAYERS = 100
"""Layers that are tried: the largest published models have 126, most have fewer than 81"""
ADAPTER_NAMES = tuple(
    f"base_model.model.{body}.{layer}.{part}.lora_{side}.default.weight"
    for body, parts in BODIES.items()
    for layer in range(LAYERS)
    for part in parts
    for side in "AB"
)
OTHER_SWITCHES = ("load_adapter", "set_adapter", "add_adapter", "requires_grad_")


class FreezingLoop(NamedTuple):
    """A loop that freezes every weight of an adapter."""

    loop: ast.For
    model: ast.expr
    has_test: bool
    """Does it choose by names, and none of LoRA's is chosen?"""


def loops_that_freeze_adapters(module: Module) -> Iterator[FreezingLoop]:
    """The loops over all parameters of a model, in the files that run together, after which no LoRA
    weight trains.
    """
    for part in module.self_and_files_run_together:
        for loop in part.nodes(ast.For):
            call = module.flow.call(loop.iter) if isinstance(loop.iter, ast.Call) else None
            if call is None or call.method not in ("parameters", "named_parameters"):
                continue
            if call.receiver is None or _may_be_unfrozen_elsewhere(module, loop):
                continue
            body = _LoopBodyEvaluator(module, loop)
            names = ADAPTER_NAMES if body.reads_names else ADAPTER_NAMES[:1]
            if all(body.trains_weight(name) is False for name in names):
                yield FreezingLoop(loop, call.receiver, body.reads_names)


def _may_be_unfrozen_elsewhere(module: Module, loop: ast.For) -> bool:
    """May another place of the files give gradients to the adapter?"""
    inside = set(ast.walk(loop))
    for part in module.self_and_files_run_together:
        for assigned in part.nodes(ast.Assign):
            target = assigned.targets[0]
            is_switch = isinstance(target, ast.Attribute) and target.attr == "requires_grad"
            if (
                is_switch
                and assigned not in inside
                and module.flow.value(assigned.value) is not False
            ):
                return True
        for call in part.methods(*OTHER_SWITCHES):
            requires_grad_argument = call.argument(0, "requires_grad")
            is_off = (
                requires_grad_argument is not None
                and module.flow.value(requires_grad_argument) is False
            )
            if call.node not in inside and not (call.method == "requires_grad_" and is_off):
                return True
    return False


class _LoopBodyEvaluator:
    """Evaluates one pass of a loop over parameters for the name of one weight."""

    def __init__(self, module: Module, loop: ast.For) -> None:
        self.module = module
        self.loop = loop
        target = loop.target
        pair = target.elts if isinstance(target, ast.Tuple) and len(target.elts) == 2 else None
        self.name = ast.unparse(pair[0]) if pair is not None else ""
        self.weight = ast.unparse(pair[1] if pair is not None else target)
        self.reads_names = bool(self.name) and any(
            isinstance(node, ast.Name) and node.id == self.name
            for part in loop.body
            for node in ast.walk(part)
        )
        self.state: bool | None = True
        self.known: dict[str, bool | None] = {}

    def trains_weight(self, name: str) -> bool | None:
        """Does a weight of the adapter with this name train behind the loop? None where that is not
        known.
        """
        # get_peft_model leaves the adapter's weights trainable.
        self.state, self.known = True, {}
        self._run_statements(self.loop.body, name)
        return self.state

    def _run_statements(self, statements: Sequence[ast.stmt], name: str) -> bool:
        """Run the statements; False where the pass ends (`continue`)."""
        for statement in statements:
            if isinstance(statement, ast.Continue | ast.Break | ast.Return | ast.Raise):
                # What ends the whole loop may leave other weights as they are.
                self.state = self.state if isinstance(statement, ast.Continue) else None
                return False
            if isinstance(statement, ast.If):
                if not self._run_branch(statement, name):
                    return False
            else:
                self._run_statement_other_than_if_or_jump(statement, name)
        return True

    def _run_branch(self, statement: ast.If, name: str) -> bool:
        """Run the arm that is taken for this name; False where the pass ends, or it is not known
        which is taken.
        """
        test = self._truth_of_test(statement.test, name)
        if test is not None:
            return self._run_statements(statement.body if test else statement.orelse, name)
        if self._mentions_requires_grad_or_ends_pass(statement):
            self.state = None
            return False
        return True

    def _run_statement_other_than_if_or_jump(self, statement: ast.stmt, name: str) -> None:
        """Run any other statement than `if` and `continue`: set the state, or make it None where it is not known."""
        if isinstance(statement, ast.Assign):
            self._run_assignment(statement, name)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._run_requires_grad_method(statement.value, name)
        elif self._mentions_requires_grad_or_ends_pass(statement):
            self.state = None

    def _mentions_requires_grad_or_ends_pass(self, statement: ast.stmt) -> bool:
        """Does a statement mention the switch, or end the pass?"""
        return "requires_grad" in ast.unparse(statement) or any(
            isinstance(node, ast.Continue) for node in ast.walk(statement)
        )

    def _run_assignment(self, statement: ast.Assign, name: str) -> None:
        """Run `p.requires_grad = ...`, or the assignment of a test to a name."""
        target = ast.unparse(statement.targets[0])
        value = self._truth_of_test(statement.value, name)
        if target == f"{self.weight}.requires_grad":
            self.state = value
        else:
            self.known[target] = value

    def _run_requires_grad_method(self, node: ast.Call, name: str) -> None:
        """Run `p.requires_grad_(...)`, which switches the gradient of the weight."""
        if ast.unparse(node.func) == f"{self.weight}.requires_grad_":
            self.state = self._truth_of_test(node.args[0], name) if node.args else True

    def _truth_of_test(self, node: ast.expr, name: str) -> bool | None:
        """Is a test true for a weight of this name? None where that is not known."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._truth_of_test(node.operand, name)
            return None if inner is None else not inner
        if isinstance(node, ast.BoolOp):
            return self._truth_of_and_or(node, name)
        if isinstance(node, ast.Name) and node.id in self.known:
            return self.known[node.id]
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._truth_of_membership(node, name)
        if isinstance(node, ast.Call):
            return self._truth_of_call(node, name)
        value = self.module.flow.value(node)
        return value if isinstance(value, bool) else None

    def _truth_of_and_or(self, node: ast.BoolOp, name: str) -> bool | None:
        """Is `a or b`, or `a and b`, true for a weight of this name?

        None where that is not known.
        """
        parts = [self._truth_of_test(part, name) for part in node.values]
        decides = isinstance(node.op, ast.Or)
        if decides in parts:
            return decides
        return None if None in parts else not decides

    def _truth_of_membership(self, node: ast.Compare, name: str) -> bool | None:
        """Is a test whether the name holds a text true: `"lora_" in name`? None where that is not
        known.
        """
        if ast.unparse(node.comparators[0]) != self.name:
            return None
        text = self.module.flow.value(node.left)
        if not isinstance(text, str) or not isinstance(node.ops[0], ast.In | ast.NotIn):
            return None
        return (text in name) is isinstance(node.ops[0], ast.In)

    def _truth_of_call(self, node: ast.Call, name: str) -> bool | None:
        """Is a test by a call true: `any(key in name for key in KEYS)`, `name.startswith(...)`?
        None where that is not known.
        """
        called = ast.unparse(node.func)
        if len(node.args) != 1:
            return None
        if called == f"{self.name}.startswith":
            texts = self._constant_texts(node.args[0])
            return None if texts is None else name.startswith(tuple(texts))
        if called == f"{self.name}.endswith":
            texts = self._constant_texts(node.args[0])
            return None if texts is None else name.endswith(tuple(texts))
        return self._truth_of_any(node.args[0], name) if called == "any" else None

    def _truth_of_any(self, expression: ast.expr, name: str) -> bool | None:
        """Is `any` of a comprehension over texts true: `key in name for key in KEYS`? None where
        that is not known.
        """
        if (
            not isinstance(expression, ast.GeneratorExp | ast.ListComp)
            or len(expression.generators) != 1
        ):
            return None
        loop = expression.generators[0]
        plain = f"{ast.unparse(loop.target)} in {self.name}"
        texts = self._constant_texts(loop.iter)
        if loop.ifs or ast.unparse(expression.elt) != plain or texts is None:
            return None
        return any(text in name for text in texts)

    def _constant_texts(self, node: ast.expr) -> list[str] | None:
        """The texts of a list that is written out, or of one text; None where they are not known."""
        origins = self.module.flow.origins(node)
        if len(origins) != 1:
            return None
        value = self.module.flow.value(origins[0].node)
        if isinstance(value, str):
            return [value]
        if value is UNKNOWN or not isinstance(value, list | tuple | set | frozenset):
            return None
        texts = [one for one in value if isinstance(one, str)]
        return texts if len(texts) == len(value) else None
