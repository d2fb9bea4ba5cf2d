"""The verifiers of mathematics that a reward function is compared with, where they are installed.

Each is a file with one function, which runs in a confined process as a reward function does. It takes `completions`
and `references`, and gives 1, 0 or None for each completion: right, wrong, no verdict. To add one, write such a file
and name it here.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from truetune.rewards.reward_process import RewardTarget


@dataclass(frozen=True, slots=True)
class Verifier:
    """A package that says whether a completion gives the right answer."""

    name: str
    """Of the distribution: `math-verify`"""
    module: str
    """What is imported of it: `math_verify`"""
    target: RewardTarget
    """The function that asks it"""

    @property
    def is_installed(self) -> bool:
        """Is there such a module in this Python? It is not imported."""
        try:
            return util.find_spec(self.module) is not None
        except ValueError:
            # A module that is imported already, and made by hand, may have no spec.
            return False

    @property
    def version(self) -> str:
        """Of the distribution; empty where it is not known."""
        try:
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return ""


MATH_VERIFY = Verifier(
    "math-verify",
    "math_verify",
    RewardTarget(str(Path(__file__).with_name("ask_math_verify.py")), "ask_math_verify"),
)
VERIFIERS = (MATH_VERIFY,)
