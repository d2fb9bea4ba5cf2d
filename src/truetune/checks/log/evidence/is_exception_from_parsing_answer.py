"""Tells whether an exception was raised over an answer of a model that could not be parsed."""

from __future__ import annotations

import re

from truetune.logs.console.read_console_output import Failure
from truetune.logs.run_log import RunLog

PARSE_ERROR = re.compile(
    r"^(?:[\w.]{0,80}\.)?(?:JSONDecodeError|ValidationError|OutputParserException|ScannerError|ParserError|ParseError"
    r"|ExpatError|JSONDecodeFailure)\b"
)
"""Exceptions of parsers, by their names"""


ANSWER_WORD = re.compile(
    r"(?:answer|respon[sd]|output|completion|pred|generat|reply|decoded|choices|llm)", re.IGNORECASE
)
"""What programs call a text that a model wrote"""


READS_ROWS = re.compile(
    r"(?:^|[\\/])(?:datasets|pyarrow|pandas|polars|huggingface_hub|transformers|trl|axolotl|llamafactory|peft)[\\/]"
)
"""Libraries that read rows, settings and models, in the path of a frame"""


def failed_to_parse_an_answer(log: RunLog, failure: Failure) -> bool:
    """Is this the failure of a program that could not parse what the model wrote?"""
    raised = failure.raised
    if PARSE_ERROR.match(raised.text) is None:
        return False
    if any(READS_ROWS.search(frame.file) for frame in raised.frames):
        return False
    own = raised.last_user_frame
    if own is None:
        return False
    if ANSWER_WORD.search(own.code) is not None:
        return not log.curve("loss")
    return bool(log.inference_server_name)
