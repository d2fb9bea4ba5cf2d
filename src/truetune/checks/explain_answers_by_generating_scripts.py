"""Explains findings on answers by the scripts that generated them: a proven fault of the script is
the cause, and its advice counts.

What is seen in answers (loops, markers of roles, words without grammar) is a symptom. Where the script beside the file
has a proven fault in how it loads the model, builds the prompt or calls generate, that fault is the cause to fix
first: it stands before the symptoms, and their own advice gives way. Advice that the script follows already is
withdrawn.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from truetune.checks.answers.answers_are_empty import AnswersAreEmpty
from truetune.checks.answers.answers_are_gibberish import AnswersAreGibberish
from truetune.checks.answers.answers_echo_the_prompt import AnswersEchoThePrompt
from truetune.checks.answers.answers_have_faults import AnswersHaveFaults
from truetune.checks.answers.answers_loop import AnswersLoop
from truetune.checks.answers.answers_never_stop import ASK_AS_TRAINED, AnswersNeverStop
from truetune.checks.answers.count_bad_answers_per_pass import NOT_A_NUMBER
from truetune.checks.answers.role_markers_in_answers import RoleMarkersInAnswers
from truetune.checks.findings import RANK, Finding
from truetune.checks.log.fault_named_in_the_output import FaultNamedInTheOutput
from truetune.errors import TruetuneError
from truetune.source.find_source_files import find_source_files
from truetune.source.parsed_source_file import Module, read_module

SYMPTOMS = frozenset(
    rule.name()
    for rule in (
        AnswersAreEmpty,
        AnswersAreGibberish,
        AnswersEchoThePrompt,
        AnswersHaveFaults,
        AnswersLoop,
        AnswersNeverStop,
        RoleMarkersInAnswers,
    )
)
"""Rules on what stands in the answers"""
FAULTS_OF_ASKING = frozenset(
    (
        "adapter-applied-twice",
        "asked-in-another-form",
        "bare-text-to-chat-model",
        "chat-template-of-another-family",
        "generation-overflows-float16",
        "generation-passes-the-turn-end",
        "generation-settings-distort-answers",
        "generation-without-attention-mask",
        "model-left-in-training-mode",
        "positions-scaled-in-training-only",
        "prompt-left-in-answers",
        "prompts-end-in-eos",
        "prompts-lose-their-end",
        "right-padding-at-generation",
        "script-puts-adapter-on-another-base",
        "server-applies-the-adapter-twice",
        "server-casts-to-float16",
        "server-loads-no-weights",
        "server-puts-adapter-on-another-base",
        "server-template-of-another-family",
        "state-dict-method-replaced",
        "tokenizer-of-another-family",
        "tokens-added-at-training-only",
        "tokens-decoded-one-by-one",
        "wrapper-keys-not-loaded",
    )
)
"""Rules on how a script or server loads a model, builds its prompts and calls generate"""
MASK_RULE, MASK_MESSAGE = "generation-without-attention-mask", "no attention mask"
CAST_RULE = "server-casts-to-float16"
CHAT_REQUEST = ".chat.completions.create"
"""The call of a client whose server puts the messages into the chat template"""
PROMPT_ADVICE = "add_generation_prompt=True before generation"
STOP_AT_THE_TURN = (
    "it is asked by the chat template ({place}): see that the labels hold the stop token of each answer (truetune run"
    " -- COMMAND shows them), that no limit cuts it off, and that generation stops at the token that ends a turn"
    " (eos_token_id of generation_config.json; a base model's own is another)"
)
"""Help of answers that do not stop, where the prompts are those of the training"""
MAX_SCRIPTS = 50
"""Scripts that are read for how they ask"""


def explain_answers_by_scripts(
    findings: Sequence[Finding], paths: Iterable[str]
) -> tuple[Finding, ...]:
    """The findings, those on answers corrected by the scripts that asked.

    Args:
        findings: of one check, in the order in which they are told.
        paths: files and folders of that check.
    """
    symptoms = [one for one in findings if one.rule in SYMPTOMS]
    if not symptoms:
        return tuple(findings)
    findings = _float16_cast_as_error_by_answers(_join_missing_mask_and_warning(findings))
    causes = proven_script_faults(findings)
    if causes:
        changed = [
            _with_advice_of_cause(one, causes[0]) if one.rule in SYMPTOMS else one
            for one in findings
        ]
        return _put_causes_before_symptoms(changed)
    is_advised = any(map(_advises_asking_as_trained, symptoms))
    place = _place_if_all_prompts_end_in_header(paths) if is_advised else ""
    return tuple(_withdraw_followed_advice(one, place) for one in findings)


def proven_script_faults(findings: Iterable[Finding]) -> list[Finding]:
    """Proven faults in how scripts ask, the gravest first."""
    faults = [
        one
        for one in findings
        if one.rule in FAULTS_OF_ASKING and RANK[one.severity] > RANK["info"]
    ]
    return sorted(faults, key=lambda one: -RANK[one.severity])


def _with_advice_of_cause(finding: Finding, cause: Finding) -> Finding:
    """A finding on answers whose advice is that of the fault in the script."""
    place = next(
        (f"{Path(case.file).name}:{case.line}" for case in cause.cases if case.file), "the script"
    )
    remedy = f"{place} first ({cause.rule}): {cause.remedy}. Then generate the answers again, and judge those"
    return replace(finding, remedy=remedy)


def _put_causes_before_symptoms(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, in which each fault in how a model was asked stands before the first symptom."""
    first = next(number for number, one in enumerate(findings) if one.rule in SYMPTOMS)
    causes = proven_script_faults(findings[first:])
    rest = [one for one in findings[first:] if one not in causes]
    return (*findings[:first], *causes, *rest)


def _join_missing_mask_and_warning(findings: Sequence[Finding]) -> list[Finding]:
    """Joins the finding that generate got no attention mask with the warning in the run's output
    that says so too.
    """
    scripts = [one for one in findings if one.rule == MASK_RULE]
    logs = [
        one
        for one in findings
        if one.rule == FaultNamedInTheOutput.name() and MASK_MESSAGE in one.message
    ]
    if len(scripts) != 1 or not logs:
        return list(findings)
    proved = replace(
        scripts[0],
        severity="error",
        evidence=(*scripts[0].evidence, f"the log: {logs[0].message}"),
        cases=(*scripts[0].cases, *logs[0].cases),
    )
    return [proved if one is scripts[0] else one for one in findings if one not in logs]


def _float16_cast_as_error_by_answers(findings: Sequence[Finding]) -> list[Finding]:
    """A cast to float16 is an error where the answers are those of logits that are no numbers."""
    seen = [one for one in findings if one.remedy == NOT_A_NUMBER]
    if not seen:
        return list(findings)
    proof = f"{seen[0].message}, by one mark alone, as logits that are NaN give"
    return [
        replace(one, severity="error", evidence=(*one.evidence, proof))
        if one.rule == CAST_RULE
        else one
        for one in findings
    ]


def _advises_asking_as_trained(finding: Finding) -> bool:
    """Is the advice of a finding to ask as it was trained, which a script may do already?"""
    return PROMPT_ADVICE in finding.remedy or ASK_AS_TRAINED in finding.remedy


def _place_if_all_prompts_end_in_header(paths: Iterable[str]) -> str:
    """The place where the scripts that ask a model end their prompts in the header of the answer;
    empty if one of them does not.
    """
    places = []
    for number, (_, file) in enumerate(find_source_files(list(paths))):
        if number >= MAX_SCRIPTS:
            break
        try:
            module = read_module(file)
        except TruetuneError:
            continue
        if any(module.methods("generate")):
            places.append(_line_if_all_prompts_end_in_header(module))
        places += _line_of_chat_template_request(module)
    return places[0] if places and all(places) else ""


def _line_if_all_prompts_end_in_header(module: Module) -> str:
    """The line of a script whose prompts all end so."""
    calls = list(module.methods("apply_chat_template"))
    ends = [module.flow.value(call.keywords.get("add_generation_prompt")) is True for call in calls]
    if not calls or not all(ends):
        return ""
    return f"{Path(module.path).name}:{module.place(calls[0].node)[0]}"


def _line_of_chat_template_request(module: Module) -> list[str]:
    """The line of a client that asks a server by its chat template, or nothing."""
    calls = [
        call
        for call in module.methods("create")
        if ast.unparse(call.node.func).endswith(CHAT_REQUEST)
    ]
    return [f"{Path(module.path).name}:{module.place(calls[0].node)[0]}"] if calls else []


def _withdraw_followed_advice(finding: Finding, place: str) -> Finding:
    """A finding whose advice to ask as it was trained is withdrawn, where the script does that."""
    if not place or not _advises_asking_as_trained(finding):
        return finding
    if ASK_AS_TRAINED in finding.remedy:
        return replace(finding, remedy=STOP_AT_THE_TURN.format(place=place))
    return replace(
        finding,
        remedy=(
            f"the prompts do end in the header of the answer ({place}): see how they reach generate (padding on the"
            " left, the attention mask, no cut of their end), and ask one of these prompts alone; if that answer is"
            " good, the batch is the cause"
        ),
    )
