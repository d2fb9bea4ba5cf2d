"""Console output as a log: records that trainers print, and what the output shows besides (`truetune.logs.console`).

What is read as a record: transformers' `{'loss': 1.2, ...}` (also behind a logger's prefix, as Axolotl and
LLaMA-Factory write it), `Step 1 | loss:1.2 lr:2e-5` (torchtune, litgpt), `iter 100: loss 2.3` and `Epoch 1, loss 2.3`
(loops of one's own), numbers behind a bar of tqdm (Lightning), and the table `Step Training Loss` of notebooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from truetune.logs.console.console_output import ConsoleReader
from truetune.logs.console.line_prefixes import TERMINAL_CODES
from truetune.logs.console.progress_bars import ProgressBar, parse_bar
from truetune.logs.metric_names import RUN_RESULT_KEYS
from truetune.logs.run_log_builder import RunLogBuilder, parse_number
from truetune.logs.text_stream import console_pieces
from truetune.parsing.input_limits import LOG_RECORD
from truetune.parsing.json_reader import parse_json
from truetune.parsing.python_reader import parse_literal

PRINTED_DICT = re.compile(r"\{'[^{}]*\}")
# Loops of one's own print `json.dumps(record)`. Servers print JSON with numbers too, so a record needs a loss.
PRINTED_JSON = re.compile(r"\{\"[^{}]*\}")
STEP_WITH_PAIRS = re.compile(r"\bstep\s+(\d+)\s*\|(.*)", re.I)
NAME_AND_VALUE = re.compile(r"(?<![\w./-])([\w./-]{1,100})\s{0,9}[:=]\s{0,9}(\S{1,100})")
LOOP_COUNTER = re.compile(
    r"^.{0,60}?\b(?:(?P<word>(?:global[_ ])?step|it(?:er(?:ation)?)?|batch)s?\b\W{0,6}(?P<step>\d{1,9})"
    r"|ep(?:och)?\b\W{0,6}(?P<epoch>\d{1,6}))",
    re.I,
)
"""`iter 100:`, `[Epoch 1/3]`"""
EPOCH_NUMBER = re.compile(r"\bep(?:och)?\b\W{0,6}(\d{1,6}(?:\.\d{1,6})?)", re.I)
NUMBER = r"[-+]?(?:\d{1,20}\.?\d{0,20}(?:e[-+]?\d{1,4})?|nan|inf)"
LOOP_STEP = re.compile(
    r"\b(?:global[_ ])?(?:step|it(?:er(?:ation)?)?|batch)s?\b\W{0,6}(\d{1,9})", re.I
)
LEARNING_RATE = re.compile(rf"\b(?:lr|learning[ _]rate)\b[ =:]{{1,4}}({NUMBER})", re.I)
LOSS_VALUE = re.compile(
    r"\b(?P<kind>train(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|test)?[ _/]?(?:(?:avg|mean|running|ave)[ _])?loss\b"
    rf"[ =:]{{1,4}}(?P<value>{NUMBER})(?![\w.])",
    re.I,
)
LOSS_TABLE_HEADER = re.compile(r"^Step\s+Training Loss(?P<more>(?:\s+Validation Loss)?)\s*$")
LOSS_TABLE_ROW = re.compile(rf"^\s*(\d{{1,9}})\s+({NUMBER})(?:\s+({NUMBER}))?\s*$")
MEMORY_SIZE = re.compile(
    r"\b(?:(?:gpu|cuda|peak|max)[ _-]?)*(?:mem(?:ory)?|vram)(?:[ _-]?(?:allocated|used|usage|reserved|peak))?\b"
    rf"[ =:]{{1,4}}(?P<size>{NUMBER}) ?(?P<unit>[GM])i?B?\b",
    re.I,
)
"""`mem 8.71 GiB`, `gpu_mem=20480MB`: what a loop of one's own prints of memory"""
GRADIENT_NORM = re.compile(
    rf"\b(?:grad(?:ient)?[ _-]?norm|gnorm)\b[ =:]{{1,4}}({NUMBER})(?![\w.])", re.I
)
PAIR_WORDS = re.compile(r"margin|chosen.{1,200}rejected", re.I)
"""What a line of a preference run (DPO) says of its pairs"""
PAIR_FIGURE = re.compile(
    r"(?<![\w./])(?P<name>(?:(?:dpo|rewards?|pref|r|log_?ps?|policy|mean|avg)[ _/])*"
    r"(?:margins?|acc(?:uracy|uracies)?|win_?rate|chosen|rejected)(?:[_/](?:rewards?|log_?ps?|r|mean))?)"
    rf"[ =:]{{1,4}}(?P<value>{NUMBER})(?P<percent>\s?%)?(?![\w.])",
    re.I,
)
"""`margin 0.02 acc 0.55`, `chosen_reward=0.1`: what a preference loop of one's own prints beside its loss"""
MAX_LOOP_CHARACTERS = 500
"""A longer line is no line of figures. Chosen, not measured: it bounds what the patterns below may cost"""
RANK_PREFIX = re.compile(r"^\s*\W{0,2}rank[ :=]{0,2}(?P<rank>\d{1,5})\b", re.I)
MAX_PENDING = 10_000
"""Records that wait for a bar at most: there may be none"""
PIECES_TO_THE_BAR = 4
"""tqdm draws its bar again right behind what is printed: an empty piece that clears the line, the record, the bar"""


def read_console_file(path: Path, log_builder: RunLogBuilder) -> None:
    """The records and the messages in the console output at `path`."""
    read_console_pieces(console_pieces(path, log_builder.note_skipped), path.name, log_builder)


def read_console_pieces(
    pieces: Iterable[tuple[str, int]], name: str, log_builder: RunLogBuilder
) -> None:
    """The same of texts with the number of their line."""
    console = ConsoleReader(name)
    records = _RecordCollector(log_builder)
    for text, line in pieces:
        bar = parse_bar(text)
        console.add_line(text, line, bar)
        record = records.add_line(text, bar)
        if record and RUN_RESULT_KEYS.isdisjoint(record):
            console.count_record()
    records.end()
    log_builder.output = console.finish()


class _RecordCollector:
    """Finds the records, and the steps of those that say none by the bar that is drawn behind them.

    A bar may be drawn more rarely than records are printed (a notebook's file, a console that is no terminal): then the
    records between two drawings share their steps out evenly.
    """

    def __init__(self, log_builder: RunLogBuilder) -> None:
        self.log_builder = log_builder
        self.total: int | None = None
        """Steps of the training's bar: of the first that follows a record"""
        self.pending: list[dict[str, Any]] = []
        """Records that wait for a bar; an evaluation's among them have the step of the loss before them"""
        self.waited = 0
        self.last_done = 0
        self.steps_a_record = 0.0
        """Steps between two losses, as the last two drawings that follow records show"""
        self.in_table = False
        self.rank = ""
        """The process whose losses are taken, where lines name theirs"""

    def add_line(self, text: str, bar: ProgressBar | None) -> Mapping[str, Any] | None:
        """The record in this piece, if there is one; `bar` is what it draws."""
        if bar is not None:
            self._take_bar(bar)
        elif self.pending and text.strip():
            self.waited += 1
        record = self._read_table_row(text) or parse_printed_record(text)
        if not record and bar is not None:
            record = _record_of_bar(bar)
        if record and self._is_of_the_first_rank(record, text):
            self._keep(record, is_printed="{'" in text)
        return record

    def _is_of_the_first_rank(self, record: Mapping[str, Any], text: str) -> bool:
        """Is the record of the process whose losses are taken? Several print the same steps, each of its own rows."""
        # All ranks print into one file: mixed, their losses would look like noise, and steps like a run that is
        # resumed at each line.
        match = RANK_PREFIX.match(text)
        if match is None or "loss" not in record:
            return True
        self.rank = self.rank or match["rank"]
        if match["rank"] != self.rank:
            self.log_builder.note_skipped(f"records of other processes than rank {self.rank}")
        return match["rank"] == self.rank

    def end(self) -> None:
        """What waits for a bar is taken without."""
        self._flush(None)

    def _keep(self, record: dict[str, Any], *, is_printed: bool) -> None:
        """Gives a record to the builder, or lets it wait for the bar that says its step."""
        # transformers prints `{'loss': ...}` without its step. Only the bar drawn behind it has that.
        if _has_step(record) or not is_printed or not ("loss" in record or self.pending):
            self._flush(None)
            self.log_builder.add_record(record)
            return
        self.pending.append(record)
        self.waited = 0
        if len(self.pending) >= MAX_PENDING:
            self._flush(None)

    def _take_bar(self, bar: ProgressBar) -> None:
        """Learns which bar is the training's, and gives the waiting records their steps by it."""
        if bar.is_described or bar.values:
            return
        # Other bars (tokenization, evaluation) are drawn between records too. The training's is the one that follows
        # a record at once.
        is_near = self.pending and self.waited <= PIECES_TO_THE_BAR
        if is_near and self.total is None and 0 < bar.done <= bar.total:
            self.total = bar.total
            self.log_builder.facts["max_steps"] = bar.total
        if bar.total == self.total:
            self._flush(bar.done)
            self.last_done = bar.done

    def _flush(self, done: int | None) -> None:
        """Hands on what waits; `done` is the step that the bar behind it shows."""
        pending, self.pending = self.pending, []
        losses = sum("loss" in record for record in pending)
        before = self.last_done
        advance = max(0, done - before) if done is not None else 0
        if advance >= losses > 0:
            self.steps_a_record = advance / losses
        number, step = 0, float(before)
        for record in pending:
            if "loss" in record:
                number += 1
                if done is None:
                    # no bar is drawn behind the last records: they continue at the pace of those before
                    step = min(before + self.steps_a_record * number, float(self.total or before))
                elif advance >= losses:
                    step = before + advance * number / losses
                else:
                    # more losses than steps: the bar restarted, and all that is sure is where it stands now
                    step = float(done)
            self.log_builder.add_record({"step": step, **record} if self.total else record)

    def _read_table_row(self, text: str) -> dict[str, Any] | None:
        """A row of the table that a notebook shows."""
        if "Training Loss" in text:
            self.in_table = LOSS_TABLE_HEADER.match(text.strip()) is not None
            return None
        if not self.in_table:
            return None
        row = LOSS_TABLE_ROW.match(text)
        if row is None:
            # blank lines stand inside of a table, any other text ends it
            self.in_table = not text.strip()
            return None
        record = {"step": row[1], "loss": row[2]}
        if row[3]:
            record["eval_loss"] = row[3]
        return record


def parse_printed_record(text: str) -> dict[str, Any] | None:
    """The record that a line prints; None where it prints none."""
    if "{'" in text:
        for match in PRINTED_DICT.findall(text):
            # Python prints NaN as `nan`, which is a name and no literal: quoted, it is read as a number later
            quoted = re.sub(r":\s*(-?)(nan|inf)\b", r": '\1\2'", match)
            try:
                record = parse_literal(quoted)
            except (ValueError, SyntaxError):
                continue
            if isinstance(record, dict):
                numbers = [v for v in record.values() if parse_number(v) is not None]
                # one number alone is as likely a setting, or a row of the data that a script prints
                if len(numbers) > 1:
                    return record
    if '{"' in text:
        record = _parse_json_record(text)
        if record is not None:
            return record
    line = STEP_WITH_PAIRS.search(text)
    record = _record_of_pairs(line[1], line[2]) if line else None
    # `step 5 | loss 0.69 | lr 5e-7` has the bars of torchtune and none of its colons
    return record or _parse_loop_line(text)


def _record_of_pairs(step: str, text: str) -> dict[str, Any] | None:
    """The record of `Step 1 | loss:1.2 lr:2e-5`; None where no pair has a number."""
    pairs = NAME_AND_VALUE.findall(text)
    numbers = {name: value for name, value in pairs if parse_number(value) is not None}
    return {"step": step, **numbers} if numbers else None


def _may_be_loop_line(text: str) -> bool:
    """Are the words there that a loop's line must have? The patterns are too slow for every line of a log."""
    if len(text) > MAX_LOOP_CHARACTERS or "%|" in text:
        return False
    lowered = text.lower()
    return "loss" in lowered and any(word in lowered for word in ("step", "it", "ep", "batch"))


def _losses_of_line(text: str) -> dict[str, Any]:
    """The losses that a loop prints: `loss` and `eval_loss`. A loss on test rows is neither."""
    losses: dict[str, Any] = {}
    for kind, value in LOSS_VALUE.findall(text):
        kind = kind.lower()
        if kind != "test":
            losses["eval_loss" if kind[:1] in ("v", "e") else "loss"] = value
    return losses


def _pairs_of_line(text: str) -> dict[str, float]:
    """What a preference loop prints of its pairs: margins, rewards and accuracies, by their own names."""
    if PAIR_WORDS.search(text) is None:
        return {}
    return {
        match["name"].replace(" ", "_"): float(match["value"]) / (100 if match["percent"] else 1)
        for match in PAIR_FIGURE.finditer(text)
    }


def _counter_of_line(text: str) -> tuple[str, str] | None:
    """`step`, `batch` or `epoch` with its number: what the line counts by, the finest first."""
    step = LOOP_STEP.search(text)
    if step is not None:
        # a batch's number begins again with each epoch: it is kept under a name that is no step
        return "batch" if step[0].lower().startswith("batch") else "step", step[1]
    epoch = EPOCH_NUMBER.search(text)
    return None if epoch is None else ("epoch", epoch[1])


def _parse_json_record(text: str) -> dict[str, Any] | None:
    """The first JSON object of a line that has a loss and another number; None where there is none."""
    for match in PRINTED_JSON.findall(text):
        try:
            record = parse_json(match, LOG_RECORD)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        numbers = [name for name, value in record.items() if parse_number(value) is not None]
        if len(numbers) > 1 and any("loss" in name.lower() for name in numbers):
            return record
    return None


def _parse_loop_line(text: str) -> dict[str, Any] | None:
    """`iter 100: loss 2.31, time 12ms`, `Epoch 2/3 - train loss: 1.9 - val loss: 2.0`."""
    if not _may_be_loop_line(text):
        return None
    text = TERMINAL_CODES.sub("", text)
    record = _losses_of_line(text)
    # prose speaks of losses too ("the loss of step 3"): a record begins with its counter
    if LOOP_COUNTER.match(text) is None or not record:
        return None
    counter = _counter_of_line(text)
    if counter is not None:
        record[counter[0]] = counter[1]
    rate = LEARNING_RATE.search(text)
    if rate is not None:
        record["learning_rate"] = rate[1]
    norm = GRADIENT_NORM.search(text)
    if norm is not None and "loss" in record:
        record["grad_norm"] = norm[1]
    if "loss" in record:
        record |= _pairs_of_line(text)
    memory = MEMORY_SIZE.search(text)
    if memory is not None:
        record["memory"] = float(memory["size"]) / (1024 if memory["unit"] in "mM" else 1)
    return record


def _record_of_bar(bar: ProgressBar) -> dict[str, Any] | None:
    """The numbers behind a bar: `Epoch 1:  5%|▌ | 50/1000 [..., loss=2.31]`."""
    values = {name: value for name, value in bar.values if parse_number(value) is not None}
    # Lightning draws the bar of each epoch at 0 with the values of the epoch before
    if not any("loss" in name.lower() for name in values) or bar.done == 0:
        return None
    return {"step": bar.done + (bar.epoch or 0) * bar.total, **values}


def _has_step(record: Mapping[str, Any]) -> bool:
    """Does the record say its step itself?"""
    return any(
        name in record
        for name in ("step", "global_step", "current_steps", "global_step/max_steps", "iteration")
    )
