"""Whether a run trained an adapter or all weights, as far as its log and the files of the run say."""

from __future__ import annotations

from pathlib import Path

from truetune.checks.source.evidence.models_loaded_from_adapter_folders import ADAPTER_CONFIG
from truetune.logs.facts_in_files_beside_log import FROZEN_IN_CODE
from truetune.logs.run_log import RunLog


def trains_adapter(log: RunLog) -> bool:
    """Do the output, the settings beside the log or the saved files of the run say that an adapter was trained?"""
    # A small share of the weights is an adapter's, except where the script freezes the others itself.
    is_frozen = any(log.files_beside.settings_named(FROZEN_IN_CODE))
    is_printed = log.output is not None and log.output.settings.trains_adapter and not is_frozen
    is_set = bool(log.files_beside.adapters or log.facts.get("adapter"))
    return is_printed or is_set or _is_adapter_saved(Path(log.path))


def _is_adapter_saved(log: Path) -> bool:
    """Does an adapter lie beside a log, or in a checkpoint beside it?"""
    folder = log if log.is_dir() else log.parent
    places = (ADAPTER_CONFIG, f"checkpoint-*/{ADAPTER_CONFIG}")
    return any(any(folder.glob(place)) for place in places)
