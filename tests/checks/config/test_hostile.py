"""Settings that nobody would write: every rule ends without an exception of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checks.config.settings import HEALTHY
from tests.checks.pages.config import lay_out
from truetune.checks.rule_catalogue import all_rules
from truetune.errors import SpecError
from truetune.settings.stacks.read_config_of_any_stack import read_config

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**12), st.floats(allow_nan=True), st.text(max_size=8),
    st.sampled_from(["auto", "none", "rows.jsonl", "model", "/", "~", "..", "a\0b", "(((", "q_projv_proj", "1e-5"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["path", "type", "roles", "0", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
BESIDE: dict[str, Any] = {
    "files": {
        "rows.jsonl": {"rows": 12},
        "model/config.json": {"model_type": "llama", "dtype": "bfloat16"},
    },
    "weights": {
        "model": {
            "model.embed_tokens.weight": [8, 4],
            "model.layers.0.self_attn.q_proj.weight": [4, 4],
        }
    },
}


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(sorted(HEALTHY)), data=st.data())
def test_no_rule_stumbles(name: str, data: st.DataObject) -> None:
    here = {"some/rows": "rows.jsonl", "some/model": "model", "some/rows.jsonl": "rows.jsonl"}
    config: dict[str, Any] = {
        key: here.get(str(value), value) for key, value in HEALTHY[name].items()
    }
    if config.get("datasets"):
        config["datasets"] = [{**item, "path": "rows.jsonl"} for item in config["datasets"]]
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), min_size=1, max_size=4)):
        config[key] = data.draw(VALUES)
    with tempfile.TemporaryDirectory() as folder:
        path = lay_out({"config": config, **BESIDE}, Path(folder))
        try:
            read = read_config(path)
        except SpecError:
            return
        for rule in all_rules("config"):
            for finding in rule(read).findings():
                assert finding.message
                assert "\n" not in finding.message
