"""Reading: records become an audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truetune.auditing.audit import Audit
from truetune.auditing.place import samples
from truetune.probe.run_record import Record
from truetune.render.probes import Probes, probes
from truetune.render.tokenizer import load
from truetune.spec.run import RunSpec


def audit_of(records: Sequence[Record], spec: RunSpec, known: Probes | None = None) -> Audit:
    """Place every token that the processes recorded; `known` is the tokenizer where it is read already.

    Raises TokenizerError or TemplateError.
    """
    records = tuple(sorted(records, key=lambda record: record.facts["rank"]))
    first = records[0]
    made = known or (probes(load(str(first.tokenizer)), spec) if first.tokenizer else None)
    stops = stops_of(made, first.facts["model"])
    placed = tuple(sample for record in records for sample in samples(record, made, stops))
    return Audit(records, placed, made, stops, spec)


def stops_of(made: Probes | None, model: dict[str, Any]) -> frozenset[int]:
    """Ids that end a turn, by tokenizer, template and the model in memory."""
    ids = {stop.id for stop in made.stops} if made else set()
    generation = (model.get("generation_config") or {}).get("eos_token_id")
    return frozenset(
        ids | set(generation if isinstance(generation, list) else [generation]) - {None}
    )
