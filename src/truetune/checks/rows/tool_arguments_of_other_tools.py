"""Tool calls hold the parameters of other tools, with null.

## What it does
Reads the arguments of tool calls, an object or its JSON text, and finds those that are null and no parameters of the
called function: its definition in `tools` does not have them; or, where no definition is there, the calls of two or
more functions all have the same parameters. Finds definitions of tools, too, whose `properties` hold parameters with
null. A null that the function's own definition allows is left alone.

## Why it is bad
A table of Arrow, and so `datasets`, gives a column one structure: rows whose arguments differ get the union of all
keys, null where they had none, when they go through it (`load_dataset` of older releases, `from_list`, parquet). The
model learns to call each function with the parameters of all, and a server that checks calls by their definition
refuses them.

## Example
```yaml
data:
  - tools: [{type: function, function: {name: hours, parameters: {type: object, properties: {day: {type: string}}}}}]
    messages:
      - {role: user, content: "Is it open?"}
      - role: assistant
        content: ""
        tool_calls: [{type: function, function: {name: hours, arguments: {day: Monday, city: null, from: null}}}]
```

## Use instead
```yaml
data:
  - tools: [{type: function, function: {name: hours, parameters: {type: object, properties: {day: {type: string}}}}}]
    messages:
      - {role: user, content: "Is it open?"}
      - role: assistant
        content: ""
        tool_calls: [{type: function, function: {name: hours, arguments: {day: Monday}}}]
```

## Fix safety
Leaving out a null that the definition does not know is safe. Keep arguments as JSON text (`json.dumps`) while the rows
are in `datasets`, or read the file without it (`json.loads` for each line).

## References
- axolotl-ai-cloud/axolotl#2909
- trl/trainer/utils.py (`remove_none_values`), which a training script has to call itself
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message, case_in_row
from truetune.checks.measurement_without_findings import Measurement, count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json

MIN_FUNCTIONS = 2
"""Functions whose calls all have the same parameters, with null for those of others, from which they were made alike.
One alone may have a parameter that it happens never to use
"""
MAX_FUNCTIONS = 200
"""Functions of which something is kept"""
MAX_NAMED = 4
"""Parameters that a message names"""


class ToolCall(NamedTuple):
    """A call of a function in a row."""

    turn: int
    name: str
    arguments: Mapping[str, Any]

    @property
    def nulls(self) -> frozenset[str]:
        """The arguments that are null."""
        return _null_keys(self.arguments)


@dataclass
class CallsOfFunction:
    """The calls of one function without a definition."""

    keys: set[frozenset[str]] = field(default_factory=set)
    """The sets of arguments that calls have"""
    used: set[str] = field(default_factory=set)
    """Arguments that are not null in some call"""
    cases: list[Case] = field(default_factory=list)


class ToolArgumentsOfOtherTools(DataRule):
    code = "ROW069"
    symptoms = ("nothing-is-learned",)
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows_with_calls = self.odd_rows = self.odd_definitions = 0
        self.foreign: Counter[str] = Counter()
        self.undefined: dict[str, CallsOfFunction] = {}
        self.undefined_rows: Counter[frozenset[tuple[str, frozenset[str]]]] = Counter()
        """Rows by their calls without a definition: the function, and its arguments that are null"""
        self.cases: list[Case] = []

    def batch(self, batch: Batch) -> None:
        """Count the rows of a batch whose calls hold parameters of other functions."""
        for row in batch.rows:
            calls = list(_tool_calls(row))
            definitions = _parameters_by_function(row)
            if not calls and not definitions:
                continue
            self.rows_with_calls += 1
            is_odd = self._count_defined_calls(batch, row, calls, definitions)
            undefined = [call for call in calls if call.name not in definitions]
            for call in undefined:
                self._note_undefined_call(batch, row, call)
            # A row counts once.
            if undefined and not is_odd:
                self.undefined_rows[frozenset((call.name, call.nulls) for call in undefined)] += 1

    def _count_defined_calls(
        self,
        batch: Batch,
        row: Conversation,
        calls: list[ToolCall],
        definitions: Mapping[str, Mapping[str, Any]],
    ) -> bool:
        """Count a row whose calls or definitions hold null for what is no parameter of the function.

        Returns:
            Whether this is such a row.
        """
        odd_calls = [call for call in calls if _foreign_nulls(call, definitions)]
        foreign = Counter(name for call in odd_calls for name in _foreign_nulls(call, definitions))
        empty = {name for own in definitions.values() for name in _null_keys(own)}
        names = foreign or empty
        if not names:
            return False
        self.odd_rows += 1
        self.odd_definitions += bool(empty)
        self.foreign.update(names)
        if len(self.cases) < MAX_CASES:
            text = f"null: {_list_names(names)}"
            self.cases.append(
                case_in_message(batch, row, odd_calls[0].turn, text)
                if odd_calls
                else case_in_row(batch, row, f"tools: {text}")
            )
        return True

    def _note_undefined_call(self, batch: Batch, row: Conversation, call: ToolCall) -> None:
        """Note a call of a function without a definition: its arguments, and which of them are null."""
        if call.name not in self.undefined and len(self.undefined) >= MAX_FUNCTIONS:
            return
        seen = self.undefined.setdefault(call.name, CallsOfFunction())
        nulls = call.nulls
        if len(seen.keys) < MIN_FUNCTIONS:
            seen.keys.add(frozenset(call.arguments))
        seen.used |= call.arguments.keys() - nulls
        if nulls and not seen.cases:
            seen.cases.append(case_in_message(batch, row, call.turn, f"null: {_list_names(nulls)}"))

    def unmet(self) -> Unmet | None:
        """Unmet without tool calls."""
        if self.rows_with_calls:
            return None
        return Unmet("it is about tool calls, and no row has one")

    def figure(self) -> Measurement:
        """How many rows with tools hold parameters of other functions."""
        return count_measurement(
            "rows with tools whose calls or definitions hold null for parameters of other functions",
            self.odd_rows + self._count_rows_of_alike_calls()[0],
            self.rows_with_calls,
        )

    def _count_rows_of_alike_calls(self) -> tuple[int, Counter[str], list[Case]]:
        """Rows whose calls, without a definition, have parameters of other functions; these; cases."""
        keys = {one for seen in self.undefined.values() for one in seen.keys}
        if len(keys) != 1:
            return 0, Counter(), []
        foreign_keys = self._keys_of_other_functions()
        count, names, functions = 0, Counter[str](), set[str]()
        for calls, rows in self.undefined_rows.items():
            odd = {
                (name, key)
                for name, nulls in calls
                for key in nulls & foreign_keys.get(name, frozenset())
            }
            count += rows if odd else 0
            functions |= {name for name, _ in odd}
            names.update({key: rows for _, key in odd})
        if len(functions) < MIN_FUNCTIONS:
            return 0, Counter(), []
        return (
            count,
            names,
            [case for name in sorted(functions) for case in self.undefined[name].cases],
        )

    def _keys_of_other_functions(self) -> dict[str, frozenset[str]]:
        """Function without a definition -> arguments that only other such functions use."""
        used = {key for seen in self.undefined.values() for key in seen.used}
        return {name: frozenset(used - seen.used) for name, seen in self.undefined.items()}

    def findings(self) -> Iterator[Finding]:
        alike, names, cases = self._count_rows_of_alike_calls()
        count = self.odd_rows + alike
        if not count:
            return
        where = (
            "tool calls"
            if self.odd_definitions < self.odd_rows or alike
            else "definitions of tools"
        )
        foreign = _list_names(self.foreign + names)
        yield self.finding(
            f"{count:,} of {self.rows_with_calls:,} rows with tools have {where} with null for parameters"
            f" of other functions: {foreign}",
            "leave out what is null and not in the function's definition; keep arguments as JSON text"
            " while the rows are in `datasets`, which gives all rows the keys of all",
            cases=[*self.cases, *cases][:MAX_CASES],
            count=count,
            total=self.rows_with_calls,
        )


def _foreign_nulls(call: ToolCall, definitions: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """The arguments of a call that are null and no parameters of its function; none without a definition."""
    own = definitions.get(call.name)
    if own is None:
        return frozenset()
    return call.nulls - (own.keys() - _null_keys(own))


def _null_keys(entries: Mapping[str, Any]) -> frozenset[str]:
    """The keys whose value is null."""
    return frozenset(name for name, value in entries.items() if value is None)


def _list_names(names: Mapping[str, int] | frozenset[str] | set[str]) -> str:
    """The most frequent names, and how many more there are."""
    ordered = (
        sorted(names, key=lambda name: (-names[name], name))
        if isinstance(names, Mapping)
        else sorted(names)
    )
    more = f" and {len(ordered) - MAX_NAMED} more" if len(ordered) > MAX_NAMED else ""
    return ", ".join(ordered[:MAX_NAMED]) + more


def _tool_calls(row: Conversation) -> Iterator[ToolCall]:
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


def _read_object(value: Any) -> Mapping[str, Any] | None:
    """An object, or one that is written as JSON text; None for anything else."""
    if isinstance(value, str):
        try:
            value = parse_json(value, ROW)
        except ValueError:
            return None
    return value if isinstance(value, Mapping) else None


def _parameters_by_function(row: Conversation) -> dict[str, Mapping[str, Any]]:
    """The parameters of each function that a row defines, by its name; functions without a schema are left out."""
    found: dict[str, Mapping[str, Any]] = {}
    for tool in row.tools or ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        parameters = function.get("parameters") if isinstance(function, dict) else None
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        if isinstance(function, dict) and isinstance(properties, dict):
            found[str(function.get("name"))] = properties
    return found
