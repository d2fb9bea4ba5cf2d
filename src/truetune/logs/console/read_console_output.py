"""Reads a run's console output: how the run ended, and the known messages that name a fault.

It is read as a stream, in bounded memory. An exception counts as the end of the run only where the run did not continue
behind it: no records, no progress, no page of other output. So a traceback in a row of the training data that a script
prints is none of the run's.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from truetune.logs.console.batches_per_epoch_from_bars import EpochBarReader, EpochBars
from truetune.logs.console.collective_timeouts import CollectiveTimeoutReader
from truetune.logs.console.figures_that_differ_between_ranks import (
    RankDifference,
    RankDifferenceReader,
)
from truetune.logs.console.file_races import FileRace, find_file_race
from truetune.logs.console.llama_cpp_layer_devices import LayerDeviceReader, LayerDevices
from truetune.logs.console.losses_equal_on_all_ranks import EqualRankLosses, RankLossReader
from truetune.logs.console.messages import (
    KnownMessage,
    known_message_of_exception,
    known_message_of_line,
    message_by_name,
)
from truetune.logs.console.missing_weights_are_new_heads import WeightReportReader
from truetune.logs.console.nccl_transports import NcclTransports, TransportReader
from truetune.logs.console.parse_progress_bars import ProgressBar
from truetune.logs.console.parse_tracebacks import (
    ExceptionChain,
    Frame,
    PrintedException,
    TracebackReader,
    frames_above_line,
)
from truetune.logs.console.picture_tokens_by_printed_shapes import PictureShapeReader, PictureTokens
from truetune.logs.console.port_conflicts_within_run import PortConflict, PortConflictReader
from truetune.logs.console.printed_settings import PrintedSettings, SettingsReader
from truetune.logs.console.recompilations import RecompilationReader, Recompilations
from truetune.logs.console.records_printed_by_several_trainings import (
    RepeatedRecordReader,
    RepeatedRecords,
)
from truetune.logs.console.rendezvous_failures import RendezvousReader
from truetune.logs.console.response_markers_not_found import MissingMarkerReader
from truetune.logs.console.row_preparation_time_from_bars import PreparationReader, RowPreparation
from truetune.logs.console.running_and_waiting_requests import RequestReader, ServedRequests
from truetune.logs.console.skips_and_errors_of_one_rank import RankLine, RankLineReader
from truetune.logs.console.step_pace import PaceReader, StepPace
from truetune.logs.console.steps_skipped_on_float16_overflow import SkippedStepReader, SkippedSteps
from truetune.logs.console.strip_line_prefixes import ConsoleLine, strip_codes_and_prefixes
from truetune.logs.console.time_beside_training_steps import TimeAside, TimeAsideReader
from truetune.logs.console.uneven_counts_of_ranks import RankCounts

MAX_PROCESSES = 256
"""With a traceback reader each; lines of further processes are read one by one. Chosen, not measured: 32 nodes of 8"""
MAX_CHAINS = 500
"""Of each end of a long output: the first and the last"""
MAX_TAIL_LINES = 60
"""Lines at the end in which an error may stand without a traceback. Chosen, not measured: launchers print tens of lines
behind it (EPILOGUE_LINE), which are kept here and left out of the search"""
LED_ERROR_LINES, BARE_ERROR_LINES = 12, 3
"""Of these: lines in which an error stands behind `Training failed:`, and lines that may begin with it"""
MAX_LINE_CHARACTERS = 20_000
"""Characters of one line that are looked at"""
MIN_LINES_AFTER = 40
"""Lines of ordinary output behind a traceback from which on the run continued. Chosen, not measured: at half of it, the
clean-up of launchers and loggers after a failure counts as a run that continues; at double, a script that prints little
counts as ended by an exception that it caught"""
MIN_DRAWINGS_AFTER = 6
"""Drawings of a bar behind a traceback from which on the run continued: other processes draw one or two more"""
WITHOUT_GPU, LAYERS_ON_CPU = "llama-cpp-without-gpu", "layers-left-on-the-cpu"
"""Messages on layers of llama.cpp that the CPU computes"""
COLLECTIVE_TIMEOUT, COLLECTIVE_TIMEOUT_RAISED = "nccl-timeout", "nccl-timeout-raised"
"""Messages on a collective operation whose time ran out, on a line and in an exception"""
WEIGHT_REPORTS = (
    "mismatched-weights-begin-at-random",
    "weights-newly-initialized",
    "weights-not-used",
)
"""Messages on weights that a checkpoint lacks, or that the model has no place for"""
LABELS_MASKED, MARKER_TOKENS = "all-labels-masked-warned", "response-marker-tokenized-otherwise"
"""Messages on rows without a supervised token, and on those whose quoted text shows why"""
DISK_FULL, SHARED_MEMORY_FULL = "disk-full", "shared-memory-too-small"
"""Messages on a full disk and a full /dev/shm"""
SHARED_MEMORY_FILE = re.compile(
    r"multiprocess(?:ing)?[\\/](?:heap|shared_memory|synchronize|reductions)\.py$"
)
"""Files of Python and PyTorch that make files in /dev/shm, and none on a disk"""
EPILOGUE_LINE = re.compile(
    r"$|wandb: |frame #\d+|\s+(?:File|at|in)\b|[-=~*_#]{8,}|srun: |slurmstepd: |terminate"
    r" called|\s*what\(\):"
    r"|Exception raised from|(?:Failures|Root"
    r" Cause|\[\d+\]):|\s+(?:time|host|rank|exitcode|error_file|traceback) +:"
    r"|\s*<\w+>$|real\s|user\s|sys\s"
    r"|(?:\S{1,80}\.(?:cc|cu|h):\d+ )?NCCL (?:INFO|WARN)|make: \*\*\*|Process \S+ finished|Killed|.{0,40}(?:CUDA kernel"
    r" errors|CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA)"
)
"""What other programs and threads print when one has failed"""
FAILURE_LEAD = (
    r"(?:[\w"
    r" .,!'*/()\[\]❌✗✖💥🚨⚠️-]{0,80}?\b(?:error|failed|failure|exception|crash\w*|fatal|aborted)\b"
    r"[\w .'\"()-]{0,60}[:=(-]+\s{0,3}"
    r"['\"(]{0,2}|[❌✗✖💥🚨] ?)?"
)
"""What a script prints before the text of an exception that it caught"""
FAILURE_LEAD_PATTERN = re.compile(FAILURE_LEAD, re.IGNORECASE)
BARE_ERROR = re.compile(
    r"^(?P<type>(?:[a-z_][\w]{0,40}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Warning)): "
    r"(?P<message>\S.{0,2000})"
)
STARTED_PROCESS = re.compile(
    r"\(pid: (\d+)\)|Sending process (\d+) closing signal|Killing subprocess (\d+)"
    r"|\bpid=(\d+)[,)].{0,40}\brank\b"
)
"""Lines of launchers (torchrun, DeepSpeed, Ray) with the number of a process that they started"""
LAUNCH_MARK = re.compile(
    r"Setting OMP_NUM_THREADS environment variable for each process to be"
    r"|The following values were not passed to `accelerate launch`"
    r"|.{0,60}\[runner\.py:\d+:main\] cmd = "
    r"|(?:\S{0,80}[$#] |\+ )(?:\w+=\S* ){0,8}"
    r"(?:torchrun|accelerate launch|deepspeed|python3?|llamafactory-cli|axolotl|srun)\s"
)
"""What a launcher prints once, when it starts; or the command itself, of a shell that prints it"""
FINISHED_MARK = re.compile(
    r"'train_runtime'|\"train_runtime\"|train_samples_per_second|[Tt]raining (?:is"
    r" )?(?:completed?|finished|done)\b"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """What the run ended in."""

    raised: PrintedException
    message: KnownMessage | None
    """What it is known to mean"""
    chain: ExceptionChain
    processes: int
    """In how many processes it, or what followed from it, was raised"""
    beside: tuple[str, ...]
    """Texts of the exceptions that ended the other processes, one each"""
    is_the_end: bool
    """Or did the run continue?"""
    count: int = 1
    """How often it was raised with this text"""
    race: FileRace | None = None
    """That several processes changed the same files at once, where the exceptions say so"""


@dataclass(frozen=True, slots=True)
class Notice:
    """A known message that stands on a line of its own."""

    message: KnownMessage
    line: int
    """1-based, of the first"""
    text: str
    count: int
    is_the_end: bool = True
    """For what ends a program: did nothing come behind it?"""


@dataclass(frozen=True, slots=True)
class ConsoleOutput:
    """What was printed, as far as it says how the run went."""

    file: str
    lines: int
    failure: Failure | None = None
    """What ended the run; None where no exception did"""
    survived: tuple[Failure, ...] = ()
    """Exceptions after which the run continued"""
    ends: tuple[Notice, ...] = ()
    """What ended a process from outside, or below Python"""
    notices: tuple[Notice, ...] = ()
    done: int = 0
    """Steps of the training's bar"""
    total: int = 0
    is_finished: bool = False
    """The trainer said that it was done"""
    last_lines: tuple[str, ...] = ()
    settings: PrintedSettings = field(default_factory=PrintedSettings)
    """What it says of the run's settings"""
    pictures: PictureTokens | None = None
    """The batch with the most tokens of pictures, where the output prints shapes and they make its length"""
    collectives: tuple[str, ...] = ()
    """The operations in which processes waited for one another until their time ran out"""
    uneven: RankCounts | None = None
    """Unequal numbers of batches, by which processes came to wait for one another"""
    rank_lines: tuple[RankLine, ...] = ()
    """What one process alone printed of a batch that it left out, or of an error"""
    started: frozenset[str] = frozenset()
    """Numbers of the run's own processes, as far as the launcher prints them"""
    meeting: tuple[str, ...] = ()
    """Why the machines of the run could not meet, as far as their launchers print it"""
    port_conflict: PortConflict | None = None
    """The port that several processes of the run tried to open at once"""
    rank_differences: tuple[RankDifference, ...] = ()
    """Sums and norms of weights and gradients that differ from process to process"""
    equal_rank_losses: EqualRankLosses | None = None
    """Losses that the processes print alike at each step"""
    step_seconds: float | None = None
    """What a step took by the last drawing of the training's bar"""
    served: ServedRequests = field(default_factory=ServedRequests)
    """How a server worked on its requests"""
    pace: StepPace = field(default_factory=StepPace)
    """How steps followed one another"""
    layers: LayerDevices = field(default_factory=LayerDevices)
    """Where llama.cpp put layers, and how much memory they and the cache take"""
    epoch_bars: EpochBars = field(default_factory=EpochBars)
    """How many batches an epoch has for one process"""
    transports: NcclTransports = field(default_factory=NcclTransports)
    """Over what the processes exchange gradients"""
    aside: TimeAside = field(default_factory=TimeAside)
    """How long it evaluated, saved and sampled"""
    recompiled: Recompilations = field(default_factory=Recompilations)
    skips: SkippedSteps = field(default_factory=SkippedSteps)
    """What torch.compile compiled again"""
    prepared: RowPreparation = field(default_factory=RowPreparation)
    """How rows were prepared before the training"""
    repeated: RepeatedRecords = field(default_factory=RepeatedRecords)
    """How often each record stands there"""
    is_relaunched: bool = False
    """The output ends in a later launch, which made no step: the steps in it are those of an earlier one"""


@dataclass(slots=True)
class _OutputPosition:
    """How much had been printed at some place."""

    records: int = 0
    drawings: int = 0
    plain: int = 0

    def was_continued_from(self, now: _OutputPosition) -> bool:
        """Did the run continue after this position?"""
        return (
            now.records > self.records + 1
            or now.drawings > self.drawings + MIN_DRAWINGS_AFTER
            or now.plain > self.plain + MIN_LINES_AFTER
        )

    def copy(self) -> _OutputPosition:
        """The position as it is now; the reader continues to change its own."""
        return _OutputPosition(self.records, self.drawings, self.plain)


@dataclass(slots=True)
class _PrintedMessage:
    """A known message: its first line, how often it came, and where it came last."""

    line: int
    text: str
    count: int
    mark: _OutputPosition


@dataclass(slots=True)
class ConsoleReader:
    """Takes the lines of one stream."""

    file: str
    _lines: int = 0
    _readers: dict[str, TracebackReader] = field(default_factory=dict)
    _chains: list[tuple[ExceptionChain, _OutputPosition]] = field(default_factory=list)
    _noticed: dict[str, _PrintedMessage] = field(default_factory=dict)
    _tail: deque[ConsoleLine] = field(default_factory=lambda: deque(maxlen=MAX_TAIL_LINES))
    _now: _OutputPosition = field(default_factory=_OutputPosition)
    _done: int = 0
    _total: int = 0
    _last_bar: tuple[int, int] = (0, 0)
    _finished: bool = False
    _settings: SettingsReader = field(default_factory=SettingsReader)
    _pictures: PictureShapeReader = field(default_factory=PictureShapeReader)
    _ranks: RankDifferenceReader = field(default_factory=RankDifferenceReader)
    _rank_losses: RankLossReader = field(default_factory=RankLossReader)
    _step_seconds: float | None = None
    _served: RequestReader = field(default_factory=RequestReader)
    _pace: PaceReader = field(default_factory=PaceReader)
    _epoch_bars: EpochBarReader = field(default_factory=EpochBarReader)
    _aside: TimeAsideReader = field(default_factory=TimeAsideReader)
    _transports: TransportReader = field(default_factory=TransportReader)
    _recompiled: RecompilationReader = field(default_factory=RecompilationReader)
    _skips: SkippedStepReader = field(default_factory=SkippedStepReader)
    _prepared: PreparationReader = field(default_factory=PreparationReader)
    _layers: LayerDeviceReader = field(default_factory=LayerDeviceReader)
    _collectives: CollectiveTimeoutReader = field(default_factory=CollectiveTimeoutReader)
    _rank_lines: RankLineReader = field(default_factory=RankLineReader)
    _meeting: RendezvousReader = field(default_factory=RendezvousReader)
    _ports: PortConflictReader = field(default_factory=PortConflictReader)
    _markers: MissingMarkerReader = field(default_factory=MissingMarkerReader)
    _weights: WeightReportReader = field(default_factory=WeightReportReader)
    _repeated: RepeatedRecordReader = field(default_factory=RepeatedRecordReader)
    _started: set[str] = field(default_factory=set)
    _steps_at_launch: tuple[int, int] | None = None
    """Records and drawings of bars where a launch begins behind others"""

    def add_line(self, text: str, number: int, bar: ProgressBar | None = None) -> None:
        """Read one line, or the part of it between two carriage returns; `bar` is the progress bar
        in it.
        """
        self._lines = max(self._lines, number)
        self._served.add_line(text[:MAX_LINE_CHARACTERS], number)
        self._transports.add_line(text[:MAX_LINE_CHARACTERS], number)
        self._layers.add_line(text[:MAX_LINE_CHARACTERS], number)
        self._epoch_bars.add_line(text[:MAX_LINE_CHARACTERS])
        self._pictures.add_line(text[:MAX_LINE_CHARACTERS], number)
        if bar is not None:
            self._note_progress_bar(text, bar)
            self._prepared.add_bar(text[:MAX_LINE_CHARACTERS], bar, number)
            # stderr of another process may follow on the same line
            text = text[text.rfind("]") + 1 :]
            if not text.strip():
                return
        else:
            self._pace.add_line(text[:MAX_LINE_CHARACTERS])
            self._aside.add_line(text[:MAX_LINE_CHARACTERS])
        line = strip_codes_and_prefixes(text[:MAX_LINE_CHARACTERS], number)
        self._recompiled.add_line(line.text, number)
        self._skips.add_line(line.text, number)
        if FINISHED_MARK.search(line.text):
            self._finished = True
        if LAUNCH_MARK.match(line.text.lstrip()) and (self._now.records or self._done):
            self._steps_at_launch = (self._now.records, self._done)
        self._settings.add_line(line.text)
        self._repeated.add_line(line.text, number)
        self._ranks.add_line(line.process, line.text)
        self._rank_losses.add_line(line.process, line.text)
        self._collectives.add_line(line.text, line.process, is_printed=not line.level)
        self._rank_lines.add_line(line.text, line.process, number)
        self._meeting.add_line(line.text)
        self._ports.add_line(text[:MAX_LINE_CHARACTERS], line.process)
        self._markers.add_line(line.text)
        self._weights.add_line(line.text)
        started = STARTED_PROCESS.search(line.text)
        if started is not None and len(self._started) < MAX_PROCESSES:
            self._started.add(started[started.lastindex or 0])
        self._read_traceback_or_message(line)

    def _note_progress_bar(self, text: str, bar: ProgressBar) -> None:
        """Note the progress bar that a line draws."""
        # A bar is drawn again without an advance when something is printed: that is no sign that the run continues.
        if (bar.done, bar.total) != self._last_bar:
            self._now.drawings += bar.done > self._last_bar[0] or bar.total != self._last_bar[1]
            self._last_bar = (bar.done, bar.total)
        # The training's bar has no text before it and is the longest: evaluations have bars without a text too.
        if not bar.is_described and bar.total >= self._total:
            self._done, self._total = bar.done, bar.total
            self._step_seconds = bar.seconds or self._step_seconds
            self._pace.add_bar(bar.seconds)
            self._aside.add_bar(bar.done, bar.gone)
        # The bar of the weights that are loaded says that they are saved ones.
        if bar.is_described:
            self._settings.add_line(text[:MAX_LINE_CHARACTERS])
        self._collectives.add_bar(text, bar)

    def note_training_record(self, record: Mapping[str, Any]) -> None:
        """Note that the last line holds a record of the training."""
        self._repeated.add_record(record)
        self._now.records += 1
        self._finished = False

    def finish(self) -> ConsoleOutput | None:
        """All that the output shows of the run; None if that is nothing."""
        for reader in self._readers.values():
            self._keep_exceptions_with_position(reader.end())
        if not self._lines:
            return None
        ended, survived = self._end_and_survived_failures()
        notices = self._all_notices()
        ends = tuple(n for n in notices if n.message.shown == "end" and n.is_the_end)
        if ended is not None and _only_reports_killed_or_waiting(ended, ends):
            ended = None  # the launcher's own exception, on a process that was killed
        return ConsoleOutput(
            file=self.file,
            lines=self._lines,
            failure=ended,
            survived=tuple(survived),
            ends=ends,
            notices=tuple(notice for notice in notices if _came_often_enough(notice)),
            done=self._done,
            total=self._total,
            is_finished=self._finished,
            last_lines=self._last_three_lines(),
            settings=self._settings.finish(),
            pictures=self._pictures.finish(),
            collectives=self._collectives.finish(),
            uneven=self._collectives.unequal_batch_counts(),
            rank_lines=self._rank_lines.finish(),
            started=frozenset(self._started),
            meeting=self._meeting.finish(),
            port_conflict=self._ports.finish(),
            rank_differences=self._ranks.finish(),
            equal_rank_losses=self._rank_losses.finish(),
            step_seconds=self._step_seconds,
            served=self._served.finish(),
            pace=self._pace.finish(),
            layers=self._layers.finish(),
            epoch_bars=self._epoch_bars.read(),
            aside=self._aside.finish(),
            transports=self._transports.finish(),
            recompiled=self._recompiled.finish(),
            skips=self._skips.finish(),
            prepared=self._prepared.finish(),
            repeated=self._repeated.finish(),
            is_relaunched=self._steps_at_launch == (self._now.records, self._done),
        )

    def _all_notices(self) -> list[Notice]:
        """All known messages that the output holds as notices, renamed or dropped by what the rest
        of the output shows.
        """
        if self._markers.finish() and LABELS_MASKED in self._noticed:
            self._noticed[MARKER_TOKENS] = self._noticed.pop(LABELS_MASKED)
        if self._weights.are_reported_weights_only_heads:
            self._drop_reports_on_new_heads()
        notices = [
            self._notice_of_message(name, printed) for name, printed in self._noticed.items()
        ]
        return [*notices, *self._notices_of_model_on_cpu()]

    def _drop_reports_on_new_heads(self) -> None:
        """Drop the reports on untrained heads if the training that teaches them follows."""
        for name in WEIGHT_REPORTS:
            printed = self._noticed.get(name)
            if printed is not None and self._now.records > printed.mark.records + 1:
                del self._noticed[name]

    def _last_three_lines(self) -> tuple[str, ...]:
        """The last three lines that are not blank, for a reader who asks what the run did when it
        stopped.
        """
        texts = [line.text.strip() for line in self._tail]
        return tuple(text for text in texts if text)[-3:]

    def _read_traceback_or_message(self, line: ConsoleLine) -> None:
        """Give a line to the traceback reader of its process, and look for a known message outside
        of tracebacks.
        """
        # Processes print into one file, line by line: one reader for all would weave their tracebacks together.
        reader = self._readers.get(line.process)
        if reader is None:
            reader = TracebackReader()
            if len(self._readers) < MAX_PROCESSES:
                self._readers[line.process] = reader
        # Inside of a traceback, source lines and messages may hold the words of known messages.
        was_inside = reader.is_inside
        self._keep_exceptions_with_position(reader.add_line(line))
        if was_inside and reader.is_inside:
            return
        self._tail.append(line)
        if not EPILOGUE_LINE.match(line.text) and not line.level and not reader.is_inside:
            self._now.plain += 1
        if not reader.is_inside and (known := known_message_of_line(line.text.strip())) is not None:
            self._count_known_message(known, line)

    def _count_known_message(self, known: KnownMessage, line: ConsoleLine) -> None:
        """Keep the first line of a known message, how often it came, and the line of the last one."""
        printed = self._noticed.get(known.name)
        if printed is None:
            self._noticed[known.name] = _PrintedMessage(
                line.number, line.text.strip()[:300], 1, self._now.copy()
            )
        else:
            printed.count += 1
            printed.mark = self._now.copy()

    def _keep_exceptions_with_position(self, chains: Iterator[ExceptionChain]) -> None:
        """Keep exception chains with the position where they ended, to see later whether the run
        continued after it.
        """
        for chain in chains:
            # Python prints tracebacks of destructors and loggers and continues: they end nothing
            if all(raised.is_ignored for raised in chain.raised):
                continue
            self._chains.append((chain, self._now.copy()))
            # A script that catches an exception of each row prints millions. What is dropped is in the middle: the
            # first shows the cause, the last what ended the run.
            if len(self._chains) > 2 * MAX_CHAINS:
                del self._chains[MAX_CHAINS]

    def _notice_of_message(self, name: str, printed: _PrintedMessage) -> Notice:
        """A known message as the output shows it."""
        known = message_by_name(name)
        assert known is not None
        return Notice(
            known,
            printed.line,
            printed.text,
            printed.count,
            not printed.mark.was_continued_from(self._now),
        )

    def _notices_of_model_on_cpu(self) -> Iterator[Notice]:
        """The notice that a whole model is on the CPU, if no line says so by itself; only a note if
        no GPU was meant.
        """
        layers, known = self._layers.finish(), message_by_name(WITHOUT_GPU)
        if (
            known is None
            or not layers.is_all_on_cpu
            or self._noticed.keys() & {WITHOUT_GPU, LAYERS_ON_CPU}
        ):
            return
        yield Notice(
            known if layers.means_gpu else replace(known, severity="info"),
            layers.line,
            layers.text,
            layers.on_cpu,
        )

    def _end_and_survived_failures(self) -> tuple[Failure | None, list[Failure]]:
        """The failure that ended the run, if any, and the failures that it survived."""
        last = [chain for chain, mark in self._chains if not mark.was_continued_from(self._now)]
        before = [chain for chain, mark in self._chains if mark.was_continued_from(self._now)]
        counts = Counter(_most_telling_exception(chain).text for chain in before)
        survived: dict[str, Failure] = {}
        for chain in before:
            raised = _most_telling_exception(chain)
            if raised.text not in survived:
                failure = self._failure_of_exception(raised, [chain], is_the_end=False)
                survived[raised.text] = replace(failure, count=counts[raised.text])
        # A traceback says more than a line of text, so lines are searched only where there is none.
        bare = None if last else self._find_error_without_traceback()
        if bare is not None:
            last = [ExceptionChain((bare,))]
        if not last:
            return None, list(survived.values())
        chosen = min(last, key=_rank_of_indirectness)
        ended = self._failure_of_exception(
            _most_telling_exception(chosen), [chosen, *last], is_the_end=True
        )
        times = sum(_most_telling_exception(chain).text == ended.raised.text for chain in last)
        return replace(ended, count=times), list(survived.values())

    def _failure_of_exception(
        self, raised: PrintedException, chains: list[ExceptionChain], *, is_the_end: bool
    ) -> Failure:
        """An exception as a failure with all that is known of it; the first of `chains` is its own
        chain.
        """
        by_process = {chain.last.process: _most_telling_exception(chain).text for chain in chains}
        beside = tuple(text for process, text in by_process.items() if process != raised.process)
        race = find_file_race(raised, [_most_telling_exception(chain) for chain in chains])
        return Failure(
            raised,
            self._known_message_of_exception(raised),
            chains[0],
            len(by_process),
            beside,
            is_the_end,
            race=race,
        )

    def _known_message_of_exception(self, raised: PrintedException) -> KnownMessage | None:
        """The known message of an exception, or one printed elsewhere that says more exactly what
        it means.
        """
        known = known_message_of_exception(raised.text)
        if known is not None and known.name == DISK_FULL:
            # Python's shared memory says the same as a full disk, without the name of a file.
            if any(SHARED_MEMORY_FILE.search(frame.file) for frame in raised.frames):
                return message_by_name(SHARED_MEMORY_FULL)
        if known is not None:
            for name in known.refined_by:
                if name in self._noticed:
                    return message_by_name(name)
        return known

    def _frames_above(self, line: ConsoleLine) -> tuple[Frame, ...]:
        """The frames above an exception that has no traceback header: a SyntaxError, or a traceback
        whose top is cut off.
        """
        return frames_above_line(
            [other for other in self._tail if other.process == line.process], line.number
        )

    def _find_error_without_traceback(self) -> PrintedException | None:
        """An error without a traceback in the last lines: the text of an exception that a program
        printed itself.
        """
        tail = [line for line in self._tail if line.text.strip()]
        tail = [line for line in tail if not EPILOGUE_LINE.match(line.text)]
        for place, line in enumerate(reversed(tail[-LED_ERROR_LINES:])):
            if known_message_of_line(line.text.strip()) is not None:
                continue
            # Words like these stand in ordinary output too (a row about CUDA errors). In the very last lines of a run
            # that did not say it was done, they are more likely what ended it.
            is_last = place < BARE_ERROR_LINES and not self._finished
            error = self._error_of_line(line, is_last=is_last)
            if error is not None:
                return error
        return None

    def _error_of_line(self, line: ConsoleLine, *, is_last: bool) -> PrintedException | None:
        """The exception whose text a line is; `is_last`: so near the end that it need not say that
        it is an error.
        """
        text = line.text.strip()
        named = BARE_ERROR.match(text) if is_last else None
        if named is not None and "Warning" not in named["type"]:
            return self._exception_with_frames_above(line, named["type"], named["message"])
        is_error = line.level == "error"
        start = 0 if is_error or named is not None else _start_of_error_text(text)
        if start is None and is_last:
            start = 0
        if start is None or not _is_text_of_known_exception(text[start:], anywhere=is_error):
            return None
        return self._exception_with_frames_above(line, "error", text[start:][:2000])

    def _exception_with_frames_above(
        self, line: ConsoleLine, kind: str, message: str
    ) -> PrintedException:
        """The exception that one line alone tells of, with whatever frames stand above it."""
        frames = self._frames_above(line)
        return PrintedException(kind, message, frames, line.number, line.process)


def _is_text_of_known_exception(text: str, *, anywhere: bool) -> bool:
    """Is a text that of a known exception: at its beginning, or `anywhere` in it if a logger calls
    it an error?
    """
    known = known_message_of_exception(text)
    if known is None:
        return False
    match = known.pattern.search(text)
    if match is None:
        return False
    # the longest type that stands in front of a known text: further in, the words are a quotation
    return anywhere or match.start() < len("torch.cuda.OutOfMemoryError: ")


def _came_often_enough(notice: Notice) -> bool:
    """Did a message come often enough to name a fault? Some are normal now and then (`least`)."""
    return notice.message.shown == "notice" and notice.count >= notice.message.least


def _start_of_error_text(text: str) -> int | None:
    """The position of the error's text after a lead such as `Training failed:`; None if nothing
    says that it is an error.
    """
    match = FAILURE_LEAD_PATTERN.match(text)
    return match.end() if match is not None and match.end() else None


def _most_telling_exception(chain: ExceptionChain) -> PrintedException:
    """The exception of a chain that says most: the first that is known, otherwise the root."""
    if is_stopped_by_hand(chain.last):
        return chain.last  # what was handled when the key was pressed did not end the run
    own = [raised for raised in chain.raised if not _only_reports_other_failure(raised)]
    known = (raised for raised in own if known_message_of_exception(raised.text) is not None)
    return next(known, (own or list(chain.raised))[0])


def _only_reports_other_failure(raised: PrintedException) -> bool:
    """Does an exception only report that something else failed?"""
    known = known_message_of_exception(raised.text)
    return (known is not None and known.is_consequence) or raised.type in ("SystemExit",)


def _only_reports_killed_or_waiting(failure: Failure, ends: tuple[Notice, ...]) -> bool:
    """Does an exception only report what these lines say: that a process was killed, or waited in
    vain before it?
    """
    if not _only_reports_other_failure(failure.raised):
        return False
    is_timeout = failure.message is not None and failure.message.name == COLLECTIVE_TIMEOUT_RAISED
    return any(
        not end.message.is_consequence
        or (
            end.message.name == COLLECTIVE_TIMEOUT
            and not is_timeout
            and end.line < failure.raised.line
        )
        for end in ends
    )


def is_stopped_by_hand(raised: PrintedException) -> bool:
    """Did the user stop the run?"""
    known = known_message_of_exception(raised.text)
    return known is not None and known.name == "stopped-by-hand"


def _rank_of_indirectness(chain: ExceptionChain) -> int:
    """0 for a chain that may be the cause, 1 if the user stopped what another one left hanging, 2
    if it only reports that one failed.
    """
    if all(_only_reports_other_failure(raised) for raised in chain.raised):
        return 2
    return 1 if is_stopped_by_hand(_most_telling_exception(chain)) else 0
