"""Finds decoded answers that are used with their prompt still in front, in the symbolic run of a
script.

How it works: a use is followed back to `decode` or `batch_decode`, and from there to `generate` of
a causal model. Each cut on the way makes another value, so a text that arrives is whole by
construction.

The trade-off: what is only kept may be cut later; there any use of the text that is not known is
enough to say nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple, TypeGuard

from truetune.checks.source.evidence.causal_decoder_models import (
    MOVING_METHODS,
    is_causal_decoder,
)
from truetune.checks.source.evidence.decoded_answers_with_prompt import (
    ANSWER_NAME,
    PREDICTION_ARGUMENTS,
    PROMPT_WORD,
    REFERENCE_WORD,
    TRIMMING_METHODS,
)
from truetune.checks.source.evidence.texts_before_normalization import (
    splits_at_spaces,
    text_before_normalizing,
    text_normalized_uncut_by_call,
)
from truetune.data.answering_roles import is_answering_role
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import (
    CallEvent,
    Event,
    NameEvent,
    ReturnEvent,
    Trace,
)
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Element,
    Function,
    Instance,
    Item,
    Mapping,
    Operation,
    Parameter,
    Result,
    Sequence,
    Slice,
    Value,
    parts_of_value,
)

DECODING_METHODS = {"decode": "token_ids", "batch_decode": "sequences"}
"""Method -> the name of its first argument"""
HANDLER_METHODS = frozenset(("get", "post", "put", "route", "api_route"))
"""Methods of a web application that give a decorator of handlers"""
DEMO_LIBRARIES = ("gradio.*", "streamlit.*")
SCORING_FUNCTIONS = ("sklearn.metrics.*", "jiwer.*")
"""Functions whose second argument holds what was predicted"""
REPLY_NAME = re.compile(rf"{ANSWER_NAME.pattern}|(^|_)(reply|replies)$", re.I)
ANSWERING_NAME = re.compile(
    r"(^|_)(answers?|ask|repl(y|ies)|respond|responses?|chat|predict|inference|infer)(_|$)", re.I
)
"""Names of functions that give an answer; `generate` gives the whole as often"""
WHOLE_NAME = re.compile(r"full|raw|debug|prompt|conversation|transcript|trace", re.I)
"""Names of what is kept whole on purpose"""
HARMLESS_CALLS = ("print", "len", "json.dump", "json.dumps", "logging.*", "tqdm.*", "zip", "list")
HARMLESS_METHODS = frozenset(
    (*TRIMMING_METHODS, "write", "append", "info", "debug", "writerow", "writerows", "to_csv")
)
"""Methods that a text goes through, or is given to, without being cut"""
SEARCHING_METHODS = frozenset(("startswith", "find", "rfind", "index", "count"))
"""Methods that look for a text in another; `endswith` asks for the end, where the answer is"""
WORD_SETS = ("set", "frozenset", "list", "collections.Counter")
"""Functions that take the words of a text together"""
ROW_PARSERS = ("json.loads", "orjson.loads", "ujson.loads")
"""Functions that make a row of a line"""
PATTERN_SEARCHES = ("re.search", "re.findall", "regex.search", "regex.findall")
MAX_STEPS = 24
"""Values between a use and the generation"""
MAX_PROMPT_PARTS = 300
"""Values that a prompt is made of, which are looked at"""
MIN_INSTRUCTION = 8
"""Characters of a text around a question that make it an instruction: a line's end or a comma is none"""


class UsedAnswer(NamedTuple):
    """A text that is used as an answer, with its prompt in front."""

    decode: CallEvent
    use: ast.AST
    is_only_shown: bool = False
    """It is printed under the name of an answer, and nothing else is known to read it"""


class WholeText(NamedTuple):
    """A text that holds the prompt that it was generated for."""

    decode: CallEvent
    generation: CallEvent


def answers_with_prompt(module: Module) -> Iterator[UsedAnswer]:
    """The answers decoded in a file that are used with their prompt in front, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        if not any(True for _ in trace.methods(*DECODING_METHODS)):
            continue
        for used in _answers_with_prompt_of_run(trace):
            node = used.decode.node
            if used.decode.home.path == module.path and node not in seen:
                seen.add(node)
                yield used


def _answers_with_prompt_of_run(trace: Trace) -> Iterator[UsedAnswer]:
    """The answers of one run that are returned, scored or kept with their prompt."""
    for event in trace.events:
        if isinstance(event, ReturnEvent):
            if _is_return_of_web_handler(event):
                yield from _prompted_answers_returned_by_handler(event)
            else:
                yield from _prompted_answers_of_answer_functions(trace, event)
        elif isinstance(event, CallEvent):
            yield from _prompted_answers_given_to_metric(event)
    for value in trace.values:
        if isinstance(value, Operation) and value.operator in ("==", "in", "&"):
            yield from _prompted_answers_compared_with_row(value)
        elif isinstance(value, Result):
            yield from _prompted_answers_searched_by_call(value.call)
    yield from _prompted_answers_kept_in_rows(trace)
    yield from _prompted_answers_printed_by_name(trace)


def uncut_generated_text(value: Value, depth: int = 0) -> WholeText | None:
    """The generated text that a value is, prompt and answer, where nothing cut it; None where it
    may be anything else.
    """
    if depth > MAX_STEPS:
        return None
    if isinstance(value, Choice | Sequence):
        several = value.options if isinstance(value, Choice) else value.items
        texts = [uncut_generated_text(one, depth + 1) for one in several]
        return texts[0] if texts and all(texts) else None
    if isinstance(value, Result) and value.call.method in DECODING_METHODS:
        return _decoded_text(value.call, depth)
    original = _source_of_same_text(value)
    return None if original is None else uncut_generated_text(original, depth + 1)


def _source_of_same_text(value: Value) -> Value | None:
    """The text, or list of texts, that a row, an item or a trimmed text is taken from whole; None
    where it is a part of one.
    """
    if isinstance(value, Element):
        return value.iterable
    if isinstance(value, Item) and isinstance(constant_of(value.key), int):
        made = value.base
        # An item of a text is one character of it.
        is_list = isinstance(made, Result) and made.call.method == "batch_decode"
        return made if is_list else None
    return text_before_normalizing(value)


def _decoded_text(call: CallEvent, depth: int) -> WholeText | None:
    """The text that a call decodes from whole rows of ids."""
    ids = call.argument(0, DECODING_METHODS[str(call.method)])
    generation = None if ids is None else _generation_of_whole_ids(ids, depth + 1)
    return None if generation is None else WholeText(call, generation)


def _generation_of_whole_ids(ids: Value, depth: int) -> CallEvent | None:
    """The causal generation that whole rows of ids come from; None where they may be a part of it."""
    if depth > MAX_STEPS:
        return None
    if isinstance(ids, Choice):
        call_events = [_generation_of_whole_ids(option, depth + 1) for option in ids.options]
        return call_events[0] if all(call_events) else None
    whole = _source_of_whole_rows(ids)
    if whole is not None:
        return _generation_of_whole_ids(whole, depth + 1)
    # Given embeddings, `generate` returns the answer alone.
    if _are_ids_of_causal_generation(ids) and "inputs_embeds" not in ids.call.keywords:
        return ids.call
    return None


def _source_of_whole_rows(ids: Value) -> Value | None:
    """The ids that a row, a moved copy or the `sequences` of an output take whole; None for other
    values.
    """
    if isinstance(ids, Attribute):
        return ids.base if ids.name == "sequences" else None
    if isinstance(ids, Item):
        return ids.base if isinstance(constant_of(ids.key), int) else None
    if isinstance(ids, Element):
        return ids.iterable
    if isinstance(ids, Result) and ids.call.method in MOVING_METHODS:
        return ids.call.receiver
    return None


def _are_ids_of_causal_generation(ids: Value) -> TypeGuard[Result]:
    """Are these the ids that `generate` of a causal model gives?"""
    return (
        isinstance(ids, Result)
        and ids.call.method == "generate"
        and is_causal_decoder(ids.call.receiver)
    )


def _input_parts_of_generation(generation: CallEvent) -> list[Value]:
    """What the input of a generation is made of."""
    inputs_argument = generation.argument(0, "inputs") or generation.keywords.get("input_ids")
    waiting = [one for one in (inputs_argument, generation.keywords.get("**")) if one is not None]
    parts: list[Value] = []
    seen: set[int] = set()
    while waiting and len(parts) < MAX_PROMPT_PARTS:
        part = waiting.pop()
        if id(part) not in seen:
            seen.add(id(part))
            parts.append(part)
            waiting += parts_of_value(part)
    return parts


def _prompt_holds_instruction(generation: CallEvent) -> bool:
    """Does the prompt of a generation hold more than what a user typed: a chat's marks, or a text
    of the script?
    """
    return any(_adds_chat_marks_or_text(part) for part in _input_parts_of_generation(generation))


def _adds_chat_marks_or_text(part: Value) -> bool:
    """Does a value put a text of the script, or the marks of a chat, around what it is given?"""
    if isinstance(part, Result):
        if part.call.method == "apply_chat_template":
            return True
        return part.call.method == "format" and _is_long_script_text(part.call.receiver)
    is_joined = isinstance(part, Operation) and part.operator in ("format", "+", "%")
    return is_joined and any(_is_long_script_text(one) for one in parts_of_value(part))


def _is_long_script_text(value: Value | None) -> bool:
    """Is it a text of the script that is long enough to say something?"""
    plain = constant_of(value)
    return isinstance(plain, str) and len(plain.strip()) >= MIN_INSTRUCTION


def _is_return_of_web_handler(event: ReturnEvent) -> bool:
    """Does a function give its value to a web client or to a demo's page?"""
    if any(_decorator_registers_handler(one) for one in event.function.decorators):
        return True
    frame = next(event.frames("callback"), None)
    given_to = None if frame is None else frame.given_to
    if frame is None or given_to is None or not isinstance(frame.value, Function):
        return False
    receiver = given_to.receiver
    maker = receiver.call if isinstance(receiver, Result) else given_to
    return frame.value.definition is event.function.definition and maker.named(*DEMO_LIBRARIES)


def _decorator_registers_handler(decorator: Value) -> bool:
    """Does a decorator register a function with a web server: `app.post("/ask")`?"""
    if not isinstance(decorator, Result) or decorator.call.method not in HANDLER_METHODS:
        return False
    path = decorator.call.argument(0, "path")
    plain = constant_of(path)
    return isinstance(plain, str) and plain.startswith("/")


def _prompted_answers_returned_by_handler(event: ReturnEvent) -> Iterator[UsedAnswer]:
    """The answers that a handler gives back."""
    for name, value in _named_parts_of_reply(event.value):
        text = uncut_generated_text(value)
        if text is None or WHOLE_NAME.search(name):
            continue
        if REPLY_NAME.search(name) or _prompt_holds_instruction(text.generation):
            yield UsedAnswer(text.decode, event.node)


def _prompted_answers_of_answer_functions(trace: Trace, event: ReturnEvent) -> Iterator[UsedAnswer]:
    """The answer with its prompt that a function returns whose name says answer, where its callers
    show or keep it as it is.
    """
    name = getattr(event.function.definition, "name", "")
    if not ANSWERING_NAME.search(name) or WHOLE_NAME.search(name) or not trace.is_whole:
        return
    text = uncut_generated_text(event.value)
    if text is None or not _prompt_holds_instruction(text.generation):
        return
    is_used = any(not isinstance(use, ReturnEvent) for use in trace.uses(event.value))
    if is_used and not _prompt_may_be_cut(trace, event.value):
        yield UsedAnswer(text.decode, event.node)


def _prompted_answers_printed_by_name(trace: Trace) -> Iterator[UsedAnswer]:
    """The answers with their prompt that are bound to a name for answers, and are printed as they
    are.
    """
    if not trace.is_whole:
        return
    for event in trace.events:
        if not isinstance(event, NameEvent) or not REPLY_NAME.search(event.name):
            continue
        text = uncut_generated_text(event.value)
        if text is None or not _prompt_holds_instruction(text.generation):
            continue
        uses = list(trace.uses(event.value))
        is_printed = any(isinstance(use, CallEvent) and use.named("print") for use in uses)
        if is_printed and not _prompt_may_be_cut(trace, event.value):
            yield UsedAnswer(text.decode, event.node, is_only_shown=True)


def uncleaned_replies_put_into_history(module: Module) -> Iterator[UsedAnswer]:
    """The replies of a file that go back into the history of a chat with special tokens, or with
    the whole prompt.
    """
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for value in trace.values:
            if not isinstance(value, Mapping) or value.node is None:
                continue
            decode = _unclean_decode_in_message(trace, value)
            if decode is not None and decode.home.path == module.path and value.node not in seen:
                seen.add(value.node)
                yield UsedAnswer(decode, value.node)


def _unclean_decode_in_message(trace: Trace, message: Mapping) -> CallEvent | None:
    """The call that decodes the content of an assistant's message with special tokens or with its
    prompt; None where none does.
    """
    content = message.entries.get("content")
    if content is None or not is_answering_role(constant_of(message.entries.get("role"))):
        return None
    whole = uncut_generated_text(content)
    if whole is not None:
        return whole.decode
    trimmed: Value | None = content
    while isinstance(trimmed, Result) and trimmed.call.method in TRIMMING_METHODS:
        trimmed = trimmed.call.receiver
    if not isinstance(trimmed, Result) or trimmed.call.method != "decode":
        return None
    return trimmed.call if _decodes_with_special_tokens(trimmed.call) else None


def _decodes_with_special_tokens(decode: CallEvent) -> bool:
    """Does a call decode what a causal model generated, and keep its special tokens?"""
    # More than one argument by position may be the switch.
    if decode.is_open or len(decode.args) > 1:
        return False
    ids = decode.argument(0, "token_ids")
    is_skipping = constant_of(decode.keywords.get("skip_special_tokens")) is True
    return not is_skipping and ids is not None and _are_generated_ids(ids)


def _are_generated_ids(ids: Value) -> bool:
    """Are these ids a part of what a causal model generated?"""
    for _ in range(MAX_STEPS):
        if isinstance(ids, Item | Attribute):
            ids = ids.base
        elif isinstance(ids, Result) and ids.call.method in MOVING_METHODS:
            if ids.call.receiver is None:
                return False
            ids = ids.call.receiver
        else:
            break
    return _are_ids_of_causal_generation(ids)


def _named_parts_of_reply(
    value: Value, name: str = "", depth: int = 0
) -> Iterator[tuple[str, Value]]:
    """The parts of what a handler gives back, each with the name that it has in the reply."""
    yield name, value
    if depth > 2:
        return
    if isinstance(value, Mapping):
        named = list(value.entries.items())
    elif isinstance(value, Instance):
        named = list(value.attributes.items())
    elif isinstance(value, Result) and _packs_reply_for_client(value.call):
        named = [("", one) for one in value.call.args] + list(value.call.keywords.items())
    else:
        return
    for key, part in named:
        yield from _named_parts_of_reply(part, str(key), depth + 1)


def _packs_reply_for_client(call: CallEvent) -> bool:
    """Does a call pack an answer for a client?"""
    return call.named("*Response", "*.jsonify", "json.dumps")


def _prompted_answers_given_to_metric(event: CallEvent) -> Iterator[UsedAnswer]:
    """The answers with their prompt that a metric is given."""
    given = [event.keywords[name] for name in PREDICTION_ARGUMENTS if name in event.keywords]
    if event.named(*SCORING_FUNCTIONS):
        predicted = event.argument(1, "y_pred")
        given += [] if predicted is None else [predicted]
    for value in given:
        text = uncut_generated_text(value)
        if text is not None:
            yield UsedAnswer(text.decode, event.node)


def _prompted_answers_compared_with_row(compared: Operation) -> Iterator[UsedAnswer]:
    """The answer with its prompt that is compared with a part of a row, or searched for one which
    its prompt does not hold.
    """
    left, right = map(_text_whose_words_are_compared, compared.operands)
    pairs = [(right, left)] if compared.operator == "in" else [(left, right), (right, left)]
    for answer, reference in pairs:
        text = None if isinstance(answer, Sequence) else uncut_generated_text(answer)
        source = _row_entry_of_text(reference)
        if text is None or source is None or compared.node is None:
            continue
        # A search for the prompt asks where the answer begins.
        if not _is_prompt_of_generation(source, text.generation):
            yield UsedAnswer(text.decode, compared.node)


def _text_whose_words_are_compared(value: Value) -> Value:
    """The text whose words are compared, one by one or as a set; else the value itself."""
    words = value
    if isinstance(words, Result) and words.call.named(*WORD_SETS) and words.call.args:
        words = words.call.args[0]
    if isinstance(words, Result) and splits_at_spaces(words.call):
        return words.call.receiver or value
    return value


def _prompted_answers_searched_by_call(call: CallEvent) -> Iterator[UsedAnswer]:
    """The answer with its prompt that a call searches for the reference of a row:
    `text.startswith(row["answer"])`, `re.search(re.escape(row["answer"]), text)`.
    """
    answer, wanted = _searched_text_and_wanted(call)
    text = None if answer is None else uncut_generated_text(answer)
    source = None if wanted is None else _row_entry_of_text(wanted)
    # The place of any other text may be looked for to cut there.
    if (
        text is not None
        and source is not None
        and REFERENCE_WORD.search(_joined_names_of_row_entry(source))
    ):
        if not _is_prompt_of_generation(source, text.generation):
            yield UsedAnswer(text.decode, call.node)


def _searched_text_and_wanted(call: CallEvent) -> tuple[Value | None, Value | None]:
    """The text that a call searches, and what it searches for; (None, None) for any other call."""
    if call.method in SEARCHING_METHODS and call.args:
        return call.receiver, call.args[0]
    if not call.named(*PATTERN_SEARCHES) or len(call.args) < 2:
        return None, None
    wanted, answer = call.args[:2]
    if isinstance(wanted, Result) and wanted.call.named("re.escape") and wanted.call.args:
        wanted = wanted.call.args[0]
    return answer, wanted


def _is_prompt_of_generation(source: Value, generation: CallEvent) -> bool:
    """Is an entry of a row the prompt of a generation, by itself or by its name?"""
    names = _joined_names_of_row_entry(source)
    if PROMPT_WORD.search(names) and not REFERENCE_WORD.search(names):
        return True
    return any(part is source for part in _input_parts_of_generation(generation))


def _joined_names_of_row_entry(entry: Value) -> str:
    """The names by which an entry of a row is reached, in one text."""
    names: list[str] = []
    waiting = [entry]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Item):
            plain = constant_of(part.key)
            names += [plain] if isinstance(plain, str) else []
            waiting += [part.base, part.key]
        elif isinstance(part, Attribute):
            names.append(part.name)
            waiting.append(part.base)
    return " ".join(names)


def _row_entry_of_text(value: Value) -> Value | None:
    """The entry of a row that a text is, apart from a normalization; None where it is none."""
    while (original := text_before_normalizing(value)) is not None:
        value = original
    base = value
    while isinstance(base, Item | Attribute):
        base = base.base
    if isinstance(base, Result) and base.call.named(*ROW_PARSERS) and base.call.args:
        line = base.call.args[0]
        base = text_before_normalizing(line) or line
    is_row = isinstance(base, Element) and not isinstance(base, Parameter)
    return value if is_row else None


def _prompted_answers_kept_in_rows(trace: Trace) -> Iterator[UsedAnswer]:
    """The answers with their prompt that are kept as such in a row or column, where nothing is done
    with them that may cut them.
    """
    for event in trace.stores:
        key = event.key if isinstance(event.key, str) else constant_of(event.key)
        yield from _answer_kept_under_answer_key(trace, key, event.value, event.node)
    for value in trace.values:
        if isinstance(value, Mapping) and value.node is not None:
            for key, entry in value.entries.items():
                yield from _answer_kept_under_answer_key(trace, key, entry, value.node)


def _answer_kept_under_answer_key(
    trace: Trace, key: object, value: Value, node: ast.AST
) -> Iterator[UsedAnswer]:
    """The answer that is kept under a key, where the key says that it is one."""
    if not isinstance(key, str) or not REPLY_NAME.search(key) or not trace.is_whole:
        return
    text = uncut_generated_text(value)
    if text is not None and not _prompt_may_be_cut(trace, value):
        yield UsedAnswer(text.decode, node)


def _prompt_may_be_cut(trace: Trace, value: Value) -> bool:
    """Is anything done with a text, or with those of a list, that may cut its prompt?"""
    waiting: list[tuple[Value, int]] = [(value, 0)]
    seen: set[int] = set()
    while waiting:
        part, depth = waiting.pop()
        if id(part) in seen or depth > MAX_STEPS:
            continue
        seen.add(id(part))
        waiting += [(one, depth + 1) for one in _texts_before_trimming(part)]
        for use in trace.uses(part):
            if _use_may_cut_text(trace, part, use):
                return True
            waiting += [(one, depth + 1) for one in _same_texts_of_use(trace, use)]
    return False


def _use_may_cut_text(trace: Trace, part: Value, use: Value | Event) -> bool:
    """May a use take a part of a text away?"""
    if isinstance(use, CallEvent):
        keeps = splits_at_spaces(use) or text_normalized_uncut_by_call(use) is not None
        return not keeps and not _only_shows_or_trims(use)
    if isinstance(use, Result) and splits_at_spaces(use.call):
        return _may_lose_words(trace, use)
    if not isinstance(use, Item) or use.base is not part:
        return False
    # What is not constant may be a slice, or the number of a row: `texts[i]`.
    return isinstance(use.key, Slice)


def _may_lose_words(trace: Trace, words: Result) -> bool:
    """May the words of a text be used otherwise than all of them joined again?"""
    uses = [use for use in trace.uses(words) if not isinstance(use, Result)]
    return any(
        not isinstance(use, CallEvent) or text_normalized_uncut_by_call(use) is None for use in uses
    )


def _same_texts_of_use(trace: Trace, use: Value | Event) -> Iterator[Value]:
    """The values of a use that are still the text, or one of the texts."""
    if isinstance(use, Result):
        if splits_at_spaces(use.call):
            yield from (one for one in trace.uses(use) if isinstance(one, Result))
        elif text_normalized_uncut_by_call(use.call) is not None:
            yield use
    elif isinstance(use, Item | Element | Choice):
        yield use


def _texts_before_trimming(part: Value) -> Iterator[Value]:
    """The texts that a text or list of texts is made of, before it was trimmed or put together."""
    if isinstance(part, Sequence | Choice | Element):
        yield from parts_of_value(part)
    elif isinstance(part, Item):
        yield part.base
    else:
        original = text_before_normalizing(part)
        yield from () if original is None else (original,)


def _only_shows_or_trims(call: CallEvent) -> bool:
    """Does a call that is given a text only show, write or trim it?"""
    return call.method in HARMLESS_METHODS or call.named(*HARMLESS_CALLS)
