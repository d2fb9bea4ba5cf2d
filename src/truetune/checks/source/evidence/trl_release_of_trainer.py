"""Says for which release of TRL a trainer's call is made: by pins, or by arguments that no later
release takes.
"""

from __future__ import annotations

from packaging.version import Version

from truetune.settings.release_windows_of_removed_names import (
    ARGUMENTS_MOVED_TO_CONFIG,
    MOVED_TO_CONFIG,
    RemovalWindow,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module


def reason_for_earlier_release(module: Module, trainer: Call, change: RemovalWindow) -> str | None:
    """Why it is sure that a release of TRL before a change runs this call; None where it is not.

    Args:
        module: The file.
        trainer: A call of one of TRL's trainers.
        change: The last release before the change, and the first after it.
    """
    pins = module.pins.of("trl")
    if module.pins.age_of_asked_releases("trl", *change) == "older":
        return f"trl{pins} is asked for here"
    if pins is not None and pins.wanted:
        return None
    if Version(MOVED_TO_CONFIG.last) > Version(change.last) or uses_unsloth(module):
        return None
    written = {
        keyword.arg for keyword in trainer.node.keywords
    }  # what a dictionary holds may be set for one release
    for name in trainer.names:
        if old := ARGUMENTS_MOVED_TO_CONFIG.get(name, frozenset()) & written:
            return (
                f"{min(old)} is an argument of {name.partition('.')[2]} up to TRL"
                f" {MOVED_TO_CONFIG.last} alone"
            )
    return None


def uses_unsloth(module: Module) -> bool:
    """Is unsloth called in the file? Its trainers take the arguments of earlier releases still."""
    return any(
        name.partition(".")[0] == "unsloth" for call in module.all_calls for name in call.names
    )
