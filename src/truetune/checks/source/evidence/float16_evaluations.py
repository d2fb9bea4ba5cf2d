"""Finds evaluations that compute in float16, and names the model that is evaluated.

A script says float16 by a setting of the trainer (`fp16_full_eval`), by what it loads or casts, or
by autocast around the forward pass. The model is named in the script, in a command that starts it
(a job, a console log, a README), or by the training beside it whose model it evaluates. Families
whose activations pass 65,504 are known by name.

The trade-off: the model of a training beside the script may be another one, so that it is told as a
possibility.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.identify_model_by_published_name import family_known_to_overflow_float16
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.may_weights_have_float32_copy import FLOAT16
from truetune.checks.source.evidence.model_dtypes import (
    dtypes_cast_by_steps,
    model_name_argument,
    model_type_of_folder,
    step_casting_to_float16,
)
from truetune.checks.source.evidence.models_giving_logprobs_in_own_loop import model_uses
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.prompt_forms import training_scripts_beside
from truetune.checks.source.evidence.published_bases_of_folders import overflowing_family_of_folder
from truetune.checks.source.evidence.trace_answering_models_to_load import (
    ModelChain,
    load_dtypes,
    model_chains,
)
from truetune.checks.source.evidence.which_place_surely_runs_first import trains_anything
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    read_project_text_cached,
    scripts_commands_and_readmes_around,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SETTING = "fp16_full_eval"
AUTOCAST_SETTING = "fp16"
"""Under it the Trainer computes evaluations in float16 too; of what trains, bf16-model-run-in-fp16 speaks"""
LOADS = ("transformers.*.from_pretrained", "peft.AutoPeftModel*.from_pretrained")
OTHER_LOADS = ("*Tokenizer*", "*Config*", "*Processor*", "*FeatureExtractor*")
EVALUATES = ("evaluate", "predict")
AUTOCASTS = ("torch.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast")
OUTPUT_SUFFIXES = (".txt", ".log", ".out")
"""Of what a console printed, which often begins with the command"""
MAX_OUTPUTS = 40
"""Files of one folder. Chosen, not measured: it bounds the time"""
NAMED_MODEL = re.compile(r"[\"']([\w.-]{1,80}/[\w.-]{1,120})[\"']")
IN_BFLOAT16 = re.compile(r"\bbf16\s*=\s*True|bfloat16")
NAN_LOSS = re.compile(
    r"[\"']?(?:eval_loss|test_loss|perplexity|ppl)[\"']?\s{0,3}[:=]\s{0,3}[\"']?nan\b",
    re.IGNORECASE,
)


class Float16Evaluation(NamedTuple):
    """An evaluation in float16."""

    node: ast.AST
    """What says so"""
    load: Call | None
    """What loads the model, where one call does"""
    is_cast: bool
    """Are loaded weights cast? Some families keep layers in float32 that overflow, if they are loaded so"""
    setting: str = ""
    """Of a trainer; empty where the script computes itself"""


class EvaluatedModel(NamedTuple):
    """What is known of the model that is evaluated."""

    family: str
    """That overflows in float16; empty where only its training in bfloat16 is known"""
    where: str
    """What names it: `google/gemma-2-9b-it (run.sh, line 3)`; empty where the script does"""
    is_sure: bool


def evaluation_places(module: Module) -> Iterator[ast.AST]:
    """The evaluations of a file, in whatever precision: by a trainer, or by forward passes of its
    own.
    """
    yield from (call.node for call in module.methods(*EVALUATES))
    if not trains_anything(module):
        yield from (
            use.call for use in model_uses(module) if _loss_or_logits_are_read(module, use.call)
        )


def float16_evaluations(module: Module) -> Iterator[Float16Evaluation]:
    """The evaluations of a file that compute in float16, outside of a training."""
    yield from _float16_evaluations_by_setting(module)
    if not trains_anything(module):
        yield from _float16_evaluations_by_forward_pass(module)


def evaluated_model_unfit_for_float16(
    module: Module, found: Float16Evaluation
) -> EvaluatedModel | None:
    """The model of an evaluation, where it overflows in float16, or was trained in bfloat16; else
    None.
    """
    node = model_name_argument(found.load) if found.load is not None else None
    names = possible_texts(module, node)
    families = {_overflowing_family_of_name(module, name) for name in names}
    if len(families) == 1 and "" not in families:
        return EvaluatedModel(families.pop(), "", True)
    by_command = next(_models_named_by_commands(module), None)
    if by_command is not None:
        return by_command
    # A name of a hub that is no such family is the model; a folder was written by a training.
    if any("/" in name and not _may_be_trained_folder(name) for name in names):
        return None
    return next(_float16_unfit_models_trained_beside(module), None)


def nan_loss_line_beside(module: Module) -> str:
    """The line of an output beside a script that shows a loss of an evaluation which is NaN; empty
    where none does.
    """
    for path in _console_output_files(Path(module.path).parent):
        for number, line in enumerate(read_project_text_cached(str(path)).splitlines(), 1):
            if NAN_LOSS.search(line):
                return f"{path.name}, line {number}: {line.strip()[:80]}"
    return ""


def _float16_evaluations_by_setting(module: Module) -> Iterator[Float16Evaluation]:
    """Evaluations by a trainer that is given `fp16_full_eval=True` and evaluates apart from
    training.

    During a training the Trainer leaves the weights as they are: the setting is of what is
    evaluated apart from it.
    """
    if not any(
        True for part in module.self_and_files_run_together for _ in part.methods(*EVALUATES)
    ):
        return
    loads = [load for load in module.calls(*LOADS) if not load.named(*OTHER_LOADS)]
    load = loads[0] if len(loads) == 1 else None
    names = (SETTING,) if trains_anything(module) else (SETTING, AUTOCAST_SETTING)
    for name in names:
        for node in _places_switching_setting_on(module, name):
            yield Float16Evaluation(node, load, is_cast=True, setting=name)


def _places_switching_setting_on(module: Module, name: str) -> Iterator[ast.AST]:
    """What switches a setting on: an argument, an entry of a dictionary, an attribute."""
    arguments = [one.keywords[name] for one in module.all_calls if name in one.keywords]
    given: list[tuple[ast.AST, ast.expr]] = [(value, value) for value in arguments]
    for table in module.nodes(ast.Dict):
        given += [(value, value) for key, value in _constant_key_entries(table) if key == name]
    for store in module.nodes(ast.Assign):
        target = store.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == name:
            given.append((store, store.value))
    for node, value in given:
        if module.flow.value(value) is True:
            yield node


def _constant_key_entries(table: ast.Dict) -> Iterator[tuple[object, ast.expr]]:
    """The entries of a dictionary under plain keys."""
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant):
            yield key.value, value


def _float16_evaluations_by_forward_pass(module: Module) -> Iterator[Float16Evaluation]:
    """Forward passes without gradients on weights of float16, or under autocast to it.

    Of models that generate, generation-overflows-float16 speaks.
    """
    if any(True for _ in generate_calls(module)):
        return
    seen: set[ast.AST] = set()
    for use in model_uses(module):
        if use.how or not _loss_or_logits_are_read(module, use.call):
            continue
        cast = _float16_autocast_around(module, use.call)
        for chain in model_chains(module, use.model) or ():
            float16_evaluation = _float16_evaluation_of_chain(module, chain, cast)
            if float16_evaluation is not None and float16_evaluation.node not in seen:
                seen.add(float16_evaluation.node)
                yield float16_evaluation


def _float16_evaluation_of_chain(
    module: Module, chain: ModelChain, autocast: ast.AST | None
) -> Float16Evaluation | None:
    """The evaluation of a model that came about so, if it computes in float16."""
    steps = (*_standalone_model_casts_last_first(module, chain.load), *chain.steps)
    dtype, is_cast = dtypes_cast_by_steps(module, steps), True
    if not dtype:
        dtype, is_cast = set(load_dtypes(module, chain.load)), False
    if dtype & FLOAT16.names:
        node = step_casting_to_float16(module, steps) or chain.load.node
        return Float16Evaluation(node, chain.load, is_cast)
    if autocast is None:
        return None
    return Float16Evaluation(autocast, chain.load, is_cast=True)


def _standalone_model_casts_last_first(module: Module, load: Call) -> list[Call]:
    """The casts of a loaded model that stand as statements of their own, the last first:
    `model.half()`.
    """
    own: list[Call] = []
    for call in module.methods("half", "float", "bfloat16", "to"):
        receiver = call.receiver
        if receiver is None or not isinstance(module.scopes.parent.get(call.node), ast.Expr):
            continue
        if any(origin.node is load.node for origin in module.flow.origins(receiver)):
            own.append(call)
    return sorted(own, key=lambda call: -call.node.lineno)


def _loss_or_logits_are_read(module: Module, call: ast.Call) -> bool:
    """Is the loss, or are the logits, of a forward pass read?"""
    around = next(iter(module.parents(call)), None)
    if isinstance(around, ast.Attribute):
        return around.attr in ("loss", "logits")
    target = around.targets[0] if isinstance(around, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return False
    return any(
        isinstance(parent := module.scopes.parent.get(read), ast.Attribute)
        and parent.attr in ("loss", "logits")
        for read in module.name_reads.get(target.id, ())
    )


def _float16_autocast_around(module: Module, node: ast.AST) -> ast.AST | None:
    """The autocast to float16 that a call stands in; None where it stands in none."""
    for around in module.parents(node):
        if not isinstance(around, ast.With):
            continue
        for item in around.items:
            if not isinstance(item.context_expr, ast.Call):
                continue
            call = module.flow.call(item.context_expr)
            if call.named(*AUTOCASTS):
                dtype_argument = call.argument(1, "dtype")
                named = module.flow.name(dtype_argument) if dtype_argument is not None else None
                return call.node if named in FLOAT16.names else None
    return None


def _overflowing_family_of_name(module: Module, name: str) -> str:
    """The family of a name, or of the folder that it is; empty where it is none that overflows."""
    kind = model_type_of_folder(module, name)
    known = family_known_to_overflow_float16(name) or family_known_to_overflow_float16(kind)
    return known or overflowing_family_of_folder(Path(module.path), name) or ""


def _may_be_trained_folder(name: str) -> bool:
    """May a name be a folder that a training wrote?"""
    first = name.partition("/")[0]
    return (
        name.startswith((".", "/", "~"))
        or re.search(
            r"out|run|ckpt|checkpoint|merged|save|result|exp|model",
            first + name.rpartition("/")[2],
            re.I,
        )
        is not None
    )


def _models_named_by_commands(module: Module) -> Iterator[EvaluatedModel]:
    """The model that a command which starts the script names, in a job, a README or the output of a
    console.
    """
    path = Path(module.path)
    files = [one for one in scripts_commands_and_readmes_around(path) if one.suffix != ".py"]
    for file in (*files, *_console_output_files(path.parent)):
        for number, line in enumerate(read_project_text_cached(str(file)).splitlines(), 1):
            if path.name not in line or "python" not in line:
                continue
            for word in line.split():
                family = family_known_to_overflow_float16(word.strip("'\"`"))
                if family is not None:
                    yield EvaluatedModel(family, f"{word} ({file.name}, line {number})", True)


def _console_output_files(folder: Path) -> list[Path]:
    """The files of a folder that hold what a console printed."""
    try:
        files = sorted(one for one in folder.iterdir() if one.suffix in OUTPUT_SUFFIXES)
    except OSError:
        return []
    return files[:MAX_OUTPUTS]


def _float16_unfit_models_trained_beside(module: Module) -> Iterator[EvaluatedModel]:
    """What the one training beside a script trains: a family that overflows, or weights in
    bfloat16.
    """
    folder = Path(module.path).resolve().parent
    trainings = [
        one for one in training_scripts_beside(module) if Path(one.path).resolve().parent == folder
    ]
    if len(trainings) != 1:
        return
    name, text = Path(trainings[0].path).name, trainings[0].text
    named = {one: family_known_to_overflow_float16(one) for one in NAMED_MODEL.findall(text)}
    overflowing = {one: family for one, family in named.items() if family is not None}
    families = set(overflowing.values())
    if len(families) == 1:
        yield EvaluatedModel(families.pop(), f"{min(overflowing)}, which {name} trains", False)
    elif not families and IN_BFLOAT16.search(text):
        yield EvaluatedModel("", name, False)
