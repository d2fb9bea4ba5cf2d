"""The key of encoded data: a digest of everything that shapes what `encode` writes.

Data is encoded again whenever its key is another one. The trade-off is to key on more than matters: a new version of a
library encodes all again, though it mostly changes nothing; a stale result would be trained on unseen.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from typing import Any

from truetune.data.find_data_files import DataFile
from truetune.data.split_lines_into_stretches import FileScan
from truetune.encoding.relative_names_of_data_files import names_relative_to_common_folder
from truetune.package import __version__
from truetune.render.find_tokenizer_folder import tokenizer_and_model_files
from truetune.render.template_probes import Probes
from truetune.settings.run_spec import RunSpec

VERSION = 3
"""Of what `encode` writes; a change that gives other columns or other values raises it."""
LIBRARIES = ("tokenizers", "jinja2", "pyarrow")
"""Libraries that make the ids, the text and the files. Not the fast engines: what they give is proved to be equal."""
SHAPING = (
    "format",
    "map",
    "template_kwargs",
    "learn",
    "history",
    "mask_by",
    "response_marker",
    "append_eos",
    "max_length",
    "encode",
)
"""Settings that change what is written."""


def collect_key_inputs(
    spec: RunSpec, probes: Probes, sources: Sequence[DataFile], scans: Sequence[FileScan]
) -> dict[str, Any]:
    """What the key is the digest of; it stands in the manifest.

    Args:
        spec: the settings, of which those in SHAPING count.
        probes: the tokenizer and its templates.
        sources: the data files.
        scans: what reading each of them gave, its digest above all.
    """
    templates = [
        template for template in (probes.template, probes.tool_template) if template is not None
    ]
    inputs: dict[str, Any] = {
        "encoder": VERSION,
        "truetune": __version__,
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "data": [
            {"file": name, "kind": source.kind, "digest": scan.digest}
            for name, source, scan in zip(
                names_relative_to_common_folder(sources).names, sources, scans, strict=True
            )
        ],
        "tokenizer": {
            path.name: digest_of(path.read_bytes())
            for path in tokenizer_and_model_files(probes.tokenizer.folder, probes.tokenizer.weights)
        },
        "templates": {template.name: digest_of(template.source.encode()) for template in templates},
        "settings": spec.model_dump(mode="json", include=set(SHAPING)),
    }
    if any("strftime_now" in template.source for template in templates):
        # Such a template writes the day into every row: tomorrow it writes another text.
        inputs["date"] = datetime.date.today().isoformat()
    return inputs


def cache_key_of_inputs(inputs: Mapping[str, Any]) -> str:
    """The cache key: a digest of what `collect_key_inputs` gives, 20 bytes of blake2b as
    hexadecimal digits.
    """
    return digest_of(json.dumps(inputs, sort_keys=True, ensure_ascii=False).encode())


def digest_of(body: Any) -> str:
    """The digest of bytes or a buffer, for keys and for the files in a manifest: 20 bytes of
    blake2b as hexadecimal digits.
    """
    return hashlib.blake2b(body, digest_size=20).hexdigest()
