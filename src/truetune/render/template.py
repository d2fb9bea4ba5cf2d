"""Template: a chat template that renders to text with provenance.

The template itself runs in a process of its own, under limits that the kernel enforces (`template_process`). Here stand
what it is given and what becomes of its replies.

The trade-off: each request crosses a pipe and is written as JSON on its way back, which costs about as much as
rendering a few turns; so all renderings of a conversation are asked for at once (`render_prefixes`), and what they
share is sent once.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truetune.errors import TemplateError
from truetune.render import traced_string
from truetune.render.template_process import LimitError as LimitError
from truetune.render.template_process import next_template_number, shared_process
from truetune.render.template_protocol import REASONING_KEYS as REASONING_KEYS
from truetune.render.template_protocol import PrefixRequest, RenderRequest
from truetune.render.traced_string import Node, Path, Segment, Trace, Traced

OWN_KEYS = frozenset(("train", "weight"))
"""Keys of a message that are for truetune and that no template sees."""
MAX_SOURCE = 1 << 20
"""The longest template, in characters; published ones have 20,000 at most."""

Parts = tuple[str | Traced, ...]
"""A rendering: literal text, and atoms of fields"""


@dataclass(frozen=True)
class TemplateInputs:
    """A conversation as a template is given it."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None
    documents: list[Any] | None


class Template:
    """A chat template that is valid Jinja."""

    def __init__(
        self,
        source: str,
        special: dict[str, str] | None = None,
        *,
        name: str = "default",
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        """Compile a template in the template process.

        Args:
            source: Jinja.
            special: variables that every rendering sees: bos_token, eos_token, ...
            name: the tokenizer's for one of several templates (`default`, `tool_use`), or the path of the file that it
                was read from.
            now: gives the moment that `strftime_now` shows; asked once.

        Raises:
            TemplateError: the source is not valid Jinja, or too long.
            LimitError: compiling it goes past the limits.
        """
        self.name = name
        self.source = source
        self.special = dict(special or {})
        self.refused: TemplateError | None = None
        """Set once a rendering broke a limit; every later one raises it at once."""
        self._now = now()  # one clock for all rows: a run over midnight writes one date
        self._number = next_template_number()
        if len(source) > MAX_SOURCE:
            raise TemplateError(
                f"the chat template has {len(source):,} characters (the limit is {MAX_SOURCE:,})"
            )
        shared_process().compile(self._number, source)

    @property
    def has_generation_tags(self) -> bool:
        """Does the template's source have `{% generation %}` tags?"""
        return re.search(r"\{%-?\s*generation\s*-?%\}", self.source) is not None

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[Any] | None = None,
        documents: list[Any] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """The text, a Traced where any of it came from a field.

        It is what transformers' `apply_chat_template(..., tokenize=False)` gives. Raises TemplateError where
        the template raises, goes past its limits, or reaches for what the sandbox denies.
        """
        inputs = self.make_inputs(messages, tools, documents)
        return traced_string.concat(
            self.render_prefix(inputs, Trace(), len(messages), add_generation_prompt, variables)
        )

    def render_with_null_keys_kept(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[Any] | None,
        documents: list[Any] | None,
        **variables: Any,
    ) -> str:
        """As `render`, with keys that are null handed on, as transformers does: some templates print them as `None`.

        Raises as `render`.
        """
        inputs = TemplateInputs(plain_data(messages), plain_data(tools), plain_data(documents))
        return traced_string.concat(
            self.render_prefix(inputs, Trace(), len(messages), False, variables)
        )

    def make_inputs(
        self, messages: list[dict[str, Any]], tools: list[Any] | None, documents: list[Any] | None
    ) -> TemplateInputs:
        """The conversation as transformers hands it to a template: without keys that are empty or truetune's own."""
        return TemplateInputs(
            [plain_data(_message_without_empty_or_own_keys(message)) for message in messages],
            plain_data(tools),
            plain_data(documents),
        )

    def render_prefix(
        self,
        inputs: TemplateInputs,
        trace: Trace,
        message_count: int,
        generation_prompt: bool,
        variables: dict[str, Any],
    ) -> Parts:
        """Render the first `message_count` messages, with provenance; what was asked of them goes to `trace`.

        Raises as `render`.
        """
        (result,) = self.render_prefixes(
            inputs, trace, [PrefixRequest(message_count, generation_prompt, True)], variables
        )
        if isinstance(result, TemplateError):
            raise result
        return result

    def render_prefixes(
        self,
        inputs: TemplateInputs,
        trace: Trace,
        renderings: Sequence[PrefixRequest],
        variables: dict[str, Any],
    ) -> list[Parts | TemplateError]:
        """Render a conversation several times at once.

        Args:
            inputs: the whole conversation.
            trace: gets the questions of all renderings; opaque once one of them is not traced.
            renderings: how many messages of it each takes, and how.
            variables: further ones for the template.

        Returns:
            For each rendering its parts, or the error that it raised. Of one that is not traced, what it shares with
            the first has the first's parts, and the rest is one part of unknown origin.

        Raises:
            LimitError: a rendering goes past the limits; every later call raises it as well.
        """
        # A template that has passed a limit once is not tried again: each row would take the full time to fail.
        if self.refused is not None:
            raise self.refused
        request = RenderRequest(
            self._number,
            inputs.messages,
            inputs.tools,
            inputs.documents,
            {**self.special, **plain_data(variables)},
            self._now,
            list(renderings),
        )
        try:
            reply = shared_process().render(request, self.source)
        except LimitError as error:
            self.refused = error
            raise
        return list(_read_reply(reply, trace))


def _read_reply(reply: dict[str, Any], trace: Trace) -> Iterator[Parts | TemplateError]:
    """The renderings of a reply, their atoms and questions tied to `trace`."""
    nodes = _read_nodes(reply["nodes"])
    # A trace may be opaque before: the questions of several requests are collected in one.
    trace.opaque = trace.opaque or reply["opaque"]
    for number, question, arguments, answer in reply["answers"]:
        trace.answers[nodes[number], question, _lists_as_tuples(arguments)] = answer
    # What a rendering shares is counted against the first traced one, by the process too (`template_worker._Reply`).
    first: Parts | None = None
    for rendering in reply["renderings"]:
        if "error" in rendering:
            yield TemplateError(rendering["error"])
            continue
        if "parts" in rendering:
            # With provenance. The parts that it begins with alike are those of the first rendering.
            own = tuple(_read_part(part, nodes, trace) for part in rendering["parts"])
            parts = (*(first or ())[: rendering["shared_parts"]], *own)
            first = parts if first is None else first
        else:
            # Rendered plainly: equal characters at the beginning are taken to come from the same fields.
            shared = _first_characters_of_parts(first or (), rendering["shared_characters"])
            rest = rendering["rest"]
            parts = (*shared, traced_string.text_of_unknown_origin(rest, trace)) if rest else shared
        yield parts


def _read_nodes(entries: list[Any]) -> list[Node]:
    """Read the nodes of a reply: its expressions. Each entry names its parent by number, which is smaller
    than its own.
    """
    nodes: list[Node] = []
    for operation, parent, *arguments in entries:
        origin = _lists_as_tuples(parent) if operation == "leaf" else nodes[parent]
        nodes.append((operation, origin, *map(_lists_as_tuples, arguments)))
    return nodes


def _read_part(part: Any, nodes: list[Node], trace: Trace) -> str | Traced:
    """Read one part of a reply: literal text, or a field's text with provenance."""
    if isinstance(part, str):
        return part
    number, text, segments = part
    return traced_string.make_atom_of_one_field(
        text, trace, nodes[number], tuple(_read_segment(*segment) for segment in segments)
    )


def _read_segment(length: int, path: list[str | int] | None, offset: int) -> Segment:
    """Read one segment of a reply: a stretch of a field at its path."""
    return Segment(length, None if path is None else tuple(path), offset)


def _lists_as_tuples(value: Any) -> Any:
    """A value with lists as tuples, which they were before they became JSON."""
    return tuple(map(_lists_as_tuples, value)) if isinstance(value, list) else value


def _first_characters_of_parts(parts: Parts, length: int) -> Parts:
    """The parts of the first `length` characters; a field that is cut in two is a slice of it."""
    kept: list[str | Traced] = []
    for part in parts:
        size = str.__len__(part)
        if size > length:
            if length:
                kept.append(part[:length])
            break
        kept.append(part)
        length -= size
    return tuple(kept)


def _message_without_empty_or_own_keys(message: dict[str, Any]) -> dict[str, Any]:
    """Without the keys that are empty, or for truetune alone."""
    return {
        key: value for key, value in message.items() if value is not None and key not in OWN_KEYS
    }


def plain_data(value: Any) -> Any:
    """A value of a row as transformers shows it to a template: plain JSON types, and the name of any other type.

    Files of Parquet and Arrow hold dates, decimals and bytes. A template could call their methods.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    # Subclasses (an enum, a numpy float) become what they are a kind of: their own methods stay out of the sandbox.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        return {plain_data(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_data(item) for item in value]
    if isinstance(value, tuple):
        return tuple(plain_data(item) for item in value)
    return f"<{type(value).__name__}>"


def path_as_text(path: Path) -> str:
    """A path as text: `messages[2].content`"""
    text = ""
    for depth, key in enumerate(path):
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{key}" if depth else key
    return text
