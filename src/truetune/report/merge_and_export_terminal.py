"""What a merge or an export has written, for a terminal, for programs and for a page, with the
comparison that proves it.

Both commands end in the same way: the written model is read back and compared with what it was made of. So the
proof is drawn by one function, and a result that would not be what it was made of is called "not written".
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from truetune.checks.reports import Report, Subject
from truetune.report.as_json import examined_json, findings_json, not_judged_json
from truetune.report.lines_on_passed_and_unjudged_checks import (
    describe_counts_of_checks_by_outcome,
    describe_unjudged_and_passed_checks,
)
from truetune.report.record_terminal_drawing_as_tables import page_values_of_plan_ladder_or_merge
from truetune.report.terminal_output import borderless_table, print_visible
from truetune.report.visible_text import count_noun, escape_invisible_characters
from truetune.settings.run_spec import RunSpec

if TYPE_CHECKING:
    from truetune.training.export import Exported
    from truetune.training.merge import Merged
    from truetune.training.prove_merge_or_export import Proof


def render_merged(merged: Merged, console: Console) -> None:
    """Draw what a merge lost, the proof, and where the merged model is."""
    kept = merged.manifest.merged
    if kept is not None:
        print_visible(
            console,
            # Beside what the format allows at best: at bfloat16 an adapter loses some of its
            # change however it is merged.
            f"{merged.dtype}: {kept.kept:.1%} of the adapter's change is preserved (the format allows "
            f"{kept.best:.1%}); {kept.lost:,} of {kept.changed:,} values come out as the base's",
        )
    render_proof(merged.proof, console)
    for note in merged.notes:
        print_visible(console, f"note: {note}", "dim")
    # The rules that judged the merge speak as they do in any report, so that "not judged" means
    # the same everywhere.
    report = merge_findings_report(merged)
    for line in describe_unjudged_and_passed_checks(report, verbose=False):
        print_visible(console, line, "yellow")
    print_visible(console, describe_counts_of_checks_by_outcome(report), "dim")
    _print_outcome(merged.failed, str(merged.folder), merged.seconds, console)


def render_exported(exported: Exported, console: Console) -> None:
    """Draw what is in the exported file, the proof, and where it is."""
    for name, value in exported.facts:
        print_visible(console, f"{name}: {value}")
    render_proof(exported.proof, console)
    for text in exported.notes:
        print_visible(console, f"note: {text}", "dim")
    for text in exported.faults:
        print_visible(console, f"lost: {text}", "bold red")
    for part in exported.not_judged:
        print_visible(console, f"not judged: {part}", "yellow")
    _print_outcome(exported.failed, str(exported.path), exported.seconds, console)


def merge_json(merged: Merged) -> dict[str, Any]:
    """A merge as plain values."""
    kept = merged.manifest.merged
    return {
        "folder": str(merged.folder),
        "adapter": str(merged.adapter),
        "base": str(merged.base),
        "dtype": merged.dtype,
        "kept": None if kept is None else kept._asdict(),
        "proof": _proof_json(merged.proof),
        "notes": merged.notes,
        "reused": merged.reused,
        "findings": findings_json(merged.findings),
        "failed": merged.failed,
        "examined": examined_json(merged.judged.examined),
        "not_judged": not_judged_json(merged.not_judged),
        "outcome": merge_findings_report(merged).outcome,
        "seconds": merged.seconds,
    }


def merge_findings_report(merged: Merged) -> Report:
    """What the rules found in a merge, as a report."""
    judgement = merged.judged
    subject = Subject("merged model", str(merged.folder))
    return Report(
        spec=RunSpec(),
        subjects=(subject,),
        findings=merged.findings,
        examined=judgement.examined,
        not_judged=merged.not_judged,
        seconds=merged.seconds,
    )


def export_json(exported: Exported) -> dict[str, Any]:
    """An export as plain values."""
    return {
        "path": str(exported.path),
        "facts": dict(exported.facts),
        "faults": exported.faults,
        "notes": exported.notes,
        "not_judged": not_judged_json(exported.not_judged),
        "proof": _proof_json(exported.proof),
        "failed": exported.failed,
        "seconds": exported.seconds,
    }


def merge_page_values(merged: Merged) -> dict[str, Any]:
    """A merge as plain values, with what a page of it needs."""
    return merge_json(merged) | page_values_of_plan_ladder_or_merge(
        ("merged model", str(merged.folder)),
        _outcome_sentence(merged.failed, str(merged.folder)),
        (
            ""
            if merged.failed
            else (
                f"look at it where it is served: truetune serve-check {merged.folder}"
                " --endpoint URL"
            )
        ),
        lambda console: render_merged(merged, console),
    )


def export_page_values(exported: Exported) -> dict[str, Any]:
    """An export as plain values, with what a page of it needs."""
    return export_json(exported) | page_values_of_plan_ladder_or_merge(
        ("exported model", str(exported.path)),
        _outcome_sentence(exported.failed, str(exported.path)),
        "; ".join(exported.faults)
        or f"look at it where it is served: truetune serve-check {exported.path} --endpoint URL",
        lambda console: render_exported(exported, console),
    )


def _proof_json(proof: Proof | None) -> dict[str, Any] | None:
    """The proof that the written model is like its sources, as plain values with its faults."""
    return None if proof is None else asdict(proof) | {"faults": proof.faults}


def render_proof(proof: Proof | None, console: Console) -> None:
    """Draw the proof that a written model is like its sources: a line for each form of the model,
    then the faults.
    """
    if proof is None:
        return
    # With a base the change of the logits is compared: two models of the same base have nearly
    # equal logits even if the adapter is lost.
    what = "what training changed in the logits" if proof.against_base else "the logits"
    counts = f"{count_noun(proof.prompts, 'prompt')}, {count_noun(proof.tokens, 'place')}"
    print_visible(console, f"{counts}; {what}: {proof.effect:.3g} (root mean square)")
    table = borderless_table()
    table.add_column("")
    for title in ("of it there", "cosine", "max off", "same answers", "template", "ids"):
        table.add_column(title, justify="right", no_wrap=True)
    for stage in proof.rungs:
        style = "bold red" if stage.faults else ""
        table.add_row(
            Text(escape_invisible_characters(stage.name), style=style),
            f"{stage.kept:.1%}",
            f"{stage.cosine:.4f}",
            f"{stage.difference:.2g}",
            f"{stage.answers} of {proof.prompts}",
            _same_or_other_as_cell(stage.template),
            _same_or_other_as_cell(stage.special),
        )
    console.print(table)
    for fault in proof.faults:
        print_visible(console, f"lost: {fault}", "bold red")


def _print_outcome(failed: bool, place: str, seconds: float, console: Console) -> None:
    """Print that the model is ready, or was not written, with the time it took."""
    print_visible(
        console,
        f"{_outcome_sentence(failed, place)} ({seconds:.1f} s)",
        "bold red" if failed else "bold green",
    )


def _outcome_sentence(failed: bool, place: str) -> str:
    """A sentence: `place` is ready, or was not written."""
    return (
        f"not written: {place} would not be what it was made of" if failed else f"{place} is ready"
    )


def _same_or_other_as_cell(same: bool | None) -> str:
    """A table cell: `same` or `OTHER`; `-` where it is not known."""
    # Capitals, since a table of ten columns is skimmed, and this is the cell that breaks the
    # chat.
    return "-" if same is None else "same" if same else "OTHER"
