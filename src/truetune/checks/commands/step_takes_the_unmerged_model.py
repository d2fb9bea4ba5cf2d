"""A pipeline merges or quantizes a model, but its next step uses the model from before.

## What it does
Follows the steps of a script or job file that make a new model from another: Python scripts that merge an adapter or
quantize (with their paths from options, defaults and constants), `llamafactory-cli export`, `llama-export-lora`. It
fires if a later command converts (`convert_hf_to_gguf.py`), serves (`vllm serve`) or evaluates (`lm_eval`) the input of
such a step, and nothing in the project names its output. It does not fire if a variable with an unknown value is
involved, or if the results are named after the base.

## Why it is bad
There is no error: the merge ends normally, but the file that is served contains the weights from before it. The answers
are word for word those of the base.

## Example
```bash
BASE=models/qwen-7b
python merge.py --base $BASE --adapter runs/a --out merged/a
python convert_hf_to_gguf.py $BASE --outfile a.gguf --outtype f16
```

## Use instead
```bash
BASE=models/qwen-7b
python merge.py --base $BASE --adapter runs/a --out merged/a
python convert_hf_to_gguf.py merged/a --outfile a.gguf --outtype f16
```

## Fix safety
There is no automatic fix: the earlier model may be converted on purpose, to compare both.

## References
- llama.cpp, `convert_hf_to_gguf.py` (it takes a folder of whole weights); peft documentation, `merge_and_unload`
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.commands.evidence.models_used_by_commands import (
    ABOUT_THE_BASE,
    ModelUse,
    model_uses_without_adapter,
    output_paths,
)
from truetune.checks.faults import Fault
from truetune.checks.find_merge_quantize_export_commands import (
    MODEL_OPTIONS,
    MakingStep,
    model_making_steps,
)
from truetune.checks.find_what_scripts_train_and_where import canonical_folder_name
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import SETS_A_VARIABLE, CommandFile, ShellCommand, last_option
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    read_project_text_cached,
    scripts_commands_and_readmes_around,
)

VARIABLE = re.compile(r"\$\{?(\w+)")
UNKNOWN_PATH = re.compile(r"(?:--?[\w-]+=|\w+=)?\$\{?\w+[^/]*")
"""A word that is all variable: it may be any path"""
ASKING_SCRIPT = re.compile(
    r"(?:^|[/_.-])(?:eval|serve|server|infer|predict|generate|chat|ask|test|bench)\w*\.py$"
)
ADAPTER_OPTION = re.compile(r"--?\w*(?:adapter|lora|peft)")
SERVERS = (
    ("-m", "sglang.launch_server"),
    ("text-generation-launcher",),
    ("llama-server",),
    ("llama-cli",),
    ("lmdeploy", "serve"),
)
READ_NOTHING = frozenset(
    (
        "echo",
        "printf",
        "mkdir",
        "rm",
        "ls",
        "du",
        "test",
        "[",
        "cd",
        "source",
        "set",
        "module",
        "export",
    )
)
"""Programs that don't use the weights of a folder that they name"""
SETS_ALONE = re.compile(r"\s*(?:export\s+|readonly\s+)?(\w+)=[\"']?([^\"'\s#]+)")
PROJECT_SUFFIXES = frozenset(
    (".py", ".ipynb", ".sh", ".bash", ".yaml", ".yml", ".toml", ".sbatch", ".slurm", ".env")
)
PROJECT_NAMES = ("Modelfile", "Makefile", "Dockerfile", "justfile")


class StepTakesTheUnmergedModel(CommandRule):
    code = "CMD091"
    fault = Fault.PIPELINE_USES_WRONG_MODEL
    symptoms = ("nothing-is-learned", "good-here-bad-there", "odd-metrics")
    severity = "warning"
    what = "commands that make a model of another one"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[MakingStep]:
        """The places that the rule looks at: the commands that make a model of another one."""
        yield from model_making_steps(file.commands, Path(file.path).parent)

    def findings(self) -> Iterator[Finding]:
        file = self.subject
        for step in self.examined_places(file):
            if not _has_plain_paths(file, step) or _is_output_named_elsewhere(file, step):
                continue
            model_use = next(_later_uses_of_input(file, step), None)
            if model_use is None:
                continue
            yield self.finding(
                f"line {step.command.line} makes {step.output} from {step.model}, but nothing in the project uses"
                f" it: this command uses {model_use.model}, so {model_use.result} the model before that step",
                f"use {step.output} instead of {model_use.model} in this command",
                cases=[
                    self.case_of_command(model_use.command, model_use.text),
                    self.case_of_command(step.command, step.command.text.strip()),
                ],
            )
            return


def _later_uses_of_input(file: CommandFile, step: MakingStep) -> Iterator[ModelUse]:
    """The later commands that use what a step began with, and don't say that the base is meant."""
    for asked in (*model_uses_without_adapter(file), *_script_uses_of_input(file, step)):
        is_later = asked.command.line > step.command.line
        results = " ".join(output_paths(asked.command))
        is_meant = ABOUT_THE_BASE.search(results) is not None
        if (
            is_later
            and not is_meant
            and canonical_folder_name(asked.model) == canonical_folder_name(step.model)
        ):
            yield asked


def _script_uses_of_input(file: CommandFile, step: MakingStep) -> Iterator[ModelUse]:
    """Scripts of one's own and other servers that are given the model that a step began with,
    without an adapter.
    """
    for command in file.commands:
        is_user = any(ASKING_SCRIPT.search(word) for word in command.words) or any(
            command.words_following(*words) is not None for words in SERVERS
        )
        has_adapter = any(ADAPTER_OPTION.match(word) for word in command.words)
        model_id_option = last_option(command.words, *MODEL_OPTIONS, "-m", "--model-id")
        if is_user and not has_adapter and model_id_option:
            yield ModelUse(
                command, model_id_option, command.text.strip(), "", "the answers are those of"
            )


def _has_plain_paths(file: CommandFile, step: MakingStep) -> bool:
    """Are the paths of a step one each, and can no later word be its output by an unknown variable?"""
    counts = Counter(name for names in SETS_A_VARIABLE.findall(file.text) for name in names if name)
    in_paths = VARIABLE.findall(step.model + " " + step.output)
    if any(counts[name] > 1 for name in in_paths):
        return False
    later = (one for one in file.commands if one.line > step.command.line)
    return not any(
        _may_be_any_path(word, step) for one in later for word in _possible_input_paths(one)
    )


def _possible_input_paths(command: ShellCommand) -> tuple[str, ...]:
    """The words of a command that may be paths that it reads."""
    return () if command.words[0] in READ_NOTHING else command.words[1:]


def _may_be_any_path(word: str, step: MakingStep) -> bool:
    """Is a word a variable that is not known, but for the model that a step begins with?"""
    return UNKNOWN_PATH.fullmatch(word) is not None and step.model not in word


def _is_output_named_elsewhere(file: CommandFile, step: MakingStep) -> bool:
    """Does anything but the step itself name its output: a command, a variable, a file of the project?"""
    output = canonical_folder_name(step.output)
    for command in file.commands:
        is_own = command.line == step.command.line and command.words == step.command.words
        if not is_own and any(output in word for word in _possible_input_paths(command)):
            return True
    names = [name for name, value in _variable_assignments(file) if output in value]
    spellings = {output, *VARIABLE.findall(step.output), *names}
    # A second variable of the folder may reach a program by its environment.
    if len(names) > 1:
        return True
    return any(
        one in text for text in _texts_of_other_project_files(file, step) for one in spellings
    )


def _variable_assignments(file: CommandFile) -> Iterator[tuple[str, str]]:
    """The variables that lines of a file set, with what stands there."""
    known: dict[str, str] = {}
    for line in file.text.splitlines():
        match = SETS_ALONE.match(line)
        if match is not None:
            value = re.sub(r"\$\{?(\w+)\}?", lambda one: known.get(one[1], one[0]), match[2])
            known[match[1]] = value
            yield match[1], value


def _texts_of_other_project_files(file: CommandFile, step: MakingStep) -> Iterator[str]:
    """The texts of the other files of the project that may name a folder."""
    # The script and the settings of the step name its output themselves.
    folder = Path(file.path).absolute().parent
    own = {Path(file.path).absolute(), *(folder / word for word in step.command.words)}
    for path in _project_files(Path(file.path)):
        if path.absolute() not in own:
            yield read_project_text_cached(str(path))


def _project_files(path: Path) -> Iterator[Path]:
    """Scripts, settings and Modelfiles around a file."""
    beside = sorted(path.absolute().parent.glob("Modelfile*")) + sorted(
        path.absolute().parent.glob("*.py")
    )
    around = (
        one
        for one in scripts_commands_and_readmes_around(path)
        if one.suffix in PROJECT_SUFFIXES or one.name.startswith(PROJECT_NAMES)
    )
    yield from dict.fromkeys([*beside, *around])
