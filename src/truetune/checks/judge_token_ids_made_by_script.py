"""Judges the token ids that a training script makes of its rows: follows the script with the real
tokenizer, and runs the rules on token ids.

How it works: the script is followed with its rows and the real tokenizer (`truetune.data.script_rows`), its ids and
labels are written to a file for the time of the check, and the rules on tokenized rows read that file. Each finding is
then told at the line of the user's file that the row is made of.

The trade-off: of a collator of the script's own only a few batches are made, and only where all of its calls are known;
`truetune run` sees the others.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from truetune.checks.check_data import load_tokenizer_and_template
from truetune.checks.effect_of_batches_without_label import (
    EFFECT,
    REMEDY,
    describe_loss_of_unlabelled_batches,
    expects_batch_without_label,
    may_skip_unlabelled_batches,
)
from truetune.checks.findings import Case, Finding
from truetune.checks.inspect_tokenized import TokenizedReport, inspect_tokenized
from truetune.checks.judge_batches_made_by_script import judge_batches_of_script
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.rows.answer_is_little_of_the_loss import AnswerIsLittleOfTheLoss
from truetune.checks.rows.few_distinct_answers import FewDistinctAnswers
from truetune.checks.rows.prompts_all_alike import PromptsAllAlike
from truetune.checks.rows.shared_text_is_learned import SharedTextIsLearned
from truetune.checks.rows.unused_columns import UnusedColumns
from truetune.checks.rule import DataRule
from truetune.checks.rule_runner import choose_rules
from truetune.checks.run_data_rules import DataRules
from truetune.checks.tokenized.answers_masked_in_token_rows import AnswersMaskedInTokenRows
from truetune.checks.tokenized.padding_stored_in_token_rows import PaddingStoredInTokenRows
from truetune.checks.tokenized.prompts_supervised_in_token_rows import (
    PromptsSupervisedInTokenRows,
)
from truetune.checks.tokenizer.rows_longer_than_saved_limits import LARGEST_REAL_LIMIT
from truetune.data.conversation import Conversation, Origin
from truetune.data.find_data_files import DataFile
from truetune.data.script_rows.compute_tokenizer_calls_of_script import ScriptTokenizer
from truetune.data.script_rows.find_row_shaping_script import (
    take_while_time_is_left,
    training_scripts,
)
from truetune.data.script_rows.read_rows_given_to_trainer import (
    CLASS,
    LabelKind,
    ScriptRow,
    ScriptRows,
    read_token_rows,
    read_trained_text_rows,
)
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch as batch_of
from truetune.errors import DataError, format_name_list
from truetune.render.byte_tokenizer import BYTE_TOKENIZER
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.render.tokenizer import Tokenizer
from truetune.settings.run_spec import RunSpec

FILE_NAME = "rows.jsonl"
IGNORED = -100
"""The label of a token that is not learned"""
MARK_OF_CLASSIFIERS = b"SequenceClassification"
"""What a script that trains a classifier has in its text"""
RULES_ON_CACHES = ("token-rows-of-another-template", "cache-made-with-other-settings")
"""They tell a cache that was made for another run. A script's rows are of this run, and its form is its own"""


def inspect_ids_made_by_script(
    scripts: Iterable[str], sources: Iterable[DataFile], run: RunSpec
) -> TokenizedReport | None:
    """What the rules say of the ids that the one script makes of these files; None where none makes ids of them.

    Args:
        scripts: The paths of Python files and notebooks.
        sources: Files of rows.
        run: Names the tokenizer.

    Raises:
        SpecError, TokenizerError, TemplateError: the tokenizer can't be used.
    """
    probes = load_tokenizer_and_template_of_run(run)
    rows = _find_rows_tokenized_by_script(scripts, sources, make_script_tokenizer(probes))
    if rows is None:
        return None
    if rows.labels != "next tokens":
        return None  # labels of another text, or classes: the rules on token rows would take them for shifted
    unequal = list(_note_on_rows_with_unequal_labels(rows))
    whole = replace(rows, rows=tuple(row for row in rows.rows if _has_a_label_for_each_id(row)))
    report = _inspect_ids(whole, run)
    judgements = [Judgement(not_judged=(*unequal, *_notice_of_collator_not_understood(rows)))]
    if not unequal and not rows.has_class_label_per_row:
        reported = {finding.rule for finding in report.findings}
        judgements.append(judge_batches_of_script(rows, run, probes, reported))
    more = Judgement.of(judgements)
    return replace(
        report,
        findings=(*report.findings, *more.findings),
        examined=(*report.examined, *more.examined),
        not_judged=(*report.not_judged, *more.not_judged),
    )


def judge_columns_without_tokenizer(
    scripts: Iterable[str], sources: Iterable[DataFile], run: RunSpec
) -> Judgement:
    """What the rule on columns says of the one script that makes ids of these files, where no tokenizer is available.

    Bytes stand in for the ids, and a plain rendering for the chat template: which columns the script's code reads does
    not depend on them. Nothing else is judged by these ids.
    """
    stand_in = run.model_copy(update={"tokenizer": BYTE_TOKENIZER, "model": None})
    rows = _find_rows_tokenized_by_script(scripts, sources, make_stand_in_tokenizer(run))
    return Judgement() if rows is None else _judge_texts_of_ids(rows, stand_in)


def judge_labels_of_classifier(
    scripts: Iterable[str], sources: Iterable[DataFile], run: RunSpec
) -> Judgement:
    """What the rule on answers says of the labels of the one script that trains a classifier on these files.

    Classes may be as uneven as they are: only a label that is the same in each row is a column that was not meant.
    """
    of_classifiers = [one for one in scripts if MARK_OF_CLASSIFIERS in Path(one).read_bytes()]
    if not of_classifiers:
        return Judgement()
    stand_in = run.model_copy(update={"tokenizer": BYTE_TOKENIZER, "model": None})
    tokenizer = make_stand_in_tokenizer(run)
    rows = _find_rows_tokenized_by_script(of_classifiers, sources, tokenizer, of_classifier=True)
    if rows is None or len({row.row.get(CLASS) for row in rows.rows}) != 1:
        return Judgement()
    return _judge_texts_of_ids(rows, stand_in)


def find_data_files_trained_by_script(scripts: Iterable[str]) -> tuple[str, ...]:
    """The files of rows that the one script among these trains which can be followed; none where several can."""
    stand_in = make_stand_in_tokenizer(RunSpec())
    files_of_trainings: list[tuple[str, ...]] = []
    for script in take_while_time_is_left(training_scripts(scripts)):
        for read in (read_trained_text_rows, lambda name: read_token_rows(name, stand_in)):
            try:
                files_of_trainings.append(read(script).training_files)
                break
            except DataError:
                continue  # not of this kind, or it can't be followed
    return files_of_trainings[0] if len(files_of_trainings) == 1 else ()


def make_stand_in_tokenizer(run: RunSpec) -> ScriptTokenizer:
    """Bytes for ids and a plain rendering for the template, where no tokenizer is available."""
    spec = run.model_copy(update={"tokenizer": BYTE_TOKENIZER, "model": None})
    return replace(
        make_script_tokenizer(load_tokenizer_and_template_of_run(spec)), render=_render_plainly
    )


def _render_plainly(messages: list[Any], adds_generation_prompt: bool) -> str | None:
    """A chat as text, in the place of a template that is not known."""
    if not all(isinstance(one, dict) for one in messages):
        return None
    turns = [f"<{one.get('role')}>{one.get('content')}</s>" for one in messages]
    return "".join(turns) + ("<assistant>" if adds_generation_prompt else "")


def _find_rows_tokenized_by_script(
    scripts: Iterable[str],
    sources: Iterable[DataFile],
    tokenizer: ScriptTokenizer,
    *,
    of_classifier: bool = False,
) -> ScriptRows | None:
    """The rows of the one script that makes ids of these files; None without one, or with several.

    Args:
        scripts: Training scripts.
        sources: Files of rows.
        tokenizer: The one that the script is followed with.
        of_classifier: Rows with one label each are meant, and no others.
    """
    files = [Path(str(source.path)) for source in sources]
    tokenized_rows = []
    for script in take_while_time_is_left(scripts):
        try:
            rows = read_token_rows(script, tokenizer)
        except DataError:
            continue  # no ids, or nothing that can be followed
        is_wanted = rows.has_class_label_per_row is of_classifier
        if is_wanted and any(rows.rows_of_file(file) is not None for file in files):
            tokenized_rows.append(rows)
    return tokenized_rows[0] if len(tokenized_rows) == 1 else None


def make_script_tokenizer(probes: Probes) -> ScriptTokenizer:
    """A tokenizer as scripts are followed with it."""
    backend = probes.tokenizer.backend

    def encode(text: str, adds_special: bool) -> list[int]:
        ids: list[int] = backend.encode(text, add_special_tokens=adds_special).ids
        return ids

    return ScriptTokenizer(
        encode=encode,
        render=lambda messages, adds: probes.text(messages, add_generation_prompt=adds),
        special={f"{name}_token": one.token for name, one in probes.tokenizer.special.items()},
        id_of=backend.token_to_id,
        padding_side=probes.tokenizer.padding_side,
        model_max_length=_model_max_length(probes.tokenizer),
    )


def _model_max_length(tokenizer: Tokenizer) -> int | None:
    """The limit of tokenizer_config.json; None where it states none."""
    limit = tokenizer.config.get("model_max_length")
    # transformers writes a number like 1e30 where no limit is known.
    return limit if type(limit) is int and limit < LARGEST_REAL_LIMIT else None


def _inspect_ids(rows: ScriptRows, run: RunSpec) -> TokenizedReport:
    """The report on the ids, at the places that they are made of."""
    with tempfile.TemporaryDirectory(prefix="truetune-") as folder:
        path = Path(folder) / FILE_NAME
        with path.open("w", encoding="utf-8") as file:
            for row in rows.rows:
                file.write(json.dumps(row.row) + "\n")
        # The rows of an own collator are batches of one row, which it may pad to a length that it likes.
        of_batches = () if rows.collator is None else (PaddingStoredInTokenRows.name(),)
        ignored = (*run.ignore, *RULES_ON_CACHES, *of_batches)
        chosen = run.model_copy(update={"ignore": ignored})
        report = inspect_tokenized(str(path), chosen)
        findings = tuple(
            _with_cases_of_user_file(
                _unlabelled_rows_as_error_in_loops(_prompt_loss_as_warning(finding), rows),
                str(path),
                rows.rows,
            )
            for finding in report.findings
        )
    texts = _judge_texts_of_ids(rows, run)
    [subject] = report.subjects
    how = f"made by {rows.script}, whose code was followed, not run"
    unread = rows.columns_neither_read_nor_trained()
    facts = (
        *subject.facts,
        *((("never read", format_name_list(unread)),) if unread else ()),
        ("note", how),
        *(("note", note) for note in rows.notes),
    )
    return replace(
        report,
        findings=(*findings, *texts.findings),
        examined=(*report.examined, *texts.examined),
        subjects=(replace(subject, path=", ".join(rows.training_files), facts=facts),),
    )


def _notice_of_collator_not_understood(rows: ScriptRows) -> Iterator[NotJudged]:
    """The script's own collator, where it is not known what it makes of several rows."""
    if rows.collator is not None and rows.collator.batches is None:
        yield NotJudged(
            f"the batches of {rows.collator.name}",
            "its code could not be followed",
            place=f"{rows.script}:{rows.collator.line}",
            unlock="see what reaches the loss: truetune run -- python SCRIPT",
            asked=False,
            always_told=True,
        )


def _has_a_label_for_each_id(row: ScriptRow) -> bool:
    """Has a row as many labels as ids, or no labels at all?"""
    labels = row.row.get("labels")
    return labels is None or len(labels) == len(row.row["input_ids"])


def _note_on_rows_with_unequal_labels(rows: ScriptRows) -> Iterator[NotJudged]:
    """A note on the rows of which the script makes more labels than ids, or fewer; a training stops at them."""
    unequal = [row for row in rows.rows if not _has_a_label_for_each_id(row)]
    if not unequal:
        return
    first = unequal[0]
    yield NotJudged(
        f"{len(unequal):,} of {len(rows.rows):,} rows of {first.file}",
        f"{rows.script} makes {len(first.row['input_ids']):,} input_ids and"
        f" {len(first.row['labels']):,} labels of line {first.line}",
        unlock="make as many labels as input_ids",
    )


def _prompt_loss_as_warning(finding: Finding) -> Finding:
    """A finding on prompts in the loss as a warning, where the script makes no difference between prompt and answer.

    A cache without labels of its own is a fault; a script may mean to learn the whole text.
    """
    is_whole = finding.rule == PromptsSupervisedInTokenRows.name() and bool(finding.evidence)
    return replace(finding, severity="warning") if is_whole else finding


def _unlabelled_rows_as_error_in_loops(finding: Finding, rows: ScriptRows) -> Finding:
    """Rows without a label as an error where a loop takes them as whole batches, with what that does to its loss."""
    count, total = finding.count or 0, len(rows.rows)
    is_empty = (
        finding.rule == AnswersMaskedInTokenRows.name()
        and "no token in the loss" in finding.message
    )
    if not is_empty or not expects_batch_without_label(total, count, rows.rows_at_once):
        return finding
    if may_skip_unlabelled_batches([Path(rows.script).read_text(errors="replace")]):
        return finding
    return replace(
        finding,
        severity="error",
        message=f"{finding.message}; {describe_loss_of_unlabelled_batches(rows.rows_at_once)}",
        remedy=REMEDY,
        evidence=(*finding.evidence, EFFECT),
    )


TEXT_RULES: tuple[type[DataRule], ...] = (
    UnusedColumns,
    PromptsAllAlike,
    FewDistinctAnswers,
    SharedTextIsLearned,
    AnswerIsLittleOfTheLoss,
)
"""Rules on texts that hold whatever the script writes around prompt and answer"""


def _text_rules_for_label_kind(rows: ScriptRows) -> tuple[type[DataRule], ...]:
    """The rules on texts that hold for what the labels of these rows are."""
    if rows.has_class_label_per_row:
        return (FewDistinctAnswers,)
    return (UnusedColumns,) if rows.labels == "classes" else TEXT_RULES


def _judge_texts_of_ids(rows: ScriptRows, run: RunSpec) -> Judgement:
    """What rules on texts say of prompts and answers as the labels divide them, and of columns that nothing reads."""
    setup = load_tokenizer_and_template(run.model_copy(update={"format": rows.script}))
    decode = setup.tokenizer.backend.decode
    conversations = []
    for number, row in enumerate(rows.rows):
        conversation = Conversation(
            Origin(row.file, row.line, number),
            "prompt-completion",
            unused=tuple(row.left_over),
            raw=dict(row.left_over),
            made_of=row.read,
        )
        prompt, completion = _prompt_and_completion(row, rows.labels, decode)
        if prompt:
            conversation.prompt, conversation.completion = prompt, completion
        else:
            # Each token is learned: there is no answer that the labels would tell from the rest.
            conversation.format, conversation.text = "text", completion
        conversations.append(conversation)
    wanted = _text_rules_for_label_kind(rows)
    rules = DataRules([rule for rule in choose_rules(run, DataRule) if rule in wanted], setup)
    encoder = Encoder(setup.tokenizer.backend, only_reference=True)
    rules.judge_batch(batch_of(conversations, setup.probes.renderer(), encoder))
    return rules.judgement()


def _prompt_and_completion(
    row: ScriptRow, kind: LabelKind, decode: Callable[[list[int]], str]
) -> tuple[str, str]:
    """(what of a row is context, what is learned), as texts; of a classifier its class is learned."""
    ids: list[int] = row.row["input_ids"]
    if CLASS in row.row:
        return decode(ids), row.row[CLASS]
    labels: list[int] = row.row.get("labels") or ids
    labels_not_ignored = [label for label in labels if label != IGNORED]
    if kind == "classes":
        return decode(ids), " ".join(map(str, labels_not_ignored))
    if kind == "answer":
        return decode(ids), decode(labels_not_ignored)
    context, learned = _context_ids_and_learned_ids(_without_pads(ids, labels), labels)
    return decode(context), decode(learned)


def _context_ids_and_learned_ids(ids: list[int], labels: list[int]) -> tuple[list[int], list[int]]:
    """(the ids whose labels are ignored, the ids that are learned)."""
    context = [one for one, label in zip(ids, labels, strict=False) if label == IGNORED]
    learned = [one for one, label in zip(ids, labels, strict=False) if label != IGNORED]
    return context, learned


def _without_pads(ids: list[int], labels: list[int]) -> list[int]:
    """The ids without those at the end that are one id over and over, and are not learned."""
    end = len(ids)
    while end and ids[end - 1] == ids[-1] and labels[end - 1] == IGNORED:
        end -= 1
    return ids[:end]


def _with_cases_of_user_file(finding: Finding, path: str, rows: tuple[ScriptRow, ...]) -> Finding:
    """A finding whose cases name the rows of the user's file."""
    return replace(
        finding, cases=tuple(_case_of_user_file(case, path, rows) for case in finding.cases)
    )


def _case_of_user_file(case: Case, path: str, rows: tuple[ScriptRow, ...]) -> Case:
    """A case at the row of the user's file that it is made of."""
    if case.origin is None or case.origin.file != path:
        return case
    row = rows[case.origin.row]
    return replace(case, origin=Origin(row.file, row.line, case.origin.row))
