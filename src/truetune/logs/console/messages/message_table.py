"""The table of known messages, and which of them fits an exception or a line.

Messages are data in files by subject. Their order is the only rule of precedence: several patterns may fit one text,
and the first names it. A line of ordinary output is none of them, which one pattern of all says at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from truetune.logs.console.messages import (
    broken_packages,
    gpus_drivers_and_launches,
    ids_shapes_dtypes_devices,
    memory,
    model_loading,
    model_servers_and_generation,
    nonfinite_numbers,
    parameter_sharding,
    rows_templates_and_tokenizers,
    slow_runs_and_worse_answers,
    stuck_or_killed_processes,
    trainer_argument_errors,
    training_stacks,
    unreachable_processes,
)
from truetune.logs.console.messages.known_message import KnownMessage, Shown

MESSAGES: tuple[KnownMessage, ...] = (
    *memory.MESSAGES,
    *unreachable_processes.MESSAGES,
    *stuck_or_killed_processes.MESSAGES,
    *parameter_sharding.MESSAGES,
    *ids_shapes_dtypes_devices.MESSAGES,
    *nonfinite_numbers.MESSAGES,
    *model_loading.MESSAGES,
    *rows_templates_and_tokenizers.MESSAGES,
    *training_stacks.MESSAGES,
    *model_servers_and_generation.MESSAGES,
    *trainer_argument_errors.MESSAGES,
    *broken_packages.MESSAGES,
    *slow_runs_and_worse_answers.MESSAGES,
    *gpus_drivers_and_launches.MESSAGES,
)
"""The first that fits an exception or a line holds: what is more special stands before what is general"""


def _messages_printed_as(shown: Shown) -> tuple[KnownMessage, ...]:
    """The messages that are printed in this way (in an exception, on a line of its own), in their
    order.
    """
    return tuple(message for message in MESSAGES if message.shown == shown)


def _pattern_of_any_message(messages: Iterable[KnownMessage]) -> re.Pattern[str]:
    """One pattern that fits whatever any of the messages fits."""
    return re.compile("|".join(f"(?:{message.pattern.pattern})" for message in messages))


EXCEPTIONS, NOTICES, ENDS = (
    _messages_printed_as("exception"),
    _messages_printed_as("notice"),
    _messages_printed_as("end"),
)
KNOWN_LINE = _pattern_of_any_message((*NOTICES, *ENDS))
"""Most lines of a log are none of them: one pattern says so"""


def message_by_name(name: str) -> KnownMessage | None:
    """The message of that name; None where there is none."""
    return next((message for message in MESSAGES if message.name == name), None)


def known_message_of_exception(text: str) -> KnownMessage | None:
    """The known message that an exception's `Type: text` fits; None if there is none."""
    return next((message for message in EXCEPTIONS if message.pattern.search(text)), None)


def known_message_of_line(text: str) -> KnownMessage | None:
    """The known message that a line begins with; None if there is none."""
    if KNOWN_LINE.match(text) is None:
        return None
    return next((message for message in (*NOTICES, *ENDS) if message.pattern.match(text)), None)
