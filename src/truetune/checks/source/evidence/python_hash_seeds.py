"""Says whether a project fixes the seed of Python's hashes of texts, which are otherwise salted in
each process.
"""

from __future__ import annotations

from pathlib import Path

from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    read_project_text_cached,
    scripts_commands_and_readmes_around,
)
from truetune.source.parsed_source_file import Module

SEED = "PYTHONHASHSEED"
SETTINGS_FILES = ("*.env", "*.toml")
"""Files beside the script that may set variables, and hold no commands"""


def project_fixes_hash_seed(module: Module) -> bool:
    """Does a job or a file of settings of the project fix the seed of hashes (PYTHONHASHSEED)?

    A script can't: its process has begun.
    """
    path = Path(module.path)
    files = [one for one in scripts_commands_and_readmes_around(path) if one.suffix != ".py"]
    files += [one for pattern in SETTINGS_FILES for one in sorted(path.parent.glob(pattern))]
    return any(SEED in read_project_text_cached(str(file)) for file in files)
