"""A report is saved as what the file's name ends in."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.reports import DataReport
from truetune.errors import UsageError
from truetune.report.as_json import to_json
from truetune.report.page import html_page_of_report
from truetune.report.sarif import report_as_sarif


def test_the_suffix_decides(broken: DataReport, tmp_path: Path) -> None:
    for name, drawn in (
        ("a.html", html_page_of_report),
        ("a.json", to_json),
        ("a.SARIF", report_as_sarif),
    ):
        broken.save_as(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == drawn(broken)
    with pytest.raises(UsageError, match=r"saved as \.html, \.json, \.sarif"):
        broken.save_as(tmp_path / "a.txt")
    assert len(list(tmp_path.iterdir())) == 3
