"""Detects which trainer will read the rows, and applies its facts to the settings of the run.

The trainer is named (`--trainer`, `trained_by`), else found in the settings files and scripts among the paths. Where
two of them say different things, it is not known: a guess would be a false verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from truetune.checks.read_training_script_for_its_settings import (
    find_only_config,
    makes_trainer_arguments,
    read_training_module,
)
from truetune.checks.source.evidence.label_masking_and_padding import (
    lm_collators_masking_by_id,
    maskings_of_pad_id,
)
from truetune.data.conversation import Conversation
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.errors import DataError, SpecError, TruetuneError
from truetune.parsing.shell_commands import read_command_file
from truetune.settings.config import Config
from truetune.settings.release_pins import STACK_OF_PACKAGE, Pin, Pins
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.settings_of_stack_commands import (
    configs_of_commands_without_settings_file,
)
from truetune.settings.training_settings import SAMPLES_ITS_ANSWERS, Method, Training
from truetune.source.does_script_prepare_rows_or_freeze_weights import (
    map_that_makes_or_renders_messages,
)
from truetune.source.find_source_files import find_source_files
from truetune.source.parsed_source_file import Module
from truetune.source.response_marker_masking import ResponseMasking, find_response_masking
from truetune.trainers import TRAINER_NAMES, TRAINERS, TrainerFacts, TrainerName, facts_of_trainer
from truetune.trainers.trainer_fact_types import CutOfLongRows, RowKind, parse_trainer_name

TRAINER_ORDER: tuple[TrainerName, ...] = (
    "unsloth",
    "axolotl",
    "llama-factory",
    "truetune",
    "trl",
    "transformers",
    "torch",
)
"""Of what a script calls, the first that is found counts: each of them calls what stands behind it"""
# A trainer without a place in the order would never be found in a script.
assert set(TRAINER_ORDER) == set(TRAINER_NAMES)
POSITION_COLLATORS = ("transformers.DataCollatorForSeq2Seq", "truetune.collate.*")
"""They pad given labels with -100"""
LABELS_BY_SCRIPT = "train_on_responses_only"
"""The key, among the settings without a field, that says that a script labels the answers itself"""
PINNED_RELEASE = "pinned release"
"""The key, among the settings without a field, under which the release stands that the run asks for"""
COMPLETIONS_SINCE, LENGTH_NAME_SINCE = "0.17.0", "0.16.0"
"""The first releases of TRL that learn completions alone by default, and that call the limit `max_length`"""
WHOLE_PACKS = ("wrapped", "bfd_split")
"""Packing that joins all texts, or continues with the rest of a long one in another row"""


NO_TRAINING = Training()


class DetectedTrainer(NamedTuple):
    """A trainer that was found among the paths."""

    name: TrainerName
    where: str
    """The path"""
    training: Training | None = None
    """What a script sets"""
    max_length: int | None = None
    masking: ResponseMasking | None = None
    """How a script labels the answers itself"""
    pinned: str = ""
    """The earlier release that the files around it ask for; empty where it is that of the facts, or not known"""


class LimitOfSettings(NamedTuple):
    """The longest example that a settings file allows."""

    trainer: TrainerName | None
    """None for a stack without facts, such as torchtune"""
    max_length: int | None
    """None where the file sets no limit"""


@dataclass
class DetectedTrainers:
    """The trainers that the paths show."""

    configs: list[DetectedTrainer] = field(default_factory=list)
    limits: list[LimitOfSettings] = field(default_factory=list)
    """One for each settings file"""
    sources: list[str] = field(default_factory=list)
    """Scripts, and folders of them"""
    methods: set[Method] = field(default_factory=set)
    """By which the settings of files and commands train"""

    def add_commands(self, path: Path) -> None:
        """Note what the commands of a file set that train by options, for programs without facts of their own.

        A file that can't be read is said to be so by who lints it.
        """
        try:
            configs = list(configs_of_commands_without_settings_file(read_command_file(path)))
        except (TruetuneError, OSError):
            return
        for config in configs:
            self.methods.add(config.spec.training.method)
            if parse_trainer_name(config.stack) is None and config.limit is not None:
                self.limits.append(LimitOfSettings(None, config.limit))

    def add_config(self, config: Config) -> None:
        """Note the trainer of a settings file, which may name another one itself."""
        self.methods.add(config.spec.training.method)
        trainer = config.spec.trained_by or parse_trainer_name(config.stack)
        self.limits.append(LimitOfSettings(trainer, config.spec.max_length))
        if trainer is not None:
            pinned = older_pinned_release(config.pins, trainer)
            self.configs.append(DetectedTrainer(trainer, config.path, pinned=pinned))

    @cached_property
    def all_detected(self) -> tuple[DetectedTrainer, ...]:
        """All trainers that settings and scripts name.

        The scripts are read here, after all paths were checked.
        """
        modules = (_parse_module_if_readable(file) for _, file in find_source_files(self.sources))
        scripts = (detect_trainer_of_script(module) for module in modules if module is not None)
        return (*self.configs, *(sighting for sighting in scripts if sighting is not None))

    @cached_property
    def place_that_makes_messages(self) -> str:
        """The file and line where a script maps the rows to messages, so that they are not trained
        as they stand; empty if none does.
        """
        modules = (_parse_module_if_readable(file) for _, file in find_source_files(self.sources))
        mapped = (
            (module.path, map_that_makes_or_renders_messages(module))
            for module in modules
            if module is not None
        )
        return next(
            (f"{path}, line {call.node.lineno}" for path, call in mapped if call is not None), ""
        )

    @property
    def names(self) -> tuple[TrainerName, ...]:
        """The different trainers, in the order in which they were found."""
        return tuple(dict.fromkeys(sighting.name for sighting in self.all_detected))

    def apply_to_run(self, spec: RunSpec) -> RunSpec:
        """A run with the trainer that it names, else the only one that was detected, and with what
        that trainer's script and settings file set.

        Unchanged if several were detected, but for a method that samples its answers where no other one is found.
        """
        run = self._with_trainer(spec)
        method = next(iter(self.methods)) if len(self.methods) == 1 else None
        if method not in SAMPLES_ITS_ANSWERS or run.training.method != NO_TRAINING.method:
            return run
        training = run.training.model_copy(update={"method": method})
        return run.model_copy(update={"training": training})

    def _with_trainer(self, spec: RunSpec) -> RunSpec:
        """A run with the trainer that it names, else the only one that was detected."""
        name = spec.trained_by or (self.names[0] if len(self.names) == 1 else None)
        if name is None:
            return self._with_length_limit_of_settings_files(
                self._with_length_limit_open_if_script_sets_one(spec), None
            )
        # A name that the user gives decides; what a script sets is then still that of this trainer.
        update: dict[str, Any] = {"trained_by": name}
        scripts = [
            one for one in self.all_detected if one.training is not None and one.name == name
        ]
        # Two scripts of one trainer may set different things: then none of them is known to train these rows.
        if len(scripts) == 1:
            update |= _script_settings_that_run_leaves_open(spec, scripts[0])
        pinned = {one.pinned for one in self.all_detected if one.name == name}
        if len(pinned) == 1:
            training = update.get("training", spec.training)
            update["training"] = with_pinned_release(training, pinned.pop())
        return self._with_length_limit_of_settings_files(spec.model_copy(update=update), name)

    def _with_length_limit_of_settings_files(
        self, spec: RunSpec, name: TrainerName | None
    ) -> RunSpec:
        """A run with the limit that the settings files of its trainer set.

        They may name no rows of this machine: then the rows beside them are those that they cut.
        Unchanged where the run has a limit, where the settings differ, or where they are those of
        another trainer than the one that was detected.
        """
        has_other_trainer = name is None and bool(self.names)
        if spec.max_length is not None or has_other_trainer or len(set(self.limits)) != 1:
            return spec
        limit = self.limits[0]
        if limit.trainer != name or limit.max_length is None:
            return spec
        return spec.model_copy(update={"max_length": limit.max_length})

    def _with_length_limit_open_if_script_sets_one(self, spec: RunSpec) -> RunSpec:
        """A run of one of several trainers, of which a script may have set a limit: then that is not the default."""
        sets_limit = any(
            one.max_length is not None or (one.training or NO_TRAINING).open_length_limit
            for one in self.all_detected
        )
        if not sets_limit or spec.max_length is not None:
            return spec
        training = spec.training.model_copy(update={"open_length_limit": True})
        return spec.model_copy(update={"training": training})

    def why_ambiguous(self) -> str:
        """Why the trainer is not known though some were found; empty otherwise."""
        if len(self.names) < 2:
            return ""
        listing = ", ".join(f"{sighting.name} ({sighting.where})" for sighting in self.all_detected)
        return f"several trainers are among the paths: {listing}; name one with --trainer"


def older_pinned_release(pins: Pins, name: TrainerName) -> str:
    """The release of a trainer that a run asks for, where it is earlier than that of the facts; else empty."""
    facts = facts_of_trainer(name)
    stack = STACK_OF_PACKAGE.get(facts.package, facts.package)
    pin = pins.of(stack)
    if pin is None or not pin.known or not pins.is_release_surely_before(stack, facts.release):
        return ""
    return pin.wanted.removeprefix("==")


def with_pinned_release(training: Training, pinned: str) -> Training:
    """The settings with the release that the run asks for."""
    if not pinned:
        return training
    return training.model_copy(update={"other": {**training.other, PINNED_RELEASE: pinned}})


def _script_settings_that_run_leaves_open(spec: RunSpec, script: DetectedTrainer) -> dict[str, Any]:
    """What a script sets that the run leaves open: the training, its length, and how answers are labelled."""
    update: dict[str, Any] = {}
    if "training" not in spec.model_fields_set:
        update["training"] = script.training
        if spec.max_length is None and script.max_length is not None:
            update["max_length"] = script.max_length
    if script.masking is not None:
        training = update.get("training", spec.training)
        update |= _settings_implied_by_script_labels(spec, training, script.masking)
    return update


def _settings_implied_by_script_labels(
    spec: RunSpec, training: Training, masking: ResponseMasking
) -> dict[str, Any]:
    """The settings that a script's own labels stand for; none where the run says itself what is learned."""
    if spec.model_fields_set & {"learn", "mask_by", "response_marker"}:
        return {}
    what = "last" if masking.last_only else "assistant"
    other = {**training.other, LABELS_BY_SCRIPT: True}
    update: dict[str, Any] = {
        "learn": spec.learn.model_copy(update={"what": what}),
        "training": training.model_copy(update={"other": other}),
    }
    if masking.marker is not None:
        update |= {"mask_by": "response-marker", "response_marker": masking.marker}
    return update


def _parse_module_if_readable(file: Path) -> Module | None:
    """A script parsed; None where it can't be read."""
    try:
        return read_training_module(file)
    except DataError:
        return None  # lint says what is wrong with the file


def detect_trainer_of_script(module: Module) -> DetectedTrainer | None:
    """The trainer that a Python program calls, with the settings that it gives to it; None where it calls none."""
    name = next((name for name in TRAINER_ORDER if _calls_trainer(module, name)), None)
    if name is None:
        return None
    training, limit = Training(), None
    try:
        config = find_only_config(module)
        if config is not None:
            training, limit = config.spec.training, config.spec.max_length
        elif makes_trainer_arguments(module):
            training = Training(open_length_limit=True)
    except SpecError:
        pass  # a value that no field takes: lint names it, and the trainer is known all the same
    pads = _pad_masking_of_collator(module, facts_of_trainer(name))
    training = training.model_copy(update={"pads_masked_by": pads})
    masking, pinned = find_response_masking(module), older_pinned_release(module.pins, name)
    return DetectedTrainer(name, module.path, training, limit, masking, pinned)


def _calls_trainer(module: Module, name: TrainerName) -> bool:
    """Does a program call this trainer, or run a loop of its own for `torch`?"""
    trainer_call = next(module.calls(*TRAINERS[name].calls), None) is not None
    # A loop of one's own steps its optimizer; a script that only builds one hands it to a trainer.
    return trainer_call and (name != "torch" or next(module.methods("backward"), None) is not None)


def _pad_masking_of_collator(
    module: Module, facts: TrainerFacts
) -> Literal["position", "id", "unknown"] | None:
    """How a script's collator masks pads: by position, by id, or unknown; None if it says nothing."""
    if (
        next(lm_collators_masking_by_id(module), None) is not None
        # A collator that is known says it; what a trainer does by default says it only where no collator is given.
        or next(maskings_of_pad_id(module), None) is not None
    ):
        return "id"
    if next(module.calls(*POSITION_COLLATORS), None) is not None:
        return "position"
    collators = any("data_collator" in call.keywords for call in module.calls(*facts.calls))
    return "unknown" if collators or facts.collator else facts.pads_masked_by.value


def row_kind_for_trainer(row: Conversation | None) -> RowKind:
    """The kind of row (chat, completion, text ...) that a trainer takes a row for; chat if there is
    none.
    """
    if row is None:
        return "chat"
    if row.format == "alpaca":
        return "instruction"
    if row.prompt_messages is not None or (not row.is_chat and row.text is None):
        return "prompt-completion"
    return "chat" if row.is_chat else "text"


def read_first_row(spec: RunSpec) -> Conversation | None:
    """The first row, by which trainers decide for all; None where none can be read."""
    try:
        return next(_read_rows(spec), None)
    except TruetuneError:
        return None  # the check itself says what is wrong with the file


def _read_rows(spec: RunSpec) -> Iterator[Conversation]:
    """The rows of a run; none where it names no data."""
    return (
        read_conversations(spec.data, format=spec.format, columns=spec.map)
        if spec.data
        else iter(())
    )


def with_trainer_defaults(spec: RunSpec) -> RunSpec:
    """A run with what its trainer does by default in every field that is not set."""
    facts = trainer_facts_of_run(spec)
    if facts.name is None:
        return spec
    kind, set_fields = row_kind_for_trainer(read_first_row(spec)), spec.model_fields_set
    update: dict[str, Any] = {}
    decision = facts.decide_what_is_learned(kind, lambda name: getattr(spec.training, name, None))
    if "learn" not in set_fields and decision.learned is not None:
        update["learn"] = spec.learn.model_copy(update={"what": decision.learned})
    if "append_eos" not in set_fields and facts.appends_eos.value is not None:
        update["append_eos"] = kind in facts.appends_eos.value
    if "history" not in set_fields and facts.as_served.value is False:
        update["history"] = "single"
    return spec.model_copy(update=update)


def trainer_facts_of_run(spec: RunSpec) -> TrainerFacts:
    """The facts of the run's trainer, as its settings change them."""
    facts, training = facts_of_trainer(spec.trained_by), spec.training
    pinned = training.other.get(PINNED_RELEASE)
    if isinstance(pinned, str) and facts.name is not None:
        facts = _facts_of_pinned_release(facts, pinned)
    # A loader of one's own decides over what the trainer would do.
    if training.shuffle is not None:
        facts = replace(facts, shuffles=replace(facts.shuffles, value=training.shuffle))
    if facts.name is None and training.pads_masked_by is None:
        return facts
    if training.pads_masked_by is not None:
        facts = facts.with_pads_masked_by(
            None if training.pads_masked_by == "unknown" else training.pads_masked_by
        )
    template = training.other.get("datasets.chat_template") or training.other.get("chat_template")
    if isinstance(template, str) and not template.startswith("tokenizer_default"):
        facts = replace(facts, template=replace(facts.template, value="own"))
    if training.other.get("eot_tokens"):
        facts = replace(facts, stops_learned=replace(facts.stops_learned, value="turn"))
    return replace(facts, cut=replace(facts.cut, value=_cut_under_settings(facts.cut.value, spec)))


def _facts_of_pinned_release(facts: TrainerFacts, pinned: str) -> TrainerFacts:
    """The facts of an earlier release, as far as it is known what changed behind it."""
    facts = replace(facts, pinned=pinned)
    pins = Pins({"trl": Pin(f"=={pinned}" if pinned[:1].isdigit() else pinned, "", 0)})
    if facts.package != "trl":
        return facts
    if pins.is_release_surely_before("trl", COMPLETIONS_SINCE):
        # What these learn of a prompt and its completion depends on the collator.
        rules = facts.learns.value
        by_default = {**rules.by_default, "prompt-completion": None}
        learns = rules._replace(by_default=by_default)
        facts = replace(facts, learns=replace(facts.learns, value=learns))
    if pins.is_release_surely_before("trl", LENGTH_NAME_SINCE):
        cut = facts.cut.value._replace(setting="max_seq_length")
        facts = replace(facts, cut=replace(facts.cut, value=cut))
    return facts


def trainer_facts_named_by_package_for_pairs(spec: RunSpec) -> TrainerFacts:
    """As `trainer_facts_of_run`, named by the package where the rows are preference pairs.

    Another class of the package reads pairs than the one that the facts are named after.
    """
    facts, row = trainer_facts_of_run(spec), read_first_row(spec)
    if row is None or not row.is_preference:
        return facts
    return replace(facts, title=facts.family, collator="")


def _cut_under_settings(cut: CutOfLongRows, spec: RunSpec) -> CutOfLongRows:
    """The trainer's cut of long rows, as the run's settings change it."""
    other = spec.training.other
    if spec.training.packing and spec.training.packing_strategy in WHOLE_PACKS:
        cut = cut._replace(action="none")
    elif spec.training.no_length_limit and spec.max_length is None:
        cut = cut._replace(action="none", limit=None)
    elif spec.training.open_length_limit and spec.max_length is None:
        cut = cut._replace(limit=None)
    elif other.get("excess_length_strategy") == "truncate":
        cut = cut._replace(action="end")
    elif cut.action == "count" and spec.encode.overflow != "drop":
        cut = cut._replace(action="none")
    return cut if spec.max_length is None else cut._replace(limit=spec.max_length)
