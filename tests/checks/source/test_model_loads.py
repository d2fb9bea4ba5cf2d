"""Models that an app loads again at every input or request (SRC003), and near misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
import streamlit as st
from flask import Flask, request
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

tok = AutoTokenizer.from_pretrained("out")
"""
LOAD = """
def load():
    net = AutoModelForCausalLM.from_pretrained("some/base")
    return PeftModel.from_pretrained(net, "out").merge_and_unload()
"""
HISTORY = """
if "history" not in st.session_state:
    st.session_state.history = []
"""
ASK = """
question = st.chat_input("?")
if question:
    st.session_state.history.append(question)
    st.write(net.generate(**tok(question, return_tensors="pt")))
"""
BOT = """
class Bot:
    def __init__(self):
        self.net = AutoModelForCausalLM.from_pretrained("out")

    def say(self, text):
        return self.net.generate(**tok(text, return_tensors="pt"))
"""
MAIN = """
def main():
    net = load()
    st.write(net.generate(**tok(st.text_input("?"), return_tensors="pt")))

if __name__ == "__main__":
    main()
"""
FORM = """
app = Flask(__name__)

@app.route("/", methods=["GET", "POST"])
def page():
    if request.method == "POST":
        %s
        return bot.say(request.form["q"])
    return "?"
"""
BUTTON = """
if st.button("Answer"):
    net = load()
    %s
"""
ONE = "st.write(net.generate(**tok(st.session_state.text, return_tensors='pt')))"
ALL = "for text in rows:\n        st.write(net.generate(**tok(text, return_tensors='pt')))"
KEPT = """
if "net" not in st.session_state:
    st.session_state.net = load()
net = st.session_state["net"]
"""


def codes(text: str, folder: Path) -> list[str]:
    """The codes of SRC003 in one app."""
    path = folder / "app.py"
    path.write_text(HEAD + text, encoding="utf-8")
    return [finding.code for finding in lint([path], select=["SRC003"]).findings]


@pytest.mark.parametrize(
    "text",
    [
        LOAD + HISTORY + "net = load()\n" + ASK,
        BOT + HISTORY + "bot = Bot()\nst.write(bot.say(st.chat_input()))\n",
        LOAD + MAIN,
        LOAD + HISTORY + BUTTON % ONE,
        BOT + FORM % "bot = Bot()",
    ],
)
def test_apps_that_load_at_every_input(text: str, tmp_path: Path) -> None:
    assert codes(text, tmp_path) == ["SRC003"]


@pytest.mark.parametrize(
    "text",
    [
        LOAD.replace("def", "@st.cache_resource(show_spinner=False)\ndef") + "net = load()\n" + ASK,
        LOAD + KEPT + HISTORY + ASK,
        LOAD + "get = st.cache_resource(load)\nnet = get()\n" + ASK,
        BOT + "@st.cache_resource\ndef get():\n    return Bot()\nst.write(get().say('?'))\n",
        LOAD + BUTTON % ALL,
    ],
)
def test_apps_that_keep_their_model(text: str, tmp_path: Path) -> None:
    assert codes(text, tmp_path) == []


def test_a_file_that_an_app_imports_loads_once(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        'from transformers import pipeline\npipe = pipeline("text-generation", model="out")\n'
    )
    app = tmp_path / "app.py"
    app.write_text(
        "import streamlit as st\nfrom model import pipe\nst.write(pipe(st.text_input('?')))\n"
    )
    assert not lint([app, tmp_path / "model.py"], select=["SRC003"]).findings


def test_a_helper_in_another_file_is_run_anew(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        'from transformers import pipeline\ndef load():\n    return pipeline("text-generation", model="out")\n'
    )
    app = tmp_path / "app.py"
    app.write_text(
        "import streamlit as st\nfrom model import load\nst.write(load()(st.text_input('?')))\n"
    )
    assert lint([app, tmp_path / "model.py"], select=["SRC003"]).findings


def test_a_handler_uses_what_the_process_has_loaded(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    text = HEAD.replace("import streamlit as st\n", "") + BOT + "bot = Bot()\n" + FORM % "print(1)"
    path.write_text(text, encoding="utf-8")
    assert not lint([path], select=["SRC003"]).findings


def test_a_helper_under_a_condition_of_a_handler_is_a_cache(tmp_path: Path) -> None:
    text = FORM.replace(
        "        %s\n", "        global bot\n        if bot is None:\n            bot = Bot()\n"
    )
    assert codes(BOT + "bot = None\n" + text, tmp_path) == []
