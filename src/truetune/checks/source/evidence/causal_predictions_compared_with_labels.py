"""Finds code that compares a causal model's predicted tokens with labels: trainers with
compute_metrics, and own steps.

A causal model's logits at one place are for the token of the next place, so whoever compares the
two must shift one of them. Models of other kinds (classifiers, encoder-decoders) need no shift:
where one is loaded, nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.judgement import Unmet
from truetune.checks.source.evidence.metric_functions_and_token_shifts import (
    argument_or_attribute_of_trainer,
    function_or_statement_around,
    is_output_of_labelled_pass,
    picks_one_token_per_position,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

CAUSAL = (
    "transformers.AutoModelForCausalLM.*",
    "transformers.*ForCausalLM*",
    "unsloth.Fast*Model.from_pretrained",
)
CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification")
"""Models whose logits stand for their own row or place; a loader of any model (unsloth's FastModel) may load one"""
OTHER_LOGITS = (*CLASSIFIERS, "Seq2SeqLM", "MaskedLM", "ForConditionalGeneration")
"""Models beside which it is not known whose logits a function reads: those of an encoder and decoder need no shift"""
OWN_LOSSES = ("cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss")
TRAINERS = ("transformers.Trainer", "trl.SFTTrainer")
METRICS_NOT_SEEN = Unmet(
    "how predictions are made and compared is not seen: a function given to the trainer is not in"
    " these files",
    "name the file that defines compute_metrics and preprocess_logits_for_metrics as well",
)
COMPARISON_NOT_SEEN = Unmet("no argmax of logits is seen to be compared with the labels")


def _loads_causal_model(module: Module) -> bool:
    """Does the program load a causal model by its class?"""
    return any(
        call.named(*CAUSAL)
        for part in module.self_and_files_run_together
        for call in part.all_calls
    )


def causal_trainers_with_metrics(module: Module) -> Iterator[Call]:
    """Trainers of causal models that are given compute_metrics."""
    if module.mentions(*CLASSIFIERS):
        return
    is_causal = _loads_causal_model(module)
    for call in module.calls(*TRAINERS):
        if argument_or_attribute_of_trainer(module, call, "compute_metrics") is not None and (
            is_causal or call.named("trl.SFTTrainer")
        ):
            yield call


TRAINERS_OF_CAUSAL = CodePlaces(
    "trainers of causal models with compute_metrics", causal_trainers_with_metrics
)


def token_picking_scopes(module: Module) -> Iterator[ast.AST]:
    """Functions and statements that pick tokens from the logits of a causal model that is given the
    labels.
    """
    if (
        module.mentions(*OTHER_LOGITS, *OWN_LOSSES)
        or not module.mentions("logits")
        or not _loads_causal_model(module)
    ):
        return
    outputs = (node for node in module.nodes(ast.Attribute) if node.attr == "logits")
    scopes = (
        function_or_statement_around(module, node)
        for node in outputs
        if is_output_of_labelled_pass(module, node)
    )
    for scope in dict.fromkeys(scopes):
        if any(picks_one_token_per_position(node) for node in ast.walk(scope)):
            yield scope


def _token_pickings(module: Module) -> Iterator[Call | ast.AST]:
    """Calls and nodes where tokens are picked from logits and may be compared with labels."""
    yield from causal_trainers_with_metrics(module)
    yield from token_picking_scopes(module)


TOKEN_COMPARISONS = CodePlaces(
    "trainers of causal models with compute_metrics, and steps that compare their tokens with labels",
    _token_pickings,
)
