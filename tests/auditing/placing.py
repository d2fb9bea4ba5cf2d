"""Records by hand, as the probe makes them: batches of real collators on real tokenizers."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
from transformers import PreTrainedTokenizerFast

from tests.parts import folder
from truetune.auditing.align_batch_tokens_with_sources import align_record
from truetune.auditing.audit import Sample
from truetune.auditing.build_audit import list_stop_ids
from truetune.auditing.list_row_texts_with_sources import parse_row
from truetune.checks.tokens_with_text_source_and_label import make_token_views
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.probe.record_run_ready_to_train import batch_arrays
from truetune.probe.run_record import Record
from truetune.render.template_probes import Probes, make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec

Rows = list[dict[str, Any]]


def padder(pad: int, side: str = "right") -> PreTrainedTokenizerFast:
    """A tokenizer that can only pad, which is all that collators ask of one; it costs nothing to make."""
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": pad}, "<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", padding_side=side)


@cache
def probes_of(family: str) -> Probes:
    return make_probes(load_tokenizer(str(folder(family))), RunSpec())


def record(
    path: Path,
    pad: int | None,
    batches: list[dict[str, Any]],
    rows: Rows,
    prepared: list[Rows] | None = None,
    kind: str = "sft",
    special: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> Record:
    """A record of some batches; `prepared` are the rows of each as the collator got them."""
    prepared = prepared or [[] for _ in batches]
    count, indices = 0, []
    for given in prepared:
        indices.append({"indices": list(range(count, count + len(given)))})
        count += len(given)
    facts = {
        "rank": 0, "world": 1, "versions": {}, "args": {}, "notes": [],
        "trainer": {"class": None, "bases": [], "kind": kind, "collator": "x.y"},
        "model": {"config": config or {}, "generation_config": None, "class": "x.y", "attention": "sdpa",
                  "dtype": "float32", "trainable": 1, "parameters": 1},
        "tokenizer": {"pad": pad, "bos": None, "eos": None, "padding_side": "right", **(special or {})},
        "data": {"given": {"rows": len(rows), "columns": None}, "prepared": {"rows": count, "columns": None},
                 "numbers": list(range(len(rows))), "used": []},
        "batches": indices,
    }  # fmt: skip
    return Record(
        facts,
        [batch_arrays(batch) for batch in batches],
        rows,
        [r for given in prepared for r in given],
        path,
    )


def placed(family: str, batches: list[dict[str, Any]], rows: Rows, **settings: Any) -> list[Sample]:
    """The lines of some batches of a family's tokenizer."""
    made = probes_of(family)
    settings.setdefault("pad", pad_of(family))
    special = {
        name: token.id for name, token in made.tokenizer.special.items() if name in ("bos", "eos")
    }
    found = record(made.tokenizer.folder, batches=batches, rows=rows, special=special, **settings)
    return list(align_record(found, made, list_stop_ids(made, found.facts["model"])))


def pad_of(family: str) -> int:
    """The pad token's id, else that of EOS."""
    special = probes_of(family).tokenizer.special
    return special.get("pad", special["eos"]).id


def own(family: str, row: dict[str, Any], **changes: Any) -> Any:
    """What the encoder itself makes of a row: its only token view."""
    made = probes_of(family)
    talk = parse_row(row, 0)
    assert talk is not None
    encoder = _encoder(family)
    (view,) = make_token_views(
        make_batch([talk], made.renderer(**changes), encoder, exact=True), encoder.vocabulary
    )
    return view


@cache
def _encoder(family: str) -> Encoder:
    return Encoder(probes_of(family).tokenizer.backend)


def text_of(sample: Sample, mask: Any) -> str:
    """The text of some tokens."""
    joined = "".join(piece for piece, here in zip(sample.pieces, mask, strict=True) if here)
    return joined.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
