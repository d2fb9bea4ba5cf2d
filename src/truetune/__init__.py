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
    from truetune.encoding.run import Encoded as Encoded
    from truetune.spec.run import RunSpec as RunSpec

__version__ = "0.1.0.dev0"
__all__ = ["Encoded", "Finding", "Report", "RunSpec", "__version__", "check", "encode"]

_HOMES = {
    "Encoded": "truetune.encoding.run",
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


def encode(
    data: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    tokenizer: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    *,
    cache: str | PathLike[str] | None = None,
    jobs: int | None = None,
    engine: str = "local",
    **settings: Any,
) -> Encoded:
    """Encode data once, for any trainer: input_ids and labels, with a manifest that says what shaped them.

    Written into the folder `out`, else into a folder of `cache`; where the same is there already, it is proved and
    kept. `settings` are the fields of `Encoding` (overflow, packing, content_specials, on_error, file_format,
    loss_weights) and of `RunSpec` (learn, history, max_length, ...).

    Raises a `truetune.errors.TruetuneError` where the input can't be read, rendered or encoded.
    """
    from truetune.encoding.run import encode as run
    from truetune.spec.files import spec_of
    from truetune.spec.run import Encoding

    own = {name: settings.pop(name) for name in Encoding.model_fields if name in settings}
    settings["encode"] = {**settings.get("encode", {}), **own}
    spec = spec_of({"data": data, "tokenizer": tokenizer, **settings}, "truetune.encode")
    return run(spec, out, cache=cache, jobs=jobs, engine=engine)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'truetune' has no attribute {name!r}")
