"""Judges the rows of a run as its tokenizer and template render them; by their texts alone if these
are missing.
"""

from __future__ import annotations

from truetune.checks.check_data import Progress, check
from truetune.checks.columns_read_by_scripts import columns_read_by_scripts
from truetune.checks.judge_rows_without_tokenizer import judge_rows_by_text_rules
from truetune.checks.judgement import Judgement, NotJudged, Unmet
from truetune.checks.paths.explain_missing_tokenizer import (
    why_tokenizer_of_scripts_is_missing,
    without_advice_of_transformers,
)
from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.checks.reports import Report, Subject
from truetune.checks.rule import DataRule
from truetune.checks.rule_catalogue import station_of_rule
from truetune.checks.rule_runner import choose_rules, not_judged_since_unmet
from truetune.checks.template.plain_string_pair_skips_template import PlainStringPairSkipsTemplate
from truetune.checks.tokens_added_by_project import tokens_added_by_project
from truetune.errors import TokenizerError, TruetuneError
from truetune.settings.recognise_input_kind import title_of_kind
from truetune.settings.row_formats import is_script_named_as_format
from truetune.settings.run_spec import RunSpec


def judge_rows(run: RunSpec, seen: PathsCheck, progress: Progress | None) -> Report | None:
    """Judge the rows as they are rendered, and the tokenizer; None if they can't be rendered."""
    if run.data and run.tokenizer is None and run.model is None:
        _judge_texts_without_tokenizer(run, seen, progress)
        return None
    if seen.rows_of_scripts:
        return _judge_rows_read_by_script(run, seen, progress)
    note = seen.trainers.why_ambiguous()
    if run.trained_by is None and note:
        seen.subjects.append(Subject("trainer", "not known", (("note", note),)))
    return _check_rows_with_tokenizer(seen.trainers.apply_to_run(run), seen, progress)


def _judge_texts_without_tokenizer(
    run: RunSpec, seen: PathsCheck, progress: Progress | None
) -> None:
    """Judge rows without a usable tokenizer by the rules on texts, and note that the other rules
    could not judge them.

    Raises a TruetuneError if the rows can't be read, and nothing else was judged.
    """
    why = seen.no_tokenizer or why_tokenizer_of_scripts_is_missing(seen) or "no tokenizer is named"
    what = "the prompts, tokens and lengths of the data"
    try:
        judgement, subject = judge_rows_by_text_rules(
            seen.trainers.apply_to_run(run),
            progress,
            script_reads_rows=seen.rows_of_scripts,
            why=why,
            columns_read=columns_read_by_paths(seen),
            tokens_added=tokens_added_by_paths(seen),
        )
    except TruetuneError as error:
        if not seen.subjects:
            raise
        judgement = Judgement()
        subject = Subject(title_of_kind("data"), ", ".join(run.data))
        what, why = "the data", str(error)
    seen.subjects.append(subject)
    not_rendered = NotJudged(
        what,
        why,
        unlock="name a tokenizer with -t",
        # Settings that were judged are an answer by themselves; rows that were named, and half read, are none.
        asked=not seen.rows_of_scripts and not seen.no_tokenizer,
    )
    seen.judged += [judgement, Judgement(not_judged=(not_rendered,))]


def _judge_rows_read_by_script(
    run: RunSpec, seen: PathsCheck, progress: Progress | None
) -> Report | None:
    """As `judge_rows`, for the rows that a script reads: if they can't be read as they stand they
    are not judged, for the script may change them first.
    """
    try:
        return _check_rows_with_tokenizer(seen.trainers.apply_to_run(run), seen, progress)
    except TruetuneError as error:
        why = f"they have no known row format in the file: {error}"
        unjudged = NotJudged("the rows that the script reads", why, asked=False)
        seen.add_not_judged(unjudged)
        return None


def _check_rows_with_tokenizer(
    run: RunSpec, seen: PathsCheck, progress: Progress | None
) -> Report | None:
    """What the rules on data and tokenizer say.

    None if a tokenizer that the user did not name is broken, and other things were judged: settings
    may name a folder that holds the model's config.json alone.
    """
    try:
        return check(
            run,
            _choose_data_rules(run, seen),
            progress=progress,
            cut=not seen.joined,
            columns_read=columns_read_by_paths(seen),
            tokens_added=tokens_added_by_paths(seen),
        )
    except TokenizerError as error:
        # A tokenizer that the user named himself, or the only thing that was named, must not be passed over in
        # silence.
        if seen.spec.tokenizer is not None or not seen.subjects:
            raise
        if run.data:
            seen.no_tokenizer = without_advice_of_transformers(error)
            _judge_texts_without_tokenizer(run, seen, progress)
            return None
        seen.subjects.append(Subject(title_of_kind("tokenizer"), run.tokenizer or ""))
        seen.add_not_judged(NotJudged("the tokenizer", str(error), asked=False))
        return None


def columns_read_by_paths(seen: PathsCheck) -> frozenset[str]:
    """The columns that the scripts among the paths read."""
    return columns_read_by_scripts(seen.trainers.sources)


def tokens_added_by_paths(seen: PathsCheck) -> frozenset[str]:
    """The tokens that scripts and settings among the paths add to the tokenizer; they are looked
    for once.
    """
    if seen.tokens_added is None:
        seen.tokens_added = tokens_added_by_project(seen.trainers.sources, seen.named)
    return seen.tokens_added


def _choose_data_rules(run: RunSpec, seen: PathsCheck) -> list[type[DataRule]]:
    """The rules on data that hold for this run: not those on a template that its stack does not
    use, nor those on cuts if texts are joined.
    """
    rules = choose_rules(run, DataRule)
    if seen.own_prompt:
        # The template of the tokenizer is not what the stack writes: rules on prompts would judge a text that nobody
        # trains.
        rules = [rule for rule in rules if station_of_rule(rule) in ("rows", "pairs")]
    if seen.joined:
        # What is joined or split loses no token at the limit.
        rules = [rule for rule in rules if not rule.judges_cut]
    # Rows that are followed through the script are seen as the messages that it makes.
    is_followed = run.format is not None and is_script_named_as_format(run.format)
    made_messages = seen.trainers.place_that_makes_messages if run.data and not is_followed else ""
    if made_messages and PlainStringPairSkipsTemplate in rules:
        # Rows that a script maps to messages are not trained as the strings that stand in the file.
        why = f"{made_messages} converts the rows to messages, which the chat template renders"
        unmet = Unmet(why, "check what is in the loss: truetune run -- COMMAND")
        not_met = not_judged_since_unmet(PlainStringPairSkipsTemplate, unmet)
        seen.add_not_judged(not_met)
        rules.remove(PlainStringPairSkipsTemplate)
    return rules
