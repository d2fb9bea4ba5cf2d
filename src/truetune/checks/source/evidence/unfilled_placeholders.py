"""Finds texts that reach a model with a placeholder (`{text}`) that nothing filled in, in the
symbolic run of a script.

How it works: what a chat template, a tokenizer, a server or a trainer is given is taken apart down
to the texts that the script writes. A text that was formatted on the way is another value there, so
a brace that is left was never filled. It counts where the name in the braces is one that the code
has: a variable of the function that uses the text, or a column that the file reads.

The trade-off: a prompt may speak of placeholders ("write {name} where the name belongs"), or of
LaTeX (`\boxed{answer}`); names of answers and braces after a command are left out for that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.columns_read_by_scripts import names_read_from_items
from truetune.checks.source.evidence.models_trained_and_asked import TRAINERS
from truetune.checks.source.evidence.texts_encoded_for_training import (
    library_calls_by_callback_result,
    result_reaches_a_model,
)
from truetune.checks.source.evidence.which_place_surely_runs_first import FUNCTIONS
from truetune.data.column_name_aliases import is_answer_column_name
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.element_of_iterable import (
    representative_element_of_iterable,
)
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Choice,
    Constant,
    Mapping,
    Operation,
    Result,
    Sequence,
    Value,
)

PLACEHOLDER = re.compile(
    r"(?<![\w\\{}$^_%#])\{([A-Za-z_]\w{0,60}(?:(?:\.\w{1,60})|(?:\[['\"]?\w{1,60}['\"]?\])){0,3})\}(?!\})"
)
"""A name, an attribute or an item in single braces, with no command of LaTeX or a shell before it"""
TEXT_COLUMNS = (
    "prompt",
    "messages",
    "conversations",
    "text",
    "completion",
    "instruction",
    "input",
    "chosen",
    "rejected",
)
"""Columns of rows and keys of requests that hold texts for a model"""
ENCODES = ("__call__", "encode", "encode_plus", "batch_encode_plus")
POSTS = ("requests.post", "httpx.post", "requests.request", "httpx.request")
WRITES = ("json.dump", "json.dumps", "ujson.dumps", "orjson.dumps")
ASKS = ("create", "chat", "generate", "completion", "acompletion", "parse", "__call__")
"""Methods of clients, engines and pipelines that are given messages or a prompt"""
ASKING_FUNCTIONS = ("ollama.*", "litellm.*")
ASKED_WITH = ("conversation", "messages", "prompts", "prompt", "text_inputs")
"""Their arguments that hold what is asked"""
UNCHANGED = frozenset(("strip", "lstrip", "rstrip", "lower", "upper", "title"))
"""Methods that leave the braces of a text as they are"""
DEDENTS = ("textwrap.dedent", "inspect.cleandoc", "str")
MAX_DEPTH = 12
"""Lists, messages and sums inside one another. Chosen, not measured: a prompt has three or four"""


class UnfilledPlaceholder(NamedTuple):
    """A text that a model is given with its placeholder."""

    placeholder: str
    """As it is written: `{text}`"""
    text: ast.AST
    """Where the text is written"""
    use: CallEvent
    """What is given it"""
    is_whole: bool
    """Nothing that differs from row to row stands beside it: all prompts are alike"""


class _WrittenTexts:
    """The texts that a value is made of, as the script writes them."""

    def __init__(self) -> None:
        self.texts: list[Constant] = []
        self.is_varied = False
        """It has a part that the script does not write itself"""

    def collect_texts_composing_value(self, value: Value, depth: int = 0) -> None:
        """Collect the texts that a value is made of, as the script writes them; a part that is not
        known, or that varies, sets `is_varied`.
        """
        if depth > MAX_DEPTH:
            self.is_varied = True
            return
        parts = _unfilled_parts_of(value)
        if isinstance(value, Constant):
            if isinstance(value.value, str):
                self.texts.append(value)
        elif parts is None:
            self.is_varied = True
        else:
            for part in parts:
                self.collect_texts_composing_value(part, depth + 1)


def _unfilled_parts_of(value: Value) -> list[Value] | None:
    """What a value is made of, with no brace filled in; None where that is not seen."""
    if isinstance(value, Sequence):
        return value.items
    if isinstance(value, Mapping):
        return list(value.entries.values())
    if isinstance(value, Choice):
        return list(value.options)
    if isinstance(value, Operation) and value.operator in ("+", "format"):
        return list(value.operands)
    return _texts_kept_by_call(value.call) if isinstance(value, Result) else None


def _texts_kept_by_call(call: CallEvent) -> list[Value] | None:
    """The texts that a call trims, dedents or joins; None where it does anything else."""
    if call.method in UNCHANGED and call.receiver is not None:
        return [call.receiver]
    is_made_of_first = call.named(*DEDENTS) or call.method == "join"
    return [call.args[0]] if is_made_of_first and call.args else None


def unfilled_placeholders(module: Module) -> Iterator[UnfilledPlaceholder]:
    """The texts of a file that a model is given with a placeholder that nothing filled in, each
    once.
    """
    if "{" not in module.text:
        return
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for use, given in _values_given_to_models(trace):
            parts = _WrittenTexts()
            parts.collect_texts_composing_value(given)
            for text in parts.texts:
                node = text.node or _text_before_trimming(module, text.value)
                if (
                    node is None
                    or node in seen
                    or not _is_plain_string_literal_of_file(module, node)
                ):
                    continue
                placeholder = _placeholder_named_in_code(module, node, text.value)
                if placeholder:
                    seen.add(node)
                    yield UnfilledPlaceholder(placeholder, node, use, not parts.is_varied)


def _is_plain_string_literal_of_file(module: Module, node: ast.AST) -> bool:
    """Is it a text of this file as it is written, and no part of an f-string, whose braces are
    meant?
    """
    if not isinstance(node, ast.Constant | ast.BinOp) or module.home(node) is not module:
        return False
    return not any(isinstance(one, ast.JoinedStr) for one in (node, *module.parents(node)))


def _text_before_trimming(module: Module, text: str) -> ast.AST | None:
    """The text of the file that was trimmed to this one, by `strip` or `dedent`; None where there
    is none.
    """
    for node in module.nodes(ast.Constant) if PLACEHOLDER.search(text) else ():
        # Braces that were doubled, for `format` to make single ones of them, are no placeholder of this text.
        if isinstance(node.value, str) and text in node.value and PLACEHOLDER.search(node.value):
            return node
    return None


def _is_text_or_its_trimming(value: ast.expr | None, node: ast.AST) -> bool:
    """Is it the text itself, or `"...".strip()`, `dedent("...")`?"""
    if isinstance(value, ast.Call):
        owner = value.func.value if isinstance(value.func, ast.Attribute) else None
        return owner is node or value.args[:1] == [node]
    return value is node


def _values_given_to_models(trace: Trace) -> Iterator[tuple[CallEvent, Value]]:
    """What models are trained on, or asked with, and the call that is given it."""
    taken = library_calls_by_callback_result(trace)
    for call in trace.all_calls:
        encoded = _rendered_or_encoded_text(call)
        if encoded is not None:
            if result_reaches_a_model(trace, call, taken):
                yield call, encoded
        elif call.named(*TRAINERS):
            yield from ((call, one) for one in _texts_of_trainer_rows(call))
        elif call.named(*POSTS, *WRITES) or call.method == "post":
            yield from ((call, one) for one in _texts_of_request_or_file(call))
        elif call.method in ASKS or call.named(*ASKING_FUNCTIONS):
            yield from ((call, one) for one in _prompts_of_client(call))


def _rendered_or_encoded_text(call: CallEvent) -> Value | None:
    """What a tokenizer renders or encodes; None of any other call."""
    if call.method == "apply_chat_template":
        return call.argument(0, "conversation")
    is_encoding = call.method in ENCODES and bool(call.args) and _calls_loaded_tokenizer(call)
    return call.args[0] if is_encoding else None


def _calls_loaded_tokenizer(call: CallEvent) -> bool:
    """Is it a call of a tokenizer that is loaded?"""
    owner = call.receiver
    return isinstance(owner, Result) and owner.call.named("transformers.*.from_pretrained")


def _texts_of_trainer_rows(call: CallEvent) -> Iterator[Value]:
    """The texts of a trainer's rows."""
    for _, returned in call.returned_by_callbacks:
        yield returned
    data = call.keywords.get("train_dataset")
    row = None if data is None else representative_element_of_iterable(data)
    if isinstance(row, Mapping):
        yield from (one for name, one in row.entries.items() if name in TEXT_COLUMNS)


def _texts_of_request_or_file(call: CallEvent) -> Iterator[Value]:
    """The texts of a request by HTTP, or of a row that is written to a file."""
    body = call.keywords.get("json") or call.keywords.get("obj")
    if body is None and call.named(*WRITES) and call.args:
        body = call.args[0]
    if isinstance(body, Mapping):
        yield from (one for name, one in body.entries.items() if name in TEXT_COLUMNS)


def _prompts_of_client(call: CallEvent) -> Iterator[Value]:
    """The messages or the prompt that a client, an engine or a pipeline is asked with."""
    for name in ASKED_WITH:
        if name in call.keywords:
            yield call.keywords[name]
    owner = call.receiver
    is_engine = isinstance(owner, Result) and owner.call.named("vllm.LLM", "*.pipeline")
    if is_engine and call.args:
        yield call.args[0]


def _placeholder_named_in_code(module: Module, node: ast.AST, text: str) -> str:
    """The first placeholder of a text whose name the code around its uses has; empty where there is
    none.
    """
    matches = list(PLACEHOLDER.finditer(text))
    if not matches:
        return ""
    names = _names_around_uses(module, node)
    for one in matches:
        root, last = _first_name_of(one[1]), _last_key_of(one[1])
        if root in names and not is_answer_column_name(last):
            return str(one[0])
    return ""


def _first_name_of(expression: str) -> str:
    """The first name of a placeholder's expression: `row` of `row['text']`."""
    return str(re.split(r"[.\[]", expression, maxsplit=1)[0])


def _last_key_of(expression: str) -> str:
    """The last key or name of a placeholder's expression: `text` of `row['text']`."""
    return str(re.findall(r"\w+", expression)[-1])


def _names_around_uses(module: Module, node: ast.AST) -> set[str]:
    """The names that the functions have which use a text, and the columns that the file reads."""
    names = set(names_read_from_items(module))
    for use in _uses_of_text(module, node):
        function = next((one for one in module.parents(use) if isinstance(one, FUNCTIONS)), None)
        names |= _bound_names(module, function)
    return names


def _uses_of_text(module: Module, node: ast.AST) -> list[ast.AST]:
    """The nodes that use a text: where it stands, or where its name does."""
    holder = next(
        (one for one in module.parents(node) if isinstance(one, ast.Assign | ast.AnnAssign)), None
    )
    if holder is None or not _is_text_or_its_trimming(holder.value, node):
        return [node]
    targets = holder.targets if isinstance(holder, ast.Assign) else [holder.target]
    wanted = {_assigned_name(one) for one in targets}
    uses: list[ast.AST] = []
    for name in wanted:
        uses += module.name_reads.get(name, [])
    return uses + [one for one in module.nodes(ast.Attribute) if one.attr in wanted]


def _assigned_name(target: ast.expr) -> str:
    """The name that an assignment sets: `PROMPT` of `PROMPT = ...` and `self.PROMPT = ...`; empty
    of any other target.
    """
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else ""


def _bound_names(module: Module, function: ast.AST | None) -> set[str]:
    """The parameters and variables of a function; those of the file's own level where there is
    none.
    """
    if function is None:
        return {
            one.id
            for one in module.nodes(ast.Name)
            if isinstance(one.ctx, ast.Store)
            and not any(isinstance(around, FUNCTIONS) for around in module.parents(one))
        }
    names = {one.arg for one in ast.walk(function) if isinstance(one, ast.arg)}
    return names | {
        one.id
        for one in ast.walk(function)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
