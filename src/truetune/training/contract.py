"""contract.json of a run: the prompts that the model was trained to be asked."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

from truetune.checkpoint.run_folder import CONTRACT_FILE
from truetune.data import atomic
from truetune.data.rows import read_conversations
from truetune.render.probes import Probes
from truetune.render.serving_contract import contract_of

ROWS = 4
LOOKED_AT = 200
"""Rows of the data among which those are sought"""


def write(folder: Path, probes: Probes, tokenizer: Any) -> Path:
    """Write the contract of a run into its folder, with some rows of its data. Raises OSError."""
    spec = probes.spec
    rows = read_conversations(spec.data, format=spec.format, columns=spec.map) if spec.data else ()
    made = contract_of(probes, islice(rows, LOOKED_AT), count=ROWS)
    for name in ("bos", "eos", "unk", "pad"):
        if (id := getattr(tokenizer, f"{name}_token_id")) is not None:
            made["special"][name] = {"token": getattr(tokenizer, f"{name}_token"), "id": id}
    path = folder / CONTRACT_FILE
    atomic.write_atomically(path, json.dumps(made, ensure_ascii=False, indent=1).encode())
    return path
