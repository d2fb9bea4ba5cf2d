"""A program fails to parse the model's answers as JSON or another structured format.

## What it does
Reads the exceptions in the output of a server or of an evaluation: `JSONDecodeError`, a `ValidationError` of pydantic,
an `OutputParserException` of LangChain, the errors of YAML, XML and `ast.literal_eval`. It fires if none of their stack
frames reads a data file, and if the log is a server's or the line that raised names an answer (`json.loads(response)`).

## Why it is bad
Each such answer is lost to the program that requested it. The data files themselves can be read: the model writes text
that can't be parsed, in the same form as its training answers.

## Example
```yaml
output: |
  INFO:     Uvicorn running on http://0.0.0.0:9000 (Press CTRL+C to quit)
  Traceback (most recent call last):
    File "/app/api.py", line 58, in extract
      fields = json.loads(text)
    File "/usr/lib/python3.12/json/__init__.py", line 346, in loads
      return _default_decoder.decode(s)
  json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)
  INFO:     10.0.3.37:44802 - "POST /extract HTTP/1.1" 500 Internal Server Error
```

## Use instead
```yaml
output: |
  INFO:     Uvicorn running on http://0.0.0.0:9000 (Press CTRL+C to quit)
  INFO:     10.0.3.37:44802 - "POST /extract HTTP/1.1" 200 OK
```

## Fix safety
There is no automatic fix. Rewrite training answers that are not valid JSON with `json.dumps`, and train again.
Constrained decoding gives valid JSON from the model as it is; it can make requests slower.

## References
- Python documentation, `json.JSONDecodeError`; Willard and Louf 2023, arXiv 2307.09702
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.log.evidence.is_exception_from_parsing_answer import failed_to_parse_an_answer
from truetune.checks.rule import OutputRule
from truetune.logs.console.read_console_output import Failure

SINGLE_QUOTES = "Expecting property name enclosed in double quotes"
MEANINGS = (
    (
        SINGLE_QUOTES,
        "keys in single quotes, as Python prints a dictionary with str(), or a comma after the last field",
    ),
    ("Extra data", "text after the end of the JSON value"),
    (
        "Expecting value: line 1 column 1 (char 0)",
        "the answer does not begin with JSON: it is empty, a sentence or a code fence (```)",
    ),
    (
        "Expecting value",
        "a value that JSON does not have, such as None, True or a string without quotes",
    ),
    (
        "Unterminated string",
        "the answer is cut off, by the token limit or by a line break inside a string",
    ),
    ("Illegal trailing comma", "a comma after the last field"),
    ("Invalid control character", "a line break inside a string"),
)
"""What the words of Python's parser say of a text"""


class AnswersFailToParse(OutputRule):
    code = "LOG100"
    fault = Fault.MODEL_ANSWERS_NOT_IN_REQUIRED_FORM
    symptoms = ("garbage-output", "odd-metrics", "good-here-bad-there")
    severity = "error"

    def measurement_if_clean(self) -> str:
        """The number of lines without such a failure; empty without an output."""
        output = self.subject.output
        return f"no answer that a parser can't read in {output.lines:,} lines" if output else ""

    def findings(self) -> Iterator[Finding]:
        output = self.subject.output
        if output is None:
            return
        ended = (output.failure,) if output.failure is not None else ()
        failures = [
            one
            for one in (*ended, *output.survived)
            if failed_to_parse_an_answer(self.subject, one)
        ]
        if not failures:
            return
        first = min(failures, key=lambda one: one.raised.line)
        text = first.raised.text.partition("\n")[0][:200]
        count = sum(one.count for one in failures)
        what = (
            "an answer of the model can't be parsed"
            if count == 1
            else f"{count:,} answers of the model can't be parsed"
        )
        yield self.finding(
            f"{what} by the program that requested it: {text}",
            "check the training answers, whose form the model copies (`truetune check DATA`): rewrite those that are"
            " not valid JSON with json.dumps, and train again; until then use constrained decoding"
            " (response_format={'type': 'json_object'} in the request)",
            evidence=tuple(_parse_failure_evidence(first)),
            cases=(Case(text, file=output.file, line=first.raised.line),),
            count=count,
        )


def _parse_failure_evidence(failure: Failure) -> Iterator[str]:
    """Evidence of a parse failure: where it was raised, and what the parser's message says of the
    text.
    """
    frame = failure.raised.last_user_frame
    if frame is not None:
        yield f"raised from {frame}: {frame.code.strip()[:100]}"
    meaning = next((said for words, said in MEANINGS if words in failure.raised.text), None)
    if meaning is not None:
        yield f"cause of this error: {meaning}"
