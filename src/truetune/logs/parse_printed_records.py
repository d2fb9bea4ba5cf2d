"""Parses the training records that trainers print to the console.

What is read as a record: transformers' `{'loss': 1.2, ...}` (also behind a logger's prefix, as Axolotl and
LLaMA-Factory write it), `Step 1 | loss:1.2 lr:2e-5` (torchtune, litgpt), `iter 100: loss 2.3` and `Epoch 1, loss 2.3`
(loops of one's own), the lines of verl and prime-rl, numbers behind a bar of tqdm (Lightning) or in the text before it
(`set_description`), and the table `Step Training Loss` of notebooks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from truetune.logs.canonical_metric_names import NAN_ITERATIONS_CURVE, RUN_RESULT_KEYS
from truetune.logs.console.parse_progress_bars import ProgressBar, parse_progress_bar
from truetune.logs.console.read_console_output import ConsoleReader
from truetune.logs.console.strip_line_prefixes import TERMINAL_CODES
from truetune.logs.metric_direction import HELD_OUT_NAME
from truetune.logs.parse_step_lines_of_reward_trainers import (
    figures_behind_labels,
    parse_verl_step_line,
)
from truetune.logs.run_log_builder import RunLogBuilder, parse_logged_number
from truetune.logs.stream_console_lines import console_pieces
from truetune.logs.strip_container_log_prefixes import strip_shared_prefixes
from truetune.parsing.input_limits import LOG_RECORD
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.parse_python_within_limits import parse_literal

PRINTED_DICT = re.compile(r"\{'[^{}]*\}")
# Loops of one's own print `json.dumps(record)`. Servers print JSON with numbers too, so a record needs a loss.
PRINTED_JSON = re.compile(r"\{\"[^{}]*\}")
FIGURE_OF_TRAINING = re.compile(
    r"loss|acc|grad|\blr\b|learning_rate|epoch|step|iter|reward|metric|f1|score|bleu|rouge|perplexity|ppl|margin"
    r"|entropy|\bkl\b|samples|tokens_per|runtime|time",
    re.IGNORECASE,
)
"""In the name of a value that a training logs"""
STEP_WITH_PAIRS = re.compile(r"\bstep\s+(\d+)\s*\|(.*)", re.I)
NAME_AND_VALUE = re.compile(r"(?<![\w./-])([\w./-]{1,100})\s{0,9}[:=]\s{0,9}(\S{1,100})")
STEP_OF_TOTAL = re.compile(
    r"^\W{0,4}(?P<batch>\d{1,9})\s{0,9}/\s{0,9}(?P<batches>\d{1,9})(?![\d/.-])(?!\s+\d{1,2}:\d\d)"
)
"""`[  5/600] loss=2.27`, `120/3000 | loss 1.2`: a counter without a word, at the beginning of a line (and no date)"""
LOOP_COUNTER = re.compile(
    r"^.{0,60}?\b(?:(?<!micro[ _-])(?P<word>(?:global[_ ])?step|it(?:er(?:ation)?)?|batch)s?\b\W{0,12}(?P<step>\d{1,9})"
    r"|ep(?:och)?\b\W{0,6}(?P<epoch>\d{1,6}))",
    re.I,
)
"""`iter 100:`, `[Epoch 1/3]`; Megatron prints `iteration        1/    2000`, flush right in eight columns.
prime-rl prints `Micro Step 1/4` of the parts of a step"""
EPOCH_NUMBER = re.compile(r"\bep(?:och)?\b\W{0,6}(\d{1,6}(?:\.\d{1,6})?)", re.I)
NUMBER = r"[-+]?(?:\d{1,20}\.?\d{0,20}(?:e[-+]?\d{1,4})?|(?:nan|inf(?:inity)?)(?:\.0)?(?![a-z]))"
LOOP_STEP = re.compile(
    r"\b(?<!micro[ _-])(?:global[_ ])?(?:step|it(?:er(?:ation)?)?|batch)s?\b\W{0,12}(\d{1,9})", re.I
)
RATE_MULTIPLIER = re.compile(
    rf"\b(?:lrm|lr[ _]?(?:mult|multiplier|factor|scale))\b[ =:]{{1,4}}({NUMBER})", re.I
)
"""`lrm: 0.35`: the share of the peak rate, as nanochat prints it"""
LEARNING_RATE = re.compile(rf"\b(?:lr|learning[ _]rate)\b[ =:]{{1,4}}({NUMBER})", re.I)
LOSS_VALUE = re.compile(
    r"\b(?P<kind>train(?:ing)?|val(?:id(?:ation)?)?|dev|held[ _-]?out|eval(?:uation)?|test)?[ _/]?"
    r"(?:(?:avg|mean|running|ave)[ _])?loss(?: value)?\b"
    rf"[ =:]{{1,4}}(?:tensor\()?(?P<value>{NUMBER})(?![\w.])",
    re.I,
)
"""A loop that prints its loss without `.item()` writes `tensor(2.31, device='cuda:0')`"""
SPLIT_LOSSES = re.compile(
    rf"\bloss train\b[ =:]{{1,4}}(?P<loss>{NUMBER})(?:[ ,|/]{{1,4}}val\b[ =:]{{1,4}}(?P<eval_loss>{NUMBER}))?(?![\w.])",
    re.I,
)
"""`loss train: 1.234, val: 1.301`, as litgpt prints it"""
DEEPSPEED_RATE = re.compile(rf"\bstep=\d{{1,9}}, skipped=\d{{1,9}}, lr=\[({NUMBER})")
"""`step=10, skipped=0, lr=[0.00052], mom=[[0.9, 0.95]]`: the rates of the parameter groups, as DeepSpeed prints them"""
NAN_ITERATIONS = re.compile(r"\bnumber of nan iterations:\s{0,9}(\d{1,9})")
"""Megatron: iterations since the last line whose loss was no number; they are left out of the mean that it prints"""
VALIDATION_HEAD = re.compile(r"^\W{0,4}(?P<kind>validation|evaluation) loss at iteration\b", re.I)
"""Megatron: `validation loss at iteration 1000 | lm loss value: 2.0E+00`"""
HELD_OUT_INITIALS = ("v", "e", "d", "h")
"""How words for held-out rows begin: val, eval, dev, held-out"""
LOSS_TABLE_HEADER = re.compile(r"^Step\s+Training Loss(?P<more>(?:\s+Validation Loss)?)\s*$")
LOSS_TABLE_ROW = re.compile(rf"^\s*(\d{{1,9}})\s+({NUMBER})(?:\s+({NUMBER}))?\s*$")
MEMORY_SIZE = re.compile(
    r"\b(?:(?:gpu|cuda|peak|max)[ _-]?)*(?:mem(?:ory)?|vram)(?:[ _-]?(?:allocated|used|usage|reserved|peak))?\b"
    rf"[ =:]{{1,4}}(?P<size>{NUMBER}) ?(?P<unit>[GM])i?B?\b",
    re.I,
)
"""`mem 8.71 GiB`, `gpu_mem=20480MB`: what a loop of one's own prints of memory"""
GRADIENT_NORM = re.compile(
    rf"\b(?:grad(?:ient)?(?:[ _-]?norm)?|gnorm|gn)\b[ =:]{{1,4}}({NUMBER})(?![\w.])", re.I
)
BALANCE_LOSS = re.compile(
    rf"\b(?P<name>(?:seq_|global_)?load_balancing_loss|aux_loss|z_loss)\b[ =:]{{1,4}}(?P<value>{NUMBER})(?![\w.])",
    re.I,
)
"""`load_balancing_loss: 1.02E+00`: what Megatron prints of a mixture of experts beside the loss"""
LOSS_SCALE = re.compile(
    rf"\b(?:(?:loss|grad|amp)[ _-]?)?scale\b[ =:]{{1,4}}({NUMBER})(?![\w.])", re.I
)
"""`loss scale: 65536.0`, `scale=32768`: by what float16 multiplies the loss"""
SPLIT_VALUE = re.compile(
    rf"\b(?P<kind>train|dev|val|valid|eval)\b[ =:]{{1,4}}(?P<value>{NUMBER})(?![\w.%])", re.I
)
PERPLEXITY = re.compile(rf"\b(?:ppl|perplexity)\b[ =:]{{1,4}}({NUMBER})(?![\w.])", re.I)
"""`train 1.71  dev 1.52  ppl 4.57`: bare figures may be of anything, and the perplexity proves that they are losses"""
PERPLEXITY_ROUNDING = 0.01
"""Nats by which a printed loss and the logarithm of its perplexity may differ: both are rounded"""
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
RATE_NAMES = frozenset(("learning_rate", "lr"))
RANK_PREFIX = re.compile(r"^\s*\W{0,2}rank[ :=]{0,2}(?P<rank>\d{1,5})\b", re.I)
NUM_EPOCHS = re.compile(r"Num Epochs = (\d{1,4}(?:,\d{3})*)")
EPOCH_ROUNDING = 0.0051
"""What transformers' two digits of an epoch leave open, and a little for computing"""
HELD_OUT_BAR = re.compile(r"\b(?:val|valid|dev|test|infer|predict|held)|eval", re.I)
"""In the text before a bar over rows that are not trained on"""
MAX_BARS = 256
"""Lengths of bars that are kept"""
MAX_PENDING = 10_000
"""Records that wait for a bar at most: there may be none"""
PIECES_TO_THE_BAR = 4
"""tqdm draws its bar again right behind what is printed: an empty piece that clears the line, the record, the bar"""


def read_console_file(path: Path, log_builder: RunLogBuilder) -> None:
    """Read the records and messages in the console output at `path` into the builder."""
    pieces = strip_shared_prefixes(console_pieces(path, log_builder.note_skipped))
    read_console_pieces(pieces, path.name, log_builder)


def read_console_pieces(
    pieces: Iterable[tuple[str, int]], name: str, log_builder: RunLogBuilder
) -> None:
    """Read the records and messages in pieces of console text, each with its line number, into the
    builder.
    """
    console = ConsoleReader(name)
    records = _RecordCollector(log_builder)
    for text, line in pieces:
        bar = parse_progress_bar(text)
        console.add_line(text, line, bar)
        record = records.add_line(text, bar)
        if record and RUN_RESULT_KEYS.isdisjoint(record):
            console.note_training_record(record)
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
        self.bars: dict[int, int] = {}
        """Where each bar stood last, by its length"""
        self.epochs = 0.0
        """Epochs of the run, where its head says so"""
        self.steps_a_record = 0.0
        """Steps between two losses, as the last two drawings that follow records show"""
        self.in_table = False
        self.last_batch = 0
        self.batches_before = 0
        """Batches of the epochs before this one, where a counter without a word begins again with each"""
        self.counts_steps = False
        """A loss with a step or a batch was printed: one of a whole epoch beside them is their mean"""
        self.last_described = ""
        """The text before and behind the last bar that shows a loss: tqdm draws it again with each step"""
        self.drawn_results: dict[str, Any] = {}
        """What the bar showed last of evaluations"""
        self.described_total = 0
        """The length of the bars that show a loss"""
        self.rate: str | None = None
        """The rate in force, as DeepSpeed printed it last: loops of one's own print their loss without it"""
        self.rank = ""
        """The process whose losses are taken, where lines name theirs"""

    def add_line(self, text: str, bar: ProgressBar | None) -> Mapping[str, Any] | None:
        """Read one piece of a line, and return the record in it, if any; `bar` is the progress bar
        in it.
        """
        if bar is not None:
            self._give_waiting_records_bar_steps(bar)
        elif self.pending and text.strip():
            self.waited += 1
        record = self._parse_notebook_table_row(text) or parse_printed_record(text)
        if not record and bar is not None:
            behind = self._without_figures_drawn_again(_record_behind_bar(bar))
            record = behind or self._record_in_text_of_bar(bar)
        self._note_deepspeed_learning_rate(text)
        self._note_planned_epochs(text)
        if record and self._is_of_chosen_rank(record, text):
            self._keep_or_wait_for_bar(self._record_with_step(record), is_printed="{'" in text)
        return record

    def _without_figures_drawn_again(self, record: dict[str, Any] | None) -> dict[str, Any] | None:
        """The record without the results of an evaluation that the bar showed before: it draws them with each step."""
        if record is None:
            return None
        kept = {
            name: value
            for name, value in record.items()
            if HELD_OUT_NAME.match(name) is None or self.drawn_results.get(name) != value
        }
        self.drawn_results |= {
            name: value for name, value in kept.items() if HELD_OUT_NAME.match(name) is not None
        }
        return kept

    def _record_with_step(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The record with the step that its counter means, and without means of losses that are in
        the log themselves.
        """
        record = dict(record)
        if self.rate is not None and "loss" in record and not RATE_NAMES & record.keys():
            record["learning_rate"] = self.rate
        total = parse_logged_number(record.pop("batches", None))
        if total is not None:
            batch = int(parse_logged_number(record.pop("batch")) or 0)
            record["step"] = self._global_step_of_batch(batch, total)
        if "loss" in record and (_has_own_step(record) or "batch" in record):
            self.counts_steps = True
        elif self.counts_steps and "epoch" in record and "eval_loss" in record:
            record.pop("loss", None)
        return record

    def _global_step_of_batch(self, batch: int, total: float) -> int:
        """The step of a batch of an epoch, counted over all epochs."""
        # A counter that ran to its end and begins again counts batches of an epoch; one that goes back from
        # elsewhere is that of a resumed run.
        begins_again = batch <= max(1, total / 10) or batch == self.last_batch == total
        if begins_again and self.last_batch >= total * 9 / 10:
            self.batches_before += int(total)
        self.last_batch = batch
        return self.batches_before + batch

    def _record_in_text_of_bar(self, bar: ProgressBar) -> dict[str, Any] | None:
        """The record in the text before a bar, or in words behind it: `Epoch 1, Loss: 1.39:  1%| | 1/252 [...]`; None
        where no loss of the training is in it, or the one that was there before.
        """
        text = f"{bar.text_before} {bar.text_behind}"
        if "loss" not in text.lower() or HELD_OUT_BAR.search(bar.text_before):
            return None
        losses = _losses_in_custom_loop_line(text)
        if "loss" not in losses or text == self.last_described:
            return None
        self.last_described = text
        self.described_total = self.described_total or bar.total
        if bar.total != self.described_total:
            self.log_builder.note_skipped("losses beside progress bars of another length")
            return None
        record = losses | _other_figures_in_custom_loop_line(text, has_loss=True)
        epoch = EPOCH_NUMBER.search(text)
        if epoch is not None:
            record["epoch"] = epoch[1]
        # a bar over one epoch begins again with the next one, a bar over the run goes on
        return record | {"step": self._global_step_of_batch(bar.done, bar.total)}

    def _note_deepspeed_learning_rate(self, text: str) -> None:
        """Keep the learning rate that a line of DeepSpeed's prints."""
        # The word first: the pattern is too slow for every line of a log.
        if ", lr=[" in text and (match := DEEPSPEED_RATE.search(text)) is not None:
            self.rate = match[1]

    def _note_planned_epochs(self, text: str) -> None:
        """Keep the number of epochs that the run's head prints."""
        if not self.epochs and "Num Epochs" in text:
            match = NUM_EPOCHS.search(text)
            self.epochs = float(match[1].replace(",", "")) if match is not None else 0.0

    def _is_of_chosen_rank(self, record: Mapping[str, Any], text: str) -> bool:
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
        """End the output: take the records that still wait for a bar, without one."""
        self._flush_waiting_records(None)

    def _keep_or_wait_for_bar(self, record: dict[str, Any], *, is_printed: bool) -> None:
        """Give a record to the builder, or let it wait for the bar that shows its step."""
        # transformers prints `{'loss': ...}` without its step. Only the bar drawn behind it has that.
        if _has_own_step(record) or not is_printed or not ("loss" in record or self.pending):
            self._flush_waiting_records(None)
            self.log_builder.add_record(record)
            return
        self.pending.append(record)
        self.waited = 0
        if len(self.pending) >= MAX_PENDING:
            self._flush_waiting_records(None)

    def _give_waiting_records_bar_steps(self, bar: ProgressBar) -> None:
        """Learn which bar is the training's, and give the waiting records their steps by it."""
        if bar.is_described or bar.values:
            return
        # Other bars (tokenization, evaluation) are drawn between records too. The training's is the one that follows
        # a record at once.
        is_near = self.pending and self.waited <= PIECES_TO_THE_BAR
        if is_near and self.total is None and 0 < bar.done <= bar.total:
            self.total = bar.total
            self.log_builder.facts["max_steps"] = bar.total
        if bar.total == self.total:
            self._flush_waiting_records(bar.done)
            self.last_done = bar.done
        if len(self.bars) < MAX_BARS or bar.total in self.bars:
            self.bars[bar.total] = bar.done

    def _flush_waiting_records(self, done: int | None) -> None:
        """Give the waiting records to the builder; `done` is the step that the bar after them
        shows.
        """
        pending, self.pending = self.pending, []
        losses = sum("loss" in record for record in pending)
        advance = max(0, done - self.last_done) if done is not None else 0
        if advance >= losses > 0:
            self.steps_a_record = advance / losses
        number, step = 0, float(self.last_done)
        for record in pending:
            if "loss" in record:
                number += 1
                is_of_above = losses == 1 and self._belongs_to_bar_above(record, done)
                above = self.bars[self.total or 0] if is_of_above else None
                step = float(
                    self._step_of_waiting_loss(number, losses, done) if above is None else above
                )
            self.log_builder.add_record({"step": step, **record} if self.total else record)

    def _step_of_waiting_loss(self, number: int, losses: int, done: int | None) -> float:
        """The step of a loss by its number among those that waited for a bar; `done` is the step of
        that bar.
        """
        before = self.last_done
        if done is None:
            # No bar is drawn after the last records: they continue at the pace of those before.
            return min(before + self.steps_a_record * number, float(self.total or before))
        # More losses than steps: the bar restarted, and all that is sure is where it stands now.
        advance = max(0, done - before)
        return before + advance * number / losses if advance >= losses else done

    def _belongs_to_bar_above(self, record: Mapping[str, Any], done: int | None) -> bool:
        """Does a record's epoch say that its step is that of the bar above it, and not of the one
        below?
        """
        epoch, above = parse_logged_number(record.get("epoch")), self.bars.get(self.total or 0, 0)
        if not self.epochs or not self.total or not above or epoch is None or above == done:
            return False
        epochs_a_step = self.epochs / self.total
        is_of_above = abs(above * epochs_a_step - epoch) <= EPOCH_ROUNDING
        return is_of_above and (done is None or abs(done * epochs_a_step - epoch) > EPOCH_ROUNDING)

    def _parse_notebook_table_row(self, text: str) -> dict[str, Any] | None:
        """The record in a row of the table that a notebook shows; None if the line is no such row."""
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
        record = _parse_python_record_in_line(text)
        if record is not None:
            return record
    if '{"' in text:
        record = _parse_json_record_in_line(text)
        if record is not None:
            return record
    record = parse_verl_step_line(text)
    if record is not None:
        return record
    # `step 5 | loss 0.69 | lr 5e-7` has the bars of torchtune and none of its colons
    return _parse_step_line(text) or _parse_custom_loop_line(text)


def _parse_python_record_in_line(text: str) -> dict[str, Any] | None:
    """The first dictionary of Python in a line that is a record: of several numbers, and no settings."""
    for match in PRINTED_DICT.findall(text):
        # Python prints NaN as `nan`, which is a name and no literal: quoted, it is read as a number later
        quoted = re.sub(r":\s*(-?)(nan|inf)\b", r": '\1\2'", match)
        try:
            record = parse_literal(quoted)
        except (ValueError, SyntaxError):
            continue
        if not isinstance(record, dict):
            continue
        numbers = [v for v in record.values() if parse_logged_number(v) is not None]
        # one number alone is as likely a setting, or a row of the data that a script prints
        if len(numbers) > 1 and not _is_dump_of_settings(record):
            return record
    return None


def _parse_step_line(text: str) -> dict[str, Any] | None:
    """The record of a line `Step 1 | loss:1.2 lr:2e-5`; None for any other, litgpt's among them."""
    line = STEP_WITH_PAIRS.search(text)
    if line is None or SPLIT_LOSSES.search(line[2]) is not None:
        return None
    labelled = figures_behind_labels(line[2])
    if labelled:
        return {"step": line[1], **labelled}
    return _record_of_name_value_pairs(line[1], line[2])


def _record_of_name_value_pairs(step: str, text: str) -> dict[str, Any] | None:
    """The record of the `name:value` pairs after a step; None if no pair has a number."""
    pairs = NAME_AND_VALUE.findall(text)
    numbers = {name: value for name, value in pairs if parse_logged_number(value) is not None}
    return {"step": step, **numbers} if numbers else None


def _may_be_custom_training_loop_line(text: str) -> bool:
    """Are the words there that a line of an own training loop must have? The patterns are too slow
    for every line of a log.
    """
    if len(text) > MAX_LOOP_CHARACTERS or "%|" in text:
        return False
    lowered = text.lower()
    if not any(word in lowered for word in ("loss", "ppl", "perplexity")):
        return False
    return any(word in lowered for word in ("step", "it", "ep", "batch")) or "/" in lowered[:30]


def _losses_in_custom_loop_line(text: str) -> dict[str, Any]:
    """The losses that a line of an own loop prints: `loss` and `eval_loss`. A loss on test rows is
    neither.
    """
    split = SPLIT_LOSSES.search(text)
    if split is not None:
        return {name: value for name, value in split.groupdict().items() if value is not None}
    losses: dict[str, Any] = {}
    head = VALIDATION_HEAD.match(text)
    for kind, value in LOSS_VALUE.findall(text):
        kind = head["kind"].lower() if head is not None else kind.lower()
        if kind != "test":
            losses["eval_loss" if kind[:1] in HELD_OUT_INITIALS else "loss"] = value
    return losses


def _preference_metrics_in_line(text: str) -> dict[str, float]:
    """The metrics that a preference loop prints: margins, rewards and accuracies, by their own
    names.
    """
    if PAIR_WORDS.search(text) is None:
        return {}
    return {
        match["name"].replace(" ", "_"): float(match["value"]) / (100 if match["percent"] else 1)
        for match in PAIR_FIGURE.finditer(text)
    }


def _losses_proved_by_perplexity(text: str) -> dict[str, Any]:
    """The figures of which a printed perplexity proves that they are losses: `train 1.71 dev 1.52
    ppl 4.57`.
    """
    perplexity = PERPLEXITY.search(text)
    if perplexity is None or not 1 < float(perplexity[1]) < math.inf:
        return {}
    values = {match["kind"].lower(): match["value"] for match in SPLIT_VALUE.finditer(text)}
    expected = math.log(float(perplexity[1]))
    if not any(abs(float(value) - expected) < PERPLEXITY_ROUNDING for value in values.values()):
        return {}
    return {"loss" if kind == "train" else "eval_loss": value for kind, value in values.items()}


def _counter_in_custom_loop_line(text: str) -> dict[str, str]:
    """`step`, `batch` or `epoch` with its number, by which the line counts, the finest first; empty
    without one.
    """
    step = LOOP_STEP.search(text)
    epoch = EPOCH_NUMBER.search(text)
    # prose speaks of losses too ("the loss of step 3"): a record begins with its counter
    if LOOP_COUNTER.match(text) is not None:
        if step is not None:
            # a batch's number begins again with each epoch: it is kept under a name that is no step
            name = "batch" if step[0].lower().startswith("batch") else "step"
            # `epoch 1 step 40/105`: how often the rows were seen
            return {name: step[1]} | ({"epoch": epoch[1]} if epoch is not None else {})
        return {} if epoch is None else {"epoch": epoch[1]}
    bare = STEP_OF_TOTAL.match(text)
    return bare.groupdict() if bare is not None and int(bare[1]) <= int(bare[2]) else {}


def _is_dump_of_settings(record: Mapping[str, Any]) -> bool:
    """Is the record a dump of the arguments of a model or a run, as programs print it at their
    start? Such a dump holds words besides numbers, and no figure of a training.
    """
    has_words = any(
        isinstance(value, str) and parse_logged_number(value) is None for value in record.values()
    )
    return has_words and not any(FIGURE_OF_TRAINING.search(str(name)) for name in record)


def _parse_json_record_in_line(text: str) -> dict[str, Any] | None:
    """The first JSON object of a line that has a loss and another number; None where there is none."""
    for match in PRINTED_JSON.findall(text):
        try:
            record = parse_json(match, LOG_RECORD)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        numbers = [name for name, value in record.items() if parse_logged_number(value) is not None]
        if len(numbers) > 1 and any("loss" in name.lower() for name in numbers):
            return record
    return None


def _parse_custom_loop_line(text: str) -> dict[str, Any] | None:
    """The record in a line of an own loop: `iter 100: loss 2.31, time 12ms`, `Epoch 2/3 - train
    loss: 1.9 - val loss: 2.0`.
    """
    if not _may_be_custom_training_loop_line(text):
        return None
    text = TERMINAL_CODES.sub("", text)
    counter = _counter_in_custom_loop_line(text)
    if not counter:
        return None
    losses = _losses_in_custom_loop_line(text) or _losses_proved_by_perplexity(text)
    scale = LOSS_SCALE.search(text)
    # Megatron prints an iteration that float16 skipped with its loss scale and without a loss
    is_skipped = scale is not None and scale[0].lower().startswith("loss")
    if not losses and not is_skipped:
        return None
    record = losses | counter
    if scale is not None:
        record["loss_scale"] = scale[1]
    return record | _other_figures_in_custom_loop_line(text, has_loss="loss" in losses)


def _other_figures_in_custom_loop_line(text: str, *, has_loss: bool) -> dict[str, Any]:
    """Learning rate (or its share of the peak), gradient norm, memory and preference metrics on a loop's line.

    Args:
        text: the line.
        has_loss: the line has a training loss.
    """
    figures: dict[str, Any] = {}
    rate, share = LEARNING_RATE.search(text), RATE_MULTIPLIER.search(text)
    if rate is not None:
        figures["learning_rate"] = rate[1]
    elif share is not None:
        figures["lrm"] = share[1]
    if has_loss:
        figures |= {part["name"]: part["value"] for part in BALANCE_LOSS.finditer(text)}
    norm = GRADIENT_NORM.search(text)
    if norm is not None and has_loss:
        figures["grad_norm"] = norm[1]
    if has_loss:
        figures |= _preference_metrics_in_line(text)
    not_a_number = NAN_ITERATIONS.search(text)
    if not_a_number is not None:
        figures[NAN_ITERATIONS_CURVE] = not_a_number[1]
    memory = MEMORY_SIZE.search(text)
    if memory is not None:
        figures["memory"] = float(memory["size"]) / (1024 if memory["unit"] in "mM" else 1)
    return figures


def _record_behind_bar(bar: ProgressBar) -> dict[str, Any] | None:
    """The record in the numbers after a progress bar: `Epoch 1: 5%|▌ | 50/1000 [..., loss=2.31]`."""
    values = {name: value for name, value in bar.values if parse_logged_number(value) is not None}
    # Lightning draws the bar of each epoch at 0 with the values of the epoch before
    if not any("loss" in name.lower() for name in values) or bar.done == 0:
        return None
    return {"step": bar.done + (bar.epoch or 0) * bar.total, **values}


def _has_own_step(record: Mapping[str, Any]) -> bool:
    """Does the record say its step itself?"""
    return any(
        name in record
        for name in ("step", "global_step", "current_steps", "global_step/max_steps", "iteration")
    )
