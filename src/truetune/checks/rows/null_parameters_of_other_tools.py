"""Tool calls have the parameters of other tools, filled with null.

## What it does
Reads the arguments of tool calls, as an object or JSON text, and finds null arguments that the called function does not
have by its definition in `tools`. If there is no definition, it reports calls of two or more functions that all have
the same parameters. It also finds tool definitions whose `properties` contain null parameters. A null that the
function's own definition allows is fine.

## Why it is bad
An Arrow table, and so `datasets`, gives a column one structure. Rows with different arguments get the union of all
keys, with null where they had none, when they pass through it (`load_dataset` of older releases, `from_list`, parquet).
The model learns to call each function with the parameters of all. A server that validates calls against their
definitions rejects them.

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
Dropping a null that the definition does not have is safe. Keep arguments as JSON text (`json.dumps`) while the rows are
in `datasets`, or read the file without it (`json.loads` for each line).

## References
- axolotl-ai-cloud/axolotl#2909
- trl/trainer/utils.py (`remove_none_values`), which a training script has to call itself
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message, case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rows.evidence.tool_calls import (
    ToolCall,
    null_keys,
    read_function_definitions,
    read_tool_calls,
)
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

MIN_FUNCTIONS = 2
"""Functions whose calls all have the same parameters, with null for those of others, from which they were made alike.
One alone may have a parameter that it happens never to use
"""
MAX_FUNCTIONS = 200
"""Functions of which something is kept"""
MAX_NAMED = 4
"""Parameters that a message names"""


@dataclass
class CallsOfFunction:
    """The calls of one function without a definition."""

    keys: set[frozenset[str]] = field(default_factory=set)
    """The sets of arguments that calls have"""
    used: set[str] = field(default_factory=set)
    """Arguments that are not null in some call"""
    cases: list[Case] = field(default_factory=list)


@dataclass
class AlikeCalls:
    """Rows whose calls hold null for what only other functions use, where no definition says what is whose."""

    rows: int = 0
    names: Counter[str] = field(default_factory=Counter)
    """Parameter -> the rows that have it with null"""
    functions: set[str] = field(default_factory=set)
    """The functions that are called so"""

    def add(self, nulls: Collection[tuple[str, str]], rows: int) -> None:
        """Count rows with these pairs of a function and a parameter of others; none without a pair."""
        if not nulls:
            return
        self.rows += rows
        self.functions.update(name for name, _ in nulls)
        for key in {key for _, key in nulls}:
            self.names[key] += rows


class NullParametersOfOtherTools(DataRule):
    code = "ROW069"
    fault = Fault.TOOL_CALLS_MALFORMED
    symptoms = ("nothing-is-learned",)
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows_with_calls = self.odd_rows = self.odd_definitions = 0
        self.foreign: Counter[str] = Counter()
        self.undefined: dict[str, CallsOfFunction] = {}
        self.undefined_rows: Counter[frozenset[tuple[str, frozenset[str]]]] = Counter()
        """Rows by their calls with null and without a definition: the function, and its arguments that are null"""
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of a batch whose calls hold parameters of other functions."""
        for row in batch.rows:
            calls = list(read_tool_calls(row))
            definitions = _parameters_by_function(row)
            if not calls and not definitions:
                continue
            self.rows_with_calls += 1
            is_odd = self._count_defined_calls(batch, row, calls, definitions)
            undefined = [call for call in calls if call.name not in definitions]
            for call in undefined:
                self._note_undefined_call(batch, row, call)
            nulls = frozenset(
                (call.name, call.null_arguments)
                for call in undefined
                if call.null_arguments and call.name in self.undefined
            )
            # A row counts once.
            if nulls and not is_odd:
                self.undefined_rows[nulls] += 1

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
        odd_calls = [call for call in calls if _null_arguments_beyond_parameters(call, definitions)]
        foreign = Counter(
            name
            for call in odd_calls
            for name in _null_arguments_beyond_parameters(call, definitions)
        )
        empty = {name for own in definitions.values() for name in null_keys(own)}
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
        nulls = call.null_arguments
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

    def measurement_if_clean(self) -> Measurement:
        """How many rows with tools hold parameters of other functions."""
        return make_count_measurement(
            "rows with tools whose calls or definitions hold null for parameters of other functions",
            self.odd_rows + self._find_alike_calls().rows,
            self.rows_with_calls,
        )

    def _find_alike_calls(self) -> AlikeCalls:
        """The rows whose calls, without a definition, were made alike: the null is another function's parameter."""
        alike = AlikeCalls()
        if not self._have_all_calls_the_same_keys():
            return alike
        foreign_keys = self._keys_of_other_functions()
        for calls, rows in self.undefined_rows.items():
            alike.add(_null_arguments_of_other_functions(foreign_keys, calls), rows)
        return alike if len(alike.functions) >= MIN_FUNCTIONS else AlikeCalls()

    def _have_all_calls_the_same_keys(self) -> bool:
        """Do the calls of all functions without a definition have the same arguments?"""
        keys = {one for seen in self.undefined.values() for one in seen.keys}
        return len(keys) == 1

    def _keys_of_other_functions(self) -> dict[str, frozenset[str]]:
        """Function without a definition -> arguments that only other such functions use."""
        used = {key for seen in self.undefined.values() for key in seen.used}
        return {name: frozenset(used - seen.used) for name, seen in self.undefined.items()}

    def findings(self) -> Iterator[Finding]:
        alike = self._find_alike_calls()
        count = self.odd_rows + alike.rows
        if not count:
            return
        where = (
            "tool calls"
            if self.odd_definitions < self.odd_rows or alike.rows
            else "definitions of tools"
        )
        foreign = _list_names(self.foreign + alike.names)
        alike_cases = [
            case for name in sorted(alike.functions) for case in self.undefined[name].cases
        ]
        yield self.finding(
            f"{count:,} of {self.rows_with_calls:,} rows with tools have {where} with null parameters of other"
            f" functions, which the model learns to write: {foreign}",
            "drop arguments that are null and not in the function's definition; while the rows are in `datasets`,"
            " which gives every row all keys, keep arguments as JSON text (json.dumps)",
            cases=[*self.cases, *alike_cases][:MAX_CASES],
            count=count,
            total=self.rows_with_calls,
        )


def _null_arguments_beyond_parameters(
    call: ToolCall, definitions: Mapping[str, Mapping[str, Any]]
) -> frozenset[str]:
    """The arguments of a call that are null and no parameters of its function; none without a definition."""
    own = definitions.get(call.name)
    if own is None:
        return frozenset()
    return call.null_arguments - (own.keys() - null_keys(own))


def _null_arguments_of_other_functions(
    foreign_keys: Mapping[str, frozenset[str]], calls: Collection[tuple[str, frozenset[str]]]
) -> set[tuple[str, str]]:
    """The pairs of a function and an argument of its call that is null and that only other functions use."""
    return {(name, key) for name, nulls in calls for key in nulls & foreign_keys[name]}


def _list_names(names: Mapping[str, int] | frozenset[str] | set[str]) -> str:
    """The most frequent names, and how many more there are."""
    ordered = (
        sorted(names, key=lambda name: (-names[name], name))
        if isinstance(names, Mapping)
        else sorted(names)
    )
    more = f" and {len(ordered) - MAX_NAMED} more" if len(ordered) > MAX_NAMED else ""
    return ", ".join(ordered[:MAX_NAMED]) + more


def _parameters_by_function(row: Conversation) -> dict[str, Mapping[str, Any]]:
    """The parameters of each function that a row defines, by its name; functions without a schema are left out."""
    return {
        name: definition.properties
        for name, definition in read_function_definitions(row).items()
        if definition.properties is not None
    }
