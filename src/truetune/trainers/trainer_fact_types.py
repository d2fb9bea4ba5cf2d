"""The record types of what is known of a trainer, and the words for their values.

None as a value means that it is not known, or that the user's own code decides: rules then name both cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Generic, Literal, NamedTuple, TypeVar, get_args

TrainerName = Literal[
    "trl", "transformers", "axolotl", "llama-factory", "unsloth", "truetune", "torch"
]
TRAINER_NAMES: tuple[TrainerName, ...] = get_args(TrainerName)


def parse_trainer_name(name: str) -> TrainerName | None:
    """The trainer of this name; None where there is none, as for a program that a plug-in reads the settings of."""
    return next((trainer for trainer in TRAINER_NAMES if trainer == name), None)


RowKind = Literal["chat", "prompt-completion", "instruction", "text"]
"""A conversation that the chat template renders; a prompt and its completion, as strings or messages; columns like
Alpaca's; plain text"""
Learned = Literal["assistant", "last", "completion", "all"]
"""As `learn.what` of the settings"""
T = TypeVar("T")
Setting = Callable[[str], object]
"""Gives the value of a setting by its name in `spec.training.Training`; None where it is not set"""


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """One fact on a trainer: its value, and where it was read."""

    value: T
    file: str
    """In the package, of the recorded release; empty where nothing was read"""
    symbol: str
    """The function, class or field in that file that says so"""


class LearningSwitch(NamedTuple):
    """A setting that changes which tokens are learned."""

    setting: str
    """Field of `spec.training.Training`"""
    value: bool
    kinds: frozenset[RowKind]
    learned: Learned


class Learning(NamedTuple):
    """Which tokens a trainer supervises, by kind of rows."""

    by_default: Mapping[RowKind, Learned | None]
    """None: the trainer takes no such rows, or the user's code makes the labels"""
    switches: tuple[LearningSwitch, ...] = ()
    """The first that is set so decides"""


class Decision(NamedTuple):
    """What a trainer learns of one kind of rows, and which setting says so."""

    learned: Learned | None
    because: str
    """`assistant_only_loss: true`, `default: no assistant_only_loss`; empty where no setting has a say"""


class CutOfLongRows(NamedTuple):
    """What a trainer does with a row that is too long."""

    limit: int | None
    """In tokens, where the settings give none; None: there is no limit"""
    setting: str
    """What the trainer calls the limit"""
    action: Literal["end", "both", "drop", "count", "none"]
    """end: what stands behind the limit is lost; both: prompt and answer are cut in proportion; drop: the row is left
    out; count: it is left out, and each is counted; none: nothing is cut"""
    empties: Literal["dropped", "kept"]
    """A row of which the cut leaves no label"""
    splits_text: bool = False
    """Plain text that is too long becomes several rows instead"""


@dataclass(frozen=True, slots=True)
class TrainerFacts:
    """One trainer at one release, for supervised fine-tuning."""

    name: TrainerName | None
    """None: not known"""
    family: str
    """As a report calls its package: `TRL {release}`"""
    title: str
    """As a report calls the trainer of supervised rows: `TRL {release} SFTTrainer`"""
    package: str
    """On PyPI; empty where there is none"""
    release: str
    """That the facts are of"""
    proof: Literal["run", "read", "none"]
    """run: a test compares the facts with the real package; read: they stand in the source of that release"""
    calls: tuple[str, ...]
    """What a script calls that uses it, qualified, with wildcards"""
    learns: Fact[Learning]
    finds_answers_by: Fact[Literal["contract", "generation tags", "content"] | None]
    """Where it learns the assistant's turns alone: by the inference contract; by the `{% generation %}` tags of a
    template, which may hold a line break around the turn; by the contents and what ends them"""
    pads_masked_by: Fact[Literal["position", "id"] | None]
    """How the collator finds the pads in the labels: by id, each label that equals the pad token is lost"""
    pads_on: Fact[Literal["right", "tokenizer"] | None]
    """The side of the pads: always the right one, or that of the tokenizer's `padding_side`"""
    missing_pad: Fact[Literal["eos", "chosen", "error"] | None]
    """A tokenizer without a pad token: EOS pads; one is chosen that ends nothing; the run stops with an error"""
    clashing_pad: Fact[Literal["kept", "replaced"] | None]
    """A pad token that is the EOS too"""
    appends_eos: Fact[frozenset[RowKind] | None]
    """Rows that get the EOS appended, unless they end with it; chats never do: the template ends them"""
    doubles_bos: Fact[bool | None]
    """Text that begins with BOS gets a second one from a tokenizer that adds it"""
    stops_learned: Fact[Literal["turn", "eos"] | None]
    """turn: all of a learned turn, the token that ends it too; eos: behind the content, only the tokenizer's EOS"""
    cut: Fact[CutOfLongRows]
    template: Fact[Literal["tokenizer", "own"] | None]
    """Whose chat template renders the rows"""
    as_served: Fact[bool | None]
    """Turns that the template rewrites later become examples of their own, each as it will be served"""
    file_truncation: Fact[Literal["ignored", "removed"] | None]
    """A truncation that stands in tokenizer.json: it cuts no row; removed: nor is it saved"""
    prepares_model: Fact[bool]
    """It resizes the embedding, trains new rows, and writes the stop ids of generation_config.json by itself"""
    packs: Fact[str | None]
    """How several rows share one by default; None: they do not"""
    shuffles: Fact[bool | None]
    """Rows of a data set that is no stream are drawn in another order in each epoch"""
    collator: str = ""
    """The collator that makes the labels, where another one may be given to the trainer"""
    pinned: str = ""
    """The earlier release that the run asks for; empty where it is that of the facts, or not known"""

    @property
    def name_in_reports(self) -> str:
        """What it is called in reports: its title, with the release and the collator."""
        return self.title.format(release=self._release_in_words) + (
            f" with {self.collator}" if self.collator else ""
        )

    @property
    def _release_in_words(self) -> str:
        """The release that runs, and that of the facts where it is another."""
        return f"{self.pinned} (judged as {self.release})" if self.pinned else self.release

    @property
    def title_for_preference_pairs(self) -> str:
        """The title for preference pairs: its package, with the release, since preference trainers
        are others than that of supervised rows.
        """
        return self.family.format(release=self._release_in_words)

    def decide_what_is_learned(self, kind: RowKind, setting: Setting) -> Decision:
        """What is learned of rows of a kind under settings."""
        rules = self.learns.value
        for switch in rules.switches:
            # `is`: a setting that is not given is None, which must not pass for False.
            if kind in switch.kinds and setting(switch.setting) is switch.value:
                return Decision(switch.learned, f"{switch.setting}: {str(switch.value).lower()}")
        about = [switch.setting for switch in rules.switches if kind in switch.kinds]
        # One that asks for what is the default; settings that are off may be so by default.
        switched_on = [f"{name}: true" for name in about if setting(name) is True]
        if switched_on:
            return Decision(rules.by_default.get(kind), ", ".join(switched_on))
        default = f"default: no {' or '.join(about)}" if about else ""
        return Decision(rules.by_default.get(kind), default)

    def with_pads_masked_by(self, how: Literal["position", "id"] | None) -> TrainerFacts:
        """These facts with a collator that finds pads like this; where that is another one than the facts are of, the
        user's code makes the labels."""
        # The collator that the facts were recorded with, or one that finds pads alike.
        if how == self.pads_masked_by.value:
            return self
        changed = replace(self, pads_masked_by=fact_without_source(how))
        if self.collator:
            # Another collator makes other labels: what is learned is then the user's code.
            changed = replace(changed, learns=fact_without_source(Learning({})), collator="")
        return changed

    def facts(self) -> Mapping[str, Fact[object]]:
        """The recorded facts by name, in order."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Fact)}


def fact_without_source(value: T) -> Fact[T]:
    """A fact whose value needs no source."""
    return Fact(value, "", "")


UNKNOWN = TrainerFacts(
    name=None,
    family="a trainer",
    title="a trainer",
    package="",
    release="",
    proof="none",
    calls=(),
    learns=fact_without_source(Learning({})),
    finds_answers_by=fact_without_source(None),
    pads_masked_by=fact_without_source(None),
    pads_on=fact_without_source(None),
    missing_pad=fact_without_source(None),
    clashing_pad=fact_without_source(None),
    appends_eos=fact_without_source(None),
    doubles_bos=fact_without_source(None),
    stops_learned=fact_without_source(None),
    cut=fact_without_source(CutOfLongRows(None, "max_length", "end", "kept")),
    template=fact_without_source(None),
    as_served=fact_without_source(None),
    file_truncation=fact_without_source(None),
    prepares_model=fact_without_source(False),
    packs=fact_without_source(None),
    shuffles=fact_without_source(None),
)
"""Nobody named a trainer"""
