"""The first line of a report on data: which tokens this trainer trains on, beside what it would be with an ideal mask.

The sentence never promises more than is known. A trainer whose masking is read off its release
"trains on" so many tokens; if the user's own code makes the labels, the loss "would be on" them with an ideal mask;
without a trainer it says so.
"""

from __future__ import annotations

from rich.text import Text

from truetune.checks.learned_tokens_against_ideal_mask import LearnedTokenCounts
from truetune.checks.reports import DataReport
from truetune.report.visible_text import count_noun, format_per_cent_share, wrap_text
from truetune.settings.stacks.read_axolotl_datasets import preference_strategy_with_own_template
from truetune.settings.training_settings import SAMPLES_ITS_ANSWERS

WITH_IDEAL_MASK = "with an ideal mask, the loss is on"
UNKNOWN_TRAINER = "unknown trainer: name it with --trainer"


def describe_trainer_that_learns(report: DataReport) -> str:
    """Who learns, as the sentence begins: `TRL 1.16.0 SFTTrainer trains on`."""
    learned, verb = (
        report.learned,
        "trains on" if report.spec.mask_by == "contract" else "should train on",
    )
    if learned is None:
        return verb
    # Without a trainer nothing is claimed of one: if all masks agree, the ideal one is meant.
    if learned.trainer is None:
        return WITH_IDEAL_MASK if learned.ideal == learned.supervised else f"a trainer {verb}"
    # The user's own code makes the labels, or a setting decides that is not read: what an ideal
    # mask learns is all that is known.
    if not learned.sure:
        return (
            "with an ideal mask, the loss would be on"
            if learned.ideal == learned.supervised
            else "the settings ask for"
        )
    return f"{learned.called} {verb}{' about' if learned.about else ''}"


def explain_learned_counts(report: DataReport) -> str:
    """What follows the counts: why, what a limit takes, and what an ideal mask would learn."""
    learned = report.learned
    if learned is None:
        return ""
    return "".join(f"; {part}" for part in _explanation_clauses(learned) if part)


def _explanation_clauses(learned: LearnedTokenCounts) -> list[str]:
    """The clauses that explain the learned counts: why, what is left out, and what an ideal mask would learn; empty
    ones included.
    """
    if learned.trainer is None:
        return [UNKNOWN_TRAINER]
    parts = (
        []
        if learned.sure
        else [f"{learned.called} trains on what your code labels: truetune run -- COMMAND shows it"]
    )
    if learned.sure:
        parts.append(learned.because)
    if learned.masked_as_pads:
        parts.append(f"{count_noun(learned.masked_as_pads, 'token')} masked, being the pad token")
    parts.append(_describe_loss_by_leaving_out_long(learned))
    # Said only where both differ: the same number twice reads as a second finding.
    if learned.ideal != learned.supervised:
        share = format_per_cent_share(learned.ideal, learned.tokens)
        parts.append(f"with an ideal mask, the loss would be on {learned.ideal:,} ({share})")
    # Another release is installed than the one whose table was used: its defaults may differ.
    if learned.installed:
        parts.append(f"{learned.installed} is installed here")
    return parts


def _describe_loss_by_leaving_out_long(learned: LearnedTokenCounts) -> str:
    """What a trainer loses that leaves examples over its limit out whole."""
    if not learned.left_out or not learned.lost:
        return ""
    whole = count_noun(learned.left_out, "example")
    return (
        f"{whole} of more than {learned.limit:,} tokens ({_name_length_limit_and_if_default(learned)}) left out, with"
        f" {learned.lost:,} of them"
    )


def _name_length_limit_and_if_default(learned: LearnedTokenCounts) -> str:
    """The name of the limit, and whether it is the default: `max_length by default`."""
    return f"{learned.limit_name}{' by default' if learned.limit_by_default else ''}"


def _does_trainer_cut_learned_tokens(learned: LearnedTokenCounts | None) -> bool:
    """Does the trainer cut examples, so that some of what it would learn is lost?"""
    return learned is not None and learned.lost > 0 and not learned.left_out


def _count_tokens_learned_after_cut(report: DataReport) -> int:
    """How many tokens are learned once examples are cut at the limit."""
    learned, supervised = report.learned, report.ledger.supervised
    if learned is not None and _does_trainer_cut_learned_tokens(learned):
        return learned.tokens_in_loss
    # A trainer that leaves long examples out cuts none.
    if learned is not None and learned.left_out:
        return supervised
    return supervised - report.lengths.lost_supervised


def _describe_cut_loss(report: DataReport) -> str:
    """At what limit examples are cut, and how many supervised tokens that loses; empty where
    nothing is cut.
    """
    learned = report.learned
    if learned is not None and _does_trainer_cut_learned_tokens(learned):
        answers = ", and no answer is left" if not learned.answers_left else ""
        return (
            f", cut at {learned.limit:,} ({_name_length_limit_and_if_default(learned)}), which loses"
            f" {learned.lost:,} more{answers}"
        )
    lost = report.lengths.lost_supervised
    if not lost or (learned is not None and learned.left_out):
        return ""
    answers = ", and no answer is left" if learned is not None and not learned.answers_left else ""
    return f", cut at {report.lengths.limit:,}, which loses {lost:,} more{answers}"


def _learned_shares_by_source(report: DataReport) -> str:
    """Which sources the learned tokens are from, as shares in words, the largest share first."""
    learned, ledger = report.learned, report.ledger
    counts = {source.label: n for source, n, _ in ledger.rows() if n}
    if learned is not None and _describe_cut_loss(report):
        counts = learned.kept
    total = sum(counts.values())
    parts = sorted(counts.items(), key=lambda part: -part[1])
    return (
        ", ".join(f"{label} {format_per_cent_share(n, total)}" for label, n in parts) or "nothing"
    )


def _describe_trainer_template(report: DataReport) -> str:
    """That the trainer renders by a template of its own, where it does; empty otherwise."""
    learned = report.learned
    if learned is None or learned.trainer is None or not learned.about:
        return ""
    return f", and {learned.called} renders them by one of its own, which is not read here"


def supervision_verdict(report: DataReport, width: int = 10_000) -> Text:
    """The verdict: what is learned, in one sentence, wrapped to `width`."""
    ledger = report.ledger
    if not report.examples and report.rejected:
        # Nobody learns "nothing" here: who renders rows by a template of its own trains on them all the same.
        rows = count_noun(report.rows, "row")
        line = (
            "what is learned is not known: the tokenizer's template renders none of"
            f" {rows}" + _describe_trainer_template(report)
        )
        return Text("\n".join(wrap_text(line, width)), style="bold")
    training = report.spec.training
    if training.method in SAMPLES_ITS_ANSWERS:
        rows = count_noun(report.examples, "row")
        line = (
            f"{training.method} trains on answers that it samples, not on answers of the rows: the prompts come from"
            f" {rows}"
        )
        return Text("\n".join(wrap_text(line, width)), style="bold")
    strategy = preference_strategy_with_own_template(
        training.method, training.other.get("datasets.type")
    )
    if strategy:
        rows = count_noun(report.examples, "example")
        line = (
            f"what is learned of {rows} is not judged: type {strategy} writes its own prompts and stop marks, not those"
            " of the tokenizer's template"
        )
        return Text("\n".join(wrap_text(line, width)), style="bold")
    if not ledger.supervised:
        line = f"learns nothing: no token of {count_noun(report.examples, 'example')} is supervised"
        return Text("\n".join(wrap_text(line, width)), style="bold red")
    rows = count_noun(report.examples, "example")
    if report.examples != report.rows:
        rows += f" of {count_noun(report.rows, 'row')}"
    says = describe_trainer_that_learns(report)
    reaches = _count_tokens_learned_after_cut(report)
    share = format_per_cent_share(reaches, ledger.total)
    line = (
        f"{says} {reaches:,} of {ledger.total:,} tokens ({share}) in {rows}"
        f"{_describe_cut_loss(report)}: {_learned_shares_by_source(report)}"
    )
    if report.lengths.media:
        line += f"; {report.lengths.media.note_on_lengths}"
    line += explain_learned_counts(report)
    text = Text("\n".join(wrap_text(line, width)))
    text.stylize("bold green", len(f"{says} "), len(f"{says} {reaches:,}"))
    return text
