"""A tokenizer whose library panics ends in one error, and nothing that others write is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from truetune.demo import TOKENIZER
from truetune.render.silence_tokenizer_panic_messages import panic_text_withheld


class PanicException(BaseException):
    pass


def write_and_raise(text: bytes, error: BaseException) -> None:
    with panic_text_withheld():
        os.write(2, text)
        raise error


def alone(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own: that of the tests may have several threads, and then nothing is redirected."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def panicking(tmp_path: Path) -> Path:
    """An empty pattern fits where there is no character: `tokenizers` reads past its end."""
    settings = json.loads((TOKENIZER / "tokenizer.json").read_text(encoding="utf-8"))
    settings["normalizer"] = {"type": "Replace", "pattern": {"Regex": ""}, "content": "x"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings), encoding="utf-8")
    return tmp_path


LOADS = """
import sys
from truetune.errors import TokenizerError
from truetune.render.tokenizer import load_tokenizer
try:
    load_tokenizer(sys.argv[1])
except TokenizerError as error:
    print(error)
"""
WRITES = """
import os
from truetune.render.silence_tokenizer_panic_messages import panic_text_withheld

class PanicException(BaseException):
    pass

def write_and_raise(text, error):
    try:
        with panic_text_withheld():
            os.write(2, text)
            raise error
    except BaseException as raised:
        assert raised is error

with panic_text_withheld():
    os.write(2, b"a warning\\n")
write_and_raise(b"an error\\n", ValueError("x"))
write_and_raise(b"thread panicked\\n", PanicException())
os.write(2, b"afterwards\\n")
"""


def test_a_panic_is_one_error_without_the_text_of_rust(panicking: Path) -> None:
    done = alone(LOADS, str(panicking))
    assert "tokenizer.json: the library `tokenizers` failed: index out of bounds" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_what_others_write_is_shown() -> None:
    done = alone(WRITES)
    assert (done.returncode, done.stderr) == (0, "a warning\nan error\nafterwards\n")


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
