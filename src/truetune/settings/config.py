"""Config: the settings of one run, read from the file of whatever stack they were written for.

Every reader of a stack fills one record, so that a rule is written once and holds for all stacks. The values are in
truetune's words (`spec`); the file's own words are kept beside them (`raw`, `places`, `text`), because a finding has to
name the line and the key that its reader wrote, and a fix changes that text. The trade-off: what a stack can say and
`RunSpec` cannot is in `raw` alone, and a rule that needs it has to know the stack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from truetune.settings.release_pins import Pins
from truetune.settings.release_windows_of_removed_names import RemovalWindow
from truetune.settings.run_spec import RunSpec

Stack = str
"""The name of a program with settings: one of `stacks.registry`, or transformers, whose settings stand in scripts"""


class SettingLocation(NamedTuple):
    """Where a setting stands."""

    file: str
    line: int
    """1-based"""
    key: str
    """The setting as that file spells it (`micro_batch_size`, `adapter`)."""
    column: int = 1


class RenamedKey(NamedTuple):
    """A key that is set by the name of an earlier release, and was renamed since."""

    place: SettingLocation
    now: str | None
    """What it is called today; None where it is gone"""
    package: str = ""
    """The stack that knew it: `trl`, or `transformers` below it"""
    taken: RemovalWindow | None = None
    """Until which release it was taken; None where that is not known"""


class LossSetting(NamedTuple):
    """A setting that decides what a reported loss is a mean of."""

    key: str
    """As the file spells it; of a table in a list, the key alone (`roles_to_train`)"""
    value: str
    """As text; the default of the stack where the file does not set it"""
    line: int
    """1-based; 0 for a default"""


class LossBasis(NamedTuple):
    """What the loss that a training reports is a mean of (its basis), as far as its settings say."""

    settings: tuple[LossSetting, ...]
    learned: str
    """The part of the rows that is learned (`all`, `assistant`); empty where settings and columns do not tell it"""
    rows: tuple[str, ...]
    """The training rows as they are named: files, folders, names of the hub"""
    is_evaluated: bool


class TrainingStage(NamedTuple):
    """A training of one of the files that are looked at together: what it starts from and what it writes."""

    file: str
    method: str
    """sft, dpo, kto, reward, ..."""
    model: str
    """The model or folder that it starts from"""
    adapters: tuple[str, ...]
    """Adapters that it starts from"""
    output: str
    trains_adapter: bool
    loss: LossBasis | None = None


class WeightUse(NamedTuple):
    """A use of weights: a file given beside the settings merges, serves or loads them."""

    file: str
    line: int
    """1-based"""
    text: str
    """As the file says it: `adapter_name_or_path: saves/sft`"""
    verb: str
    """merges, converts, serves, loads"""
    folders: tuple[str, ...]
    """Adapters or models, as they are named there"""
    are_adapters: bool
    """Are they certainly adapters, and no whole models?"""
    template: str = ""
    """The chat template that it asks with: its name, or its text; empty where it names none"""
    base: str = ""
    """The model that adapters are put on; empty where it is not known, or there are none"""
    is_named_elsewhere: bool = True
    """Does another of the files name one of the folders: may something there write it?"""
    writes: tuple[str, ...] = ()
    """The folders that the same file writes: what was merged there"""
    is_merged: bool = False
    """Does the same file merge the adapter into its base, or train another one on top of it?"""
    overrides: frozenset[str] | None = None
    """What it sets of the model's positions and attention (`rope_scaling`); None where that is not known"""
    stage: TrainingStage | None = None
    """The training that the file is; it merges, serves and loads nothing then"""


@dataclass(frozen=True, slots=True)
class Config:
    """One run's settings as a RunSpec, and where each was set.

    `spec` holds the values that take effect: those of the file, else the defaults of the stack.
    """

    stack: Stack
    version: str
    """The release of the stack whose keys and defaults are assumed: `1.16.0`."""
    path: str
    spec: RunSpec
    places: Mapping[str, SettingLocation] = field(default_factory=dict)
    """Field of RunSpec (`max_length`, `training.learning_rate`, `training.lora.r`) -> where the file sets it; a field
    that is not in here has the stack's default."""
    unknown: tuple[SettingLocation, ...] = ()
    """Keys that the stack does not know: it ignores them, or stops."""
    raw: Mapping[str, Any] = field(default_factory=dict)
    """The file's own keys and values"""
    key_places: Mapping[str, SettingLocation] = field(default_factory=dict)
    """Key of the file, or of a call in it (`LoraConfig.r`) -> where it stands"""
    text: str = ""
    """The text of the file, for fixes"""
    limit: int | None = None
    """The longest example in tokens that takes effect: the file's, else the stack's default (TRL: 1024)"""
    own_prompt: bool = False
    """The stack renders the rows by a template of its own, not by the tokenizer's"""
    renamed: tuple[RenamedKey, ...] = ()
    """Keys that earlier releases knew; those that the stack knows no more are in `unknown` too"""
    repeated: tuple[tuple[SettingLocation, SettingLocation], ...] = ()
    """Keys that stand twice in one mapping: where the first is, and the second, which counts"""
    missing: tuple[SettingLocation, ...] = ()
    """Data sets that the stack will not find, each where it is named"""
    pins: Pins = field(default_factory=Pins)
    """The releases that the run asks for, as far as the files around it say"""
    own_keys: bool = False
    """A script with settings of its own reads the file beside those of the stack: a key that the stack does not know
    may be the script's"""
    read_by: str = ""
    """Who reads the file, as its project or the user says; empty where the keys alone tell the stack"""
    freezes_by_hand: bool = False
    """The program sets `requires_grad` to False: which weights it trains is not known"""
    unused_adapter: str = ""
    """What passes the script's own LoraConfig on (`peft_config=lora`), where it makes one that nothing is given"""
    row_files: tuple[str, ...] = ()
    """Local files that hold a program's training rows, each row at most one example; `spec.data` is what a file of
    settings names itself"""
    row_limit: int | None = None
    """Rows that the program keeps of them at most: `select(range(64))`"""
    printed_rows: int | None = None
    """Training rows as a notebook's own output counts them; `row_files` counts before it"""
    notes: tuple[str, ...] = ()
    """What the reader assumed, and what it could not look at"""
    uses: tuple[WeightUse, ...] = ()
    """What the files that are looked at together with this one do with weights"""
    stages: tuple[TrainingStage, ...] = ()
    """The trainings of the files that are looked at together with this one, itself among them"""

    def place(self, *fields: str) -> SettingLocation:
        """The location where the first of these fields is set; otherwise the file."""
        return next(
            (self.places[name] for name in fields if name in self.places),
            SettingLocation(self.path, 1, ""),
        )
