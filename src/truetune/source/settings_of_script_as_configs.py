"""Reads the settings that a script gives to trainers, LoRA and models, as a Config.

How it works: each call of a trainer's arguments is laid out as a plain call (names and evaluated values), with those
that belong to it: `LoraConfig`, `BitsAndBytesConfig`, the model's `from_pretrained`, `trainer.train`. `spec.stacks`
makes a Config of these, as it does of a config file, so the same rules judge scripts and files.

The trade-off: which calls belong together is seen only where a script holds one of each, or hands the objects over in
the open. Otherwise a part counts as unknown, and the rules that need it say so instead of guessing.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from truetune.errors import TruetuneError
from truetune.settings.config import Config, SettingLocation
from truetune.settings.release_pins import Pins
from truetune.settings.release_windows_of_removed_names import first_release_of_major
from truetune.settings.stacks.config_draft import UNKNOWN_VALUE
from truetune.settings.stacks.known_keys import load_known_keys
from truetune.settings.stacks.read_trainer_arguments import METHOD_OF_CLASS, class_defaults
from truetune.settings.stacks.settings_of_python_calls import ConfigCall, config_of_calls_of_one_run
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.does_script_prepare_rows_or_freeze_weights import (
    script_freezes_parameters,
    trainer_truncates_at_default_length,
)
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.find_arguments_guarded_against_refusal import (
    ADDED_BY_UNSLOTH,
    arguments_added_by_subclass,
    arguments_guarded_by_support_checks,
    qualified_names_over_try_and_if_branches,
)
from truetune.source.find_command_line_option_values import (
    find_option_default,
    option_value_from_commands_by_attribute,
)
from truetune.source.find_quantization_configs_and_readers import quantization_configs_that_are_read
from truetune.source.parsed_source_file import Module, read_module
from truetune.source.trainer_arguments_from_parser import (
    CommandSettings,
    ParsedSettings,
    command_options_read_by_parser,
    settings_files_read_by_parser,
)

# Calls beside a trainer's arguments that its Config takes settings from.
PART_CALLS = {
    "LoraConfig": ("peft.LoraConfig",),
    "from_pretrained": (
        "transformers.AutoModel*.from_pretrained",
        "transformers.*For*LM.from_pretrained",
    ),
}
MODEL_LOADS = (*PART_CALLS["from_pretrained"], "unsloth.*.from_pretrained")
"""Calls that load a model"""
SFT_LIMIT = 1024
"""Tokens of a row that TRL's SFTTrainer keeps by default: min(1024, tokenizer.model_max_length) up to release 0.12,
then max_seq_length=1024, and max_length=1024 since 0.16"""
LENGTH_ARGUMENTS = frozenset(("max_seq_length", "max_length"))
EARLIER_LENGTH_ARGUMENTS = LENGTH_ARGUMENTS
"""Arguments of earlier trainers; where a later one is called with them, `trainer-argument-gone` says so"""
SEQ2SEQ_ONLY_SETTINGS = frozenset(
    (
        "predict_with_generate",
        "generation_max_length",
        "generation_num_beams",
        "generation_config",
        "sortish_sampler",
    )
)
"""Settings of `Seq2SeqTrainingArguments` alone, which are about evaluation"""
CONDITIONS = (ast.If, ast.For, ast.While, ast.Try, ast.ExceptHandler)
"""Statements whose inner ones may not run"""
FIRST_PARAMETER = {
    "from_pretrained": "pretrained_model_name_or_path",
    "train": "resume_from_checkpoint",
}
"""What the first positional argument of a call is; of any class of arguments it is `output_dir`"""


def extract_configs(module: Module) -> tuple[Config, ...]:
    """The settings of a script, one Config for each call of a trainer's arguments (`SFTConfig`,
    `TrainingArguments`, ...).

    `LoraConfig`, `BitsAndBytesConfig`, the model's `from_pretrained` and `trainer.train` belong to it where the file
    holds one of each; of several loads, that of the model which the trainer is given, else what all have in common. Any
    other use of peft counts as an adapter of which nothing is known. Raises SpecError for a value that its field does
    not take.
    """
    argument_calls: list[tuple[Call, str]] = []
    for call in module.all_calls:
        classes = _possible_trainer_argument_classes(module, call)
        if classes:
            argument_calls.append((call, classes[0]))
    from_files = list(settings_files_read_by_parser(module))
    # A class that the script also fills itself is judged there.
    from_commands = [] if argument_calls else list(command_options_read_by_parser(module))
    if not argument_calls and not from_files and not from_commands:
        return ()
    parts = _collect_adapter_and_load_calls(module)
    configs = [_make_config(module, call, name, parts) for call, name in argument_calls]
    configs += [_config_of_parsed_settings_file(module, parsed, parts) for parsed in from_files]
    configs += [_config_of_command(module, parsed, parts) for parsed in from_commands]
    return tuple(configs)


def _config_of_command(module: Module, parsed: CommandSettings, parts: _FileParts) -> Config:
    """The Config of a command's options that a parser of the script reads into a class of arguments."""
    places = {
        key: SettingLocation(parsed.file, spot.line, key, spot.column)
        for key, spot in parsed.spots.items()
    }
    arguments = ConfigCall(
        parsed.class_name, parsed.values, places, complete=parsed.is_whole, older=parts.older
    )
    return _config_of_parsed_arguments(module, arguments, parts, module.path, module.file_text)


def _config_of_parsed_settings_file(
    module: Module, parsed: ParsedSettings, parts: _FileParts
) -> Config:
    """The Config of a file of settings that a parser of the script reads into a class of arguments."""
    arguments = _file_as_config_call(module, parsed, older=parts.older)
    return _config_of_parsed_arguments(module, arguments, parts, parsed.file, parsed.text)


def _config_of_parsed_arguments(
    module: Module, arguments: ConfigCall, parts: _FileParts, path: str, text: str
) -> Config:
    """The Config of arguments that a parser fills, with the parts of the script that belong to them."""
    own = [arguments, *parts.single]
    if len(parts.loads) > 1:
        own.append(
            _values_common_to_loads(
                [_call_as_config_call(module, load, "from_pretrained") for load in parts.loads]
            )
        )
    config = config_of_calls_of_one_run(own, path, text)
    limit = config.limit if "max_length" in config.places else None
    return replace(config, pins=module.pins, limit=limit, freezes_by_hand=parts.freezes)


def _file_as_config_call(
    module: Module, parsed: ParsedSettings, *, older: Pins | None
) -> ConfigCall:
    """The entries of a settings file that are arguments of the class, as a call of the class."""
    arguments: dict[str, Any] = {}
    places: dict[str, SettingLocation] = {}
    for key, (_, value_node) in parsed.entries.items():
        value = _evaluate_setting(module, value_node)
        arguments[key] = UNKNOWN_VALUE if value is UNKNOWN else value
        places[key] = SettingLocation(
            parsed.file, value_node.lineno, key, value_node.col_offset + 1
        )
    return ConfigCall(parsed.class_name, arguments, places, older=older)


@dataclass(frozen=True, slots=True)
class _FileParts:
    """What a file says for all its trainers; read once, as files of tests hold hundreds of them."""

    single: tuple[ConfigCall, ...]
    """The parts of which the file holds one each"""
    loads: tuple[Call, ...]
    """All calls that load a model"""
    older: Pins | None
    """The pins of a file that asks for a release of which not all defaults are known"""
    freezes: bool
    """The script freezes parameters by hand"""


def _collect_adapter_and_load_calls(module: Module) -> _FileParts:
    """The calls of a file that belong to each of its trainers: LoRA, quantization, model loads."""
    calls = {name: list(module.calls(*patterns)) for name, patterns in PART_CALLS.items()}
    calls["BitsAndBytesConfig"] = list(quantization_configs_that_are_read(module))
    calls["train"] = [
        call for call in module.methods("train") if "trainer" in module.flow.types(call.receiver)
    ]
    single = _single_parts_as_config_calls(module, calls)
    # Of several adapters it is not seen which one is trained; that there is one still matters to many rules.
    if len(calls["LoraConfig"]) != 1 and any(module.calls("peft.*", "unsloth.*.get_peft_model")):
        single.append(ConfigCall("LoraConfig", {}, complete=False))
    has_older_pins = any(
        module.pins.is_release_surely_before(
            stack, first_release_of_major(load_known_keys(stack).release)
        )
        for stack in ("trl", "transformers")
    )
    loads = tuple(calls["from_pretrained"])
    older = module.pins if has_older_pins else None
    return _FileParts(tuple(single), loads, older, script_freezes_parameters(module))


def _make_config(module: Module, call: Call, name: str, parts: _FileParts) -> Config:
    """The Config of one call of a trainer's arguments, which is of the class `name`."""
    own = list(parts.single)
    if any(part.name == "LoraConfig" for part in own) and _trains_no_adapter(module, call):
        own = [part for part in own if part.name != "LoraConfig"]
    if not any(part.name == "LoraConfig" for part in own):
        own += _adapter_given_by_other_file(module, call)
    if len(parts.loads) > 1:
        own.append(_load_of_trained_model_or_common(module, call, parts.loads))
    elif not parts.loads:
        own += _model_loaded_by_trainer(module, call)
    laid_out = [_call_as_config_call(module, call, name, older=parts.older), *own]
    config = config_of_calls_of_one_run(laid_out, module.path, module.file_text)
    is_default = "max_length" not in config.places
    # A default that cuts no row is no limit, else rules would count rows as cut that are not.
    limit = config.limit
    if is_default:
        limit = (
            _default_length_limit_if_unset(call, name, config)
            if _rows_are_cut_at_default_length(module, call)
            else None
        )
        config = _add_length_limit_of_trainer(config, module, call)
    config = replace(config, pins=module.pins, limit=limit, freezes_by_hand=parts.freezes)
    return _drop_faults_of_unsure_arguments(config, module, call)


def _add_length_limit_of_trainer(config: Config, module: Module, arguments: Call) -> Config:
    """The settings with the limit that an earlier release takes from the trainer's call, where all calls agree."""
    given = [
        node
        for trainer in _trainers_with_arguments(module, arguments)
        for key, node in trainer.keywords.items()
        if key in EARLIER_LENGTH_ARGUMENTS
    ]
    if not given:
        return config
    values = {value if isinstance(value, int) else 0 for value in map(module.flow.value, given)}
    value = values.pop() if len(values) == 1 else 0
    spec = config.spec
    if value > 0:
        return replace(config, spec=spec.model_copy(update={"max_length": value}))
    training = spec.training.model_copy(update={"open_length_limit": True})
    return replace(config, spec=spec.model_copy(update={"training": training}))


def _default_length_limit_if_unset(call: Call, name: str, config: Config) -> int | None:
    """The length limit of arguments that set none; TRL's own for SFT is one number in all its
    releases.
    """
    is_set = LENGTH_ARGUMENTS & set(config.raw)
    if config.limit is None and name == "SFTConfig" and not call.open and not is_set:
        return SFT_LIMIT
    return config.limit


def settings_files_read_into_arguments(script: Path) -> frozenset[str]:
    """The files of settings whose values a script hands to a trainer's arguments; none where it can't be read."""
    try:
        module = read_module(script)
        places = [place for one in extract_configs(module) for place in one.places.values()]
    except (TruetuneError, OSError, ValueError):
        return frozenset()
    return frozenset(place.file for place in places) - {module.path}


def extract_config_of_own_loop(module: Module) -> Config | None:
    """The settings of a loop of one's own: its model, adapter and quantization, and the rows of its loader.

    None where the file loads no model by a plain name, or has no backward pass.
    """
    loads = [call for call in module.calls(*MODEL_LOADS) if _loaded_model_name(module, call)]
    if not loads or not any(module.methods("backward")):
        return None
    parts = {"LoraConfig": list(module.calls(*PART_CALLS["LoraConfig"]))}
    parts["BitsAndBytesConfig"] = list(quantization_configs_that_are_read(module))
    laid_out = [
        _call_as_config_call(module, loads[-1], "from_pretrained"),
        *_single_parts_as_config_calls(module, parts),
    ]
    config = config_of_calls_of_one_run(laid_out, module.path, module.file_text)
    loaders = list(module.calls("torch.utils.data.*DataLoader"))
    rows = module.flow.value(loaders[0].argument(1, "batch_size")) if loaders else UNKNOWN
    training = config.spec.training.model_copy(
        update={
            # One row is the least that a batch can hold, so what is counted from it is never too much.
            "per_device_train_batch_size": rows if isinstance(rows, int) else 1,
            "gradient_checkpointing": any(module.methods("gradient_checkpointing_enable")),
            "bf16": any(
                module.calls("torch.autocast", "torch.amp.autocast", "torch.cuda.*autocast")
            ),
        }
    )
    return replace(config, spec=config.spec.model_copy(update={"training": training}))


def find_only_plainly_named_model(module: Module) -> str | None:
    """The one model that a script names in a plain text: to its trainer, or where it is loaded; None otherwise."""
    trainers = module.calls("trl.*Trainer", "transformers.*Trainer")
    models = (module.flow.value(call.argument(0, "model")) for call in trainers)
    named = {value for value in models if isinstance(value, str)}
    # The trainer's own argument is the model that is trained; loads may be of a judge or a reference too.
    if len(named) == 1:
        return named.pop()
    loads = (_loaded_model_name(module, call) for call in module.calls(*MODEL_LOADS))
    loaded = {name for name in loads if name}
    return loaded.pop() if len(loaded) == 1 else None


def _loaded_model_name(module: Module, call: Call) -> str | None:
    """The name of the model that a call loads; None where it is no plain text."""
    node = call.argument(0, "pretrained_model_name_or_path") or call.keywords.get("model_name")
    value = module.flow.value(node)
    return value if isinstance(value, str) and value else None


def _single_parts_as_config_calls(
    module: Module, parts: Mapping[str, list[Call]]
) -> list[ConfigCall]:
    """The parts (LoRA, quantization, ...) of which the file holds just one, each as a ConfigCall."""
    return [
        _call_as_config_call(module, calls[0], name)
        for name, calls in parts.items()
        if len(calls) == 1
    ]


def _drop_faults_of_unsure_arguments(config: Config, module: Module, call: Call) -> Config:
    """The settings without the faults of arguments that the class may well take.

    Those that the program gives only where it asked for them, those that another class takes which may stand there
    (`try: from trl import SFTConfig`, `except ImportError: SFTConfig = TrainingArguments`), and those that unsloth
    adds.
    """
    excused = arguments_guarded_by_support_checks(module, call) | arguments_added_by_subclass(
        module, call
    )
    excused = excused.union(
        *(class_defaults(name) for name in _possible_trainer_argument_classes(module, call))
    )
    if module.this_or_linked_file_imports_unsloth:
        excused |= ADDED_BY_UNSLOTH
    return replace(
        config,
        unknown=tuple(place for place in config.unknown if place.key not in excused),
        renamed=tuple(old for old in config.renamed if old.place.key not in excused),
    )


def _trains_no_adapter(module: Module, arguments: Call) -> bool:
    """Do the trainers of these arguments certainly train no adapter, whatever others of the file do?"""
    trainers = _trainers_with_arguments(module, arguments)
    return bool(trainers) and all(
        trainer.lacks("peft_config")
        and _is_model_name_or_unwrapped_load(module, trainer.argument(0, "model"))
        for trainer in trainers
    )


def _adapter_given_by_other_file(module: Module, arguments: Call) -> list[ConfigCall]:
    """The adapter that these arguments' trainers are given by another file: its settings, or a model that has it."""
    described = [
        _adapter_settings_of_trainer(module, trainer)
        for trainer in _trainers_with_arguments(module, arguments)
    ]
    if not described or any(one is None for one in described):
        return []
    calls = [one for one in described if one is not None]
    same = all(one is calls[0] for one in calls) and calls[0].named(*PART_CALLS["LoraConfig"])
    # That there is an adapter matters to many rules, also where nothing more is known of it.
    laid_out = _call_as_config_call(module, calls[0], "LoraConfig") if same else None
    return [laid_out or ConfigCall("LoraConfig", {}, complete=False)]


def _adapter_settings_of_trainer(module: Module, trainer: Call) -> Call | None:
    """The settings of the adapter that a trainer trains, else the call that makes it; None where none is seen."""
    call = module.flow.producing_call(trainer.keywords.get("peft_config"))
    if call is not None:
        return call if call.named("peft.*Config") else None
    model = module.flow.producing_call(trainer.argument(0, "model"))
    if model is None or not model.named("peft.get_peft_model", "unsloth.*.get_peft_model"):
        return None
    return module.flow.producing_call(model.argument(1, "peft_config")) or model


def _load_of_trained_model_or_common(
    module: Module, arguments: Call, loads: Sequence[Call]
) -> ConfigCall:
    """Of several loads that of the model which these arguments' trainers are given.

    Where it is not seen which one that is (a wrapper or a branch stands between), what all loads have in common; a
    value in which they differ is not known.
    """
    models = [
        module.flow.producing_call(trainer.argument(0, "model"))
        for trainer in _trainers_with_arguments(module, arguments)
    ]
    # By identity: two loads with the same arguments are two models.
    for load in loads:
        if models and all(one is load for one in models):
            return _call_as_config_call(module, load, "from_pretrained")
    return _values_common_to_loads(
        [_call_as_config_call(module, load, "from_pretrained") for load in loads]
    )


def _model_loaded_by_trainer(module: Module, arguments: Call) -> list[ConfigCall]:
    """The one model that these arguments' trainers are given by its name and load themselves, as its load; or none."""
    key = FIRST_PARAMETER["from_pretrained"]
    given = [
        trainer.argument(0, "model") for trainer in _trainers_with_arguments(module, arguments)
    ]
    laid_out: list[ConfigCall] = []
    for node in given:
        if node is None:
            return []
        default = find_option_default(module, node)
        value = module.flow.value(default if default is not None else node)
        if not isinstance(value, str) or not value:
            return []
        line, column = module.place(node)
        places = {key: SettingLocation(module.home(node).path, line, key, column)}
        # What else the trainer loads it with (`model_init_kwargs`) is read with the arguments.
        laid_out.append(ConfigCall("from_pretrained", {key: value}, places, complete=False))
    return laid_out if len({one.arguments[key] for one in laid_out}) == 1 else []


def _values_common_to_loads(laid_out: list[ConfigCall]) -> ConfigCall:
    """One load with the values that all loads share; the others are unknown."""
    common: dict[str, Any] = {}
    for key in {key for one in laid_out for key in one.arguments}:
        values = [one.arguments.get(key, UNKNOWN_VALUE) for one in laid_out]
        is_shared = all(value == values[0] for value in values)
        common[key] = values[0] if is_shared else UNKNOWN_VALUE
    places: dict[str, SettingLocation] = {}
    for one in reversed(laid_out):  # the first load's places win
        places.update(one.places)
    complete = all(one.complete for one in laid_out)
    return ConfigCall("from_pretrained", common, places, complete=complete)


def _trainers_with_arguments(module: Module, arguments: Call) -> list[Call]:
    """The calls of trainers that are given these arguments."""
    return [
        trainer
        for part in module.self_and_files_run_together
        for trainer in part.calls("trl.*Trainer", "transformers.*Trainer")
        if module.flow.producing_call(trainer.argument(1, "args")) is arguments
    ]


def _rows_are_cut_at_default_length(module: Module, arguments: Call) -> bool:
    """Are rows cut at the default of these arguments? Earlier releases take the length from the trainer's call."""
    trainers = _trainers_with_arguments(module, arguments)
    is_of_project = module.flow.name(arguments.node.func) is None
    if is_of_project and not trainers:
        return False  # a class of the project may set the length itself, and what reads it is not in sight
    return trainer_truncates_at_default_length(module, arguments) and not any(
        trainer.keywords.keys() & EARLIER_LENGTH_ARGUMENTS for trainer in trainers
    )


def _is_model_name_or_unwrapped_load(module: Module, model: ast.expr | None) -> bool:
    """Is it the name of a model, or one that is loaded and wrapped by nothing?"""
    if isinstance(module.flow.value(model), str):
        return True
    maker = module.flow.producing_call(model)
    return maker is not None and maker.named(
        "transformers.*.from_pretrained", "transformers.*.from_config"
    )


def only_config_of_script(module: Module) -> Config | None:
    """The one Config that a script holds; None if there is none, or more than one."""
    configs = extract_configs(module)
    return configs[0] if len(configs) == 1 else None


def _possible_trainer_argument_classes(module: Module, call: Call) -> list[str]:
    """The classes of arguments that a call may be of; those of TRL first, which know what they add themselves."""
    if not call.names:
        return []
    classes: list[tuple[str, str]] = []
    for name in sorted(
        {*call.names, *qualified_names_over_try_and_if_branches(module, call.node.func)}
    ):
        package, _, last = name.rpartition(".")
        if package in ("trl", "transformers") and last in METHOD_OF_CLASS:
            classes.append((package, last))
    return [last for _, last in sorted(classes, key=lambda one: one[0] != "trl")]


def _call_as_config_call(
    module: Module, call: Call, name: str, *, older: Pins | None = None
) -> ConfigCall:
    """A call as a ConfigCall, with its evaluated arguments and their places.

    Args:
        module: The script.
        call: The call, of the class or method `name`.
        name: `SFTConfig`, `LoraConfig`, `from_pretrained`, ...
        older: The pins of a file that asks for a release of which not all defaults are known.
    """
    arguments: dict[str, Any] = {}
    places: dict[str, SettingLocation] = {}
    expressions = dict(call.keywords)
    if call.args and not isinstance(call.args[0], ast.Starred):
        expressions.setdefault(FIRST_PARAMETER.get(name, "output_dir"), call.args[0])
    changed = _find_settings_set_after_call(module, call, name)
    expressions.update(changed)
    for key, node in expressions.items():
        # They are about evaluation, and the table of settings is that of `TrainingArguments`.
        if name.startswith("Seq2Seq") and key in SEQ2SEQ_ONLY_SETTINGS:
            continue
        value = _evaluate_setting(module, node)
        default = find_option_default(module, node) if value is UNKNOWN else None
        if (
            default is not None
        ):  # the place is that of the default, which is what a user would change
            node, value = default, _evaluate_setting(module, default)
        given_option = (
            option_value_from_commands_by_attribute(module, node) if value is UNKNOWN else None
        )
        if given_option is not None:
            arguments[key] = given_option.value
            places[key] = SettingLocation(given_option.file, given_option.line, key)
            continue
        arguments[key] = UNKNOWN_VALUE if value is UNKNOWN else value
        line, column = module.place(node)
        places[key] = SettingLocation(module.home(node).path, line, key, column)
    return ConfigCall(name, arguments, places, complete=not call.open, older=older)


def _find_settings_set_after_call(module: Module, call: Call, name: str) -> dict[str, ast.expr]:
    """What a script sets on an object of settings after the call that makes it: `args.learning_rate = 2e-4`.

    Where that may be left out, by an `if` or a loop, the target stands for the value, of which nothing is known.
    """
    if name not in METHOD_OF_CLASS:
        return {}
    known = class_defaults(name)
    later: dict[str, ast.expr] = {}
    for part in module.self_and_files_run_together:
        for node in part.nodes(ast.Assign):
            target = node.targets[0]
            if not isinstance(target, ast.Attribute) or target.attr not in known:
                continue
            if module.flow.producing_call(target.value) is not call:
                continue
            is_certain = not any(isinstance(one, CONDITIONS) for one in part.parents(node))
            later[target.attr] = node.value if is_certain else target
    return later


def _evaluate_setting(module: Module, node: ast.expr) -> Any:
    """The value of an argument: a constant, or a dtype by its name; otherwise UNKNOWN."""
    value = module.flow.value(node)
    if value is UNKNOWN:
        name = module.flow.name(node)
        return name.removeprefix("torch.") if name and name.startswith("torch.") else UNKNOWN
    return value if _can_be_in_config_file(value) else UNKNOWN


def _can_be_in_config_file(value: Any) -> bool:
    """Is it a value that a config file can hold too? Bytes and complex numbers are none."""
    return value is None or isinstance(value, (bool, int, float, str, list, tuple, dict, frozenset))
