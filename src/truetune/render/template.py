"""Template: a chat template that renders to text with provenance."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import jinja2

from truetune.errors import TemplateError
from truetune.render import traced
from truetune.render.sandbox import LimitError, Meter, Sandbox
from truetune.render.traced import Path, Trace

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
"""Names under which a message holds its reasoning, the one that templates read first."""
STRUCTURE_KEYS = frozenset(("role", "type"))
"""Keys whose strings steer the template; they count as shape and not as content."""
OWN_KEYS = frozenset(("train", "weight"))
"""Keys of a message that are for truetune and that no template sees."""


class Template:
    """A compiled chat template; not for use by several threads at once."""

    def __init__(
        self,
        source: str,
        special: dict[str, str] | None = None,
        *,
        name: str = "default",
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        """`special` holds the variables every rendering sees (bos_token, eos_token, ...).

        Raises TemplateError where the source is not valid Jinja.
        """
        self.name = name
        self.source = source
        self.special = dict(special or {})
        self._environment = Sandbox(now)
        self.refused: TemplateError | None = None
        """Set once a rendering broke a limit; every later one raises it at once."""
        try:
            self._template = self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"the chat template is not valid Jinja: line {error.lineno}: {error.message}") from None

    @property
    def has_generation_tags(self) -> bool:
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
        return self.run(self.inputs(messages, tools, documents, Trace()), add_generation_prompt, variables)

    def inputs(
        self, messages: list[dict[str, Any]], tools: list[Any] | None, documents: list[Any] | None, trace: Trace
    ) -> dict[str, Any]:
        """The template's variables, each string in them an atom of `trace`."""
        return {
            "messages": [_message(message, ("messages", i), trace) for i, message in enumerate(messages)],
            "tools": wrapped(tools, ("tools",), trace),
            "documents": wrapped(documents, ("documents",), trace),
        }

    def run(self, inputs: dict[str, Any], add_generation_prompt: bool, variables: dict[str, Any]) -> str:
        """Render inputs that `inputs` made. Raises as `render`, and at once where the template broke a limit before."""
        if self.refused is not None:
            raise self.refused
        environment = self._environment
        environment.meter = Meter()
        variables = {**self.special, **inputs, "add_generation_prompt": add_generation_prompt, **variables}
        try:
            return environment.concat(self._template.root_render_func(self._template.new_context(variables)))
        except LimitError as error:
            self.refused = error
            raise
        except RecursionError:
            raise TemplateError("the chat template calls itself without end") from None
        except MemoryError:
            raise TemplateError("the chat template ran out of memory") from None
        except Exception as error:
            kind = "" if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: "
            raise TemplateError(f"the chat template raised: {kind}{error}") from error


def _message(message: dict[str, Any], path: Path, trace: Trace) -> dict[str, Any]:
    """As transformers hands it over: without empty keys, its reasoning under each known name."""
    made = {
        key: wrapped(value, (*path, key), trace) if key not in STRUCTURE_KEYS else value
        for key, value in message.items()
        if value is not None and key not in OWN_KEYS
    }
    reasoning = next((made[key] for key in REASONING_KEYS if key in made), None)
    return made if reasoning is None else {"thinking": reasoning, **made, "reasoning_content": reasoning}


def wrapped(value: Any, path: Path, trace: Trace) -> Any:
    """The same with an atom of `trace` for each string in it, but for structure."""
    if isinstance(value, str):
        return traced.leaf(value, trace, path)
    if isinstance(value, dict):
        return {
            key: item if key in STRUCTURE_KEYS and isinstance(item, str) else wrapped(item, (*path, key), trace)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [wrapped(item, (*path, i), trace) for i, item in enumerate(value)]
    return value


def path_text(path: Path) -> str:
    """`messages[2].content`"""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" if i else p for i, p in enumerate(path))
