"""Lost fields: what a row holds and no token of its training text comes from.

A chat template writes what it was made for. Phi-4's writes no tool call: `content: ""` beside `tool_calls` becomes an
empty answer, and nothing fails. Provenance proves it: each character of a rendering is from the template or from a
named field, so that a field is lost where it has text and no character is from it. Where a template does what can't be
followed, the row is rendered once more with other texts in the field: it is lost where that changes nothing. Images
are no text; they are lost where the rendering without them is the same.

A field is not lost where the same words stand elsewhere in the row: calls that are written into the content as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from truetune.data.conversation import Conversation, Message
from truetune.data.media_of_row import MEDIA_PARTS
from truetune.data.parse_json_columns import parse_json_text_or_keep
from truetune.errors import TemplateError
from truetune.render.inference_contract import turn_weights
from truetune.render.renderer import Renderer
from truetune.render.rendering import Rendering
from truetune.render.template import OWN_KEYS, REASONING_KEYS, path_as_text
from truetune.render.traced_string import STRUCTURE_KEYS, UNKNOWN, plain_text

CALLS = ("tool_calls", "function_call")
ANSWERS = ("content", *CALLS, *REASONING_KEYS)
"""Keys of a turn that hold what the model says"""
NAME = "name"
KNOWN = frozenset((*ANSWERS, NAME, "tools", "functions", "documents"))
"""Keys that templates are known to read; a row that has others may keep notes in them"""
RESULT_ROLES = frozenset(("tool", "function", "ipython"))
BESIDE_MESSAGES: tuple[Literal["tools", "documents"], ...] = ("tools", "documents")
UNREAD_KEYS = frozenset((*STRUCTURE_KEYS, *OWN_KEYS, "id", "tool_call_id", "index"))
"""Keys whose texts no template has to write: they steer it, or only tie a result to its call"""
FURTHER_CALLS = "some of several tool_calls"
DESCRIPTIONS = "descriptions of tools"
ALTERED = " \u2042"
"""Put behind each text of a field to see whether it reaches the rendering"""
UNKNOWN_ORIGIN = path_as_text(UNKNOWN)

Effect = Literal["empties", "changes", "loses"]


class LostField(NamedTuple):
    """A field of a row that reaches no token."""

    field: str
    """As a user calls it: `tool_calls`, `tool results`, `tools`, `system content`, `images`"""
    message: int | None
    """The message that it is part of; None where it is beside the messages"""
    effect: Effect
    """empties: nothing of the trained turn is left, so that an empty answer is learned, or none; changes: the trained
    turn has other content, and the model learns to end it without the call; loses: the model is shown less, or learns
    less, than the row holds"""
    is_known: bool
    """Is it a field that templates are known to read? Any other key of a message may be a note of its owner"""

    @property
    def is_reasoning(self) -> bool:
        """Is it one of the keys under which a message holds its reasoning?"""
        return self.field in REASONING_KEYS


class FieldTracker:
    """Finds the lost fields of rows that one renderer renders."""

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self._writes_media: dict[tuple[str, ...], bool] = {}

    def fields_lost_from_training_examples(
        self, row: Conversation, renderings: Sequence[Rendering]
    ) -> list[LostField]:
        """The lost fields of a row, by all of its training examples together: one of them may leave out a turn that
        another one holds."""
        if not row.is_chat or not renderings:
            return []
        paths = _written_paths(renderings)
        written = frozenset(map(_top_field_of_path, paths))
        weights = turn_weights(row, self.renderer.spec_of(row))
        # What stands behind the last turn that any example trains is in no rendering, and is not lost for it.
        rendered_messages = max(
            len(row.messages) if one.turn is None else one.turn + 1 for one in renderings
        )
        lost: list[LostField] = []
        for index, message in enumerate(row.messages[:rendered_messages]):
            lost += self._lost_calls(row, index, paths, weights.get(index, 0.0) > 0)
            keys = list(self._message_keys_that_reach_no_token(row, index, written))
            if keys:
                is_empty = not any(name.startswith(f"messages[{index}].") for name in written)
                is_trained = weights.get(index, 0.0) > 0
                lost += [_lost_field(key, index, message, is_trained, is_empty) for key in keys]
            lost += self._lost_media(row, index)
        for name in self._lost_fields_beside_messages(row, written):
            lost.append(LostField(name, None, "loses", True))
        if _are_descriptions_of_tools_lost(row, paths):
            lost.append(LostField(DESCRIPTIONS, None, "loses", True))
        return lost

    def _lost_calls(
        self, row: Conversation, index: int, paths: frozenset[str], is_trained: bool
    ) -> list[LostField]:
        """The calls of a message that reach no token, while others of it do: templates that write the first alone."""
        message = row.messages[index]
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or UNKNOWN_ORIGIN in paths:
            return []
        names = [f"messages[{index}].tool_calls[{number}]" for number in range(len(calls))]
        unwritten = [name for name in names if not _is_written(name, paths)]
        if not unwritten or len(unwritten) == len(names):
            return []
        if _content_repeats_field(message, "tool_calls"):
            return []
        return [LostField(FURTHER_CALLS, index, "changes" if is_trained else "loses", True)]

    def _lost_media(self, row: Conversation, index: int) -> list[LostField]:
        """The images, sound or video of a message, where the template writes nothing for them."""
        media = _media_types(row.messages[index])
        if not media or self._are_media_written(row, index, media):
            return []
        name = "images" if set(media) == {"image"} else "media"
        return [LostField(name, index, "loses", True)]

    def _message_keys_that_reach_no_token(
        self, row: Conversation, index: int, written: frozenset[str]
    ) -> Iterator[str]:
        """The keys of a message whose texts reach no token."""
        message = row.messages[index]
        for key, value in message.items():
            if key in UNREAD_KEYS or f"messages[{index}].{key}" in written or not _has_text(value):
                continue
            if key == NAME and message.get("role") in RESULT_ROLES:
                continue  # the call before it says whose result it is
            if not _content_repeats_field(message, key) and self._is_proved_lost(
                row, index, key, written
            ):
                yield key

    def _lost_fields_beside_messages(
        self, row: Conversation, written: frozenset[str]
    ) -> Iterator[str]:
        """The fields beside the messages (tools, documents) whose texts reach no token, and stand in no
        prompt.
        """
        for name in BESIDE_MESSAGES:
            value = getattr(row, name)
            if (
                name in written
                or not _has_text(value)
                or _contains_texts(_iter_texts(value), _contents_of_turns_before_answers(row))
            ):
                continue
            if self._is_proved_lost(row, None, name, written):
                yield name

    def _is_proved_lost(
        self, row: Conversation, index: int | None, key: str, written: frozenset[str]
    ) -> bool:
        """Is a field proved lost? Provenance is the proof, unless some text has an unknown origin: then it is
        what another text changes.
        """
        if UNKNOWN_ORIGIN not in written:
            return True
        # Two renderings more for this field of this row: only for templates that do what can't be followed.
        if index is None:
            other = replace(row, **{key: _alter_texts(getattr(row, key))})
        else:
            other = _row_with_message_replaced(
                row, index, {**row.messages[index], key: _alter_texts(row.messages[index][key])}
            )
        return self._renders_alike(row, other)

    def _are_media_written(self, row: Conversation, index: int, media: Sequence[str]) -> bool:
        """Are the media of a message written by the template? Asked once for each role with these types of
        parts.
        """
        message = row.messages[index]
        shape = (str(message.get("role")), *media)
        if shape not in self._writes_media:
            texts = [part for part in message["content"] if _media_type_of_part(part) is None]
            without = _row_with_message_replaced(row, index, {**message, "content": texts})
            self._writes_media[shape] = not self._renders_alike(row, without)
        return self._writes_media[shape]

    def _renders_alike(self, row: Conversation, other: Conversation) -> bool:
        """Does the template render two rows alike? No where it raises."""
        one, two = self._text_of_whole_row(row), self._text_of_whole_row(other)
        return one is not None and one == two

    def _text_of_whole_row(self, row: Conversation) -> str | None:
        """The rendering of the whole row; None where the template raises."""
        variables = {**self.renderer.spec.template_kwargs, **row.template_kwargs}
        try:
            template = self.renderer.template_of(row)
            text = template.render(
                row.messages, tools=row.tools, documents=row.documents, **variables
            )
        except TemplateError:
            return None
        return plain_text(text)


def _written_paths(renderings: Iterable[Rendering]) -> frozenset[str]:
    """The paths that some character comes from: `tools`, `messages[2].tool_calls[0].function.name`; UNKNOWN_ORIGIN for
    one that can't be told."""
    written = set()
    for rendering in renderings:
        for start, end, (path, _) in zip(
            rendering.starts, rendering.starts[1:], rendering.places, strict=False
        ):
            if start < end and path:
                written.add(path)
    return frozenset(written)


def _is_written(path: str, written: Iterable[str]) -> bool:
    """Does some character come from a path, a part of it, or the whole that it is a part of?"""
    return any(one.startswith(path) or path.startswith(one) for one in written)


def _are_descriptions_of_tools_lost(row: Conversation, written: frozenset[str]) -> bool:
    """Are the tools written, and no description of any?"""
    tools = row.tools if isinstance(row.tools, list) else []
    if UNKNOWN_ORIGIN in written or not any(one.startswith("tools") for one in written):
        return False
    described = [
        f"tools[{number}]{inner}.description"
        for number, tool in enumerate(tools)
        for inner, table in (("", tool), (".function", _function_of_tool(tool)))
        if isinstance(table, dict) and _has_text(table.get("description"))
    ]
    return bool(described) and not any(_is_written(path, written) for path in described)


def _function_of_tool(tool: Any) -> Any:
    """What stands under `function` in a tool; None where nothing does."""
    return tool.get("function") if isinstance(tool, dict) else None


def _top_field_of_path(path: str) -> str:
    """The top field that a path is in: `messages[2].tool_calls[0].function.name` ->
    `messages[2].tool_calls`
    """
    found = re.match(r"messages\[\d+\]\.[^.\[]+|[^.\[]+", path)
    return found[0] if found else path


def _lost_field(
    key: str, index: int, message: Message, is_trained: bool, is_empty: bool
) -> LostField:
    """A key of a message whose texts are lost, with what that does to training.

    Args:
        key: the key.
        index: the message's number.
        message: the message.
        is_trained: is it a turn that is learned?
        is_empty: does no token come from any of its fields?
    """
    effect: Effect = "loses"
    if is_trained and is_empty and key in ANSWERS:
        effect = "empties"
    elif is_trained and key in CALLS:
        effect = "changes"
    return LostField(_field_name_for_user(key, message), index, effect, key in KNOWN)


def _field_name_for_user(key: str, message: Message) -> str:
    """A field as a user calls it."""
    if key == NAME:
        return "names"
    if key != "content":
        return key
    role = str(message.get("role"))
    return "tool results" if role in RESULT_ROLES else f"{role} content"


def _has_text(value: Any) -> bool:
    """Is there any text in a value that a template could write?"""
    return next(_iter_texts(value), None) is not None


def _iter_texts(value: Any) -> Iterator[str]:
    """The texts in a value that a template could write, also inside JSON that stands as text."""
    if isinstance(value, str):
        # Arguments of a call are often JSON in a string, and templates write what is in it in another form.
        inner = parse_json_text_or_keep(value, [])
        if inner is not value:
            yield from _iter_texts(inner)
        elif value.strip():
            yield value
    elif isinstance(value, dict) and _media_type_of_part(value) is None:
        for key, item in value.items():
            if key not in UNREAD_KEYS:
                yield from _iter_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _iter_texts(item)


def _alter_texts(value: Any) -> Any:
    """The same value with other texts."""
    if isinstance(value, str):
        return value + ALTERED
    if isinstance(value, dict):
        return {
            key: item if key in UNREAD_KEYS else _alter_texts(item) for key, item in value.items()
        }
    return [_alter_texts(item) for item in value] if isinstance(value, list) else value


def _content_repeats_field(message: Message, key: str) -> bool:
    """Does the message's own content say all that a field says? Calls often stand in both."""
    content = message.get("content")
    if key == "content" or not isinstance(content, str):
        return False
    if key in CALLS:
        # "I will search for it" is no call of `search`: the name must stand as code does.
        names = _names_of_calls(message[key])
        if not all(_does_content_mention_function(name, content) for name in names):
            return False
    return _contains_texts(_iter_texts(message[key]), content)


def _contains_texts(texts: Iterable[str], text: str) -> bool:
    """Does a text hold all of these, also as JSON escapes them?"""
    plain = text.replace("\\n", "\n").replace('\\"', '"')
    return all(one.strip() in text or one.strip() in plain for one in texts)


def _names_of_calls(value: Any) -> Iterator[str]:
    """The functions that a `tool_calls` or `function_call` names, with or without the key `function` around them."""
    for call in value if isinstance(value, list) else [value]:
        function = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            yield function["name"]


def _does_content_mention_function(name: str, content: str) -> bool:
    """Does a content name a function as code, JSON or a tag does, and not as a word of a sentence?"""
    return (
        re.search(rf"""["'=>`]{re.escape(name)}["'<>`]|\b{re.escape(name)}\s*\(""", content)
        is not None
    )


def _contents_of_turns_before_answers(row: Conversation) -> str:
    """The text of all turns that are no answers."""
    contents = (
        message.get("content") for message in row.messages if message.get("role") != "assistant"
    )
    return "\n".join(content for content in contents if isinstance(content, str))


def _row_with_message_replaced(row: Conversation, index: int, message: Message) -> Conversation:
    """A row with the message of this number replaced."""
    return replace(row, messages=[*row.messages[:index], message, *row.messages[index + 1 :]])


def _media_types(message: Message) -> tuple[str, ...]:
    """The kinds of its parts that are no text, in order: image, audio, video."""
    content = message.get("content")
    return (
        tuple(filter(None, map(_media_type_of_part, content))) if isinstance(content, list) else ()
    )


def _media_type_of_part(part: Any) -> str | None:
    """The kind of media that a part of a message is; None for text."""
    return MEDIA_PARTS.get(str(part.get("type"))) if isinstance(part, dict) else None
