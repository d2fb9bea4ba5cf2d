"""All protocols of training code, in the order of the page that lists them."""

from __future__ import annotations

from truetune.checks.source.evidence.training_protocol.protocol_records import Protocol
from truetune.checks.source.evidence.training_protocol.protocols_of_saves import PROTOCOLS_OF_SAVES
from truetune.checks.source.evidence.training_protocol.protocols_of_setups import (
    PROTOCOLS_OF_SETUPS,
)
from truetune.checks.source.evidence.training_protocol.protocols_of_steps import PROTOCOLS_OF_STEPS

ALL_PROTOCOLS: tuple[Protocol, ...] = (
    *PROTOCOLS_OF_SETUPS,
    *PROTOCOLS_OF_STEPS,
    *PROTOCOLS_OF_SAVES,
)
