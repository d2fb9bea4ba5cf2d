"""Where the extra is not installed, and where it is not needed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from truetune.cli import truetune_group


def test_the_server_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "truetune.editors.language_server", raising=False)
    for name in ("pygls", "pygls.lsp", "pygls.lsp.server", "lsprotocol"):
        monkeypatch.setitem(sys.modules, name, None)
    done = CliRunner().invoke(truetune_group, ["lsp"], standalone_mode=False)
    assert "pip install 'truetune[lsp]'" in str(done.exception)


def test_no_other_command_loads_it() -> None:
    code = (
        "import sys, truetune.cli\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('pygls', 'lsprotocol')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
