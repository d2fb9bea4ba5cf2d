"""Finds evaluations of Seq2SeqTrainer that generate with transformers' default length of 20 tokens.

The trainer generates with `generation_max_length`, else with the length of the model's generation
config, which few published models set. Where the file gives a length in any other way, or another
generation config, nothing is said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.source.evidence.possible_values_of_expressions import (
    possible_numbers,
    possible_texts,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.find_command_line_option_values import (
    is_option_omitted_by_every_command,
    is_option_switched_on_by_every_command,
)
from truetune.source.parsed_source_file import Module
from truetune.source.settings_files_as_expressions import ARGUMENT_FILES
from truetune.source.trainer_arguments_from_parser import PARSERS

SEQ2SEQ_ARGUMENTS = ("transformers.Seq2SeqTrainingArguments",)
WITH_A_LENGTH = re.compile(
    r"cnn|xsum|samsum|pegasus|opus|marian|mbart|nllb|m2m|wmt|fsmt|prophetnet|whisper|speech|s2t|trocr|donut|blip|"
    r"nougat|pix2struct|git-|seamless",
    re.I,
)
"""Published models whose own generation config sets a length"""
WITHOUT_A_LENGTH = re.compile(
    r"(^|[/_-])(flan-)?(m?t5|byt5|umt5|ul2|long-?t5|codet5p?)|bart-(base|large)$|led-(base|large)-16384$",
    re.I,
)
"""Published models whose generation config sets none: 20 tokens"""
LENGTH_OPTIONS = ("generation_max_length", "generation_config")
"""Options of Seq2SeqTrainingArguments that give the evaluation a length"""
OTHER_WAYS = (
    "generation_max_length",
    "max_new_tokens",
    "generation_config",
    "GenerationConfig",
    ".config.max_length",
    "gen_kwargs",
    "config.update",
)
"""Words of a file that may give the evaluation a length"""


def evaluations_without_length_and_certainty(module: Module) -> Iterator[tuple[Call, bool]]:
    """The arguments of trainers that generate without a length, each with whether the model is
    known to have none.
    """
    if module.mentions(*OTHER_WAYS) or _evaluates_or_predicts_with_length(module):
        return
    names = _loaded_model_names(module)
    if not names or any(map(WITH_A_LENGTH.search, names)):
        return
    is_known = any(map(WITHOUT_A_LENGTH.search, names))
    for call in module.calls(*SEQ2SEQ_ARGUMENTS):
        if not call.open and _predicts_with_generate(module, call):
            yield call, is_known
    for call in module.calls(*PARSERS):
        if _commands_evaluate_without_length(module, call):
            yield call, is_known


def _loaded_model_names(module: Module) -> list[str]:
    """The names of the models that a file loads."""
    return [
        text
        for call in module.calls("*.from_pretrained")
        for text in possible_texts(module, call.argument(0, "pretrained_model_name_or_path"))
    ]


def _commands_evaluate_without_length(module: Module, parser: Call) -> bool:
    """Does a parser of the command line make Seq2SeqTrainingArguments, which the commands beside
    the script give `--predict_with_generate`, and no length?"""
    classes = parser.argument(0, "dataclass_types")
    if classes is None or any(module.methods(*ARGUMENT_FILES)):
        return False
    names = {module.flow.name(part) for part in ast.walk(classes)}
    if names.isdisjoint(SEQ2SEQ_ARGUMENTS):
        return False
    script = module.path
    return is_option_switched_on_by_every_command(script, "predict_with_generate") and all(
        is_option_omitted_by_every_command(script, name) for name in LENGTH_OPTIONS
    )


def label_cut_length(module: Module) -> int | None:
    """The tokens at which a file cuts its labels; None where it does not say so."""
    for call in module.all_calls:
        if "text_target" in call.keywords:
            lengths = possible_numbers(module, call.keywords.get("max_length"))
            if len(lengths) == 1:
                return int(lengths[0])
    return None


def _predicts_with_generate(module: Module, arguments: Call) -> bool:
    """Is predict_with_generate on, in the call or by an assignment?"""
    if module.flow.value(arguments.keywords.get("predict_with_generate")) is True:
        return True
    return ".predict_with_generate = True" in module.text


def _evaluates_or_predicts_with_length(module: Module) -> bool:
    """Is a trainer's `evaluate` or `predict` given a length?"""
    return any(
        "max_length" in call.keywords or call.open for call in module.methods("evaluate", "predict")
    )
