"""The first line of a report on data: what this trainer learns of the rows, beside what an ideal mask would.

The sentence never promises more than is known. A trainer whose masking is read off its release "learns"; where the
user's own code makes the labels it is the ideal mask that "would learn"; without a trainer it says so. Below, the
words differ by one verb, which is all that a reader needs to see whether to trust the count.
"""

from __future__ import annotations

from rich.text import Text

from truetune.checks.learned_token_counts import LearnedTokenCounts
from truetune.checks.reports import DataReport
from truetune.report.visible_text import count_noun, format_share, wrap_text
from truetune.settings.stacks.read_axolotl_datasets import preference_strategy

UNKNOWN_TRAINER = "the trainer is not known: name it with --trainer"


def who_learns(report: DataReport) -> str:
    """Who learns, in front of the counts: `TRL 1.16.0 SFTTrainer learns`."""
    learned, verb = (
        report.learned,
        "learns" if report.spec.mask_by == "contract" else "should learn",
    )
    if learned is None:
        return verb
    # Without a trainer nothing is claimed of one: if all masks agree, the ideal one is meant.
    if learned.trainer is None:
        return (
            "an ideal mask learns" if learned.ideal == learned.supervised else f"a trainer {verb}"
        )
    # The user's own code makes the labels, or a setting decides that is not read: what an ideal
    # mask learns is all that is known.
    if not learned.sure:
        return (
            "an ideal mask would learn"
            if learned.ideal == learned.supervised
            else "the settings ask for"
        )
    return f"{learned.called} {verb}{' about' if learned.about else ''}"


def explain_counts(report: DataReport) -> str:
    """What follows the counts: why, what a limit takes, and what an ideal mask would learn."""
    learned = report.learned
    if learned is None:
        return ""
    return "".join(f"; {part}" for part in _explanations(learned) if part)


def _explanations(learned: LearnedTokenCounts) -> list[str]:
    """The parts of the sentence, empty ones included."""
    if learned.trainer is None:
        return [UNKNOWN_TRAINER]
    parts = (
        []
        if learned.sure
        else [f"what {learned.called} learns is what your code labels: truetune run -- COMMAND"]
    )
    if learned.sure:
        parts.append(learned.because)
    if learned.masked_as_pads:
        parts.append(f"{count_noun(learned.masked_as_pads, 'token')} masked, being the pad token")
    parts.append(_describe_left_out(learned))
    # Said only where both differ: the same number twice reads as a second finding.
    if learned.ideal != learned.supervised:
        parts.append(
            f"an ideal mask would learn {learned.ideal:,} ({format_share(learned.ideal, learned.tokens)})"
        )
    # Another release is installed than the one whose table was used: its defaults may differ.
    if learned.installed:
        parts.append(f"{learned.installed} is installed here")
    return parts


def _describe_left_out(learned: LearnedTokenCounts) -> str:
    """What a trainer takes away that leaves long examples out whole."""
    if not learned.left_out or not learned.lost:
        return ""
    whole = count_noun(learned.left_out, "example")
    return (
        f"{whole} of more than {learned.limit:,} tokens ({_limit_name(learned)}) left out, with"
        f" {learned.lost:,} of them"
    )


def _limit_name(learned: LearnedTokenCounts) -> str:
    """`max_length by default`."""
    return f"{learned.limit_name}{' by default' if learned.limit_by_default else ''}"


def _cuts(learned: LearnedTokenCounts | None) -> bool:
    """Does the trainer cut examples, so that some of what it would learn is lost?"""
    return learned is not None and learned.lost > 0 and not learned.left_out


def _learned_behind_cut(report: DataReport) -> int:
    """Tokens that are learned once rows are cut: what stands behind a limit is read by nobody."""
    learned, supervised = report.learned, report.ledger.supervised
    if learned is not None and _cuts(learned):
        return learned.reaches
    # A trainer that leaves long examples out cuts none.
    if learned is not None and learned.left_out:
        return supervised
    return supervised - report.lengths.lost_supervised


def _describe_cut(report: DataReport) -> str:
    """The cut that the count is made behind, with what it loses; empty where nothing is cut."""
    learned = report.learned
    if learned is not None and _cuts(learned):
        answers = ", and no answer is left" if not learned.answers_left else ""
        return (
            f", cut at {learned.limit:,} ({_limit_name(learned)}), which loses {learned.lost:,} more"
            f"{answers}"
        )
    lost = report.lengths.lost_supervised
    if not lost or (learned is not None and learned.left_out):
        return ""
    answers = ", and no answer is left" if learned is not None and not learned.answers_left else ""
    return f", cut at {report.lengths.limit:,}, which loses {lost:,} more{answers}"


def _by_source(report: DataReport) -> str:
    """What is learned, by what it is, the largest share first: assistant text leads where all is well, and template
    text where it is not."""
    learned, ledger = report.learned, report.ledger
    counts = {source.label: n for source, n, _ in ledger.rows() if n}
    if learned is not None and _describe_cut(report):
        counts = learned.kept
    total = sum(counts.values())
    parts = sorted(counts.items(), key=lambda part: -part[1])
    return ", ".join(f"{label} {format_share(n, total)}" for label, n in parts) or "nothing"


def _own_template(report: DataReport) -> str:
    """That the trainer has a template of its own, where it has; empty otherwise."""
    learned = report.learned
    if learned is None or learned.trainer is None or not learned.about:
        return ""
    return f", and {learned.called} renders them by one of its own, which is not read here"


def supervision_verdict(report: DataReport, width: int = 10_000) -> Text:
    """What is learned, in one sentence."""
    ledger = report.ledger
    if not report.examples and report.rejected:
        # Nobody learns "nothing" here: who renders rows by a template of its own trains on them all the same.
        rows = count_noun(report.rows, "row")
        line = (
            "what is learned is not known: the tokenizer's template renders none of"
            f" {rows}" + _own_template(report)
        )
        return Text("\n".join(wrap_text(line, width)), style="bold")
    training = report.spec.training
    strategy = preference_strategy(training.method, training.other.get("datasets.type"))
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
    says = who_learns(report)
    reaches = _learned_behind_cut(report)
    line = (
        f"{says} {reaches:,} of {ledger.total:,} tokens"
        f" ({format_share(reaches, ledger.total)}) in {rows}{_describe_cut(report)}: {_by_source(report)}"
    )
    if report.lengths.media:
        line += f"; {report.lengths.media.note_on_lengths}"
    line += explain_counts(report)
    text = Text("\n".join(wrap_text(line, width)))
    text.stylize("bold green", len(f"{says} "), len(f"{says} {reaches:,}"))
    return text
