"""Finds which folders of weights the given files merge, serve or load: settings, commands, scripts
and Modelfiles.

Settings without training (LLaMA-Factory's export and chat), commands that merge or serve, scripts that load an adapter
or a model to ask it, and Modelfiles. A training that is given beside them may then be compared with what is used. Only
names that stand in a file as plain text are known.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from truetune.checks.find_training_stages_of_files import stages_of_file
from truetune.checks.position_and_attention_overrides import (
    override_keys_in_text,
    override_keys_of_server_options,
    overrides_of_config,
)
from truetune.checks.read_evaluation_harness_commands import find_harness_runs
from truetune.checks.source.evidence.adapted_models_and_loaded_names import (
    literal_or_default_text_of_expression,
    models_given_loaded_adapter,
    written_name_of_loaded_model,
)
from truetune.checks.source.evidence.prompt_forms import model_folders_written
from truetune.checks.vllm_server_commands import (
    VllmServerCommand,
    adapters_by_served_name,
    find_vllm_server_commands,
    model_of_server,
)
from truetune.data.script_rows.read_rows_given_to_trainer import read_module_with_helpers
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import SETTINGS as SETTINGS_FILE
from truetune.parsing.ollama_modelfiles_in_shell_scripts import modelfiles_in_script
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.read_ollama_modelfile import Modelfile, is_modelfile_name, read_modelfile
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    is_command_file,
    last_option,
    read_command_file,
)
from truetune.settings.config import Config, TrainingStage, WeightUse
from truetune.settings.recognise_input_kind import MAX_FOLDER_ENTRIES, recognise_kinds
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.find_source_files import SKIPPED_FOLDERS
from truetune.source.parsed_source_file import Module
from truetune.trainers.trainer_fact_types import TrainerName

OF_LLAMA_FACTORY = ("export", "chat", "webchat", "api", "eval")
CONVERTERS = ("convert_hf_to_gguf.py", "convert_lora_to_gguf.py", "convert-hf-to-gguf.py")
LLAMA_CPP = ("llama-server", "llama-cli")
ENGINES = ("vllm.LLM", "vllm.AsyncEngineArgs", "peft.AutoPeftModel*.from_pretrained")
SCRIPTS = (".py", ".ipynb")
SETTINGS = (".yaml", ".yml", ".json")
LOADERS = (b"peft", b"vllm", b"load_adapter", b".generate(")
"""One of them stands in each script that loads an adapter or asks a model; most others need not be parsed"""
TRAINS = ("trl.*Trainer", "transformers.*Trainer")
MODELS = ("transformers.Auto*.from_pretrained",)
# Chosen, not measured: what a script loads stands in its first megabyte.
HEAD = 1 << 20
MANY = 300
"""Files of a folder that are looked at, as for the files around settings"""
# Measured: a script takes up to 40 ms, and a checkout of a library has hundreds of them below.
MANY_BELOW = 60
"""Files in the folders below it that are looked at, too"""
# As for the settings in a folder of several kinds: saves/model/lora/sft is three folders down.
MAX_FOLDERS_DOWN = 4
MODEL_FILES = ("config.json", "adapter_config.json")
"""What lies in the folder of a model, whose scripts are not the project's"""

BEGINS_WITH_VARIABLE = re.compile(r"(?:\$\w+|\$\{\w+\}|\$\(pwd\))/+(?=\w)")
"""`$PWD/out` in a command: the shell knows the folder"""


def find_weight_uses(
    paths: Iterable[str | os.PathLike[str]], trained_by: TrainerName | None = None
) -> tuple[WeightUse, ...]:
    """What the files among these paths, and in folders among them, merge, serve or load.

    One file alone is compared with nothing, and files that can't be read say nothing here.
    """
    files = [file for path in map(Path, paths) for file in _files_at(path)]
    uses: list[WeightUse] = []
    for path in files:
        is_alone = len(files) == 1
        # The commands of one script may be several stages.
        if is_alone and not is_command_file(path):
            continue
        try:
            uses += [] if is_alone else _uses_of_file(path, trained_by)
            uses += map(_training_stage_as_weight_use, stages_of_file(path, trained_by))
        except (TruetuneError, OSError, ValueError):
            continue  # who looks at the file itself says what is wrong with it
    return tuple(use._replace(is_named_elsewhere=_is_named_elsewhere(use, files)) for use in uses)


def uses_of_files(paths: Iterable[Path]) -> Iterator[WeightUse]:
    """What files merge, serve or load, each by itself; those that can't be read say nothing."""
    for path in paths:
        try:
            yield from _uses_of_file(path, None)
        except (TruetuneError, OSError, ValueError):
            continue


def _training_stage_as_weight_use(stage: TrainingStage) -> WeightUse:
    """A training, as it travels with the uses of weights to the settings that are judged."""
    return WeightUse(stage.file, 1, "", "trains", (), are_adapters=False, stage=stage)


def _is_named_elsewhere(use: WeightUse, files: Iterable[Path]) -> bool:
    """Does a file other than that of the use hold the name of one of its folders?"""
    names = [name.removeprefix("./").rstrip("/").encode() for name in use.folders]
    heads = (_file_head(file) for file in files if str(file) != use.file)
    # Bytes in bytes: the files are not parsed for it, and their encodings do not matter.
    return any(name in head for head in heads for name in names)


def _file_head(file: Path) -> bytes:
    """The beginning of a file; empty where it can't be read."""
    try:
        with file.open("rb") as stream:
            return stream.read(HEAD)
    except OSError:
        return b""


def _files_at(path: Path) -> list[Path]:
    """A file, or the scripts, commands and settings in a folder and in those below it (`configs/`)."""
    if path.is_file():
        return [path]
    here = list(islice(_files_below(path, 1), MANY))
    below = (file for file in _files_below(path, MAX_FOLDERS_DOWN) if file.parent != path)
    return [*here, *islice(below, MANY_BELOW)]


def _files_below(folder: Path, levels: int) -> Iterator[Path]:
    """The scripts, commands and settings in a folder, then those so many levels below it."""
    try:
        inside = sorted(islice(folder.iterdir(), MAX_FOLDER_ENTRIES))
        yield from (path for path in inside if _may_use_weights(path) and path.is_file())
        below = [path for path in inside if path.is_dir() and _is_folder_of_user(path)]
    except OSError:
        return
    for path in below if levels > 1 else ():
        yield from _files_below(path, levels - 1)


def _may_use_weights(path: Path) -> bool:
    """Is a file a script, commands, settings or a Modelfile, by its name or its first line?"""
    return (
        path.suffix in (*SCRIPTS, ".yaml", ".yml")
        or is_command_file(path)
        or is_modelfile_name(path)
    )


def _is_folder_of_user(path: Path) -> bool:
    """May a folder hold the user's own files: no folder of a tool, and no model?"""
    if path.name.startswith(".") or path.name in SKIPPED_FOLDERS:
        return False
    return not any((path / name).is_file() for name in MODEL_FILES)


def is_same_folder(one: str, other: str) -> bool:
    """Do two names mean one folder of weights? One may be absolute, and the other relative."""
    here, there = (_normalised_path(name) for name in (one, other))
    # Both absolute or both relative: equal, or not the same.
    if here.startswith("/") == there.startswith("/"):
        return here == there
    longer, shorter = (here, there) if here.startswith("/") else (there, here)
    return longer.endswith(f"/{shorter}")


def is_same_or_below(one: str, folder: str) -> bool:
    """Is a folder, or one below it (`checkpoint-400`, `merged`), meant by the first name?"""
    parts = _normalised_path(one).split("/")
    return any(is_same_folder("/".join(parts[:end]), folder) for end in range(1, len(parts) + 1))


def _normalised_path(name: str) -> str:
    """A path without `~`, `.` and `..`; of one that begins with a variable of the shell, what follows.

    `$PWD/out/adapter` and `$SLURM_SUBMIT_DIR/out/adapter` of a job are the `out/adapter` of its scripts.
    """
    below_variable = BEGINS_WITH_VARIABLE.match(name)
    rest = name if below_variable is None else name[below_variable.end() :]
    return os.path.normpath(os.path.expanduser(rest))


def _uses_of_file(path: Path, trained_by: TrainerName | None) -> Iterator[WeightUse]:
    """What one file does with weights."""
    if is_command_file(path):
        yield from _uses_of_commands(read_command_file(path))
        for modelfile in modelfiles_in_script(path):
            yield from _use_of_modelfile(modelfile)
    elif is_modelfile_name(path):
        yield from _use_of_modelfile(read_modelfile(path))
    elif path.suffix in SCRIPTS:
        head = path.read_bytes()[:HEAD]
        if any(word in head for word in LOADERS):
            yield from _uses_of_script(read_module_with_helpers(path))
    elif path.suffix in SETTINGS and recognise_kinds(path, trained_by)[0] == "llama-factory":
        yield from _use_of_llama_factory_settings(read_config(path, trained_by))


def _use_of_modelfile(modelfile: Modelfile) -> Iterator[WeightUse]:
    """What Ollama serves by a Modelfile."""
    template = modelfile.last("template")
    written = template.value if template is not None else ""
    for word in ("from", "adapter"):
        for one in modelfile.all(word):
            text = f"{word.upper()} {one.value}"
            yield WeightUse(
                modelfile.path, one.line, text, "serves", (one.value,), word == "adapter", written
            )


def _use_of_llama_factory_settings(config: Config) -> Iterator[WeightUse]:
    """The model or adapters that LLaMA-Factory settings export, chat with or evaluate; none where they train."""
    if config.raw.get("do_train"):
        return
    adapters = str(config.spec.training.adapter or "")
    model = _setting_as_text(config, "model_name_or_path")
    named = adapters or model
    # LLaMA-Factory takes several adapters, separated by commas, and puts them on one after another.
    folders = tuple(name.strip() for name in named.split(",") if name.strip())
    if not folders:
        return
    place = config.place("training.adapter" if adapters else "model")
    verb = "merges" if config.raw.get("export_dir") else "loads"
    text = f"{place.key}: {named}"
    template = _setting_as_text(config, "template")
    base = model if adapters else ""
    written = _setting_as_text(config, "export_dir")
    use = WeightUse(config.path, place.line, text, verb, folders, bool(adapters), template, base)
    overrides = frozenset(one.key for one in overrides_of_config(config))
    yield use._replace(writes=(written,) if written else (), overrides=overrides)


def _setting_as_text(config: Config, key: str) -> str:
    """A setting as text; empty where it is not set."""
    return str(config.raw.get(key) or "")


def _uses_of_commands(file: CommandFile) -> Iterator[WeightUse]:
    """What commands serve, merge or convert."""
    for server in find_vllm_server_commands(file):
        yield from _served_by_vllm(file, server)
    for command in file.commands:
        yield from _served_by_llama_cpp(file, command)
        yield from _used_by_llama_factory(file, command)
        yield from _merged_by_axolotl(file, command)
        yield from _converted_to_gguf(file, command)
    yield from _adapters_of_harness_commands(file)


def _used_by_llama_factory(file: CommandFile, command: ShellCommand) -> Iterator[WeightUse]:
    """The adapters that a command of LLaMA-Factory merges or serves, by its own options."""
    for verb in OF_LLAMA_FACTORY:
        words = command.words_following("llamafactory-cli", verb)
        adapters = last_option(words, "--adapter_name_or_path") if words is not None else None
        if words is not None and adapters:
            does = "merges" if verb == "export" else "serves"
            use = _use_of_command(file, command, does, tuple(adapters.split(",")), True)
            written = last_option(words, "--export_dir")
            yield use._replace(
                writes=(written,) if written else (),
                overrides=override_keys_of_server_options(words),
            )


def _converted_to_gguf(file: CommandFile, command: ShellCommand) -> Iterator[WeightUse]:
    """The folder that a converter of llama.cpp reads."""
    for name in CONVERTERS:
        words = command.words_following(name)
        if words and not words[0].startswith("-"):
            use = _use_of_command(file, command, "converts", (words[0],), "lora" in name)
            written = last_option(words, "--outfile")
            yield use._replace(writes=(written,) if written else ())


def _merged_by_axolotl(file: CommandFile, command: ShellCommand) -> Iterator[WeightUse]:
    """The adapter that Axolotl merges: the named one, else the output of its settings."""
    merged = command.words_following("axolotl", "merge-lora")
    if merged is None:
        return
    output = _output_folder_in_named_settings(file, merged)
    adapter = last_option(merged, "--lora-model-dir") or output
    if adapter:
        use = _use_of_command(file, command, "merges", (adapter,), True)
        # Axolotl writes the merged model into a folder of the output.
        written = last_option(merged, "--output-dir") or output or adapter
        yield use._replace(writes=(f"{written.rstrip('/')}/merged",))


def _adapters_of_harness_commands(file: CommandFile) -> Iterator[WeightUse]:
    """The adapters that lm_eval puts on models: `--model_args pretrained=BASE,peft=FOLDER`."""
    for run in find_harness_runs(file):
        adapter = run.model_argument("peft") or run.model_argument("lora_local_path")
        if adapter and "$" not in adapter:
            base = run.model_argument("pretrained") or ""
            yield _use_of_command(
                file, run.command, "loads", (adapter,), are_adapters=True, base=base
            )


def _output_folder_in_named_settings(file: CommandFile, words: tuple[str, ...]) -> str | None:
    """The output folder in the settings that a command names; None where they are not here, or name none."""
    name = next((word for word in words if word.endswith((".yml", ".yaml"))), None)
    if name is None:
        return None
    try:
        output = read_config(Path(file.path).parent / name).raw.get("output_dir")
    except (TruetuneError, OSError, ValueError):
        return None
    return output if isinstance(output, str) else None


def _served_by_vllm(file: CommandFile, server: VllmServerCommand) -> Iterator[WeightUse]:
    """The adapters of a vLLM server, else its model."""
    options, adapters = server.options, tuple(adapters_by_served_name(server).values())
    model = model_of_server(server)
    folders = adapters or ((model,) if model else ())
    if folders:
        template = _template_text(last_option(options, "--chat-template"), Path(file.path).parent)
        base = model if adapters and model else ""
        use = _use_of_command(
            file, server.command, "serves", folders, bool(adapters), template, base
        )
        yield use._replace(overrides=override_keys_of_server_options(options))


def _served_by_llama_cpp(file: CommandFile, command: ShellCommand) -> Iterator[WeightUse]:
    """The GGUF file of llama.cpp's server or client."""
    options = (command.words_following(name) for name in LLAMA_CPP)
    words = next((words for words in options if words is not None), None)
    model = last_option(words, "-m", "--model") if words is not None else None
    if words is not None and model:
        template = last_option(words, "--chat-template", "--chat-template-file")
        named = _template_text(template, Path(file.path).parent)
        yield _use_of_command(file, command, "serves", (model,), are_adapters=False, template=named)


def _template_text(template: str | None, folder: Path) -> str:
    """The text of a template's file where it is here, else its name."""
    if not template:
        return ""
    path = folder / template
    if path.is_file():
        return read_bytes_within_limit(path, SETTINGS_FILE).decode("utf-8", "replace")
    return Path(template).stem


def _use_of_command(
    file: CommandFile,
    command: ShellCommand,
    verb: str,
    folders: tuple[str, ...],
    are_adapters: bool,
    template: str = "",
    base: str = "",
) -> WeightUse:
    """The record of a use of weights by one command."""
    text = command.text.strip()
    return WeightUse(file.path, command.line, text, verb, folders, are_adapters, template, base)


def _uses_of_script(module: Module) -> Iterator[WeightUse]:
    """The adapters that a script puts on a model, and the models of engines."""
    for one in models_given_loaded_adapter(module):
        base = written_name_of_loaded_model(module, one.model) or ""
        yield from _uses_of_load(module, one.call, one.adapter, base=base)
    for call in module.calls(*ENGINES):
        name = call.argument(0, "model") or call.keywords.get("pretrained_model_name_or_path")
        if name is not None:
            yield from _uses_of_load(module, call, name)
    generates = any(True for _ in module.methods("generate"))
    # Who trains loads what the training begins with.
    if generates and not any(True for _ in module.calls(*TRAINS)):
        yield from _models_loaded_by_transformers(module)


def _models_loaded_by_transformers(module: Module) -> Iterator[WeightUse]:
    """The models that a script loads by transformers, without their tokenizers."""
    for call in module.calls(*MODELS):
        name = call.argument(0, "pretrained_model_name_or_path")
        if name is not None and "Tokenizer" not in module.text_of(call.node.func):
            yield from _uses_of_load(module, call, name)


def _uses_of_load(
    module: Module, call: Call, named: ast.expr, base: str | None = None
) -> Iterator[WeightUse]:
    """What one call loads, where its name is plain text; with `base` it is an adapter."""
    folder = literal_or_default_text_of_expression(module, named)
    if folder is not None:
        line = module.place(call.node)[0]
        is_adapter = base is not None or call.named("peft.*")
        text = f"loads {folder}"
        use = WeightUse(module.path, line, text, "loads", (folder,), is_adapter, base=base or "")
        yield use._replace(
            writes=tuple(sorted(model_folders_written(module))),
            is_merged=is_adapter and _is_adapter_merged_later(module),
            overrides=override_keys_in_text(module.text),
        )


def _is_adapter_merged_later(module: Module) -> bool:
    """Is the adapter that a script loads merged: by the script, or by a trainer that puts another one on it?"""
    if any(module.methods("merge_and_unload")):
        return True
    return any("peft_config" in call.keywords for call in module.calls(*TRAINS))
