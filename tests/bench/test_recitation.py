"""The table on recitation: its parts, without a training of 120 steps each."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import recitation


def test_a_row_is_supervised_as_asked() -> None:
    row, made = recitation.ROWS[0], recitation.tokenizer()
    learned = {
        kind: [id for id in recitation.encoded(row, kind)["labels"] if id != -100]
        for kind in ("answer", "prompt")
    }
    assert made.decode(learned["answer"]) == row["answer"] + made.eos_token
    assert learned["prompt"] == recitation.asked(made, row)
    assert set(recitation.encoded(row, "nothing")["labels"]) == {-100}
    assert made.eos_token_id not in recitation.encoded(row, stop=False)["labels"]


@pytest.mark.slow
def test_a_healthy_run_recites_and_a_masked_stop_token_does_not_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    healthy, masked = recitation.FAULTS[:2]
    monkeypatch.setattr(recitation, "FAULTS", (healthy, masked))
    control, endless = recitation.outcomes()
    assert (control.recited, control.stopped, control.rules) == (8, 8, ())
    assert (endless.recited, endless.stopped) == (0, 0)
    assert "stop-token-never-supervised" in endless.rules


def test_the_page_holds_every_fault() -> None:
    page = Path(recitation.PAGE).read_text(encoding="utf-8")
    assert all(f"| {fault.name} |" in page for fault in recitation.FAULTS)
