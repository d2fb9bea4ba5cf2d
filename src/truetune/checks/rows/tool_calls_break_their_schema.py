"""Tool calls do not match the tool definitions in their row.

## What it does
Compares each tool call with the `tools` of its row. It counts calls

- of a function that the row does not define,
- without a parameter that is `required`, or with one that the function does not have,
- with an argument of another JSON type, or with a value outside its `enum`.

A row whose `tools` column is empty (null, a list of nothing, or the text `[]`) counts too if it contains calls and no
system prompt names the called function. Null is a value if the definition allows it. A definition that is not a JSON
schema, or uses other type names (`str`, `List[int]`), is not compared. It is an error from 20 % of the rows with calls,
a warning from 5 %, and an info below.

## Why it is bad
The model learns that it need not call tools as the prompt describes them: it makes up functions, leaves parameters out,
or writes "5" for 5. Servers and agents that validate calls against the definitions reject them.

## Example
```yaml
data:
  - tools:
      - type: function
        function:
          name: book
          parameters:
            {type: object, properties: {guests: {type: integer}, day: {type: string}}, required: [guests, day]}
    messages:
      - {role: user, content: "A table for four on Monday, please."}
      - role: assistant
        content: ""
        tool_calls: [{type: function, function: {name: book, arguments: {guests: "4"}}}]
```

## Use instead
```yaml
data:
  - tools:
      - type: function
        function:
          name: book
          parameters:
            {type: object, properties: {guests: {type: integer}, day: {type: string}}, required: [guests, day]}
    messages:
      - {role: user, content: "A table for four on Monday, please."}
      - role: assistant
        content: ""
        tool_calls: [{type: function, function: {name: book, arguments: {guests: 4, day: Monday}}}]
```

## Fix safety
Read five calls first: if it is the definitions that are outdated, update these instead.

## References
- ProfSynapse/Synaptic-Tuner#40
- modelscope/ms-swift#10125
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rows.evidence.tool_calls import (
    FunctionDefinition,
    ToolCall,
    null_keys,
    read_function_definitions,
    read_tool_calls,
)
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.settings.run_spec import Severity

UNDEFINED, MISSING = "a function that is not defined", "a required parameter is missing"
WRONG_TYPE, NOT_IN_ENUM = "a value of another type", "a value that is not in the enum"
UNKNOWN_PARAMETER, NO_TOOLS = "a parameter that is not defined", "tools are empty"
# Two of three published sets with tools (LLaMA-Factory) have no such row, one has 4 of 157: slips of who wrote them.
ERROR_SHARE, WARNING_SHARE, MIN_ROWS = 0.2, 0.05, 2
TOOL_COLUMNS = ("tools", "functions")
WORDS_FOR_NOTHING = frozenset(("", "null", "none", "nan", "n/a"))
"""Texts that exports write for an empty column, in small letters"""


class ToolCallsBreakTheirSchema(DataRule):
    code = "ROW078"
    fault = Fault.TOOL_CALLS_MALFORMED
    symptoms = ("nothing-is-learned",)
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows_with_calls = self.odd_rows = 0
        self.kinds: Counter[str] = Counter()
        """Rows by what is wrong with their calls; a row counts once for each kind"""
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of a batch whose calls do not fit the definitions beside them."""
        for row in batch.rows:
            calls = list(read_tool_calls(row))
            definitions = read_function_definitions(row)
            lacks_tools = (
                not definitions
                and _has_empty_tools(row)
                and not _does_system_prompt_name_called_tool(row, calls)
            )
            if not calls or not (definitions or lacks_tools):
                continue
            self.rows_with_calls += 1
            if lacks_tools:
                self._count_row(batch, row, calls[0].turn, {NO_TOOLS: f"{calls[0].name} is called"})
                continue
            turn, faults = _first_faulty_turn_and_faults_by_kind(calls, definitions)
            if faults:
                self._count_row(batch, row, turn, faults)

    def _count_row(
        self, batch: Batch, row: Conversation, turn: int, faults: Mapping[str, str]
    ) -> None:
        """Count a row with faults, by kind; keep the first one as a case."""
        self.odd_rows += 1
        self.kinds.update(faults.keys())
        if len(self.cases) < MAX_CASES:
            text = next(f"{kind}: {what}" for kind, what in faults.items())
            self.cases.append(case_in_message(batch, row, turn, text))

    def unmet(self) -> Unmet | None:
        """Unmet without rows that hold tool calls and definitions of tools."""
        if self.rows_with_calls:
            return None
        return Unmet("it is about tool calls beside definitions of tools, and no row has both")

    def measurement_if_clean(self) -> Measurement:
        """How many rows hold calls that the definitions do not allow."""
        return make_count_measurement(
            "rows with tool calls that do not fit the definitions beside them",
            self.odd_rows,
            self.rows_with_calls,
        )

    def findings(self) -> Iterator[Finding]:
        is_all = 0 < self.odd_rows == self.rows_with_calls
        if self.odd_rows < MIN_ROWS and not is_all:
            return
        kinds = ", ".join(f"{kind} ({count:,})" for kind, count in self.kinds.most_common())
        most = self.kinds.most_common(1)[0][0]
        yield self.finding(
            f"{self.odd_rows:,} of {self.rows_with_calls:,} rows with tool calls contain calls that their tool"
            f" definitions do not allow: {kinds}",
            _remedy_for(most),
            severity=severity_by_share(self.odd_rows, self.rows_with_calls),
            cases=self.cases,
            count=self.odd_rows,
            total=self.rows_with_calls,
        )


def severity_by_share(faulty: int, total: int) -> Severity:
    """The severity by the share of the rows with calls that have a fault."""
    share = faulty / max(1, total)
    if share >= ERROR_SHARE:
        return "error"
    return "warning" if share >= WARNING_SHARE else "info"


def _remedy_for(kind: str) -> str:
    """What to do about the most frequent fault."""
    if kind == NO_TOOLS:
        return "add the tool definitions to `tools` in each row: the prompt has to offer what the answer calls"
    if kind == UNDEFINED:
        return "use the same function name in `tools` and in `tool_calls`, or drop these rows"
    if kind == MISSING:
        return "add the parameter to the calls, or remove it from `required` in the definition"
    return (
        "write the arguments as the function's `parameters` define them, with JSON numbers and booleans (5, true)"
        " instead of text"
    )


def _has_empty_tools(row: Conversation) -> bool:
    """Has the row of the file a column for tools that holds nothing?"""
    raw = row.raw or {}
    return any(name in raw and _is_nothing(raw[name]) for name in TOOL_COLUMNS)


def _is_nothing(value: Any) -> bool:
    """Is a value empty, or empty in all its parts? Exports write null, `[]` and `{}` as text too."""
    if isinstance(value, str):
        return value.strip().lower() in WORDS_FOR_NOTHING or _is_nothing_as_json(value)
    if isinstance(value, list):
        return all(_is_nothing(one) for one in value)
    return value is None or value == {}


def _is_nothing_as_json(text: str) -> bool:
    """Is a text the JSON of an empty list or object? One that is no JSON may name the tools in words."""
    if not text.lstrip().startswith(("[", "{")):
        return False
    try:
        return _is_nothing(parse_json(text, ROW))
    except ValueError:
        return False


def _does_system_prompt_name_called_tool(row: Conversation, calls: list[ToolCall]) -> bool:
    """Does the system prompt name a function that is called? Then it defines the tools, in words."""
    system = " ".join(
        text_of(message.get("content"))
        for message in row.messages
        if message.get("role") in ("system", "developer")
    )
    return any(call.name in system for call in calls)


def _first_faulty_turn_and_faults_by_kind(
    calls: list[ToolCall], definitions: Mapping[str, FunctionDefinition]
) -> tuple[int, dict[str, str]]:
    """(the turn of the first call with a fault, kind of fault -> what is wrong)."""
    first, faults = 0, dict[str, str]()
    for call in calls:
        own = dict(_faults_of_call(call, definitions.get(call.name)))
        if own and not faults:
            first = call.turn
        faults = {**own, **faults}
    return first, faults


def _faults_of_call(
    call: ToolCall, definition: FunctionDefinition | None
) -> Iterator[tuple[str, str]]:
    """(kind, what is wrong) of a call."""
    if definition is None:
        yield UNDEFINED, call.name
        return
    # Null for what is no parameter is another fault: `null-parameters-of-other-tools`.
    nulls = null_keys(call.arguments)
    given = call.arguments.keys() - nulls
    # Strict definitions require each parameter, and take null for one that is left out.
    left_out = {
        name for name in nulls if _does_schema_allow_null((definition.properties or {}).get(name))
    }
    missing = sorted(definition.required - given - left_out)
    if missing:
        yield MISSING, f"{call.name} without {', '.join(missing)}"
    for name in sorted(given):
        yield from _faults_of_argument(call, name, definition)


def _faults_of_argument(
    call: ToolCall, name: str, definition: FunctionDefinition
) -> Iterator[tuple[str, str]]:
    """(kind, what is wrong) of an argument of a call; none where the definition lists no parameters."""
    properties = definition.properties or {}
    schema, value = properties.get(name), call.arguments[name]
    if schema is None and properties and not definition.is_open:
        yield UNKNOWN_PARAMETER, f"{name} of {call.name}"
    if not isinstance(schema, dict):
        return
    if not _has_type(value, schema.get("type")):
        yield WRONG_TYPE, f"{name} of {call.name} is {value!r:.40}, not {schema['type']}"
    elif not _is_in_enum(value, schema.get("enum")):
        yield NOT_IN_ENUM, f"{name} of {call.name} is {value!r:.40}"


def _does_schema_allow_null(schema: Any) -> bool:
    """Does the schema of a parameter take null as a value?"""
    if not isinstance(schema, dict):
        return False
    types = schema.get("type")
    if types == "null" or (isinstance(types, list) and "null" in types) or schema.get("nullable"):
        return True
    return any(
        _does_schema_allow_null(one) for key in ("anyOf", "oneOf") for one in schema.get(key) or ()
    )


def _has_type(value: Any, name: Any) -> bool:
    """Is a value of a JSON type? True where the name is none of JSON schema's."""
    if isinstance(name, list):
        return any(_has_type(value, one) for one in name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match name:
        case "string":
            return isinstance(value, str)
        case "integer":
            return is_number and float(value).is_integer()
        case "number":
            return is_number
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    return True


def _is_in_enum(value: Any, allowed: Any) -> bool:
    """Is a value among those that a definition lists? True where it lists none."""
    return not isinstance(allowed, list) or not allowed or value in allowed
