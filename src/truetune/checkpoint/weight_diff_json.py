"""The comparison of two sets of weights as plain values for JSON.

The trade-off: of an embedding's rows only those that moved most, and the new tokens, are named; all are counted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from truetune.checkpoint.weight_diff import KeptChange, MovementManifest, TensorMovement

SCHEMA = "truetune.movement/1"
# Chosen for a report that is read: a vocabulary has a hundred thousand rows.
MAX_NAMED_ROWS = 10
"""Rows of an embedding that are named; all of them are counted"""


def manifest_json(manifest: MovementManifest) -> dict[str, Any]:
    """What the JSON of a report on movement has besides findings, schema `truetune.movement/1`."""
    tensors = [
        {
            "name": t.name,
            "kind": t.kind,
            "dtype": t.dtype,
            "shape": list(t.shape),
            "values": t.value_count,
            "identical": t.same,
            "change": _finite_or_none(t.change),
            "rows": _moved_and_new_token_rows_json(manifest, t),
            "merged": kept_change_json(t.merged),
        }
        for t in manifest.tensors
    ]
    return {
        "schema": SCHEMA,
        "merged": kept_change_json(manifest.merged),
        "tensors": tensors,
        "not_compared": list(manifest.left_out),
    }


def kept_change_json(kept: KeptChange | None) -> dict[str, Any] | None:
    """How much of an adapter's change is left, in numbers that JSON can hold."""
    return (
        None
        if kept is None
        else {name: _finite_or_none(value) for name, value in kept._asdict().items()}
    )


def _moved_and_new_token_rows_json(
    manifest: MovementManifest, tensor: TensorMovement
) -> dict[str, Any] | None:
    """The rows of an embedding that moved most, and its new tokens; None of other tensors."""
    if tensor.rows is None:
        return None
    rows = tensor.rows
    most = np.argsort(-rows.change, kind="stable")[:MAX_NAMED_ROWS]
    return {
        "rows": len(rows.same),
        "identical": int(rows.same.sum()),
        "most_moved": [
            {"id": int(id), "change": _finite_or_none(float(rows.change[id]))}
            for id in most
            if not rows.same[id]
        ],
        "new_tokens": [
            {
                "token": text,
                "id": id,
                "identical": bool(rows.same[id]),
                "change": _finite_or_none(float(rows.change[id])),
            }
            for text, id in new_tokens_with_rows(manifest, tensor)
        ],
    }


def new_tokens_with_rows(
    manifest: MovementManifest, tensor: TensorMovement
) -> list[tuple[str, int]]:
    """Text and id of the new tokens that have a row in this tensor."""
    new = manifest.after.new_tokens
    rows = tensor.shape[0]
    return [(text, id) for text, id in new.ids.items() if 0 <= id < rows] if new else []


def _finite_or_none(value: float) -> float | None:
    """The value where it is finite, else None: JSON has neither nan nor infinity."""
    return value if math.isfinite(value) else None
