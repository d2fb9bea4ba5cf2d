"""Finds chats that are rendered for an answer without the header that the answer begins after.

A render counts where its chat surely ends in a question, or where its text is seen to reach a model
that generates. Renders to which a file adds something itself (a sum, an f-string, `+=`) are not
followed, for that may be the header. The trade-off: a chat that may end in an answer is left alone,
and some faults with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.source.evidence.generate_call_inputs import (
    encoding_calls_of_dictionary,
    generate_calls,
    input_ids_argument,
)
from truetune.checks.source.evidence.prompt_forms import (
    asks_model_and_trains_none,
    loaded_model_names,
    training_scripts_beside,
    trains_a_model,
)
from truetune.checks.source.evidence.text_generation_calls import (
    completion_prompts_of_clients,
    engine_prompts,
    generation_request_body,
    model_questions,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import variable_of_entry

HEADERLESS_FAMILY = re.compile(r"mistral|mixtral|llama-?2", re.I)
"""Families whose templates write no header in front of an answer"""
OWN_TEMPLATES = (".chat_template =", "chat_template=", "get_chat_template", "from_template")
"""Signs that a file gives its tokenizer a template of its own, which may write the header always"""
WHOLE_CHATS = ("messages", "conversations", "conversation", "chosen", "rejected")
"""Columns of rows whose chats end in the answer"""
SERVERS = ("fastapi", "flask", "gradio", "streamlit", "aiohttp", "starlette", "runpod", "chainlit")
"""Libraries of servers: there `messages` come from a request, and end in a question"""
HEADER_ARGUMENTS = ("add_generation_prompt", "continue_final_message")
QUESTION_ROLES = ("system", "user", "tool")
# Chosen: a list of texts, of which one is made by a helper; a circle of names ends there.
MAX_STEPS = 4


def renders_for_generation_without_header(module: Module) -> Iterator[ast.Call]:
    """The calls that render a chat for generation without the header of the answer."""
    calls = list(_renders_without_header(module))
    if not calls or _template_has_no_header(module):
        return
    # A helper of the project renders for the files that import it.
    files = () if module.mentions(*OWN_TEMPLATES) else module.self_and_files_run_together
    nodes = {node for part in files for node in _renders_continued_by_models(part)}
    is_plain = _never_renders_header_when_asking(module)
    for call, chat in calls:
        is_asked = call.node in nodes and not _may_end_in_answer(module, call, chat)
        if is_asked or (is_plain and _does_chat_end_with_user_message(module, chat)):
            yield call.node


def requests_without_header(module: Module) -> Iterator[ast.expr]:
    """The entries of requests for a chat's answer that tell the server to leave the header out:
    `add_generation_prompt: False`.
    """
    for call in module.methods("create", "parse", "stream"):
        if "messages" not in call.keywords:
            continue
        extra = call.keywords.get("extra_body")
        if extra is not None:
            yield from _entry_switching_header_off(
                module, module.flow.dict_entries_and_if_complete(extra)[0]
            )
    for call in module.all_calls:
        body = generation_request_body(module, call)
        entries = module.flow.dict_entries_and_if_complete(body)[0] if body is not None else {}
        if "messages" in entries:
            yield from _entry_switching_header_off(module, entries)


def _entry_switching_header_off(module: Module, body: dict[str, ast.expr]) -> Iterator[ast.expr]:
    """The entry of a request that leaves the header out, where no begun answer is to be continued."""
    given = body.get("add_generation_prompt")
    continued = body.get("continue_final_message")
    if given is not None and module.flow.value(given) is False:
        if continued is None or module.flow.value(continued) is False:
            yield given


def _renders_without_header(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The calls that render a chat, and surely ask for no header; each with its chat."""
    for call in module.methods("apply_chat_template"):
        chat = call.argument(0, "conversation")
        is_known = not call.open or _options_never_ask_for_header(module, call)
        if chat is not None and is_known and not _may_render_header(module, call):
            yield call, chat


def _options_never_ask_for_header(module: Module, call: Call) -> bool:
    """Is `**options` what a helper is given, and does no call of the helper ask for the header
    there?
    """
    for keyword in call.node.keywords:
        if keyword.arg is not None:
            continue
        sites = _calls_filling_options(module, keyword.value)
        if not sites or any(site.open or _has_header_argument(site) for site in sites):
            return False
    return True


def _has_header_argument(call: Call) -> bool:
    """Does a call say anything of the header of the answer, or of an answer to be continued?"""
    return any(name in call.keywords for name in HEADER_ARGUMENTS)


def _calls_filling_options(module: Module, options: ast.expr) -> list[Call]:
    """The calls of the helper whose `**options` these are; none where they are something else."""
    if not isinstance(options, ast.Name):
        return []
    for around in module.parents(options):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            own = around.args.kwarg
            # `options.setdefault(...)`, `options["add_generation_prompt"] = True`: the helper adds to them.
            uses = [
                part
                for part in ast.walk(around)
                if isinstance(part, ast.Name) and part.id == options.id and part is not options
            ]
            if own is None or own.arg != options.id or uses:
                return []
            return [
                module.flow.call(site) for site in module.flow.calls_of_function_or_class(around)
            ]
    return []


def _template_has_no_header(module: Module) -> bool:
    """Is the model, or what a training beside tunes, of a family whose template has no header?"""
    trainings = training_scripts_beside(module)
    names = loaded_model_names(module).union(*(loaded_model_names(other) for other in trainings))
    return any(HEADERLESS_FAMILY.search(name) for name in names)


def _never_renders_header_when_asking(module: Module) -> bool:
    """Does a file ask a model and train none, with no header in any of its renders?"""
    if trains_a_model(module) or not asks_model_and_trains_none(module):
        return False
    return not any(
        _may_render_header(module, call) for call in module.methods("apply_chat_template")
    )


def _may_render_header(module: Module, call: Call) -> bool:
    """Is a chat rendered with the header of the answer, or to be continued, or may it be?"""
    given = [call.keywords.get(name) for name in HEADER_ARGUMENTS]
    return any(one is not None and module.flow.value(one) is not False for one in given)


def _does_chat_end_with_user_message(module: Module, chat: ast.expr) -> bool:
    """Is it a list of messages in the file whose last one is the user's?"""
    lists = [origin.node for origin in module.flow.origins(chat)]
    return bool(lists) and all(
        isinstance(one, ast.List)
        and bool(one.elts)
        and _role_of_message(module, one.elts[-1]) == "user"
        for one in lists
    )


def _role_of_message(module: Module, message: ast.expr) -> object:
    """Whose message of a chat it is; None where that is not known."""
    role = (
        module.flow.dict_entries_and_if_complete(message)[0].get("role")
        if isinstance(message, ast.Dict)
        else None
    )
    return None if role is None else module.flow.value(role)


def _may_end_in_answer(module: Module, call: Call, chat: ast.expr) -> bool:
    """Is the last message an answer, or may it be: a begun answer, or the whole chat of a row?"""
    if isinstance(chat, ast.Name):
        line = call.node.lineno
        added = [one for one in module.expressions_added_to_variable(chat) if one.lineno < line]
        if added:
            return _is_or_ends_in_answer(module, added[-1])
    if any(_is_or_ends_in_answer(module, one) for one in _answers_added_by_helper(module, chat)):
        return True
    for origin in module.flow.origins(chat):
        node = origin.node
        if isinstance(node, ast.expr) and _is_or_ends_in_answer(module, node):
            return True
        if _is_column_of_chats(module, node) and not module.mentions(*SERVERS):
            return True
    return False


def _answers_added_by_helper(module: Module, chat: ast.expr) -> Iterator[ast.expr]:
    """What a helper that makes a chat adds at its end; not what it leaves out for a call that asks.

    `if with_answer: messages.append(...)` makes both kinds of chats, and a call with `False` the
    one that asks.
    """
    function = (
        module.flow.function_that_expression_names(chat.func)
        if isinstance(chat, ast.Call)
        else None
    )
    for returned in (
        module.flow.returned_expressions_by_function.get(function, [])
        if function is not None
        else ()
    ):
        home = module.home(returned)
        added = (
            home.expressions_added_to_variable(returned) if isinstance(returned, ast.Name) else []
        )
        for one in added[-1:]:
            tests = [around.test for around in home.parents(one) if isinstance(around, ast.If)]
            if not any(_is_condition_false_for_a_call(home, test) for test in tests):
                yield one


def _is_condition_false_for_a_call(module: Module, test: ast.expr) -> bool:
    """Is a condition False for one of the calls that give it?"""
    origins = (origin.node for origin in module.flow.origins(test))
    return any(isinstance(node, ast.Constant) and node.value is False for node in origins)


def _is_or_ends_in_answer(module: Module, node: ast.expr) -> bool:
    """Is it a message that asks nothing, or a list that ends in one?"""
    last = node.elts[-1] if isinstance(node, ast.List) and node.elts else node
    # A role that is computed may be a speaker of a model of speech, whose template has no headers.
    return isinstance(last, ast.Dict) and _role_of_message(module, last) not in QUESTION_ROLES


def _is_column_of_chats(module: Module, node: ast.AST) -> bool:
    """Is it the column of a whole chat, with the answer at its end: `row["messages"]`?"""
    return isinstance(node, ast.Subscript) and module.flow.value(node.slice) in WHOLE_CHATS


def _renders_continued_by_models(module: Module) -> Iterator[ast.AST]:
    """The calls of `apply_chat_template` whose text or ids a model is given to continue, as they
    are.
    """
    for value in _inputs_of_generate(module):
        for encoding in encoding_calls_of_dictionary(module, value):
            if encoding.method == "apply_chat_template":
                yield encoding.node
                continue
            text = encoding.argument(0, "text")
            if text is not None:
                yield from _renders_of_text(module, text)
    prompts = [question.text for question in model_questions(module)]
    prompts += [prompt for _, prompt in completion_prompts_of_clients(module)]
    prompts += [prompt for _, prompt in engine_prompts(module)]
    for prompt in prompts:
        yield from _renders_of_text(module, prompt)


def _inputs_of_generate(module: Module) -> Iterator[ast.expr]:
    """What `generate` is given as ids, or by `**`, also where a thread calls it."""
    for call in generate_calls(module):
        ids = input_ids_argument(call)
        if ids is not None:
            yield variable_of_entry(ids)
            yield ids
        yield from (keyword.value for keyword in call.node.keywords if keyword.arg is None)
    for call in module.all_calls:
        target, kwargs_argument = call.keywords.get("target"), call.keywords.get("kwargs")
        # A streamer is read in one thread while `generate` runs in another.
        if (
            isinstance(target, ast.Attribute)
            and target.attr == "generate"
            and kwargs_argument is not None
        ):
            for origin in module.flow.origins(kwargs_argument):
                yield from _values_spread_into(origin.node)


def _values_spread_into(node: ast.AST) -> Iterator[ast.expr]:
    """What a dictionary takes over from others: `dict(inputs, ...)`, `{**inputs, ...}`, and its
    `input_ids`.
    """
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None or getattr(key, "value", None) in ("inputs", "input_ids"):
                yield getattr(value, "value", value) if key is not None else value
    elif isinstance(node, ast.Call):
        yield from node.args
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in ("inputs", "input_ids"):
                yield keyword.value


def _renders_of_text(module: Module, text: ast.expr, depth: int = 0) -> Iterator[ast.AST]:
    """The calls of `apply_chat_template` whose texts these are, each as it was returned."""
    if depth > MAX_STEPS:
        return
    added = module.expressions_added_to_variable(text) if isinstance(text, ast.Name) else []
    for origin in module.flow.origins(text):
        node = origin.node
        if isinstance(node, ast.List):
            for part in (*node.elts, *added):
                yield from _renders_of_text(module, part, depth + 1)
        elif isinstance(node, ast.ListComp):
            yield from _renders_of_text(module, node.elt, depth + 1)
        elif isinstance(node, ast.Call) and not added:
            if module.flow.call(node).method == "apply_chat_template":
                yield node
