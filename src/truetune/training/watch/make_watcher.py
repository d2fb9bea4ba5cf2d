"""Makes the watcher of a run, with the prompts that it samples: held-out rows, as they will be
served.

Rows that are trained on are taken only where no others are there, for what they show is memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truetune.data.conversation import Conversation
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.generation.build_prompts import build_prompts
from truetune.settings.run_spec import RunSpec
from truetune.training.load_encoded_held_out_and_packed_rows import TrainingData
from truetune.training.prepare_model import PreparedModel
from truetune.training.progress_listeners import Listener
from truetune.training.watch.callback import Watcher


def make_watcher(
    spec: RunSpec, ready: PreparedModel, data: TrainingData, folder: Path, listener: Listener
) -> Watcher:
    """The watcher of a run, with its prompts. Raises DataError where its rows can't be read."""
    # Answers to rows that are trained on show memory rather than skill: they are watched where
    # nothing else is there, and that is said.
    seen = not (spec.eval_data or data.held_rows)
    skipped: Counter[str] = Counter()
    prompts = build_prompts(
        spec,
        _evaluation_held_out_or_all_rows(spec, data),
        spec.watch.prompts,
        seen=seen,
        probes=ready.probes,
        skipped=skipped,
    )
    if spec.watch.prompts and not prompts:
        reason = skipped.most_common(1)
        listener.say(
            f"no answers are watched: no row gives a prompt{f' ({reason[0][0]})' if reason else ''}"
        )
    elif prompts and seen:
        listener.say("sampling on training rows: no rows are held out")
    return Watcher(
        prompts,
        ready.tokenizer,
        sorted(ready.stops),
        spec,
        folder,
        say=listener.say,
        show=listener.look,
    )


def _evaluation_held_out_or_all_rows(spec: RunSpec, data: Any) -> Iterator[Conversation]:
    """The rows that prompts are made of: the evaluation data, else the rows that are held out, else
    all.
    """
    rows = read_conversations(spec.eval_data or spec.data, format=spec.format, columns=spec.map)
    return (row for row in rows if not data.held_rows or row.origin.row in data.held_rows)
