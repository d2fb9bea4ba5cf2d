"""The tiers of the tests: `pytest -m fast`, `pytest -m "not slow"`, `pytest` for all.

- `fast` needs neither torch nor anything that is fetched: `pip install -e '.[test]'` is enough. FAST lists its modules.
- `slow` trains a model, or starts many processes; such tests are marked where they stand.
- `real` is every other test: real tokenizers, real trainers, small models.

A fast test that imports torch or asks for a part fails, here and in the whole suite alike: `forbid_heavy` makes both
impossible while it runs. Trade-off: a program that a fast test starts may import torch unseen, where it is installed;
CI runs the tier where it is not.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tests import parts

TESTS = Path(__file__).parent
HEAVY = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "safetensors")
"""Packages of `.[train]` that `.[test]` lacks."""
FAST: tuple[str, ...] = (
    "assistants",
    "checks/answers/test_seen.py",
    "checks/cause/test_settings_make_generation_slow.py",
    "checks/config/test_marks_of_bases.py",
    "checks/devices/test_devices.py",
    "checks/log/test_diagnose.py",
    "checks/source/test_answer_patterns.py",
    "checks/source/test_answering_scripts.py",
    "checks/source/test_frozen.py",
    "checks/source/test_generation.py",
    "checks/source/test_gone.py",
    "checks/source/test_lint.py",
    "checks/source/test_live_code.py",
    "checks/source/test_loops.py",
    "checks/source/test_masked_prompts.py",
    "checks/source/test_own_loops.py",
    "checks/source/test_prompt_forms.py",
    "checks/source/test_releases.py",
    "checks/source/test_remedies.py",
    "checks/source/test_row_files.py",
    "checks/source/test_scope_of_alarms.py",
    "checks/source/test_script_faults.py",
    "checks/source/test_spellings.py",
    "checks/source/test_together.py",
    "checks/test_answer_spread.py",
    "checks/test_column_runs.py",
    "checks/test_every_figure_is_judged.py",
    "checks/test_explaining.py",
    "checks/test_faults.py",
    "checks/test_model_identity.py",
    "checks/test_modelfiles.py",
    "checks/test_places.py",
    "checks/test_said.py",
    "checks/test_tally.py",
    "checks/test_weight_uses.py",
    "cli/test_completion.py",
    "cli/test_help.py",
    "cli/test_near.py",
    "confinement",
    "data/test_files.py",
    "data/test_hub_cache.py",
    "data/test_message_names.py",
    "data/test_stretches.py",
    "data/test_text_columns.py",
    "doctor",
    "fixing/test_edits.py",
    "fixing/test_files.py",
    "fixing/test_python.py",
    "logs/console",
    "logs/test_figures_against_the_verdict.py",
    "logs/test_reinforcement.py",
    "logs/test_rules.py",
    "logs/test_several.py",
    "parsing/test_guard.py",
    "parsing/test_guard_is_used.py",
    "parsing/test_modelfile.py",
    "parsing/test_shell.py",
    "report/test_audited.py",
    "report/test_brief_json.py",
    "report/test_deterministic.py",
    "report/test_html.py",
    "report/test_json.py",
    "report/test_plot.py",
    "report/test_sarif.py",
    "report/test_saved.py",
    "report/test_show.py",
    "report/test_shown.py",
    "report/test_terminal.py",
    "settings/test_axolotl.py",
    "settings/test_files.py",
    "settings/test_llama_factory.py",
    "settings/test_located.py",
    "settings/test_no_length_limit.py",
    "settings/test_other_names.py",
    "settings/test_own.py",
    "settings/test_readers.py",
    "settings/test_schema.py",
    "settings/test_trl.py",
    "settings/test_weird_values.py",
    "source/test_edits.py",
    "source/test_long_files.py",
    "source/test_notebook.py",
    "source/test_program.py",
    "test_imports.py",
    "test_project.py",
    "test_tiers.py",
    "test_words.py",
    "viewing/test_load.py",
    "viewing/test_row_index.py",
    "viewing/test_server.py",
)
"""Folders and modules of the fast tier, from `tests/`."""


def is_fast(path: Path) -> bool:
    """Is this module of the fast tier?"""
    relative = path.relative_to(TESTS).as_posix()
    return any(relative == fast or relative.startswith(f"{fast}/") for fast in FAST)


def leads_to_fast(path: Path) -> bool:
    """Is this module or folder of the fast tier, or does it hold some of it?"""
    relative = path.relative_to(TESTS).as_posix()
    return is_fast(path) or relative == "." or any(f.startswith(f"{relative}/") for f in FAST)


def forbid_heavy(patch: pytest.MonkeyPatch) -> None:
    """Make heavy packages unimportable and parts unavailable until `patch` is undone."""

    def refuse(*asked: object) -> NoReturn:
        raise AssertionError(f"a test of the fast tier asks for parts: {asked}; see tests/tiers.py")

    for name in HEAVY:
        # Python refuses to import what stands there as None, also where it was imported before.
        patch.setitem(sys.modules, name, None)
    patch.setattr(parts, "_attempt", refuse)
