"""Writes contract.json of a run: the prompts that the model was trained to be asked.

Some rows are rendered as they will be served, with the special ids and stop tokens, so that `truetune serve-check` can
compare a server with them later. A few rows stand for all; which ones, `render.serving_contract` chooses.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

from truetune.checkpoint.read_run_and_check_checkpoints import CONTRACT_FILE
from truetune.data import write_atomically
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.render.serving_contract import make_serving_contract
from truetune.render.template_probes import Probes

# Chosen, not measured: enough to show a prompt with and without tools or a system message. Twice as
# many would double a file that is read at each serve-check; one would miss the variants.
CONTRACT_ROWS = 4
# Chosen, not measured: bounds the time for data of millions of rows, of which the rare kinds
# (tools, system) then may be missed.
MAX_ROWS_READ = 200
"""Rows of the data among which those are sought"""


def write_trained_prompt_contract(folder: Path, probes: Probes, tokenizer: Any) -> Path:
    """Write the contract of a run into its folder, with some rows of its data. Raises OSError."""
    spec = probes.spec
    rows = read_conversations(spec.data, format=spec.format, columns=spec.map) if spec.data else ()
    contract = make_serving_contract(probes, islice(rows, MAX_ROWS_READ), count=CONTRACT_ROWS)
    for name in ("bos", "eos", "unk", "pad"):
        id = getattr(tokenizer, f"{name}_token_id")
        if id is not None:
            contract["special"][name] = {"token": getattr(tokenizer, f"{name}_token"), "id": id}
    path = folder / CONTRACT_FILE
    write_atomically.write_atomically(
        path, json.dumps(contract, ensure_ascii=False, indent=1).encode()
    )
    return path
