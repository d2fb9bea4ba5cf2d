"""A setting has no effect, because another one overrides it.

## What it does
Finds pairs of settings of which one overrides the other: `warmup_steps` over `warmup_ratio`; `max_steps` over
`num_train_epochs`, if the rows are available and `max_steps` ends the run before half of the epochs (a warning before
20 % of them, because most rows are then never seen); torchtune's `max_steps_per_epoch`, if it ends each epoch before
half of the rows, and all epochs together see fewer rows than there are. It finds held-out rows although nothing is
evaluated, and `eval_steps` although nothing is evaluated, unless `eval_strategy: "no"` is written. It finds settings
that the stack only reads if another one has a certain value: Axolotl's `cosine_min_lr_ratio` under `lr_scheduler:
cosine`, TRL's `ref_model_sync_steps` under `sync_ref_model`, LLaMA-Factory's `simpo_gamma` under `pref_loss: simpo`,
torchtune's `recipe_checkpoint` under `resume_from_checkpoint`, verl's `kl_loss_coef` under `use_kl_loss`, and others;
it is info if the other one is explicitly switched off. verl's two KL penalties are alternatives: with a coefficient for
each, not both of them the default, and both switched off, nothing of what the coefficients ask for is left, and it is a
warning. It also finds LoRA settings (rank, scale, modules) that differ from the adapter_config.json of an adapter that
training continues (`lora_model_dir`, `adapter_name_or_path`, `adapters`), and a `dataset_text_field` if the rows are
chats.

## Why it is bad
The value that you see is not the one that is used. Three epochs with `max_steps: 100` end after 100 steps. Rows that
are held out but never evaluated are wasted.

## Example
```yaml
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: rows
  finetuning_type: lora
  val_size: 0.1
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: rows
  finetuning_type: lora
  val_size: 0.1
  eval_strategy: steps
  eval_steps: 100
```

## Fix safety
Only you know which of the two you meant.

## References
- transformers `TrainingArguments`: the descriptions of `max_steps`, `warmup_steps` and `eval_strategy`
- verl-project/verl#455, verl-project/verl#3276, hkust-nlp/Laser#4 (a KL term of verl that is not switched on)
- hiyouga/LLaMA-Factory#2196 (an adapter that is continued)
- axolotl `SchedulerMixin.create_scheduler`; trl `DPOTrainer`, `GRPOTrainer`; LLaMA-Factory `train/dpo/trainer.py`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    is_value_unknown,
    numbered_tables_of_list,
    setting_case,
    value_at_dotted_key,
)
from truetune.checks.config.evidence.settings_of_continued_adapter import continued_adapter
from truetune.checks.config.evidence.settings_read_by_another_program import keeps_stack_defaults
from truetune.checks.config.evidence.settings_read_under_conditions import (
    UnreadSettings,
    unread_settings,
)
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import max_steps_of_run
from truetune.checks.count_optimizer_steps import OptimizerSteps
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.hyperparameter_limits import parse_setting_number
from truetune.checks.rule import ConfigRule
from truetune.errors import format_name_list
from truetune.settings.config import Config
from truetune.settings.stacks.read_columns_of_local_dataset import columns_of_first_row
from truetune.settings.training_settings import Training

MOST_OF_A_RUN = 0.5
"""Share of the epochs' steps: a limit above it hardly changes the run, and is often set on purpose"""

FEW_OF_A_RUN = 0.2
"""Share below which most rows are never seen: what is left over from a trial"""
STEPS_OF_AN_EPOCH = "max_steps_per_epoch"
OLD_NAME = "evaluation_strategy"
"""Of eval_strategy: where it stands, `setting-renamed` says what becomes of it. YAML reads a bare `no` as False."""

FIRST_AFTER_UNREAD_RESUME = "1.10.0"
"""Up to 1.9.0 the scripts of TRL call `trainer.train()`; those of 1.16 pass the checkpoint on"""

DEFAULT_KL = 0.001
"""Of both coefficients of verl 0.8. Its own examples write it where both penalties are off."""
TEXT_BY_DEFAULT = "text"
READ_BEFORE_TEXT = ("messages", "prompt", "completion")
"""Columns that TRL's SFTTrainer trains, whatever `dataset_text_field` names"""
FIRST_WITH_CHATS_BEFORE_TEXT = "0.13.0"


class SettingOverruled(ConfigRule):
    code = "CFG014"
    fault = Fault.SETTINGS_CONTRADICT
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    since = "0.1.0"
    reads = (
        "training.warmup_steps",
        "training.warmup_ratio",
        "training.num_train_epochs",
        "training.max_steps",
        "training.eval_strategy",
        "training.eval_steps",
    )

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_on_warmup_twice()
        if self.subject.stack == "torchtune":
            yield from self._findings_on_short_epochs_of_torchtune()
        else:
            yield from self._findings_on_epochs_cut_short()
        yield from self._findings_on_unread_settings()
        yield from self._findings_on_lora_settings_adapter_decides()
        yield from self._findings_on_roles_beside_train_on_inputs()
        yield from self._findings_on_resume_that_is_not_read()
        yield from self._findings_on_unread_text_column()
        config, training = self.subject, self.subject.spec.training
        if not _is_nothing_evaluated(config):
            return
        is_switched_off = (
            "training.eval_strategy" in config.places
            or OLD_NAME in config.raw
            or config.raw.get("do_eval") is False
        )
        # Steps say nothing where the file itself switches evaluation off; rows that are held out are lost even then.
        if not is_switched_off:
            yield from self._findings_on_unused_evaluation_setting(
                "training.eval_steps",
                training.eval_steps,
                "evaluation steps are set",
                # ms-swift evaluates wherever it has rows for that.
                "hold rows out (split_dataset_ratio: 0.01), or name a val_dataset"
                if config.stack == "ms-swift"
                else "set eval_strategy: steps",
            )
        yield from self._findings_on_unused_evaluation_set()
        yield from self._findings_on_unused_evaluation_setting(
            "training.val_size",
            training.val_size,
            "rows are held out",
            f"set eval_strategy: steps, or remove {_written_key(config, 'training.val_size')} to train on all rows",
        )

    def _findings_on_warmup_twice(self) -> Iterator[Finding]:
        """Findings on a share of warm-up beside a number of steps, which decides."""
        config, training = self.subject, self.subject.spec.training
        if not {"training.warmup_ratio", "training.warmup_steps"} <= {*config.places}:
            return
        if training.warmup_steps and training.warmup_ratio:
            yield self.finding(
                f"warmup_ratio {training.warmup_ratio:g} has no effect: warmup_steps {training.warmup_steps:g}"
                " overrides it",
                "remove one of the two",
                cases=[
                    setting_case(config, f"{training.warmup_ratio:g}", "training.warmup_ratio"),
                    setting_case(config, f"{training.warmup_steps:g}", "training.warmup_steps"),
                ],
            )

    def _findings_on_unread_settings(self) -> Iterator[Finding]:
        """Findings on settings that are read only where another one has certain values."""
        config = self.subject
        all_unread = list(unread_settings(config))
        alternatives = _alternatives_that_are_all_off(config, all_unread)
        yield from self._findings_on_alternatives_that_are_off(alternatives)
        for unread in all_unread:
            if unread in alternatives:
                continue
            switch = unread.condition.switch
            have, them = ("have", "them") if len(unread.keys) > 1 else ("has", "it")
            needed = " or ".join(unread.needed)
            yield self.finding(
                f"{format_name_list(unread.keys)} {have} no effect: {switch} is {unread.switch_value}"
                + ("" if unread.is_switch_written else " by default"),
                (f"set {switch} to {needed}" if needed else f"set {switch}")
                + f", or remove {them}",
                severity="info" if unread.is_off_on_purpose else None,
                evidence=[
                    f"{config.stack} only reads {them} if {switch} is {needed or 'on'}",
                ],
                cases=[
                    *(
                        setting_case(config, value_at_dotted_key(config.raw, key), key)
                        for key in unread.keys
                    ),
                    setting_case(config, unread.switch_value, switch),
                ],
            )

    def _findings_on_alternatives_that_are_off(
        self, alternatives: list[UnreadSettings]
    ) -> Iterator[Finding]:
        """The finding on ways to the same end of which each has settings, and none is on."""
        config = self.subject
        if not alternatives:
            return
        keys = [key for unread in alternatives for key in unread.keys]
        switches = [unread.condition.switch for unread in alternatives]
        yield self.finding(
            f"{format_name_list(keys)} have no effect: {format_name_list(switches)} are off, so the run has none of"
            " what they ask for",
            f"set {switches[0]} to true, or remove the settings that nothing reads",
            cases=[
                *(setting_case(config, value_at_dotted_key(config.raw, key), key) for key in keys),
                *(
                    setting_case(config, unread.switch_value, unread.condition.switch)
                    for unread in alternatives
                ),
            ],
        )

    def _findings_on_lora_settings_adapter_decides(self) -> Iterator[Finding]:
        """The finding on settings of LoRA that the adapter decides which the training continues."""
        config, adapter = self.subject, continued_adapter(self.subject)
        if adapter is None or not adapter.settings:
            return
        told = ", ".join(
            f"{one.field} {one.asked} (there: {one.decided})" for one in adapter.settings
        )
        yield self.finding(
            (
                f"LoRA settings have no effect, because training continues {adapter.name} with those in its"
                f" adapter_config.json: {told}"
            ),
            "merge the adapter into its base and train a new one on that, or set the values of adapter_config.json"
            " here",
            evidence=["peft takes them from the adapter_config.json of the loaded adapter"],
            cases=[
                *(
                    setting_case(
                        config,
                        one.asked,
                        f"training.lora.{one.field}",
                        "lora_rank" if one.field == "r" else one.field,
                    )
                    for one in adapter.settings
                ),
                *(
                    Case(f"{one.field}: {one.decided}", file=adapter.file)
                    for one in adapter.settings
                ),
            ],
        )

    def _findings_on_roles_beside_train_on_inputs(self) -> Iterator[Finding]:
        """Findings on Axolotl's roles to train beside `train_on_inputs`, with which all roles are trained."""
        config = self.subject
        if config.stack != "axolotl" or config.raw.get("train_on_inputs") is not True:
            return
        for index, item in numbered_tables_of_list(config, "datasets"):
            roles = item.get("roles_to_train")
            if item.get("type") == "chat_template" and isinstance(roles, list) and roles:
                named = ", ".join(map(str, roles))
                yield self.finding(
                    f"roles_to_train {named} has no effect: with train_on_inputs, the loss covers all turns",
                    "remove train_on_inputs, or roles_to_train",
                    evidence=["with train_on_inputs, axolotl ignores the roles"],
                    cases=[
                        setting_case(config, named, f"datasets.{index}.roles_to_train"),
                        setting_case(config, True, "train_on_inputs"),
                    ],
                )

    def _findings_on_resume_that_is_not_read(self) -> Iterator[Finding]:
        """The finding on a checkpoint to resume from that the release of TRL never reads."""
        config, wanted = self.subject, self.subject.raw.get("resume_from_checkpoint")
        if config.stack != "trl" or is_config_of_python_program(config) or not wanted:
            return
        if (
            not config.pins.is_release_surely_before("trl", FIRST_AFTER_UNREAD_RESUME)
            or config.own_keys
        ):
            return
        yield self.finding(
            "resume_from_checkpoint has no effect: the scripts of this TRL release call trainer.train() without it,"
            " so the run starts from the beginning",
            "use a newer TRL, or a script that calls trainer.train(resume_from_checkpoint=...)",
            evidence=[config.pins.describe_asked_release("trl")],
            cases=[setting_case(config, wanted, "resume_from_checkpoint")],
        )

    def _findings_on_unused_evaluation_setting(
        self, field: str, value: float | None, what: str, remedy: str
    ) -> Iterator[Finding]:
        """Findings on a setting of the evaluation that the file sets, while nothing is evaluated."""
        config = self.subject
        if value and field in config.places:
            yield self.finding(
                f"{what}, but nothing is evaluated: eval_strategy is no",
                remedy,
                # Examples of ms-swift set steps without rows to evaluate, and nothing is lost by it.
                severity="info" if config.stack == "ms-swift" else None,
                cases=[
                    setting_case(config, f"{value:g}", field),
                    setting_case(config, "no", "training.eval_strategy"),
                ],
            )

    def _findings_on_unread_text_column(self) -> Iterator[Finding]:
        """The finding on a column of text that TRL does not read, because the rows are chats or pairs."""
        config, field = self.subject, self.subject.raw.get("dataset_text_field")
        is_named = isinstance(field, str) and field not in ("", TEXT_BY_DEFAULT)
        if config.stack != "trl" or config.spec.training.method != "sft" or not is_named:
            return
        columns = columns_of_first_row(config.spec.data) if config.spec.data else frozenset()
        read = [name for name in READ_BEFORE_TEXT if name in columns]
        if not read or config.pins.is_release_surely_before("trl", FIRST_WITH_CHATS_BEFORE_TEXT):
            return
        yield self.finding(
            (
                f"dataset_text_field {field} has no effect: the rows have {' and '.join(read)}, which TRL trains on"
                " instead"
            ),
            f"remove {' and '.join(read)} from the rows, or remove dataset_text_field",
            evidence=["TRL only reads a text column if the rows have no messages and no prompt"],
            cases=[setting_case(config, field, "dataset_text_field")],
        )

    def _findings_on_unused_evaluation_set(self) -> Iterator[Finding]:
        """The finding on a LLaMA-Factory training that names rows to evaluate, and evaluates none."""
        config = self.subject
        named = config.raw.get("eval_dataset")
        is_used = config.raw.get("do_predict") or not config.raw.get("do_train")
        if config.stack != "llama-factory" or not named or is_used:
            return
        yield self.finding(
            "eval_dataset is set, but nothing is evaluated: eval_strategy is no",
            "set eval_strategy: steps, or remove eval_dataset",
            cases=[
                setting_case(config, named, "eval_dataset"),
                setting_case(config, "no", "training.eval_strategy"),
            ],
        )

    def _findings_on_epochs_cut_short(self) -> Iterator[Finding]:
        """Findings on a limit of steps that ends the run long before the epochs that are asked for."""
        config, training = self.subject, self.subject.spec.training
        epochs, limit = training.num_train_epochs or 0, training.max_steps or 0
        if not _are_epochs_and_steps_written(config) or epochs < 1 or limit <= 0:
            return
        whole = _steps_without_limit(config)
        # Where the rows are not here, nobody knows how long the epochs would be, and the limit may well be meant.
        if whole is None or limit >= MOST_OF_A_RUN * whole.most:
            return
        is_far_shorter = limit < FEW_OF_A_RUN * whole.most
        # One epoch is what a trainer's example writes beside a limit.
        if not is_far_shorter and epochs <= 1:
            return
        seen = _rows_seen(training, limit)
        is_trial = not is_far_shorter or config.path.endswith(".ipynb")
        yield self.finding(
            f"max_steps {limit:,} ends the run after {seen:,} rows and overrides num_train_epochs {epochs:g}",
            "remove max_steps; if this is a test run, remove the number of epochs instead",
            severity="info" if is_trial else None,
            evidence=[whole.why],
            cases=[
                setting_case(config, f"{epochs:g}", "training.num_train_epochs"),
                setting_case(config, limit, "training.max_steps"),
            ],
        )

    def _findings_on_short_epochs_of_torchtune(self) -> Iterator[Finding]:
        """The finding on a limit that ends each epoch long before its rows, as a trial of the settings does."""
        config, training = self.subject, self.subject.spec.training
        limit, epochs = config.raw.get(STEPS_OF_AN_EPOCH), training.num_train_epochs
        whole = _steps_without_limit(config) if type(limit) is int and limit > 0 else None
        if whole is None or type(limit) is not int or not epochs:
            return
        epoch_steps = whole.most / epochs
        if limit >= MOST_OF_A_RUN * epoch_steps:
            return
        # Many short epochs, each of other rows, are a way to save more often.
        sees_all = bool(training.shuffle) and limit * epochs >= epoch_steps
        yield self.finding(
            f"{STEPS_OF_AN_EPOCH} {limit:,} ends each epoch after {_rows_seen(training, limit):,} rows, which is"
            f" {limit / epoch_steps:.0%} of them",
            f"set {STEPS_OF_AN_EPOCH} to null, unless this is a test run",
            severity="info" if sees_all else None,
            evidence=[whole.why],
            cases=[
                setting_case(config, limit, STEPS_OF_AN_EPOCH),
                setting_case(config, f"{epochs:g}", "training.num_train_epochs"),
            ],
        )


def _are_epochs_and_steps_written(config: Config) -> bool:
    """Do the settings themselves name both the number of epochs and the limit of steps?"""
    return {"training.num_train_epochs", "training.max_steps"} <= {*config.places}


def _steps_without_limit(config: Config) -> OptimizerSteps | None:
    """The steps of all epochs, whatever limit the settings set; None where the rows are not here."""
    without_limit = config.spec.training.model_copy(update={"max_steps": None})
    return max_steps_of_run(
        replace(config, spec=config.spec.model_copy(update={"training": without_limit}))
    )


def _alternatives_that_are_all_off(
    config: Config, all_unread: list[UnreadSettings]
) -> list[UnreadSettings]:
    """Unread settings whose switches are alternatives of each other, where each has a number and all are off.

    One leftover coefficient says little of what its user wants, and scripts without a KL set both to 0, or leave both
    at the default.
    """
    alternatives = [
        unread
        for unread in all_unread
        if unread.is_off_on_purpose
        and _numbers_above_0(config, unread)
        and any(
            other.condition.switch == unread.condition.or_switch
            and other.is_off_on_purpose
            and _numbers_above_0(config, other)
            for other in all_unread
        )
    ]
    numbers = [number for unread in alternatives for number in _numbers_above_0(config, unread)]
    return alternatives if any(number != DEFAULT_KL for number in numbers) else []


def _numbers_above_0(config: Config, unread: UnreadSettings) -> list[float]:
    """The unread settings that are numbers above 0."""
    values = (value_at_dotted_key(config.raw, key) for key in unread.keys)
    numbers = (parse_setting_number(value) for value in values)
    return [number for number in numbers if number is not None and number > 0]


def _rows_seen(training: Training, steps: int) -> int:
    """The rows that so many steps see, each row as often as it is seen."""
    batch = training.per_device_train_batch_size or 1
    return steps * batch * max(training.gradient_accumulation_steps or 1, 1) * training.devices


def _written_key(config: Config, field: str) -> str:
    """The key by which the file writes a setting."""
    return config.places[field].key if field in config.places else field.rpartition(".")[2]


def _is_nothing_evaluated(config: Config) -> bool:
    """Is nothing evaluated, as far as the settings say? Axolotl evaluates wherever rows are held out."""
    training = config.spec.training
    if config.stack == "axolotl" or (training.eval_strategy or "no") != "no":
        return False
    if is_value_unknown(config, "eval_strategy") or config.raw.get("do_eval"):
        return False
    if "training.eval_strategy" not in config.places and not keeps_stack_defaults(config):
        return False
    return config.raw.get(OLD_NAME) in (None, False, "no")
