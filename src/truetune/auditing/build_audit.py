"""Builds an audit from the records of a run's processes: each token placed, with the run's tokenizer and stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truetune.auditing.align_batch_tokens_with_sources import align_record
from truetune.auditing.audit import Audit
from truetune.probe.run_record import Record
from truetune.render.template_probes import Probes, make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec


def build_audit(records: Sequence[Record], spec: RunSpec, known: Probes | None = None) -> Audit:
    """Place every token that the processes recorded; `known` is the tokenizer where it is read already.

    Raises TokenizerError or TemplateError.
    """
    records = tuple(sorted(records, key=lambda record: record.facts["rank"]))
    first = records[0]
    run_probes = known or (
        make_probes(load_tokenizer(str(first.tokenizer)), spec) if first.tokenizer else None
    )
    stops = list_stop_ids(run_probes, first.facts["model"])
    placed = tuple(
        sample for record in records for sample in align_record(record, run_probes, stops)
    )
    return Audit(records, placed, run_probes, stops, spec)


def list_stop_ids(run_probes: Probes | None, model: dict[str, Any]) -> frozenset[int]:
    """Ids that end a turn, by tokenizer, template and the model in memory."""
    ids = {stop.id for stop in run_probes.stops} if run_probes else set()
    # One id or a list of them: generation_config takes both.
    generation = (model.get("generation_config") or {}).get("eos_token_id")
    return frozenset(
        ids | set(generation if isinstance(generation, list) else [generation]) - {None}
    )
