"""Changes a run's settings until it fits into the memory of the GPU, while the effective batch
stays.

The changes are those of the memory plan, in its order: first what costs nothing, then time, then what changes what is
learned. They are recorded with the run, since it is another run than the settings say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from truetune.errors import TruetuneError
from truetune.memory.estimate_memory import GIB
from truetune.memory.find_changes_to_fit_run_into_memory import Proposal, Remedy, find_remedies
from truetune.memory.plan_memory import Plan, parse_gpu_memory, plan_memory
from truetune.memory.read_machine import read_machine
from truetune.render.find_tokenizer_folder import find_tokenizer_folder
from truetune.settings.read_truetune_settings import merge_settings, validate_settings
from truetune.settings.run_spec import RunSpec
from truetune.training.training_recipe import CHECKPOINTING

# A table and not branches: a remedy of the memory plan whose field has no line here (length has its
# own place) changes nothing in a run.
TRAINING_FIELDS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "batch": lambda rows: {"per_device_train_batch_size": rows},
    "accumulation": lambda steps: {"gradient_accumulation_steps": steps},
    "eval_batch": lambda rows: {"per_device_eval_batch_size": rows},
    "checkpointing": lambda on: {"gradient_checkpointing": on},
    "autocast": lambda on: {"bf16": on, "fp16": False},
    "base": lambda size: {"dtype": "bfloat16"},
    "attention": lambda name: {"attn_implementation": name},
    "liger": lambda on: {"use_liger_kernel": on},
    "optimizer": lambda name: {"optim": name},
    "lora": lambda lora: {"lora": lora.model_dump(mode="json", exclude_unset=True)},
    "load_in": lambda bits: {"load_in": bits},
}
"""Field of memory's Settings -> fields of Training"""
DOES_NOT_FIT = "run-does-not-fit"
LAUNCHER_FIELDS = frozenset({"sharding", "offload"})
"""What a launcher's configuration says, not a run"""
# They change the rows, the optimizer's state or the weights that are trained.
FRESH_START_FIELDS = frozenset({"length", "optimizer", "lora", "load_in"})
"""Fields of Settings after whose change no checkpoint can be taken up"""
# Chosen, not measured: the plan was wrong by an unknown factor, so a quarter less is asked of it.
# At 0.9 several retries end at the same error; at 0.5 the run is slower than it has to be.
RELIEF_SHARE = 0.75
"""The share of the planned peak that a run is given after it ran out of memory"""


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """One change of the settings that was made so that a run fits."""

    what: str
    settings: Mapping[str, Any]
    """As in truetune.yaml"""
    gain: float
    """GiB less, by the plan"""
    total: float
    """GiB in all, by the plan"""
    costs: bool
    """The run learns something else, or becomes slow."""
    restarts: bool
    """Checkpoints from before do not go with it."""

    def __str__(self) -> str:
        more = "; it changes what is learned" if self.costs else ""
        return f"fit: {self.what} ({self.gain:.1f} GiB less, {self.total:.1f} in all{more})"


class MemoryFitting:
    """The changes that make a run fit, over all its attempts, and when it is resumed."""

    def __init__(self, wanted: bool, memory: float | None, say: Callable[[str], None]) -> None:
        self.wanted, self.memory, self.say = wanted, memory, say
        self.changes: list[MemoryChange] = []
        self.relieved = 0
        """Times that memory ran out"""

    def settings_that_fit(
        self, settings: RunSpec, filled: RunSpec, before: Sequence[Mapping[str, Any]]
    ) -> RunSpec:
        """The settings with the changes that make the run fit.

        Args:
            settings: as the user gave them.
            filled: the same with every setting filled, which is what a plan is made of.
            before: the changes of the run that is taken up, as `changes_as_plain_values` gave them;
                empty for a new one.
        """
        # Chosen once: after a restart, the same settings have to come out, or the checkpoint does
        # not fit.
        if not self.changes:
            self.changes = [
                MemoryChange(**change) for change in before
            ] or self._changes_of_plan_if_fit_is_asked(filled)
        for change in self.changes:
            self.say(str(change))
        return settings_with_changes_applied(settings, self.changes)

    def without_memory_rule(self, filled: RunSpec) -> RunSpec:
        """The settings for a check that comes before the changes: with --fit the rule that a run
        does not fit is left out.
        """
        return (
            filled.model_copy(update={"ignore": (*filled.ignore, DOES_NOT_FIT)})
            if self.wanted
            else filled
        )

    def changes_as_plain_values(self) -> list[dict[str, Any]]:
        """The changes as plain values, for run.json and for `before`."""
        return [asdict(change) for change in self.changes]

    def _changes_of_plan_if_fit_is_asked(self, filled: RunSpec) -> list[MemoryChange]:
        """The changes of the memory plan; without --fit none, and what they would be is said."""
        memory_plan = plan_run_memory(filled, self.memory)
        if memory_plan is None or self.wanted:
            return planned_changes_until_fit(memory_plan) if memory_plan is not None else []
        for line in advice_where_it_does_not_fit(memory_plan):
            self.say(line)
        return []


def usable_gpu_bytes(stated: str | float | None) -> float | None:
    """Bytes of the smallest GPU that the run sees, or those that the user stated; None where there
    is none. Raises UsageError for what is no size.

    Raises UsageError for what is no size.
    """
    if stated is not None:
        return parse_gpu_memory(stated)
    this_machine = read_machine()
    return min(
        (
            this_machine.gpus[i].memory
            for i in this_machine.visible_gpu_indices
            if i < len(this_machine.gpus)
        ),
        default=None,
    )


def plan_run_memory(filled: RunSpec, memory: float | None) -> Plan | None:
    """The memory of a run with all settings filled; None where its config.json can't be read. `memory` in bytes."""
    try:
        folder = find_tokenizer_folder(str(filled.model or filled.tokenizer))
        return plan_memory(
            filled, model=folder, gpu_memory=None if memory is None else memory / GIB
        )
    except TruetuneError:
        return None


def planned_changes_until_fit(memory_plan: Plan) -> list[MemoryChange]:
    """The memory plan's remedies, in order, until the run fits; all of them where it never does."""
    if memory_plan.memory is None or memory_plan.verdict == "fits":
        return []
    return [
        _change_of_remedy(step)
        for step in find_remedies(memory_plan.estimate, memory_plan.memory, is_change_possible)
    ]


def changes_after_out_of_memory(
    memory_plan: Plan, *, evaluating: bool = False
) -> list[MemoryChange]:
    """The same for a run that ran out of memory, whatever was planned; `evaluating`: in an evaluation."""
    # The training fits; so only the evaluation is made smaller, and nothing of what is learned
    # changes.
    if evaluating and memory_plan.estimate.settings.eval_batch > 1:
        settings = {"training": {"per_device_eval_batch_size": 1}}
        return [
            MemoryChange(
                "one row at a time in evaluations",
                settings,
                0.0,
                _planned_peak_gib(memory_plan),
                False,
                False,
            )
        ]
    return [
        _change_of_remedy(step)
        for step in find_remedies(
            memory_plan.estimate, RELIEF_SHARE * memory_plan.estimate.peak.total, is_change_possible
        )
    ]


def is_change_possible(proposal: Proposal) -> bool:
    """Is a proposed change possible for the run, with what is installed?"""
    changes = proposal.changes
    # bitsandbytes has kernels for GPUs alone.
    narrow = "load_in" in changes or "8bit" in str(changes.get("optimizer", ""))
    if narrow and (find_spec("bitsandbytes") is None or not read_machine().gpus):
        return False
    return not LAUNCHER_FIELDS & changes.keys() and (
        "liger" not in changes or find_spec("liger_kernel") is not None
    )


def settings_with_changes_applied(settings: RunSpec, changes: Sequence[MemoryChange]) -> RunSpec:
    """The settings with the changes over them, and over the same arguments in `trainer`."""
    for change in changes:
        over = change.settings.get("training", {})
        names = {*over, *({CHECKPOINTING} if "gradient_checkpointing" in over else ())}
        # `trainer` wins over `training`, so that a change has to be taken out of there to have an
        # effect.
        kept = {name: value for name, value in settings.trainer.items() if name not in names}
        settings = settings.model_copy(update={"trainer": kept})
        settings = validate_settings(
            merge_settings(settings.model_dump(exclude_unset=True), dict(change.settings)), "--fit"
        )
    return settings


def advice_where_it_does_not_fit(memory_plan: Plan) -> Iterator[str]:
    """What a run that does not fit needs; nothing where it fits."""
    if memory_plan.memory is None or memory_plan.verdict == "fits":
        return
    yield (
        f"memory: {_planned_peak_gib(memory_plan):.1f} GiB at the {memory_plan.estimate.peak.name} by the plan, and"
        f" there are {memory_plan.memory / GIB:.1f}; --fit changes, in order:"
    )
    yield from changes_as_yaml_lines(planned_changes_until_fit(memory_plan))


def changes_as_yaml_lines(changes: Sequence[MemoryChange]) -> Iterator[str]:
    """Changes with their settings, as lines for truetune.yaml."""
    for number, change in enumerate(changes, 1):
        yield f"  {number}. {change.what}: {change.total:.1f} GiB"
        for name, value in change.settings.items():
            inner = value.items() if isinstance(value, Mapping) else ()
            yield from (f"       {name}.{key}: {json.dumps(item)}" for key, item in inner)
            if not isinstance(value, Mapping):
                yield f"       {name}: {json.dumps(value)}"


def _change_of_remedy(step: Remedy) -> MemoryChange:
    """A remedy in the plan's terms as settings of truetune.yaml."""
    training = {
        name: value
        for field, to in step.changes.items()
        if field in TRAINING_FIELDS
        for name, value in TRAINING_FIELDS[field](to).items()
    }
    settings: dict[str, Any] = {"training": training} if training else {}
    if "length" in step.changes:
        settings["max_length"] = step.changes["length"]
    return MemoryChange(
        step.what,
        settings,
        step.gain / GIB,
        step.total / GIB,
        step.costs,
        bool(FRESH_START_FIELDS & step.changes.keys()),
    )


def _planned_peak_gib(memory_plan: Plan) -> float:
    """The peak of a run's memory in GiB: its largest moment by the plan."""
    return memory_plan.estimate.peak.total / GIB
