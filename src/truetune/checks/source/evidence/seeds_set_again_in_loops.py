"""Finds seeds that each pass of a loop sets again to the same number.

How it works: a call that seeds the generators of all libraries stands in a loop, or in a function that a loop calls,
and its number is the same in each pass. In a loop that trains, the order of the rows and the masks of dropout begin
again after it. In a loop that draws several answers to one prompt, each draw gives the same answer; so does a request
whose own `seed` is the same.

The trade-off: a loop that makes its model again (folds, a search) repeats a whole run, and may begin each with the same
seed. A file that keeps and restores the state of a generator is left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from truetune.checks.source.evidence.backward_and_optimizer_step_calls import is_backward_call
from truetune.checks.source.evidence.may_place_run_before_another import call_chains
from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.parsed_source_file import Module

SEEDING = (
    "transformers.set_seed",
    "transformers.trainer_utils.set_seed",
    "transformers.enable_full_determinism",
    "accelerate.utils.set_seed",
    "torch.manual_seed",
    "torch.random.manual_seed",
    "random.seed",
    "numpy.random.seed",
    "*.seed_everything",
)
"""Functions that seed a generator which all code shares"""
SEEDING_NAME = re.compile(
    r"^(set|fix|setup|init|reset)_?(all_|random_|global_)?seeds?$|^fixseed$|^seed_all$", re.I
)
"""Names of a project's own functions that do"""
RESTORES = re.compile(
    r"fork_rng|get_rng_state|set_rng_state|\bgetstate\(|\bsetstate\(|get_state\(\)|set_state\("
)
LOADS_MODEL = re.compile(
    r"from_pretrained|from_config|init_weights|build_model|create_model|make_model|get_model|Trainer$"
)
TAKES_TIME = re.compile(r"\b(perf_counter|perf_counter_ns|elapsed_time|time\.time)\(")
"""In a loop: a measurement of the time, which is to draw the same answer again and again"""
DRAWING_METHODS = ("generate", "chat", "create", "complete", "sample")
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
MAX_PASSED = 3
"""Functions that are looked into for what a loop does"""
Effect = Literal["training", "samples"]


class SeedSetAgain(NamedTuple):
    """A seed that each pass of a loop sets again."""

    seed: ast.AST
    loop: ast.AST
    repeated: ast.AST
    """What begins again: the training step, or the draw"""
    effect: Effect


def seeds_set_again_in_loops(module: Module) -> Iterator[SeedSetAgain]:
    """The seeds that a loop sets again to the same number, each place once.

    Args:
        module: A file that is judged.

    Yields:
        Seeds of training loops, and of loops that draw several answers.
    """
    if RESTORES.search(module.text):
        return
    for call in seeding_calls(module):
        seed_set_again = _loop_reseeding_while_training_one_model(
            module, call
        ) or _loop_reseeding_before_each_sample(module, call)
        if seed_set_again is not None:
            yield seed_set_again
    yield from _looped_requests_with_same_seed(module)


def seeding_calls(module: Module) -> Iterator[Call]:
    """The calls that seed a shared generator with a number that no loop changes."""
    named = {call.node for call in module.calls(*SEEDING)}
    for call in module.all_calls:
        is_own = call.method is None and SEEDING_NAME.match(last_name_of_called(call.node))
        if (call.node in named or is_own) and _is_seed_number_fixed(module, call):
            yield call


def _is_seed_number_fixed(module: Module, call: Call) -> bool:
    """Is the number of a seed the same each time: a constant, or a setting of the run?"""
    arguments = [*call.args, *call.keywords.values()]
    return all(_is_fixed_number(module, value) for value in arguments)


def _is_fixed_number(module: Module, value: ast.expr) -> bool:
    """Is a value a constant, a field of the settings, or a constant of the file?"""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | bool)
    if isinstance(value, ast.Attribute):
        root = value.value
        return isinstance(root, ast.Name) and bool(
            re.search(r"arg|conf|cfg|self|param|setting", root.id)
        )
    return isinstance(value, ast.Name) and isinstance(module.flow.value(value), int)


def _loops_around_place_and_its_callers(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """The loops and comprehensions around a place, and around the calls that lead to it, from the inside out."""
    seen: set[ast.AST] = set()
    for chain in call_chains(module, node):
        passed: set[ast.AST | None] = set()
        for link in chain:
            function = module.function_around(link)
            # `self.model.train()` inside of a method `train` is no call of that method.
            if function in passed:
                break
            passed.add(function)
            for up in module.parents(link):
                if up is function:
                    break
                if isinstance(up, (*LOOPS, *COMPREHENSIONS)) and up not in seen:
                    seen.add(up)
                    yield up


def _loop_reseeding_while_training_one_model(module: Module, call: Call) -> SeedSetAgain | None:
    """A loop that trains one model and sets the seed in its passes."""
    for loop in _loops_around_place_and_its_callers(module, call.node):
        step = next(_nodes_run_by(module, loop, is_backward_call), None)
        if step is None or next(_nodes_run_by(module, loop, _loads_model), None) is not None:
            continue
        if next(_nodes_run_by(module, loop, _is_call_of_step), None) is None:
            continue
        return SeedSetAgain(call.node, loop, step, "training")
    return None


def _nodes_run_by(
    module: Module, loop: ast.AST, wanted: Callable[[ast.AST], object]
) -> Iterator[ast.AST]:
    """The nodes of a kind that a loop runs, in it or in functions that it calls."""
    waiting: list[tuple[ast.AST, int]] = [(loop, 0)]
    seen: set[ast.AST] = set()
    while waiting:
        around, depth = waiting.pop()
        for part in ast.walk(around):
            if wanted(part):
                yield part
            function = (
                module.flow.function_called(part.func) if isinstance(part, ast.Call) else None
            )
            if function is not None and function not in seen and depth < MAX_PASSED:
                seen.add(function)
                waiting.append((function, depth + 1))


def _is_call_of_step(node: ast.AST) -> bool:
    """Is it a call of `step`, as of an optimizer, a scaler or an engine?"""
    return isinstance(node, ast.Call) and last_name_of_called(node) == "step"


def _loads_model(node: ast.AST) -> bool:
    """Does a node make a model?"""
    return isinstance(node, ast.Call) and bool(LOADS_MODEL.search(last_name_of_called(node)))


def _loop_reseeding_before_each_sample(module: Module, call: Call) -> SeedSetAgain | None:
    """A loop that draws several answers to one prompt, and sets the seed before each."""
    for loop in _loops_around_place_and_its_callers(module, call.node):
        draw = (
            next(_nodes_run_by(module, loop, _draws_random_answer), None)
            if _loop_repeats_without_reading_counter(loop)
            else None
        )
        trains = next(_nodes_run_by(module, loop, is_backward_call), None)
        if draw is not None and trains is None and not TAKES_TIME.search(ast.unparse(loop)):
            return SeedSetAgain(call.node, loop, draw, "samples")
    return None


def _loop_repeats_without_reading_counter(loop: ast.AST) -> bool:
    """Does a loop run its body several times over, without reading which pass it is?"""
    generator = loop.generators[0] if isinstance(loop, COMPREHENSIONS) else loop
    if not isinstance(generator, ast.For | ast.comprehension) or not _is_range(generator.iter):
        return False
    names = {part.id for part in ast.walk(generator.target) if isinstance(part, ast.Name)}
    reads = (part for part in ast.walk(loop) if isinstance(part, ast.Name))
    return not any(read.id in names and isinstance(read.ctx, ast.Load) for read in reads)


def _is_range(iterated: ast.expr) -> bool:
    """Is it `range(...)`, `trange(...)` or `tqdm(range(...))`?"""
    if not isinstance(iterated, ast.Call):
        return False
    if last_name_of_called(iterated) == "tqdm" and iterated.args:
        return _is_range(iterated.args[0])
    return last_name_of_called(iterated) in ("range", "trange")


def _draws_random_answer(node: ast.AST) -> bool:
    """Does a node draw an answer at random?"""
    if not isinstance(node, ast.Call) or last_name_of_called(node) not in DRAWING_METHODS:
        return False
    return not any(
        one.arg == "do_sample" and isinstance(one.value, ast.Constant) and one.value.value is False
        for one in node.keywords
    )


def _looped_requests_with_same_seed(module: Module) -> Iterator[SeedSetAgain]:
    """The requests of a loop that repeats them, which all have the same seed of their own."""
    for call in module.methods(*DRAWING_METHODS):
        seed = _own_seed_of_request(module, call)
        if seed is None:
            continue
        for loop in _loops_around_place_and_its_callers(module, call.node):
            if _loop_repeats_without_reading_counter(loop):
                yield SeedSetAgain(seed, loop, call.node, "samples")
                break


def _own_seed_of_request(module: Module, call: Call) -> ast.AST | None:
    """The seed that a request is given: by itself, or in vLLM's `SamplingParams`."""
    seed_argument = call.keywords.get("seed")
    if seed_argument is not None:
        return seed_argument if _is_fixed_number(module, seed_argument) else None
    for value in (*call.args, *call.keywords.values()):
        made = module.flow.producing_call(value)
        if made is None or not made.named("vllm.SamplingParams"):
            continue
        number = made.keywords.get("seed")
        is_greedy = module.flow.value(made.keywords.get("temperature")) == 0
        if number is not None and not is_greedy and _is_fixed_number(module, number):
            return made.node
    return None
