"""Finds texts that a model's library returns with the prompt in front: whole decodes, pipelines,
and engines told to echo.

`generate` of a causal model returns the prompt's ids too. A text-generation pipeline gives the full
text of a prompt that is a text, where `return_full_text` says nothing else. `echo=True` of
llama.cpp and of an OpenAI server asks for it. The trade-off: a prompt that is not seen to be a text
may be a chat, of which a pipeline gives messages; it is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.decoded_answers_with_prompt import (
    decodes_of_generated_ids,
    is_whole_output,
)
from truetune.checks.source.evidence.generate_call_inputs import (
    encoding_calls_of_input,
    generate_calls,
    input_ids_argument,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.text_generation_calls import (
    LLAMA_CPP,
    OPENAI_CLIENTS,
    TRANSFORMERS_PIPELINE,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

PROMPT_IN_GENERATION = "generate returns prompt and answer, and nothing cuts the prompt"
CUT_DECODED_IDS = 'decode only the tokens after the prompt: out[:, inputs["input_ids"].shape[1]:]'
GENERATED_TEXT = "generated_text"
TEXT_TASKS = ("text-generation", None)
FULL_TEXT_SETTINGS = ("return_full_text", "return_text", "return_tensors")
"""Settings of a pipeline that say what it gives"""
ECHO_METHODS = ("create", "create_completion", "__call__")
SCORING_SETTINGS = ("logprobs", "prompt_logprobs", "top_logprobs")
"""What a text is echoed for that is scored, and not read"""
MAX_STEPS = 6
"""Names and entries between a text and the call that gave it"""
MIN_WORD = 2
"""Characters of a word that is searched for: a letter alone stands in any prompt by chance"""


class PromptedText(NamedTuple):
    """A text with its prompt in front."""

    node: ast.expr
    call: Call
    """What generated it, or decodes it"""
    why: str
    remedy: str


def returned_texts_with_prompt(module: Module) -> Iterator[PromptedText]:
    """The texts of a file that certainly hold their prompt."""
    for call in decodes_of_generated_ids(module):
        if is_whole_output(module, call.args[0] if call.args else call.node):
            yield PromptedText(
                call.node,
                call,
                PROMPT_IN_GENERATION,
                CUT_DECODED_IDS,
            )
    yield from _prompted_texts_of_pipelines(module)
    yield from _echoed_texts(module)


def _prompted_texts_of_pipelines(module: Module) -> Iterator[PromptedText]:
    """The texts of a pipeline that is given texts and gives them back in front:
    `result["generated_text"]`.
    """
    for node in module.nodes(ast.Subscript):
        if module.flow.value(node.slice) != GENERATED_TEXT:
            continue
        made = _generating_call(module, node.value)
        call = module.flow.call(made) if made is not None else None
        if call is not None and _pipeline_returns_prompt_and_answer(module, call):
            yield PromptedText(
                node,
                call,
                "the pipeline returns the full text, prompt and answer",
                "set return_full_text=False in the pipeline call",
            )


def _pipeline_returns_prompt_and_answer(module: Module, call: Call) -> bool:
    """Is it a call of a text-generation pipeline with texts, that gives prompt and answer?"""
    pipeline = module.flow.producing_call(call.node.func)
    if pipeline is None or not pipeline.named(TRANSFORMERS_PIPELINE):
        return False
    task = pipeline.argument(0, "task")
    if task is not None and module.flow.value(task) not in TEXT_TASKS:
        return False
    for one in (pipeline, call):
        if one.open or any(name in one.keywords for name in FULL_TEXT_SETTINGS):
            return False
    prompts = call.argument(0, "text_inputs")
    return prompts is not None and _is_text_or_list_of_texts(module, prompts)


def _is_text_or_list_of_texts(module: Module, node: ast.AST, depth: int = 0) -> bool:
    """Is it one text, or a list of texts, and no chat?"""
    if _is_string_literal(node):
        return True
    if isinstance(node, ast.BinOp):
        return any(
            _is_text_or_list_of_texts(module, side, depth + 1) for side in (node.left, node.right)
        )
    if isinstance(node, ast.ListComp):
        return _is_text_or_list_of_texts(module, node.elt, depth + 1)
    if isinstance(node, ast.List):
        return bool(node.elts) and all(
            _is_text_or_list_of_texts(module, one, depth + 1) for one in node.elts
        )
    if isinstance(node, ast.Call) and _call_gives_text(module, module.flow.call(node)):
        return True
    return _all_origins_are_texts(module, node, depth)


def _is_string_literal(node: ast.AST) -> bool:
    """Is it a text in quotes?"""
    is_constant = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_constant or isinstance(node, ast.JoinedStr)


def _all_origins_are_texts(module: Module, node: ast.AST, depth: int) -> bool:
    """Are all places that make a value texts?"""
    origins = module.flow.origins(node) if depth < MAX_STEPS else ()
    return bool(origins) and all(
        one.node is not node
        and not one.element
        and _is_text_or_list_of_texts(module, one.node, depth + 1)
        for one in origins
    )


def _call_gives_text(module: Module, call: Call) -> bool:
    """Does a call give a text: of a template, or of a chat?"""
    if call.method == "apply_chat_template":
        return module.flow.value(call.keywords.get("tokenize")) is False
    return call.method in ("format", "join", "format_map")


def _echoed_texts(module: Module) -> Iterator[PromptedText]:
    """The texts of a completion that echoes its prompt: `result["choices"][0]["text"]` and
    `result.choices[0].text`.
    """
    if "echo" not in module.text:
        return
    for node in module.nodes(ast.Subscript, ast.Attribute):
        assert isinstance(node, ast.Subscript | ast.Attribute)
        name = node.attr if isinstance(node, ast.Attribute) else module.flow.value(node.slice)
        made = _generating_call(module, node.value) if name == "text" else None
        call = module.flow.call(made) if made is not None else None
        if call is not None and _completion_echoes_prompt(module, call):
            yield PromptedText(
                node,
                call,
                "echo=True returns prompt and answer, and nothing cuts the prompt",
                "echo=False",
            )


def _completion_echoes_prompt(module: Module, call: Call) -> bool:
    """Is it a completion of llama.cpp or of an OpenAI server that is asked to echo, and is no
    scoring?
    """
    if module.flow.value(call.keywords.get("echo")) is not True:
        return False
    if any(name in call.keywords for name in SCORING_SETTINGS):
        return False
    if module.flow.value(call.keywords.get("max_tokens")) in (0, 1):
        return False
    asked = call.node.func
    if call.method in ECHO_METHODS and call.receiver is not None:
        asked = call.receiver
        while isinstance(asked, ast.Attribute) and asked.attr in ("completions",):
            asked = asked.value
    made = module.flow.producing_call(asked)
    return made is not None and made.named(LLAMA_CPP, *OPENAI_CLIENTS)


def _generating_call(module: Module, node: ast.AST) -> ast.Call | None:
    """The call that gave what an entry is part of: through names, loops, attributes and indexes."""
    for _ in range(MAX_STEPS):
        while isinstance(node, ast.Subscript | ast.Attribute):
            node = node.value
        if isinstance(node, ast.Call):
            name = module.flow.name(node.func) or ""
            # A progress bar, or a pairing with the rows, gives what it is given.
            if name.startswith("tqdm") and node.args:
                node = node.args[0]
                continue
            return node
        origins = module.flow.origins(node)
        if len(origins) != 1 or origins[0].node is node:
            return None
        node = origins[0].node
    return None


def searched_word_in_prompt(module: Module, text: PromptedText, searched: ast.expr) -> str | None:
    """A word that a text is searched for and that its own prompt holds; None where that is not
    seen.

    Args:
        module: The file.
        text: The text.
        searched: What stands left of `in`: a word, or one of a list of words.
    """
    words = _possible_words(module, searched)
    if not words:
        return None
    prompts = [
        part.value.lower()
        for prompt in _prompts_of_text(module, text)
        for part in backward_slice(module, prompt)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    return next(
        (
            word
            for word in words
            if any(word.lower() in prompt.split() for prompt in map(_without_punctuation, prompts))
        ),
        None,
    )


def _without_punctuation(text: str) -> str:
    """The text without its punctuation."""
    return "".join(sign if sign.isalnum() else " " for sign in text)


def _possible_words(module: Module, searched: ast.expr) -> list[str]:
    """The words that an expression may be."""
    value = module.flow.value(searched)
    values = [value]
    for origin in module.flow.origins(searched):
        listed = module.flow.value(origin.node) if origin.element and not origin.path else None
        values += list(listed) if isinstance(listed, list | tuple | frozenset | dict) else []
    return [one for one in values if isinstance(one, str) and len(one) >= MIN_WORD]


def _prompts_of_text(module: Module, text: PromptedText) -> Iterator[ast.expr]:
    """What was asked for a text."""
    if text.call.method not in ("decode", "batch_decode"):
        text_inputs_argument = text.call.argument(0, "text_inputs") or text.call.keywords.get(
            "prompt"
        )
        yield from (text_inputs_argument,) if text_inputs_argument is not None else ()
        return
    decoded = {part for part in backward_slice(module, text.node) if isinstance(part, ast.Call)}
    for call in generate_calls(module):
        if call.node in decoded:
            yield from _prompts_generated_from(module, call)


def _prompts_generated_from(module: Module, call: Call) -> Iterator[ast.expr]:
    """The texts or chats whose ids `generate` is given."""
    ids = input_ids_argument(call)
    values = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    for value in [*values, *([] if ids is None else [ids])]:
        for encoding in encoding_calls_of_input(module, value):
            prompt = encoding.argument(0, "text") or encoding.argument(0, "conversation")
            if prompt is not None:
                yield prompt
