"""Trains by truetune's own settings on a small model: the run that is rehearsed where the user has
no script.

`python -m truetune.rehearsal.rehearsed_run_without_script FOLDER` is that run, as `prepared` left it in the folder.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from truetune.errors import UsageError
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import read_json
from truetune.render.rendering import IGNORED
from truetune.settings.run_spec import RunSpec

# Chosen, not measured: a rehearsal looks at a few batches, and encoding so many takes well under a second.
MAX_ENCODED_ROWS = 64
"""Rows that are encoded"""
NEEDED_PACKAGES = ("torch", "transformers", "datasets", "accelerate")
RUN_FILE = "run.json"


def encode_and_make_command(spec: RunSpec, path: str, work: Path) -> list[str]:
    """Encode the first rows into `work`; gives the command that trains on them. Raises UsageError
    where settings or packages are missing, TokenizerError, TemplateError or DataError.

    Raises UsageError where settings or packages are missing, TokenizerError, TemplateError or DataError.
    """
    from truetune.checks.check_data import load_tokenizer_and_template
    from truetune.checks.tokens_with_text_source_and_label import make_token_views
    from truetune.data.read_rows_as_conversations import read_conversations
    from truetune.encoding.encoder import Encoder
    from truetune.encoding.render_and_encode_in_two_threads import make_batch

    missing = [name for name in NEEDED_PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"a rehearsal of {path} needs {', '.join(missing)}: pip install 'truetune[train]'"
        )
    if not spec.data or not spec.tokenizer:
        raise UsageError(f"{path}: a rehearsal needs data and a tokenizer")
    # The reference encoder alone: for so few rows a fast path would have to be proved first.
    setup = load_tokenizer_and_template(spec, only_reference=True)
    encoder = Encoder(setup.tokenizer.backend, only_reference=True)
    rows = islice(
        read_conversations(spec.data, format=spec.format, columns=spec.map), MAX_ENCODED_ROWS
    )
    views = make_token_views(
        make_batch(list(rows), setup.probes.renderer(), encoder), encoder.vocabulary
    )
    examples = []
    for view in views:
        messages = view.example.row.messages
        # A data set's column has one type, which contents in parts would break.
        if not all(isinstance(message.get("content"), str) for message in messages):
            continue
        ids = view.ids.tolist()
        examples.append(
            {
                "input_ids": ids,
                "labels": np.where(view.supervised, view.ids, IGNORED).tolist(),
                "messages": [
                    {"role": message["role"], "content": message["content"]} for message in messages
                ],
            }
        )
    folder = str(setup.tokenizer.folder)
    model = spec.model or folder
    work.joinpath(RUN_FILE).write_text(
        json.dumps({"rows": examples, "tokenizer": folder, "model": model})
    )
    return [sys.executable, "-m", "truetune.rehearsal.rehearsed_run_without_script", str(work)]


def train_miniature(folder: Path) -> None:
    """Train as `encode_and_make_command` prepared it in the folder; this is the run that is
    rehearsed.
    """
    # Here and not above: the parent that prepares the run needs neither torch nor transformers in memory.
    from datasets import Dataset
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
    )

    from truetune.collate import PaddingCollator

    run: dict[str, Any] = read_json(folder.joinpath(RUN_FILE), RESULT)
    tokenizer = AutoTokenizer.from_pretrained(run["tokenizer"])
    # A folder with a tokenizer alone: any small architecture shows what reaches the loss.
    if Path(run["model"], "config.json").is_file():
        model = AutoModelForCausalLM.from_pretrained(run["model"])
    else:
        print(
            f"truetune: {run['model']} has no config.json: the miniature is a Llama",
            file=sys.stderr,
        )
        from_config: Any = AutoModelForCausalLM.from_config
        model = from_config(AutoConfig.for_model("llama", vocab_size=len(tokenizer)))
    Trainer(
        model,
        TrainingArguments(str(folder / "out"), per_device_train_batch_size=4, report_to="none"),
        PaddingCollator.of(tokenizer),
        Dataset.from_list(run["rows"]),
        processing_class=tokenizer,
    ).train()


if __name__ == "__main__":
    train_miniature(Path(sys.argv[1]))
