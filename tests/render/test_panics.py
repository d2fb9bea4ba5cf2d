"""A tokenizer whose library panics ends in one error, and nothing that others write is lost."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from truetune.demo import TOKENIZER
from truetune.errors import TokenizerError
from truetune.render.panics import panic_text_withheld
from truetune.render.tokenizer import load


class PanicException(BaseException):
    pass


def write_and_raise(text: bytes, error: BaseException) -> None:
    with panic_text_withheld():
        os.write(2, text)
        raise error


alone = pytest.mark.skipif(threading.active_count() > 1, reason="nothing is redirected in a process of several threads")


@pytest.fixture
def panicking(tmp_path: Path) -> Path:
    """An empty pattern fits where there is no character: `tokenizers` reads past its end."""
    settings = json.loads((TOKENIZER / "tokenizer.json").read_text(encoding="utf-8"))
    settings["normalizer"] = {"type": "Replace", "pattern": {"Regex": ""}, "content": "x"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings), encoding="utf-8")
    return tmp_path


@alone
def test_a_panic_is_one_error_without_the_text_of_rust(panicking: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer.json: the library `tokenizers` failed: index out of bounds"):
        load(str(panicking))
    assert capfd.readouterr().err == ""


@alone
def test_what_others_write_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with panic_text_withheld():
        os.write(2, b"a warning\n")
    with pytest.raises(ValueError, match="x"):
        write_and_raise(b"an error\n", ValueError("x"))
    assert capfd.readouterr().err == "a warning\nan error\n"
    with pytest.raises(PanicException):
        write_and_raise(b"thread panicked\n", PanicException())
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "afterwards\n"


def test_nothing_is_redirected_beside_another_thread(capfd: pytest.CaptureFixture[str]) -> None:
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    try:
        with pytest.raises(PanicException):
            write_and_raise(b"thread panicked\n", PanicException())
    finally:
        end.set()
        other.join()
    assert capfd.readouterr().err == "thread panicked\n"
