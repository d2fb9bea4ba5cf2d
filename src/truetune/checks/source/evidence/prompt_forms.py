"""Says in which form a script writes prompts: by a chat template, or by hand between marks such as
`### Response:`.

The form is read from what the file calls and from its texts. Marks of different prompts differ in
the line behind which the answer begins, so that line is what is compared. A file that does both
ways says nothing.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from truetune.checks.config.evidence.columns_and_age_of_training_files import (
    columns_of_file,
    file_holds_chats,
)
from truetune.checks.source.evidence.files_where_each_row_makes_one_example_at_most import (
    local_row_files_of_only_trainer,
)
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.text_generation_calls import (
    completion_prompts_of_clients,
    engine_prompts,
)
from truetune.errors import DataError, TruetuneError
from truetune.parsing.shell_commands import is_command_file, read_command_file
from truetune.settings.config import Config
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.settings.stacks.settings_of_stack_commands import (
    configs_of_commands_without_settings_file,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.does_script_prepare_rows_or_freeze_weights import (
    map_that_makes_or_renders_messages,
)
from truetune.source.parsed_source_file import Module, read_module

ANSWER_BEGINS = re.compile(
    r"(?:^|\n|\{\}|\} ?)[ \t]*(?P<mark>#{2,4} ?[A-Z][\w ]{1,24}:?|<\|?(?:assistant|bot|model)\|?>"
    r"|\[(?:ASSISTANT|ANSWER|RESPONSE)\]|(?:Assistant|ASSISTANT|Answer|ANSWER|Response|Bot|AI|Agent|Output|A):)"
    r"\s{0,3}(?:\{[^{}]{0,60}\}|%s)?[^\n]{0,12}\s*$|\[/INST\]"
)
"""The last mark of a prompt, with the answer's place behind it or without"""
ROW_IN_COMMENT = re.compile(
    r"^[^#\n]*#.*[\"'](?:(?:messages|prompt|completion)[\"']\s*:\s*\[\s*\{\s*[\"']role[\"']\s*:"
    r"|messages[\"']\s*:\s*\[)",
    re.M,
)
"""A comment that shows a row of messages"""
OF_A_TURN = re.compile(
    r"#{2,4} ?[A-Z]\w+|\[INST\]|<\|?(?:user|human|system)\|?>|"
    r"(?:^|\n)\s*(?:User|Human|Question|Instruction|Customer|Input|Q|USER|HUMAN)\s*:"
)
"""A mark of what is asked, without which a line that ends in a colon is no prompt"""
CHAT_CALLS = ("apply_chat_template", "create_chat_completion", "chat_completion")
CHAT_APIS = ("*.chat.completions.create", "ollama.chat", "*.ChatOpenAI", "litellm.completion")
CHAT_REQUESTS = ("chat.completions.create", "chat.completions.parse")
CHAT_WRITERS = (
    "get_chat_template",
    "standardize_sharegpt",
    "setup_chat_format",
    "clone_chat_template",
)
"""Functions of Unsloth and TRL that train by a chat template"""
TRAINERS = ("trl.*Trainer", "transformers.*Trainer", "unsloth.*Trainer")
ASKS_BY_TEMPLATE = re.compile(
    r"apply_chat_template\(|chat\.completions\.create|/v1/chat/completions|ollama\.chat\("
)
"""What asks a model, or a server of it, in turns"""
OPTIMIZERS = ("torch.optim.*", "bitsandbytes.optim.*")
"""Made by scripts that train, also where the loop itself stands in a library"""
ARGUMENTS = ("transformers.*TrainingArguments", "trl.*Config")
LOADS = (
    "*.from_pretrained",
    "transformers.pipeline",
    "vllm.LLM",
    "llama_cpp.Llama",
    "sglang.Engine",
)
OF_EXPORT = re.compile(r"[-_.](?:merged|full|final|hf|16bit|bf16|fp16|fp8|awq|gptq|gguf)\b.*")
"""What is put behind the name of a folder that was merged or converted"""
# Chosen, not measured: forty scripts are a large example folder; at double, a repository of examples takes seconds.
MAX_FILES = 40
# Chosen, not measured: a notebook with its plots is larger, and then holds little code.
MAX_BYTES = 300_000
"""Of the files beside a script that are read"""
SETTINGS_FOLDERS = ("config", "configs", "conf", "recipes")
"""Folders of a project that hold its settings"""
FOLDERS = frozenset(
    (
        "train",
        "training",
        "finetune",
        "fine_tuning",
        "src",
        "scripts",
        "app",
        "api",
        "serve",
        "serving",
        "server",
        "inference",
        "backend",
        "eval",
        "notebooks",
        "client",
        "deploy",
        "ollama",
    )
)
"""Folders of one project in which one script trains and another serves"""


class PromptForm(NamedTuple):
    """How a file writes its prompts."""

    marks: frozenset[str]
    """The lines behind which answers begin; empty: a chat template writes them"""
    node: ast.AST
    """Where the file does"""

    @property
    def words_for_message(self) -> str:
        """The form as a message says it."""
        return describe_marks(self.marks)


def describe_marks(marks: frozenset[str]) -> str:
    """A hand-written form in words for a message, by the lines after which answers begin."""
    if not marks:
        return "the chat template"
    return "a hand-written prompt (" + ", ".join(sorted(marks)) + ")"


def single_prompt_form(module: Module) -> PromptForm | None:
    """The one form of a file; None where it writes none, or several."""
    chat = next(
        chain(
            chat_template_uses(module),
            _trainer_of_message_rows(module),
            _chat_requests_of_clients(module),
            _chats_given_to_pipelines(module),
        ),
        None,
    )
    texts = list(handwritten_prompts_by_answer_mark(module))
    if chat is not None and not texts:
        return PromptForm(frozenset(), chat)
    if chat is None and texts:
        # Several marks are one form: each of its prompts ends in one of them.
        return PromptForm(frozenset(mark for mark, _ in texts), texts[0][1])
    return None


def trains_a_model(module: Module) -> bool:
    """Does the file train a model?"""
    return any(module.calls(*TRAINERS, *OPTIMIZERS)) or any(module.methods("backward"))


def asks_model_and_trains_none(module: Module) -> bool:
    """Does the file ask a model, and train none?"""
    if trains_a_model(module):
        return False
    return (
        any(generate_calls(module))
        or any(module.calls("transformers.pipeline", *CHAT_APIS))
        or any(module.methods("create_chat_completion", "create_completion"))
        or any(module.calls("vllm.LLM"))
        or any(completion_prompts_of_clients(module))
        or any(engine_prompts(module))
        or any(_chat_requests_of_clients(module))
    )


def loaded_model_names(module: Module) -> frozenset[str]:
    """The names and folders that a file loads models from."""
    nodes = [
        node
        for call in (*module.calls(*LOADS), *module.calls(*CHAT_APIS))
        for node in (
            _positional_model_argument(call),
            *_model_arguments(call.keywords),
        )
    ]
    nodes += [call.argument(1, "model_id") for call in module.calls("peft.*.from_pretrained")]
    nodes += [call.argument(2, "lora_path") for call in module.calls("*.LoRARequest")]
    nodes += [call.argument(0, "model_id") for call in module.methods("load_adapter")]
    return frozenset(text for node in nodes for text in possible_texts(module, node))


def _positional_model_argument(call: Call) -> ast.expr | None:
    """The model that a call loads by its place; the first argument of a pipeline is its task."""
    if call.named("transformers.pipeline"):
        return call.argument(1, "model")
    return call.argument(0, "pretrained_model_name_or_path")


def model_folders_written(module: Module) -> frozenset[str]:
    """The folders that a file writes models to."""
    nodes = [call.argument(0, "save_directory") for call in module.methods("save_pretrained*")]
    nodes += [call.argument(0, "output_dir") for call in module.methods("save_model")]
    nodes += [call.keywords.get("output_dir") for call in module.all_calls]
    nodes += [call.argument(0, "output_dir") for call in module.calls(*ARGUMENTS)]
    return frozenset(text for node in nodes for text in possible_texts(module, node))


def is_model_in_written_folders(name: str, folders: frozenset[str]) -> bool:
    """Is it one of these folders, below one of them, one that was exported of it, or what a server
    calls it by its last part?"""
    if any(name.startswith(one) and OF_EXPORT.fullmatch(name[len(one) :]) for one in folders):
        return True
    parts = Path(name).parts
    return any(
        parts[: len(folder.parts)] == folder.parts or name == folder.name
        for folder in map(Path, folders)
        if folder.parts
    )


def training_scripts_beside(module: Module) -> Iterator[Module]:
    """The scripts and notebooks of the same project that train, where the file stands on a disk."""
    return (other for other in scripts_beside(module) if trains_a_model(other))


def scripts_beside(module: Module) -> Iterator[Module]:
    """The other scripts and notebooks of the same project, where the file stands on a disk."""
    # What runs with other files is judged with them: names that they import have values then.
    group = {} if module.program is None else {one.path: one for one in module.program.modules}
    return project_scripts_around(Path(module.path), group)


def project_scripts_around(
    own: Path, group: Mapping[str, Module] | None = None
) -> Iterator[Module]:
    """The scripts and notebooks of the project that a file belongs to, but for the file itself.

    Args:
        own: A script, or a file of settings.
        group: Modules that are parsed already, by their path.
    """
    places = [own.parent, *_code_folders_below(own.parent)]
    if own.absolute().parent.name.lower() in FOLDERS:
        places += [own.parent / "..", *_code_folders_below(own.parent / "..")]
    count = 0
    for place in dict.fromkeys(places):
        for path in sorted(_readable_scripts_in(place)):
            # Sorted and counted, so that the same files are read on each machine.
            if path == own or count >= MAX_FILES:
                continue
            count += 1
            other = (group or {}).get(str(path)) or _read_module(path)
            if other is not None:
                yield other


def first_line_asking_model_in_chat_turns(module: Module) -> tuple[int, str] | None:
    """The first line of a file that asks a model, or a server of it, in turns: its number and text."""
    for number, line in enumerate(module.text.splitlines(), 1):
        if ASKS_BY_TEMPLATE.search(line):
            return number, line.strip()
    return None


class TrainedBySettings(NamedTuple):
    """A file of settings that trains, and the form in which its stack writes prompts."""

    path: str
    key: str
    form: frozenset[str]
    """As the marks of a PromptForm"""
    output: str
    base: str
    """The model that is trained; empty where it is not named"""


def training_settings_beside(module: Module) -> Iterator[TrainedBySettings]:
    """The settings and commands of the script's project that train in a form which is known."""
    for path, config in readable_settings_around(Path(module.path).parent):
        known = _form_key_and_marks_of_settings(config)
        output = config.spec.training.output_dir
        if known is not None and output:
            base = config.spec.model or ""
            yield TrainedBySettings(str(path), known[0], known[1], output, base)


def readable_settings_around(folder: Path) -> Iterator[tuple[Path, Config]]:
    """The settings of a folder and of its folders of settings, and those of its commands;
    unreadable ones left out.
    """
    places = [folder, *(folder / name for name in SETTINGS_FOLDERS)]
    for path in [one for place in places for one in sorted(place.glob("*.y*ml"))][:MAX_FILES]:
        try:
            yield path, read_config(path)
        except TruetuneError:
            continue
    for path in sorted(filter(is_command_file, folder.glob("*")))[:MAX_FILES]:
        try:
            configs = configs_of_commands_without_settings_file(read_command_file(path))
        except (OSError, ValueError, TruetuneError):
            continue
        yield from ((path, config) for config in configs)


def _form_key_and_marks_of_settings(config: Config) -> tuple[str, frozenset[str]] | None:
    """The key that says in which form a stack writes prompts, and the form; None where it is not
    known.
    """
    if config.stack == "llama-factory" and config.raw.get("do_train"):
        name = config.raw.get("template")
        return (
            None if not isinstance(name, str) else (f"template: {name}", _marks_of_named_form(name))
        )
    if config.stack == "ms-swift" and config.raw.get("model"):
        return "swift sft", frozenset()
    sets = config.raw.get("datasets")
    if config.stack != "axolotl" or not isinstance(sets, list):
        return None
    types = {str(one.get("type")) for one in sets if isinstance(one, dict)}
    if len(types) != 1:
        return None
    # Axolotl's types have a variant behind a dot or a colon: `alpaca.load_open_orca`.
    name = types.pop().partition(".")[0].partition(":")[0]
    is_known = name in ("alpaca", "chat_template")
    return (f"type: {name}", _marks_of_named_form(name)) if is_known else None


def _marks_of_named_form(name: str) -> frozenset[str]:
    """The marks of a form that stacks know by name; those of a chat template are none."""
    return BY_NAME.get(name, frozenset())


BY_NAME = {"alpaca": frozenset(("### Response",)), "default": frozenset(("Assistant",))}
"""Forms of Axolotl (`type`) and LLaMA-Factory (`template`) that are no chat template"""


def _model_arguments(keywords: Mapping[str, ast.expr]) -> Iterator[ast.expr | None]:
    """The arguments that name a model in one call; None for each that is not given."""
    for name in ("model", "model_name", "model_path", "pretrained_model_name_or_path"):
        yield keywords.get(name)


def chat_template_uses(module: Module) -> Iterator[ast.AST]:
    """The places where a file uses a chat template, or an interface that does."""
    for call in (*module.methods(*CHAT_CALLS), *module.calls(*CHAT_APIS)):
        yield call.node
    mapped = map_that_makes_or_renders_messages(module)
    if mapped is not None:
        yield mapped.node
    for name in CHAT_WRITERS:
        yield from (call.node for call in module.calls(f"*.{name}"))


def _chat_requests_of_clients(module: Module) -> Iterator[ast.AST]:
    """The calls by which a client sends messages to a server, in a file that trains nothing.

    A file that trains may make its rows that way.
    """
    if trains_a_model(module):
        return
    for call in module.methods("create", "parse"):
        if "messages" in call.keywords and ast.unparse(call.node.func).endswith(CHAT_REQUESTS):
            yield call.node


def _chats_given_to_pipelines(module: Module) -> Iterator[ast.AST]:
    """The calls that give messages to a pipeline or vLLM, which render them by the chat template."""
    for call in module.all_calls:
        if call.method not in (None, "chat"):
            continue
        made = module.flow.producing_call(call.receiver or call.node.func)
        text_inputs_argument = call.argument(0, "messages" if call.method else "text_inputs")
        if (
            text_inputs_argument is None
            or made is None
            or not made.named("transformers.pipeline", "vllm.LLM")
        ):
            continue
        if call.method or any(
            _is_list_of_messages(module, one.node)
            for one in module.flow.origins(text_inputs_argument)
        ):
            yield call.node


def _is_list_of_messages(module: Module, node: ast.AST) -> bool:
    """Is it a list of messages?"""
    return isinstance(node, ast.List) and any(
        isinstance(one, ast.Dict) and "role" in module.flow.dict_entries_and_if_complete(one)[0]
        for one in node.elts
    )


def module_and_prompt_form_of_training(script: Module) -> tuple[Module, PromptForm] | None:
    """The one form of a training script, else that of the one file beside it that it takes its rows
    from; and where.
    """
    form = single_prompt_form(script)
    if form is not None:
        return script, form
    if any(chat_template_uses(script)) or any(handwritten_prompts_by_answer_mark(script)):
        return None
    forms = [(other, single_prompt_form(other)) for other in imported_scripts_beside(script)]
    known = [(other, form) for other, form in forms if form is not None]
    return known[0] if len(known) == 1 else None


def imported_scripts_beside(module: Module) -> Iterator[Module]:
    """The files of the folder that a file imports."""
    names = {node.module for node in module.nodes(ast.ImportFrom) if node.module}
    names |= {alias.name for node in module.nodes(ast.Import) for alias in node.names}
    for other in scripts_beside(module):
        if Path(other.path).stem in names:
            yield other


def handwritten_prompts_by_answer_mark(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """The prompts that stand in a file as texts, each by the mark behind which its answer begins."""
    for node in module.nodes(ast.Constant, ast.JoinedStr, ast.BinOp):
        parent = module.scopes.parent.get(node)
        if isinstance(parent, (ast.JoinedStr, ast.FormattedValue, ast.Expr)):
            continue  # a part of an f-string, or a docstring
        text = text_with_placeholders(node)
        match = ANSWER_BEGINS.search(text)
        if match is not None and (OF_A_TURN.search(text[: match.start()]) or "[INST]" in text):
            yield (match["mark"] or match[0]).strip().rstrip(":").strip(), node


def _trainer_of_message_rows(module: Module) -> Iterator[ast.AST]:
    """The trainer of a file whose rows are messages, which it renders by the chat template."""
    trainers = list(module.calls("trl.SFTTrainer"))
    if len(trainers) != 1 or "formatting_func" in trainers[0].keywords:
        return
    names = list(local_row_files_of_only_trainer(module))
    # Where the rows are not known, a comment of the script may show one.
    is_shown = ROW_IN_COMMENT.search(module.text) and not any(map(columns_of_file, names))
    if is_shown or any(map(file_holds_chats, names)):
        yield trainers[0].node


def text_with_placeholders(node: ast.AST) -> str:
    """The text that an expression spells, with `{}` for the places of an f-string and for the
    unknown parts of a sum.
    """
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_with_placeholders(part) or "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [text_with_placeholders(node.left), text_with_placeholders(node.right)]
        return "".join(part or "{}" for part in parts) if any(parts) else ""
    return ""


def _code_folders_below(folder: Path) -> list[Path]:
    """The folders in a folder whose names say that they hold code of the project."""
    try:
        entries = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []
    return sorted(path for path in entries if path.name.lower() in FOLDERS)


def _readable_scripts_in(folder: Path) -> list[Path]:
    """The scripts and notebooks of a folder that are small enough to be read."""
    try:
        entries = list(os.scandir(folder))
        return [
            Path(entry.path)
            for entry in entries
            if entry.name.endswith((".py", ".ipynb")) and entry.stat().st_size <= MAX_BYTES
        ]
    except OSError:
        return []


def _read_module(path: Path) -> Module | None:
    """The parsed script or notebook at a path; None where it can't be read."""
    try:
        return _parse_cached(str(path), path.stat().st_mtime_ns)
    except (DataError, OSError):
        return None


# By the time of the last change: a script that is edited while a session lasts is read again.
@lru_cache(maxsize=64)
def _parse_cached(path: str, _changed: int) -> Module:
    """The parsed script or notebook at a path, kept for each time that it was changed."""
    return read_module(Path(path))
