"""The base classes of rules: a rule examines one kind of subject for one fault, and gives findings,
a figure, or why it can't judge.

A rule is one module `checks/<station>/<rule_name>.py` that holds one subclass of `Rule`. Its name is
the module's name in kebab-case; the module's docstring is its page (`truetune explain`). What it looks at, its
subject, is the station's: data with a tokenizer (`DataRule`), settings, a source file, a run's log, a checkpoint.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding, Fix
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement
from truetune.checks.plot_of_finding import Figure
from truetune.checks.read_and_format_setting_values import (
    displayed_setting_name,
    format_setting,
    is_setting_on,
    is_setting_unknown,
)
from truetune.checks.reasons_data_rules_cannot_judge import NO_PAIRS
from truetune.checks.reasons_rules_cannot_judge import (
    A_KIND,
    LOGGED_BY,
    NO_ANSWER,
    SEEN_BY,
    explain_too_short_curve,
)
from truetune.checks.severity_by_trainer import SeverityByFact
from truetune.data.conversation import Conversation, Origin
from truetune.data.read_pictures_of_rows import PictureReader
from truetune.encoding.batch import Batch
from truetune.memory.read_machine import Launch
from truetune.render.byte_tokenizer import BYTE_TOKENIZER
from truetune.render.pictures.picture_families import (
    NO_PROCESSOR,
    PictureTokenizer,
    UnknownProcessor,
)
from truetune.render.read_embedding_from_safetensors import EmbeddingRows
from truetune.render.template_probes import Probes
from truetune.render.tokenizer import Tokenizer
from truetune.settings.config import Config
from truetune.settings.run_spec import RunSpec, Severity
from truetune.trainers import UNKNOWN, TrainerFacts

if TYPE_CHECKING:
    # Most are named in quotes as arguments of base classes below (`Rule["Audit"]`), where ruff sees no use of them.
    from truetune.auditing.audit import Audit  # noqa: F401 - named in quotes below
    from truetune.auditing.rollout_run import RolloutRun  # noqa: F401 - named in quotes below
    from truetune.checkpoint.engine_adapter_loaders.predict_adapter_loading import (
        PredictedLoading,  # noqa: F401 - named in quotes below
    )
    from truetune.checkpoint.load_checkpoint import Checkpoint  # noqa: F401 - named in quotes below
    from truetune.checks.examined_code_places import CodePlaces
    from truetune.data.retrieval_rows import RetrievalData  # noqa: F401 - named in quotes below
    from truetune.data.teacher_predictions import TeacherFile  # noqa: F401 - named in quotes below
    from truetune.doctor.environment_record_types import Environment  # noqa: F401 - named in quotes below
    from truetune.generation.answer_samples import SampledRun  # noqa: F401 - named in quotes below
    from truetune.generation.evaluation_loss_and_score_types import EvaluationResults  # noqa: F401 - named in quotes below
    from truetune.generation.evidence_on_causes_of_answers import ModelEvidence  # noqa: F401 - named in quotes below
    from truetune.generation.parser_selftest_results import ParserSelftest
    from truetune.generation.reward_trial import RewardTrial  # noqa: F401 - named in quotes below
    from truetune.generation.server_observations import ServerObservations  # noqa: F401 - named in quotes below
    from truetune.logs.run_log import RunLog  # noqa: F401 - named in quotes below
    from truetune.parsing.read_ollama_modelfile import Instruction, Modelfile  # noqa: F401 - named in quotes below
    from truetune.parsing.shell_commands import CommandFile, ShellCommand
    from truetune.source.parsed_source_file import Module  # noqa: F401 - named in quotes below
    from truetune.tokenized.tokenized_data import TokenizedData  # noqa: F401 - named in quotes below

# Chosen, not measured: ten thousand places are some megabytes of JSON; nobody reads more of them.
MAX_CASES = 10_000
"""Places that a finding keeps; its count is of all. A terminal shows SHOWN_CASES of them, JSON and SARIF all."""
SubjectT = TypeVar("SubjectT")
Stability = Literal["preview", "stable"]
Spoiled = Literal["model", "stop", "temperature"]
"""What makes a finished model answer badly: its weights or prompt as a whole, its stop tokens, or how it is sampled"""
UNRELEASED = "unreleased"
"""What a rule says that no release has yet"""
NO_LINE = Unmet("no line of a batch was seen", asked=True)
ROLLOUTS_FOLLOW = Unmet(
    "its lines are sampled while it trains: the rollouts are judged by themselves"
)
NO_ROLLOUT = Unmet("no rollout was recorded", asked=True)
NO_TOKENIZED_ROW = Unmet("no row with token ids was read", asked=True)
NO_RETRIEVAL_ROW = Unmet("no row with a query and its texts was read", asked=True)
NO_OUTPUT = Unmet(
    "no console output was read", "keep it (CMD 2>&1 | tee run.log), and truetune diagnose run.log"
)
SEE_A_RUN = "see what a run does: truetune run -- YOUR COMMAND"
NOT_RECITED = Unmet("nothing was recited", "truetune rehearse has a miniature of the model recite")
LEARNS_BY_REWARDS = Unmet(
    "it is about rows that are memorised, and this training learns by rewards"
)


@dataclass(frozen=True, slots=True)
class Setup:
    """What every rule may look at before the first row."""

    spec: RunSpec
    tokenizer: Tokenizer
    probes: Probes
    """Renderings of small conversations with this template, made once; they need no data."""
    trainer: TrainerFacts = UNKNOWN
    """What the trainer does that will read the rows"""
    embedding: EmbeddingRows | None = None
    """Of a model in memory; None: that of the files counts"""
    columns_read: frozenset[str] = frozenset()
    """Names of columns that scripts beside the rows read, into prompts perhaps"""
    tokens_added: frozenset[str] = frozenset()
    """Tokens that scripts or settings beside the rows add to the tokenizer, none of them a mark of a template"""
    uncut_limit: int | None = None
    """Tokens at which the run cuts its rows, where they are looked at uncut; None: `trainer.cut` says it"""

    pictures: PictureReader = field(default_factory=PictureReader, repr=False, compare=False)
    """Reads the pictures of rows, for all rules once"""
    picture_tokens: PictureTokenizer | UnknownProcessor = NO_PROCESSOR
    """What the model's processor makes of pictures, or why that is not known"""

    @property
    def are_tokens_single_bytes(self) -> bool:
        """Are the tokens single bytes, because the tokenizer of the rows is not available?"""
        return str(self.tokenizer.folder) == BYTE_TOKENIZER


class Rule(Generic[SubjectT]):
    """Looks at one subject and says what it found."""

    code: ClassVar[str]
    fault: ClassVar[Fault | None] = None
    """What is wrong with a run for which it fires. Each rule of this package says it (tests/checks/test_faults.py); a
    rule of a plug-in that says nothing is a fault of its own"""
    family: ClassVar[str]
    """The station of a plug-in's rule (`catalogue.STATIONS`); one of ours stands in the folder of its station"""
    severity: ClassVar[Severity]
    """The highest severity that it gives; shown by `truetune rules`."""
    stability: ClassVar[Stability] = "preview"
    """`stable` once a case of the bug bench, a test on real material and a public source stand behind it"""
    since: ClassVar[str] = UNRELEASED
    """The release that had it first"""
    moot_where: ClassVar[tuple[str, ...]] = ()
    """Names of rules whose findings explain this one's, on the same rows or on the whole; it is their evidence then"""
    symptoms: ClassVar[tuple[str, ...]] = ()
    """Names of guides on what users see of it, where no cause of a guide names the rule (`explaining.guides`)"""
    by_trainer: ClassVar[tuple[SeverityByFact, ...]] = ()
    """The facts of the trainer that its severity depends on"""

    def __init__(self, subject: SubjectT) -> None:
        self.subject = subject

    @classmethod
    def name(cls) -> str:
        """The rule's name in kebab-case: that of its module."""
        # The module's name is the rule's: a rule can't be renamed without its file, its page and its tests.
        return cls.__module__.rsplit(".", 1)[-1].replace("_", "-")

    @classmethod
    def title(cls) -> str:
        """The fault in one line: the beginning of the rule's page."""
        return (inspect.getdoc(inspect.getmodule(cls)) or "").partition("\n")[0]

    @classmethod
    def fault_name(cls) -> str:
        """The name of its fault in kebab-case; of a rule that names none its own."""
        return cls.name() if cls.fault is None else cls.fault.kebab_name

    @classmethod
    def fault_title(cls) -> str:
        """What is wrong in one sentence, whatever shows it; of a rule that names no fault its own title."""
        return cls.title() if cls.fault is None else cls.fault.title

    def unmet(self) -> Unmet | None:
        """Why this rule can say nothing about its subject; None if it can.

        Asked only if it found nothing.
        """
        return None

    def measurement_if_clean(self) -> Measurement | str:
        """What the rule measured, asked if it found nothing and its needs are met.

        A text if it counts nothing of a number of things; empty if it measures nothing.
        """
        return ""

    def findings(self) -> Iterator[Finding]:
        """The findings. Called once, after all of the subject was seen."""
        # `yield from ()` makes it a generator: a rule that overrides nothing finds nothing.
        yield from ()

    def finding(
        self,
        message: str,
        remedy: str,
        *,
        severity: Severity | None = None,
        evidence: Iterable[str] = (),
        cases: Iterable[Case] = (),
        count: int | None = None,
        total: int | None = None,
        fix: Fix | None = None,
        figure: Figure | None = None,
        is_loud: bool = False,
    ) -> Finding:
        """A finding of this rule."""
        return Finding(
            rule=self.name(),
            code=self.code,
            fault=self.fault_name(),
            severity=severity or self.severity,
            message=message,
            remedy=remedy,
            evidence=tuple(evidence),
            # Cut here, once for all rules: a rule may hand on every place that it has seen.
            cases=tuple(cases)[:MAX_CASES],
            count=count,
            total=total,
            fix=fix,
            figure=figure,
            is_loud=is_loud,
        )


class DataRule(Rule[Setup]):
    """Looks at the setup and at every batch of rows, then says what it found."""

    family = "rows"

    judges_without_evaluation: ClassVar[bool] = False
    """Does it read evaluation rows only to say more of what it finds in the data?"""
    judges_without_rows: ClassVar[bool] = False
    """Do rows only add to its evidence?"""
    needs_tokenizer: ClassVar[bool] = True
    """Does it judge prompts, masks or counts of tokens? One that compares texts judges rows without their tokenizer"""
    judges_columns: ClassVar[bool] = False
    """Is it about which column is which? A script that reads the rows may decide that"""

    judges_saved_file: ClassVar[bool] = False
    """Is it about what a file of the tokenizer holds? A tokenizer in memory may do otherwise"""
    judges_cut: ClassVar[bool] = False
    """Is it about what a cut at max_length loses? A trainer that joins rows, or splits them, loses nothing there"""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.setup = setup
        self.spec = setup.spec
        self.tokenizer = setup.tokenizer
        self.probes = setup.probes

    def evaluation(self, rows: Iterable[Conversation]) -> None:
        """Take the rows of `eval_data`. Called once, before the first batch, if there are any."""

    def add_batch(self, batch: Batch) -> None:
        """Take one batch of rows.

        Called for each, in file order. Keep counts and at most MAX_CASES cases, never rows.
        """

    def broken_line(self, origin: Origin, reason: str) -> None:
        """Take a line that holds no row; `reason` begins with its place. Called for each."""

    def report_data(self) -> dict[str, Any]:
        """Figures by name, plain values, for the `data` of a report.

        Called after the last batch.
        """
        return {}


class PairRule(DataRule):
    """Looks at pairs of a chosen and a rejected answer; it counts those that it has looked at."""

    family = "pairs"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.pairs = 0

    def unmet(self) -> Unmet | None:
        """Unmet without pairs."""
        return None if self.pairs else NO_PAIRS


class TokenizedRule(Rule["TokenizedData"]):
    """Looks at rows that are token ids already."""

    family = "tokenized"

    needs_right_tokenizer: ClassVar[bool] = True
    """Does it read what the ids mean? Under another tokenizer or template they mean nothing"""

    def unmet(self) -> Unmet | None:
        """Unmet without tokenized rows."""
        return None if self.subject.summary.rows else NO_TOKENIZED_ROW


class TeacherRule(Rule["TeacherFile"]):
    """Looks at rows of token ids with stored predictions of a teacher."""

    family = "tokenized"

    def unmet(self) -> Unmet | None:
        """Unmet without such rows."""
        return None if self.subject.rows else NO_TOKENIZED_ROW


class RetrievalRule(Rule["RetrievalData"]):
    """Looks at rows that train an embedding model or a reranker."""

    family = "retrieval"

    def unmet(self) -> Unmet | None:
        """Unmet without such rows."""
        return None if self.subject.rows else NO_RETRIEVAL_ROW


class ConfigRule(Rule[Config]):
    """Looks at the settings of a run, whatever stack they were written for."""

    family = "config"

    methods: ClassVar[tuple[str, ...]] = ()
    """Training methods that it is about; empty: all"""
    stacks: ClassVar[tuple[str, ...]] = ()
    """Stacks that it is about; empty: all"""
    about: ClassVar[tuple[str, ...]] = ()
    """Settings of which one has to be set, as fields of RunSpec or keys of the file; empty: it is always about them"""
    reads: ClassVar[tuple[str, ...]] = ()
    """Settings that it compares besides"""

    def unmet(self) -> Unmet | None:
        """Unmet under another method or stack than the rule's, and where no setting that it is about is set
        or known.
        """
        config = self.subject
        if self.methods and config.spec.training.method not in self.methods:
            return Unmet(
                f"it is about training by {' or '.join(self.methods)}, not by"
                f" {config.spec.training.method}"
            )
        if self.stacks and config.stack not in self.stacks:
            return Unmet(f"it is about settings of {' or '.join(self.stacks)}")
        unknown = [
            displayed_setting_name(config, name)
            for name in (*self.about, *self.reads)
            if is_setting_unknown(config, name)
        ]
        if unknown:
            return Unmet(f"only the program knows the value of {', '.join(unknown)}", SEE_A_RUN)
        if self.about and not any(is_setting_on(config, name) for name in self.about):
            return Unmet(
                f"it is about {' or '.join(displayed_setting_name(config, name) for name in self.about)}, and none"
                " is set"
            )
        return None

    def measurement_if_clean(self) -> Measurement | str:
        """The settings that were compared, with their values."""
        return self.describe_compared_settings()

    def describe_compared_settings(self) -> str:
        """The settings that it compares, with their values."""
        return ", ".join(format_setting(self.subject, name) for name in (*self.about, *self.reads))


class DeviceRule(Rule[Launch]):
    """Looks at the settings of a run on the machine where it starts."""

    family = "devices"

    def __init__(self, subject: Launch) -> None:
        super().__init__(subject)
        self.config = subject.config
        self.training = subject.config.spec.training
        self.machine = subject.machine


class SourceRule(Rule["Module"]):
    """Looks at one Python file or notebook. It gives one finding for each place in it."""

    family = "source"

    looks_at: ClassVar[CodePlaces]
    """The places that it is about; where a file has none, it does not apply"""

    def unmet(self) -> Unmet | None:
        """Unmet where the file has none of the places that the rule examines."""
        return None if self.looks_at.count_in(self.subject) else self.looks_at.unmet_without_places

    def measurement_if_clean(self) -> Measurement | str:
        """How many places of the file were examined."""
        return self.looks_at.measurement_without_faults(self.looks_at.count_in(self.subject))


class CommandRule(Rule["CommandFile"]):
    """Looks at the commands of one shell script, job file or Dockerfile."""

    family = "commands"

    what: ClassVar[str]
    """The commands that it is about, in the plural"""

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[object]:
        """The places of a file of commands that the rule examines; if there are none, the rule does
        not apply.
        """
        raise NotImplementedError

    def unmet(self) -> Unmet | None:
        """Unmet where the file has none of the commands that the rule examines."""
        return (
            None
            if any(True for _ in self.examined_places(self.subject))
            else Unmet(f"it is about {self.what}: none is there")
        )

    def measurement_if_clean(self) -> Measurement | str:
        """How many places of the command file were examined."""
        return self.measurement_of_sound_commands(
            sum(1 for _ in self.examined_places(self.subject))
        )

    @classmethod
    def measurement_of_sound_commands(cls, count: int) -> Measurement:
        """The figure of so many commands that are all as they should be."""
        return Measurement(f"{cls.what}: {count:,}", count, count)

    def case_of_command(self, command: ShellCommand, text: str) -> Case:
        """A command at its place."""
        return self.case_at(command.line_of(text), text)

    def case_at(self, line: int, text: str) -> Case:
        """A text at its line."""
        return Case(text, file=self.subject.path, line=line)


class ModelfileRule(Rule["Modelfile"]):
    """Looks at what Ollama is told to serve."""

    family = "modelfile"

    @property
    def tokenizer_folder(self) -> Path | None:
        """The folder of the adapter's tokenizer, else of the weights'; None where there is none on this machine."""
        folders = (
            self.subject.local_path_of_instruction("adapter"),
            self.subject.local_path_of_instruction("from"),
        )
        named = [folder for folder in folders if folder is not None]
        places = [folder if folder.is_dir() else folder.parent for folder in named]
        return next((place for place in places if (place / "tokenizer.json").is_file()), None)

    def case_of_instruction(self, instruction: Instruction) -> Case:
        """An instruction at its place."""
        text = f"{instruction.word.upper()} {instruction.value}".splitlines()[0]
        return Case(text, file=self.subject.path, line=instruction.line)


class LogRule(Rule["RunLog"]):
    """Looks at the log of a run."""

    family = "log"

    needs: ClassVar[tuple[str, ...]] = ()
    """Curves without which it can say nothing"""
    least: ClassVar[int] = 1
    """Finite records of each of them that it takes"""
    kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of training that it is about (`RunLog.kind`); all where it names none"""

    def unmet(self) -> Unmet | None:
        """Unmet where the log is of another kind, or lacks a curve that the rule needs, or has too few
        records of it.
        """
        if self.kinds and self.subject.kind not in self.kinds:
            return Unmet(
                f"it is about {' or '.join(self.kinds)}, and the log is of {self.subject.kind}"
            )
        lacking = [name for name in self.needs if not self.subject.curve(name)]
        if lacking:
            unlocks = (LOGGED_BY[name] for name in lacking if name in LOGGED_BY)
            return Unmet(f"the log has no {', '.join(lacking)}", next(unlocks, ""))
        few = next(
            (name for name in self.needs if self.count_finite_records(name) < self.least), None
        )
        return (
            None
            if few is None
            else explain_too_short_curve(self.count_finite_records(few), self.least, few)
        )

    def count_finite_records(self, name: str) -> int:
        """The number of finite records of a curve."""
        return int(self.subject.curve(name).finite().step.size)


class OutputRule(LogRule):
    """Looks at the console output of a run."""

    def unmet(self) -> Unmet | None:
        """Unmet without a console output."""
        return None if self.subject.output is not None else NO_OUTPUT


class CheckpointRule(Rule["Checkpoint"]):
    """Looks at the files of a saved model or adapter."""

    family = "checkpoint"

    kind: ClassVar[str] = ""
    """`model` or `adapter`; empty: both"""
    compares: ClassVar[bool] = False
    """With the base"""
    opens: ClassVar[bool] = True
    """It looks at tensors"""
    changes_answers: ClassVar[bool] = True
    """May what it finds change what the model answers? Else it is no cause of bad answers"""
    judges_changes: ClassVar[bool] = False
    """Does it judge how the weights moved from others? `truetune movement` runs these alone"""
    goes_by_signs: ClassVar[bool] = False
    """Does it tell a merge by signs in the weights? Where base and adapter are available, they tell exactly"""

    def unmet(self) -> Unmet | None:
        """Unmet without the kind of checkpoint, the readable weights or the base that the rule needs."""
        checkpoint = self.subject
        if self.kind and checkpoint.kind != self.kind:
            return Unmet(f"it is about {self.kind}s, and this is {A_KIND[checkpoint.kind]}")
        if self.opens and not checkpoint.has_weights:
            return Unmet("the weights are not in this folder", "name the folder that holds them")
        if self.opens and not checkpoint.tensors:
            if checkpoint.weights.pickled:
                return Unmet(
                    "the weights are a pickle, which is not opened", "save them as safetensors"
                )
            return Unmet("no tensor could be read", "name a folder with whole safetensors files")
        if self.compares and checkpoint.base is None:
            named = (
                f"its base {checkpoint.base_name} is not on this machine"
                if checkpoint.base_name
                else "no base is named"
            )
            return Unmet(named, "name its folder with --base")
        return None


class BatchRule(Rule["Audit"]):
    """Looks at what reaches the loss in a real trainer."""

    family = "batch"

    needs_batches: ClassVar[bool] = True
    """Does it read batches? Else the model alone is enough"""
    judges_collator: ClassVar[bool] = False
    """Does it hold for a collator whatever its rows are? Of rows that truetune made nobody masked the prompts"""

    def unmet(self) -> Unmet | None:
        """Unmet where no line of a batch was recorded."""
        if self.subject.samples:
            return None
        return ROLLOUTS_FOLLOW if self.subject.facts.get("rollouts_follow") else NO_LINE


def _law_holds_or_is_unmeasured(measured: dict[str, Any]) -> bool:
    """Is a measured law within its tolerance, or was it not measured? nan is broken."""
    return "value" not in measured or measured["value"] <= measured["tolerance"]


class LawRule(Rule["Audit"]):
    """Judges one law that was measured on the model: fires where it is broken."""

    family = "law"

    law: ClassVar[str]
    """Name of the module in `truetune.probe.laws`, in kebab-case"""
    NAN: ClassVar[str] = "activation-range"
    """The law that explains a nan in the others"""

    def findings(self) -> Iterator[Finding]:
        """The findings of `broken`, if the law was measured and does not hold."""
        measured, cause = (self.subject.laws.get(law, {}) for law in (self.law, self.NAN))
        # nan is larger than no tolerance, and fails every comparison: one law explains it for all others.
        if not _law_holds_or_is_unmeasured(measured) and not (
            self.law != self.NAN
            and isnan(measured["value"])
            and not _law_holds_or_is_unmeasured(cause)
        ):
            yield from self.findings_if_broken(
                measured["value"], measured["tolerance"], measured["evidence"]
            )

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the measured law does not hold; nan counts as broken."""
        raise NotImplementedError

    def unmet(self) -> Unmet | None:
        """Unmet where the law was not measured, or is broken for a reason that is told elsewhere."""
        measured = self.subject.laws.get(self.law)
        if measured is None:
            return Unmet("the law was not measured", "measure all with --laws all")
        if "value" not in measured:
            return Unmet(
                str(measured.get("untested", "it was not measured")),
                asked=bool(measured.get("failed")),
            )
        if not _law_holds_or_is_unmeasured(measured):
            if isnan(measured["value"]):
                return Unmet(f"the loss is not a number, which {self.NAN} explains")
            return Unmet(
                f"it differs ({measured['value']:.2g}), which other findings or the settings"
                " explain"
            )
        return None

    def measurement_if_clean(self) -> Measurement | str:
        """The measured value of the law, beside its tolerance."""
        measured = self.subject.laws[self.law]
        return (
            f"{measured['value']:.2g}, tolerance {measured['tolerance']:.1g}"
            f" {measured.get('unit', '')}".strip()
        )


class RecitationRule(Rule["Audit"]):
    """Looks at what a miniature of the run recites after memorising a few rows."""

    family = "recitation"

    def unmet(self) -> Unmet | None:
        """Unmet where nothing was recited."""
        recitation = self.subject.facts.get("recitation") or {}
        if "rewards" in recitation:
            return LEARNS_BY_REWARDS
        return None if recitation.get("rows") or recitation.get("pairs") else NOT_RECITED


class RolloutRule(Rule["RolloutRun"]):
    """Looks at the first rollouts of a training by rewards."""

    family = "rollout"

    def unmet(self) -> Unmet | None:
        """Unmet where no rollout was recorded."""
        return None if self.subject.steps else NO_ROLLOUT


class AnswersRule(Rule["SampledRun"]):
    """Looks at what a model answers, at some steps of its training or after it."""

    family = "answers"

    explained_by: ClassVar[tuple[Spoiled, ...]] = ()
    """What of the model may be spoiled where this is a symptom: its own remedy is wrong then"""

    def unmet(self) -> Unmet | None:
        """Unmet where no answer was sampled in the last pass."""
        looks = self.subject.looks
        return None if looks and looks[-1].samples else NO_ANSWER


class CauseRule(Rule["ModelEvidence"]):
    """Looks for what makes a finished model answer badly."""

    family = "cause"

    spoils: ClassVar[Spoiled | None] = None
    """What of the model it says is spoiled; None where it explains no other finding"""
    explained_by: ClassVar[tuple[Spoiled, ...]] = ()
    """What of the model may be spoiled where this follows from it: under another prompt, or without the adapter,
    nothing that was learned shows"""
    file_rules: ClassVar[tuple[str, ...]] = ()
    """Names of rules on the files whose findings say what it comes from: it is their evidence then"""


class EvaluationRule(Rule["EvaluationResults"]):
    """Looks at the losses and scores of a finished model, and at what measured them."""

    family = "evaluation"

    of_parser: ClassVar[bool] = False
    """It looks at what the parser makes of gold answers"""
    of_files: ClassVar[bool] = False
    """It looks at verdicts and answers that lie in files, and not at a model"""

    def unmet(self) -> Unmet | None:
        """Unmet, for a rule on parsers, where none is named, it was too slow, or no row has a gold answer."""
        if not self.of_parser:
            return None
        if self.subject.parser is None:
            return Unmet(
                "no parser is named", "name one with --parser, and ask rows with --answers"
            )
        if self.subject.parser.gave_up:
            return Unmet(
                "the parser was too slow to be tried, which parser-is-unstable-or-slow is about"
            )
        return (
            None
            if self.subject.parser.golds
            else Unmet("no row has a gold answer", "name rows with answers (--data)")
        )

    def parser_selftest(self) -> ParserSelftest:
        """The selftest of the parser: how it reads answers whose reading is known.

        There is one if `unmet` says nothing.
        """
        assert self.subject.parser is not None
        return self.subject.parser


class ServingRule(Rule["ServerObservations"]):
    """Looks at what a server makes of a model."""

    family = "serving"

    part: ClassVar[str] = ""
    """The part of the service that it looks at: `strength`, `sampling`, ...; empty: the prompts"""

    def unmet(self) -> Unmet | None:
        """Unmet where the part of the server that the rule needs was not looked at, or no prompt was asked for."""
        if self.part and getattr(self.subject, self.part) is None:
            return Unmet(f"the {self.part} of the server was not looked at", SEEN_BY[self.part])
        if not self.part and not self.subject.prompts:
            return Unmet("the server was asked for no prompt", "check again")
        return None


class AdapterLoadingRule(Rule["PredictedLoading"]):
    """Looks at what an engine's loader would make of an adapter, by its headers and settings."""

    family = "serving"

    judges_refused: ClassVar[bool] = False
    """Does it judge an adapter that is refused? What an engine makes of one that it does not load is not known"""

    def unmet(self) -> Unmet | None:
        """Unmet where the adapter is refused, and where the table does not know what becomes of a tensor."""
        if not self.judges_refused and self.subject.is_refused_whatever_rank:
            return Unmet("the engine does not load the adapter")
        unknown = self.subject.with_effect(None)
        if unknown:
            return Unmet(
                f"what {self.subject.engine_name} makes of {unknown[0].tensor.tensor.name} is not known"
            )
        return None


class RewardRule(Rule["RewardTrial"]):
    """Looks at what a reward function pays for."""

    family = "reward"

    of_paid_answers: ClassVar[bool] = False
    """It looks at what is paid besides the right answers: some of these must be paid"""

    def unmet(self) -> Unmet | None:
        """Unmet where the function gave no score, or pays no right answer with which others could be compared."""
        if not self.subject.was_scored:
            return Unmet("the function gave no score")
        if not self.of_paid_answers or self.subject.right_rows > len(self.subject.unpaid):
            return None
        if not self.subject.reference_column:
            return Unmet("it is about rewards for right answers, and the function takes none")
        return Unmet("no right answer is paid, with which others could be compared")


class EnvironmentRule(Rule["Environment"]):
    """Looks at the user's interpreter, its packages, and the machine."""

    family = "environment"

    of_torch: ClassVar[bool] = False
    """It looks at what torch says of itself"""

    def unmet(self) -> Unmet | None:
        """Unmet, for a rule on torch, where torch is not installed or was not imported."""
        if not self.of_torch or self.subject.torch is not None:
            return None
        if "torch" not in self.subject.packages:
            return Unmet(
                "torch is not installed in this environment", "name another one with --python"
            )
        return Unmet("torch was not imported", "leave --no-imports out, and see that it loads")
