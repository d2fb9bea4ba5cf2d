"""truetune shows, proves and guarantees what an LLM fine-tune really learns.

import truetune
report = truetune.check(data="chats.jsonl", tokenizer="folder/of/the/model")
report.findings, report.ledger, report.failed()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from truetune.checks.findings import Finding as Finding
    from truetune.checks.report import Report as Report
    from truetune.spec.run import RunSpec as RunSpec

__version__ = "0.1.0.dev0"
__all__ = ["Finding", "Report", "RunSpec", "__version__", "check"]

_HOMES = {
    "Finding": "truetune.checks.findings",
    "Report": "truetune.checks.report",
    "RunSpec": "truetune.spec.run",
}


def check(
    data: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    tokenizer: str | PathLike[str] | None = None,
    **settings: Any,
) -> Report:
    """Check data and a tokenizer before a fine-tune.

    `data` is a file, folder or glob, or several; `tokenizer` a folder, or a model of the local hub cache; `settings`
    are the other fields of `RunSpec` (learn, history, max_length, eval_data, select, ...).

    Raises a `truetune.errors.TruetuneError` where the input itself can't be read.
    """
    from truetune.checks.run import check as run
    from truetune.spec.files import spec_of

    return run(spec_of({"data": data, "tokenizer": tokenizer, **settings}, "truetune.check"))


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'truetune' has no attribute {name!r}")
