"""Answers that should be JSON, by their references: whether they are, and else what they are.

The answer is read as by the parser `json`; where that fails, the decoder is begun at the first bracket, and how far it
comes tells the fault. The trade-off: one fault is named, the first that fits, though an answer may be cut and broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from json import JSONDecodeError

from truetune.generation.answer_parsers_named_by_user import JSON_PARSER, make_parser, try_parse
from truetune.parsing.input_limits import REPLY
from truetune.parsing.parse_json_within_limits import RowDecoder
from truetune.render.unfilled_example_plan import THINK_END

# Both chosen, not measured: with fewer references a share says little.
MIN_REFERENCES = 8
"""References from which they may be called JSON"""
MIN_JSON_SHARE = 0.95
"""Share of the references that are JSON; the others may be refusals"""
CUT_OFF = "are cut off"
JSON_FAULTS = (
    "hold it more than once",
    CUT_OFF,
    "are broken JSON",
    "have other text around it",
    "hold none",
)


def are_references_json(references: Sequence[str]) -> bool:
    """Are nearly all references objects or lists of JSON? A bare number or word is one too, and says nothing."""
    texts = [text for text in references if text.strip()]
    if len(texts) < MIN_REFERENCES:
        return False
    parse = make_parser(JSON_PARSER)
    structured = [text for text in texts if text.strip()[0] in "{["]
    if len(structured) < MIN_JSON_SHARE * len(texts):
        return False
    read = sum(try_parse(parse, text) is not None for text in structured)
    return read >= MIN_JSON_SHARE * len(texts)


def json_fault(answer: str) -> str | None:
    """Why an answer is no valid JSON, one of `JSON_FAULTS`; None where it is."""
    if try_parse(make_parser(JSON_PARSER), answer) is not None:
        return None
    text = answer.rpartition(THINK_END)[2].strip()
    start = min((at for bracket in "{[" if (at := text.find(bracket)) >= 0), default=-1)
    if start < 0:
        return "hold none"
    try:
        end = RowDecoder(REPLY).read_at(text, start).end
    except JSONDecodeError as error:
        # Where the text ends before its value does, the decoder stops at the end of the text.
        return (
            CUT_OFF
            if error.pos >= len(text) - 1 or _has_unclosed_brackets(text)
            else "are broken JSON"
        )
    except ValueError:
        return "are broken JSON"
    rest = text[end:].lstrip(" \r\n\t,;`")
    return "hold it more than once" if rest[:1] in ("{", "[") else "have other text around it"


def _has_unclosed_brackets(text: str) -> bool:
    """Are there more opening brackets than closing ones?"""
    return text.count("{") + text.count("[") > text.count("}") + text.count("]")
