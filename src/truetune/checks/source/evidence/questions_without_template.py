"""Finds questions that a model is asked as they are: no chat template and no prompt of one's own
stands around them.

A text counts only where all that it may be is seen: words of the file without marks of turns, an
element of a list of such texts, a column of questions, or what somebody types. A text that the file
begins with words of its own counts too, whatever is put into it: no template begins so. Whatever
else comes from elsewhere may be a finished prompt.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.source.evidence.generate_call_inputs import (
    encoding_calls_of_input,
    generate_calls,
    input_ids_argument,
)
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.text_generation_calls import (
    TRANSFORMERS_PIPELINE,
    VLLM_ENGINE,
    VLLM_METHODS,
    completion_prompts_of_clients,
    engine_prompts,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.data_flow import Origin
from truetune.source.parsed_source_file import Module

TURN_MARKS = re.compile(
    r"<\|?(im_start|start_header_id|start_of_turn|turn|user|system|assistant|endoftext|begin|bos)|<s>|\[/?INST\]|"
    r"#{2,}|\b(USER|Human|User|Assistant|ASSISTANT|Question|Instruction|Answer|Response|Input|Output|Q|A)\s*:",
    re.I,
)
"""What templates and prompts of one's own write around turns"""
QUESTION_COLUMNS = frozenset(
    ("question", "questions", "query", "instruction", "user", "ticket", "message")
)
"""Columns that hold what is asked; `prompt` and `text` may hold a finished prompt"""
CHAT_COLUMNS = frozenset(
    ("messages", "prompt", "conversation", "conversations", "chat", "turns", "dialog", "dialogue")
)
"""Columns and names that hold the messages of a chat, where an element of one is asked for its content"""
QUESTION_NAMES = frozenset(
    (
        "question",
        "query",
        "user_input",
        "user_message",
        "user_query",
        "user_question",
        "user_text",
        "question_text",
        "message",
        "msg",
        "q",
    )
)
"""Parameters, and fields of requests and options, that hold what somebody asks"""
TYPED_CALLS = (
    "input",
    "sys.stdin.read",
    "sys.stdin.readline",
    "streamlit.text_input",
    "streamlit.text_area",
    "streamlit.chat_input",
)
TYPED_NAMES = ("sys.argv", "sys.stdin")
TIDYING_METHODS = frozenset(
    ("strip", "lstrip", "rstrip", "lower", "replace", "tolist", "to_list", "astype")
)
"""Methods that give the same text or column, tidied"""
BEGINS_WITH_WORD = re.compile(r"\s*[^\W\d_]{2,}")
"""A text that begins with a word of its own; `{}` and marks of templates are none"""
OF_A_TEMPLATE = re.compile(
    r"prompt|template|render|format|chat|conv|turn|header|system|assistant|prefix|suffix|[be]os|sep|tag|marker|_end\b",
    re.I,
)
"""Names of what may hold marks of turns"""
MIN_WORDS = 3
"""`tokenizer("Hi")` is a smoke test of a script, and no question"""
MAX_STEPS = 6
"""Steps from what is encoded to where the text stands"""


def questions_without_template(
    module: Module, columns: frozenset[str] = frozenset()
) -> Iterator[tuple[Call, ast.expr]]:
    """The calls that ask a model, each with the text that it is asked as it is.

    Args:
        columns: Columns that are known to hold what a user asks, beside those whose names say so.
    """
    for call, text in _texts_given_to_models(module):
        if (
            _is_bare_question(module, text, MAX_STEPS)
            or _column_of_plain_texts(module, text) in columns
        ):
            yield call, text


def _column_of_plain_texts(module: Module, text: ast.AST, depth: int = MAX_STEPS) -> str | None:
    """The one column that texts are read from, each as it is; None where they are made otherwise."""
    if depth == 0:
        return None
    if isinstance(text, ast.Subscript):
        key = module.flow.value(text.slice)
        return key if isinstance(key, str) else None
    inner = _text_before_wrapping_or_cleaning(module, text)
    if inner is not None:
        return _column_of_plain_texts(module, inner, depth - 1)
    origins = [one for one in module.flow.origins(text) if one.node is not text and not one.path]
    return _column_of_plain_texts(module, origins[0].node, depth - 1) if len(origins) == 1 else None


def _text_before_wrapping_or_cleaning(module: Module, text: ast.AST) -> ast.expr | None:
    """The text in a list of one, in a comprehension, or before it is tidied; None of any other."""
    if isinstance(text, ast.List) and len(text.elts) == 1:
        return text.elts[0]
    if isinstance(text, ast.ListComp | ast.GeneratorExp):
        return text.elt
    call = module.flow.call(text) if isinstance(text, ast.Call) else None
    return call.receiver if call is not None and call.method in TIDYING_METHODS else None


def _texts_given_to_models(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """What `generate`, pipelines, vLLM and servers are given as texts."""
    yield from completion_prompts_of_clients(module)
    yield from engine_prompts(module)
    for call in generate_calls(module):
        for text in _texts_encoded_for_generate(module, call):
            yield call, text
    for call in module.all_calls:
        expression = _text_given_to_engine(module, call)
        if expression is not None:
            yield call, expression


def _texts_encoded_for_generate(module: Module, call: Call) -> Iterator[ast.expr]:
    """The texts that a tokenizer encodes for a call of `generate`, without those that its template
    renders.
    """
    given = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    ids = input_ids_argument(call)
    if ids is not None:
        given.append(ids)
    for value in given:
        for encoding in encoding_calls_of_input(module, value):
            text = encoding.argument(0, "text")
            if encoding.method != "apply_chat_template" and text is not None:
                yield text


def _text_given_to_engine(module: Module, call: Call) -> ast.expr | None:
    """What vLLM's `generate` or a pipeline is given; None of any other call. vLLM's `chat` renders
    the template.
    """
    if call.method in VLLM_METHODS[:1] and call.receiver is not None:
        engine = module.flow.producing_call(call.receiver)
        is_vllm = engine is not None and engine.named(VLLM_ENGINE)
        return call.argument(0, "prompts") if is_vllm else None
    pipeline = module.flow.producing_call(call.node.func)
    is_pipeline = pipeline is not None and pipeline.named(TRANSFORMERS_PIPELINE)
    return call.argument(0, "text_inputs") if is_pipeline else None


def _is_bare_question(module: Module, node: ast.AST, depth: int) -> bool:
    """Is it certain that no template and no marks stand around what is asked?"""
    if depth == 0:
        return False
    if _begins_with_unmarked_words(module, node):
        return True
    if isinstance(node, ast.List | ast.Tuple):
        return bool(node.elts) and all(
            _is_bare_question(module, part, depth - 1) for part in node.elts
        )
    if isinstance(node, ast.JoinedStr):
        return _is_unmarked_fstring(module, node, depth)
    prompt = (
        module.flow.dict_entries_and_if_complete(node)[0].get("prompt")
        if isinstance(node, ast.Dict)
        else None
    )
    added = [prompt] if prompt is not None else _texts_appended_to_list(module, node)
    if added:
        return all(_is_bare_question(module, part, depth - 1) for part in added)
    return _has_bare_origins(module, node, depth)


def _has_bare_origins(module: Module, node: ast.AST, depth: int) -> bool:
    """Is all that an expression stands for bare?"""
    origins = module.flow.origins(node)
    return bool(origins) and all(_is_bare_origin(module, one, depth) for one in origins)


def _texts_appended_to_list(module: Module, node: ast.AST) -> list[ast.expr]:
    """What is appended to a list that begins empty; nothing where a list is made otherwise."""
    origins = module.flow.origins(node) if isinstance(node, ast.Name) else ()
    if not isinstance(node, ast.Name) or len(origins) != 1:
        return []
    begun = origins[0].node
    if not isinstance(begun, ast.List) or begun.elts:
        return []
    return [
        call.args[0]
        for call in module.methods("append")
        if isinstance(call.receiver, ast.Name) and call.receiver.id == node.id and call.args
    ]


def _begins_with_unmarked_words(module: Module, node: ast.AST) -> bool:
    """Is it a text that begins with words of the file, without marks, and with nothing in it that
    may hold marks?

    A rendered template begins with marks, so a text that begins with a word is none, whatever
    stands behind it.
    """
    parts = _parts_of_text(module, node)
    first = parts[0] if parts else None
    if not isinstance(first, str) or not BEGINS_WITH_WORD.match(first):
        return False
    # A text alone is judged by its words: `tokenizer("Hi")` is a smoke test.
    if all(isinstance(part, str) for part in parts):
        return False
    return not any(_may_hold_marks(module, part) for part in parts)


def _may_hold_marks(module: Module, part: str | ast.expr) -> bool:
    """May a part of a text hold a mark of a turn, by its words or by its name?"""
    if isinstance(part, str):
        return bool(TURN_MARKS.search(part))
    if OF_A_TEMPLATE.search(ast.unparse(part)):
        return True
    # `{END}` of another file is a constant, as marks are; what is put into a question is a variable.
    if isinstance(part, ast.Name) and part.id.isupper() and not possible_texts(module, part):
        return True
    texts = [one.node for one in module.flow.origins(part)]
    return any(
        isinstance(one, ast.Constant) and bool(TURN_MARKS.search(str(one.value))) for one in texts
    )


def _parts_of_text(module: Module, node: ast.AST) -> list[str | ast.expr]:
    """The words and the places of a text that is put together: f-string, `%`, `.format`, a sum;
    empty for any other.
    """
    if isinstance(node, ast.JoinedStr):
        return [
            str(part.value) if isinstance(part, ast.Constant) else getattr(part, "value", part)
            for part in node.values
        ]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_parts_or_self(module, node.left), *_parts_or_self(module, node.right)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        given = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        return _parts_of_filled_text(module, node.left, given)
    if isinstance(node, ast.Call):
        call = module.flow.call(node)
        if call.method in ("format", "substitute") and call.receiver is not None:
            return _parts_of_filled_text(
                module, call.receiver, [*call.args, *call.keywords.values()]
            )
    return []


def _parts_or_self(module: Module, node: ast.expr) -> list[str | ast.expr]:
    """The parts of a part of a sum, which may be one text or a place itself."""
    value = module.flow.value(node)
    return _parts_of_text(module, node) or [value if isinstance(value, str) else node]


def _parts_of_filled_text(
    module: Module, text: ast.expr, given: list[ast.expr]
) -> list[str | ast.expr]:
    """The words of a text with places, and what is put there; empty where the text is not known."""
    value = module.flow.value(text)
    return [value, *given] if isinstance(value, str) and given else []


def _is_bare_origin(module: Module, origin: Origin, depth: int) -> bool:
    """Is what a name stands for a question as it was typed? Parts of unpacked values are not known."""
    node = origin.node
    if origin.path:
        return False
    if origin.element and isinstance(node, ast.expr):
        return _iterates_bare_questions(module, node, depth)
    if _begins_with_unmarked_words(module, node):
        return True
    if isinstance(node, ast.List | ast.Tuple | ast.JoinedStr | ast.Dict):
        return _is_bare_question(module, node, depth - 1)
    if isinstance(node, ast.arg):
        return node.arg in QUESTION_NAMES
    if isinstance(node, ast.Attribute):
        return node.attr in QUESTION_NAMES
    if isinstance(node, ast.Constant):
        text = node.value
        return (
            isinstance(text, str) and len(text.split()) >= MIN_WORDS and not TURN_MARKS.search(text)
        )
    return _is_bare_expression(module, node, depth)


def _iterates_bare_questions(module: Module, collection: ast.expr, depth: int) -> bool:
    """Is what a loop goes over a list of questions, in the code or by its name?"""
    lists = [one.node for one in module.flow.origins(collection)]
    return bool(lists) and all(
        _is_user_input(module, one)
        or (isinstance(one, ast.List | ast.Tuple) and _is_bare_question(module, one, depth - 1))
        for one in lists
    )


def _is_bare_expression(module: Module, node: ast.AST, depth: int) -> bool:
    """Is an expression bare: a sum, a column or a cleaned text of bare questions, or what a user
    types?
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return all(_is_bare_question(module, part, depth - 1) for part in (node.left, node.right))
    if isinstance(node, ast.Subscript):
        key = module.flow.value(node.slice)
        if key == "content" and _is_text_of_one_message(module, node.value, depth):
            return True
        return (
            key in QUESTION_COLUMNS if isinstance(key, str) else _is_user_input(module, node.value)
        )
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return _is_bare_question(module, node.elt, depth - 1)
    if isinstance(node, ast.Call):
        call = module.flow.call(node)
        if call.method in TIDYING_METHODS and call.receiver is not None:
            return _is_bare_question(module, call.receiver, depth - 1)
        return module.flow.name(node.func) in TYPED_CALLS
    return False


def _is_text_of_one_message(module: Module, node: ast.AST, depth: int) -> bool:
    """Is it one message of a chat: `row["messages"][0]`, `row["prompt"][-1]`? It holds the turn's
    text alone.
    """
    if isinstance(node, ast.Subscript):
        place, column = module.flow.value(node.slice), node.value
        key = module.flow.value(column.slice) if isinstance(column, ast.Subscript) else None
        is_chat = key in CHAT_COLUMNS or (
            isinstance(column, ast.Name) and column.id in CHAT_COLUMNS
        )
        return isinstance(place, int) and is_chat
    origins = [one for one in module.flow.origins(node) if one.node is not node and not one.path]
    return (
        depth > 0
        and len(origins) == 1
        and not origins[0].element
        and _is_text_of_one_message(module, origins[0].node, depth - 1)
    )


def _is_user_input(module: Module, node: ast.AST) -> bool:
    """Is it what somebody types: `sys.argv`, `sys.stdin`?"""
    return module.flow.name(node) in TYPED_NAMES


def _is_unmarked_fstring(module: Module, node: ast.JoinedStr, depth: int) -> bool:
    """Is an f-string without marks of turns, and is all that is put into it bare itself?"""
    for part in node.values:
        if isinstance(part, ast.Constant):
            if TURN_MARKS.search(str(part.value)):
                return False
        elif not _is_bare_question(module, getattr(part, "value", part), depth - 1):
            return False
    return True
