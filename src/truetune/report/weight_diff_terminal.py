"""What moved between two checkpoints, on a terminal: kinds of tensors, the least moved first, then rows of
embeddings.

Tensors are grouped by what they do (all `q_proj` are one line), since a fault of training strikes a kind: a frozen
embedding, an adapter that missed the MLP. The trade-off: one odd layer of forty hides in the mean of its kind; the
JSON lists all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.checkpoint.weight_diff import MovementManifest, TensorMovement, sum_kept_changes
from truetune.checkpoint.weight_diff_json import MAX_NAMED_ROWS, new_tokens_with_rows
from truetune.checks.weight_diff_report import MovementReport
from truetune.report.draw_what_each_kind_of_report_adds import draw_details_by_kind
from truetune.report.terminal_output import borderless_table
from truetune.report.visible_text import count_noun, escape_invisible_characters


@draw_details_by_kind.register
def draw_movement(report: MovementReport, console: Console, verbose: bool) -> None:
    """Draw the report of `truetune diff` below its findings."""
    render_movement(report.manifest, console)


def render_movement(manifest: MovementManifest, console: Console) -> None:
    """Draw what moved: kinds of tensors, the least moved first; then the rows of the embeddings."""
    console.print(movement_by_kind_table(manifest))
    for tensor in manifest.tensors:
        for line in _embedding_lines(manifest, tensor):
            console.print(Text(escape_invisible_characters(line)), soft_wrap=True)
    for text in manifest.left_out[:MAX_NAMED_ROWS]:
        console.print(
            Text(escape_invisible_characters(f"not compared: {text}"), style="dim"), soft_wrap=True
        )
    if len(manifest.left_out) > MAX_NAMED_ROWS:
        console.print(
            Text(f"... and {len(manifest.left_out) - MAX_NAMED_ROWS:,} more", style="dim")
        )
    console.print()


def describe_least_and_most_moved(manifest: MovementManifest) -> str:
    """The least and the most moved kind, and what is left of an adapter, in one sentence."""
    by_kind = {
        kind: _root_mean_square_change(group)
        for kind, group in manifest.tensors_by_module_kind.items()
    }
    known = {
        kind.removesuffix(".weight"): change
        for kind, change in by_kind.items()
        if math.isfinite(change)
    }
    if not known:
        return "No two tensors could be compared."
    ends = [pick(known, key=known.__getitem__) for pick in (min, max)]
    low, high = (f"{kind} ({known[kind]:.2%})" for kind in ends)
    same = sum(t.same for t in manifest.tensors) / max(
        1, sum(t.value_count for t in manifest.tensors)
    )
    left = (
        f"; {manifest.merged.kept:.1%} of the adapter's change is preserved"
        if manifest.merged
        else ""
    )
    return (
        f"{count_noun(len(manifest.tensors), 'tensor')}: {same:.1%} of the values are identical; the rest"
        f" moved by their size from {low} to {high}{left}."
    )


def movement_by_kind_table(manifest: MovementManifest) -> Table:
    """A table by kind of tensor: share of bit-identical values and relative change; with an
    adapter, what is left of its change.
    """
    table = borderless_table()
    table.add_column("kind", overflow="fold")
    for title in (
        "tensors",
        "identical",
        "relative change",
        *(("adapter kept", "rounded") if manifest.adapter else ()),
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for kind, group in manifest.tensors_by_module_kind.items():
        # By values and not by tensors: a bias of 64 values must not weigh as much as an
        # embedding of a hundred million.
        same = sum(t.same for t in group) / max(1, sum(t.value_count for t in group))
        cells = [f"{len(group):,}", f"{same:.1%}", _format_change(_root_mean_square_change(group))]
        if manifest.adapter:
            kept = sum_kept_changes(group)
            cells += (
                [_format_percent(kept.kept), _format_percent(max(0.0, 1 - kept.best))]
                if kept
                else ["", ""]
            )
        table.add_row(
            # Red where nothing moved at all: what was trained moves at least in some values.
            Text(
                escape_invisible_characters(kind.removesuffix(".weight")),
                style="red" if same == 1 else "",
            ),
            *cells,
        )
    return table


def _embedding_lines(manifest: MovementManifest, tensor: TensorMovement) -> Iterator[str]:
    """Lines on an embedding: how many of its rows are identical, and what became of new tokens."""
    if tensor.rows is None:
        return
    same = int(tensor.rows.same.sum())
    yield f"{tensor.name}: {same:,} of {count_noun(len(tensor.rows.same), 'row')} identical"
    for text, id in new_tokens_with_rows(manifest, tensor)[:MAX_NAMED_ROWS]:
        state = (
            "as before"
            if tensor.rows.same[id]
            else f"change {_format_change(float(tensor.rows.change[id]))}"
        )
        yield f"  new token {text} ({id:,}): {state}"


def _root_mean_square_change(group: Iterable[TensorMovement]) -> float:
    """Root of the mean square of the tensors' changes, each weighed by its number of values."""
    known = [(t.change, t.value_count) for t in group if math.isfinite(t.change)]
    return (
        # Weighted by values, and the root of a mean of squares: a kind whose half stands still
        # shows it.
        math.sqrt(sum(c * c * n for c, n in known) / sum(n for _, n in known))
        if known
        else math.nan
    )


def _format_change(value: float) -> str:
    """A relative change in three digits, or a dash where it is not known."""
    return f"{value:.3g}" if math.isfinite(value) else "-"


def _format_percent(value: float) -> str:
    """A share in per cent with one decimal, or a dash where it is not known."""
    return f"{value:.1%}" if math.isfinite(value) else "-"
