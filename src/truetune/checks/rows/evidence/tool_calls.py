"""Reads the tool calls of a row and the definitions of tools beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.data.conversation import Conversation
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json


class ToolCall(NamedTuple):
    """A call of a function in a row."""

    turn: int
    name: str
    arguments: Mapping[str, Any]

    @property
    def null_arguments(self) -> frozenset[str]:
        """The arguments that are null."""
        return null_keys(self.arguments)


class FunctionDefinition(NamedTuple):
    """What a row says of a function that may be called."""

    properties: Mapping[str, Any] | None
    """Its parameters; None where no schema says which there are"""
    required: frozenset[str]
    is_open: bool
    """May it be called with parameters that the schema does not name?"""


def read_tool_calls(row: Conversation) -> Iterator[ToolCall]:
    """The tool calls of a row whose arguments can be read; of both shapes, with `function` and without."""
    for turn, message in enumerate(row.messages):
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function", call) if isinstance(call, dict) else None
            if not isinstance(function, dict):
                continue
            arguments = _read_object(function.get("arguments"))
            if arguments is not None:
                yield ToolCall(turn, str(function.get("name")), arguments)


def read_function_definitions(row: Conversation) -> dict[str, FunctionDefinition]:
    """The functions that a row defines, by their names, with a schema or without."""
    definitions: dict[str, FunctionDefinition] = {}
    for tool in row.tools or ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(function, dict) and function.get("name"):
            schema = function.get("parameters")
            definitions[str(function["name"])] = _function_definition_from_schema(
                schema if isinstance(schema, dict) else {}
            )
    return definitions


def null_keys(entries: Mapping[str, Any]) -> frozenset[str]:
    """The keys whose value is null."""
    return frozenset(name for name, value in entries.items() if value is None)


def _function_definition_from_schema(schema: Mapping[str, Any]) -> FunctionDefinition:
    """What a JSON schema says of the parameters of a function."""
    properties = schema.get("properties")
    required = schema.get("required")
    return FunctionDefinition(
        properties if isinstance(properties, dict) else None,
        frozenset(map(str, required)) if isinstance(required, list) else frozenset(),
        bool(schema.get("additionalProperties")) or "patternProperties" in schema,
    )


def _read_object(value: Any) -> Mapping[str, Any] | None:
    """An object, or one that is written as JSON text; None for anything else."""
    if isinstance(value, str):
        try:
            value = parse_json(value, ROW)
        except ValueError:
            return None
    return value if isinstance(value, Mapping) else None
