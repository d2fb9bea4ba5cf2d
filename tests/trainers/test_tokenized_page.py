"""docs/tokenized-rows.md holds what is measured today."""

from __future__ import annotations

import pytest

pytest.importorskip("trl", minversion="1.16")

from tests import tokenized_page


@pytest.mark.slow
def test_the_table_is_that_of_today() -> None:
    """A minute: 72 trainers are built, audited twice and trained for a step, one for each cell."""
    written = tokenized_page.written()
    if tokenized_page.versions() not in written:
        pytest.skip(f"the page was measured with other releases than {tokenized_page.versions()}")
    assert written == tokenized_page.table(), "run python -m tests.tokenized_page"


def test_the_table_holds_every_method_and_kind_of_rows() -> None:
    lines = [(shape.method, shape.kind) for shape in tokenized_page.shapes()]
    kinds = (tokenized_page.RAW, tokenized_page.BARE, tokenized_page.LABELS, tokenized_page.MASK)
    missing = {(method, kind) for method in ("sft", "dpo", "orpo", "kto") for kind in kinds} - set(
        lines
    )
    assert not missing
    assert tokenized_page.written().count("\n| ") == len(lines) + 1
