"""Tells whether rows came tokenized without labels, and whether their prompts are learned for that
reason.

Rows of `input_ids` pass by all masking that a trainer does while it tokenizes. What they hold is read from the ids, by
the chat template in reverse (`truetune.auditing.expected_tokens_without_rendering`): ids without a turn of the
template may be plain text, which is learned whole on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

from truetune.auditing.audit import Audit, Sample
from truetune.checks.batch.evidence.answer_spans import (
    answers_in_line,
    lines_of_known_rows,
    prompt_mask,
)
from truetune.checks.batch.evidence.loss_masks_lost_in_batches import (
    MASK_COLUMNS,
    are_all_tokens_learned,
)

IDS_COLUMN = "input_ids"
TEXT_COLUMNS = frozenset({"messages", "conversations", "prompt", "completion"})
"""Columns that TRL's SFTTrainer tokenizes, beside the one that `dataset_text_field` names"""
ENCODE_REMEDY = (
    "encode the rows from their text with truetune encode ROWS --tokenizer TOKENIZER --output encoded,"
    " and train on encoded/data/; or give the rows labels, with -100 on everything but the answers"
)
"""The remedy where rows came tokenized"""
# Chosen, not measured. At 0.5 a collator that masks most prompts would count as none; at 1 a single
# pad would.
UNMASKED_SHARE = 0.9
"""Share of the prompts' tokens that is learned where nothing masks them. Not all: a collator that masks padding by its
id, or the first token of each document, takes some out"""
MIN_CHAT_SHARE = 0.5
"""Share of the lines that hold turns, from which the rows are chats: in a mix with plain text prompts may be meant"""


@dataclass(frozen=True, slots=True)
class PromptsOfUnlabelledRows:
    """The prompts of rows that came tokenized, without labels."""

    lines: tuple[Sample, ...]
    """Lines in which the template's turns were found, and an answer is learned"""
    learned: int
    """Tokens of prompts that are in the loss"""
    prompts: int
    """Tokens of prompts"""
    labels: int
    """Tokens of these lines that are in the loss"""


def columns_before_preparation(audit: Audit) -> frozenset[str]:
    """The columns of the rows before any preparation by the trainer; none where they are not known."""
    data = audit.facts["data"]
    # The data loader's rows come last: the Trainer has removed the columns from them that its model
    # does not take.
    table = data["given"] or data.get("of_trainer") or data["prepared"] or {}
    columns = frozenset(table.get("columns") or ())
    if data["given"] or not _does_trainer_prepare_rows(audit):
        return columns
    # TRL keeps the columns of the texts that it tokenized, and adds labels. So rows without such a
    # column came tokenized, and whether labels came with them is not known: where they are of use,
    # they mask something.
    texts = TEXT_COLUMNS | {audit.facts["args"].get("dataset_text_field") or "text"}
    return (
        columns - {"labels"}
        if _does_preparation_keep_columns(audit) and not columns & texts
        else frozenset()
    )


def did_rows_come_tokenized(audit: Audit) -> bool:
    """Did the rows hold ids before the trainer saw them?"""
    return IDS_COLUMN in columns_before_preparation(audit)


def did_rows_come_without_labels(audit: Audit) -> bool:
    """Did the rows come tokenized, with neither labels nor a mask that a trainer knows?"""
    columns = columns_before_preparation(audit)
    return IDS_COLUMN in columns and not columns & {"labels", *MASK_COLUMNS}


def _does_trainer_prepare_rows(audit: Audit) -> bool:
    """Does the trainer prepare its rows before the first batch?"""
    is_sft = any("SFTTrainer" in base for base in audit.facts["trainer"]["bases"])
    return is_sft and not (audit.facts["args"].get("dataset_kwargs") or {}).get(
        "skip_prepare_dataset"
    )


def _does_preparation_keep_columns(audit: Audit) -> bool:
    """Does the preparation keep the columns that the rows had? Packing does not, nor do Unsloth and TRL before 1.0."""
    versions = audit.facts["versions"]
    release = str(versions.get("trl", "")).partition(".")[0]
    return (
        release.isdigit()
        and int(release) >= 1
        and "unsloth" not in versions
        and not audit.facts["args"].get("packing")
    )


def prompts_of_unlabelled_rows(audit: Audit) -> PromptsOfUnlabelledRows | None:
    """The prompts of rows that came tokenized, without labels.

    Returns:
        None where the rows came otherwise, where less than half of the lines are known to hold prompts, or where
        `completion_only_loss=False` asks for a loss on them.
    """
    if audit.kind not in ("sft", "loop") or not did_rows_come_without_labels(audit):
        return None
    if audit.facts["args"].get("completion_only_loss") is False:
        return None
    lines: list[Sample] = []
    learned = prompts = labels = 0
    for sample in lines_of_known_rows(audit):
        is_prompt = prompt_mask(audit, sample)
        if is_prompt.any() and _has_labelled_answer(audit, sample):
            lines.append(sample)
            learned += int((is_prompt & sample.supervised).sum())
            prompts += int(is_prompt.sum())
            labels += int(sample.supervised.sum())
    if not lines or len(lines) < MIN_CHAT_SHARE * len(audit.samples):
        return None
    return PromptsOfUnlabelledRows(tuple(lines), learned=learned, prompts=prompts, labels=labels)


def _has_labelled_answer(audit: Audit, sample: Sample) -> bool:
    """Has an answer of this line a label?"""
    return any(
        answer.supervised_token_mask.any() for answer in answers_in_line(sample, audit.stops)
    )


def prompts_learned_for_lack_of_labels(audit: Audit) -> PromptsOfUnlabelledRows | None:
    """The prompts that are learned because the rows came tokenized, without labels: nothing masks them."""
    bare = prompts_of_unlabelled_rows(audit)
    return bare if bare is not None and bare.learned >= UNMASKED_SHARE * bare.prompts else None


def note_on_unlabelled_rows_without_prompts(audit: Audit) -> str:
    """A note if rows came tokenized, without labels, and hold no prompts; empty elsewhere."""
    if (
        audit.kind not in ("sft", "loop")
        or not did_rows_come_without_labels(audit)
        or not are_all_tokens_learned(audit)
    ):
        return ""
    if prompts_learned_for_lack_of_labels(audit) is not None:
        return ""
    return (
        "the rows came tokenized, without labels: every token is in the loss, which is right for"
        " plain text alone"
    )
