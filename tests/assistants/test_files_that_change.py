"""A server lives for hours: each call judges the files as they are then."""

from __future__ import annotations

from pathlib import Path

from truetune.assistants import tools
from truetune.cached_for_one_call import clear_one_call_caches
from truetune.checks.source.evidence.script_start_commands_and_reserved_gpus import starts_of_script
from truetune.settings.row_formats import row_formats


def test_a_job_file_that_is_added_between_two_calls_is_seen(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import transformers\n")
    assert starts_of_script(str(script)) == ()
    (tmp_path / "job.sh").write_text("torchrun --nproc_per_node 2 train.py\n")
    assert starts_of_script(str(script)) == ()
    tools.lint_files([str(script)])
    assert len(starts_of_script(str(script))) == 1


def test_what_depends_on_no_file_is_kept() -> None:
    formats = row_formats()
    clear_one_call_caches()
    assert row_formats() is formats
