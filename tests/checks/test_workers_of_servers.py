"""Web servers whose workers each load a model, and those that don't."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.findings import Finding
from truetune.checks.lint import lint

LOAD = 'model = AutoModelForCausalLM.from_pretrained("out", device_map="cuda:0")\n'
APP = "from fastapi import FastAPI\nfrom transformers import AutoModelForCausalLM\n{}app = FastAPI()\n"


def found(folder: Path, command: str, app: str, name: str = "app.py") -> list[Finding]:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(app)
    folder.joinpath("start.sh").write_text(command + "\n")
    return list(lint([str(folder)], select=("each-worker-loads-the-model",)).findings)


@pytest.mark.parametrize(
    ("command", "app", "name"),
    [
        ("uvicorn app:app --workers 4", APP.format(LOAD), "app.py"),
        ("gunicorn -w 2 -k uvicorn.workers.UvicornWorker app:app", APP.format(LOAD), "app.py"),
        ("python -m uvicorn api.main:app --workers=8", APP.format(LOAD), "api/main.py"),
        (
            "fastapi run app.py --workers 3",
            APP.format(
                "from transformers import pipeline\npipe = pipeline('text-generation', 'out', device=0)\n"
            ),
            "app.py",
        ),
        (
            "uvicorn app:app --workers 2",
            APP.format("")
            + "@app.on_event('startup')\ndef load():\n    global m\n"
            + "    m = AutoModelForCausalLM.from_pretrained('out').to('cuda')\n",
            "app.py",
        ),
        (
            "gunicorn app:app --workers 4",
            "from vllm import LLM\nllm = LLM('out')\napp = 1\n",
            "app.py",
        ),
    ],
)
def test_each_worker_loads_the_model(tmp_path: Path, command: str, app: str, name: str) -> None:
    [finding] = found(tmp_path, command, app, name)
    assert "onto one GPU" in finding.message
    assert Path(str(finding.cases[1].file)).name == Path(name).name


@pytest.mark.parametrize(
    ("command", "app"),
    [
        ("uvicorn app:app --workers 1", APP.format(LOAD)),
        ("uvicorn app:app --port 8000", APP.format(LOAD)),
        ("uvicorn app:app --workers $N", APP.format(LOAD)),
        # Asks a server: a worker holds no model.
        ("uvicorn app:app --workers 4", "from openai import OpenAI\nclient = OpenAI()\napp = 1\n"),
        (
            "uvicorn app:app --workers 4",
            APP.format("t = AutoTokenizer.from_pretrained('out')  # cuda\n"),
        ),
        # On the CPU by a map of devices; and loaded once, before the workers are forked.
        ("uvicorn app:app --workers 4", APP.format(LOAD.replace("cuda:0", "cpu"))),
        (
            "uvicorn app:app --workers 4",
            APP.format(LOAD.replace('"cuda:0"', '{"": "cpu"}')),
        ),
        ("gunicorn --preload -w 4 app:app", APP.format(LOAD)),
        # A small model on the CPU, where each worker has cores of its own.
        (
            "uvicorn app:app --workers 4",
            APP.format("m = AutoModelForCausalLM.from_pretrained('out')\n"),
        ),
        (
            "gunicorn -w 2 app:app",
            "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = str(os.getpid() % 2)\n"
            + APP.format(LOAD),
        ),
        ("uvicorn app:app --workers 4", APP.format("") + "if __name__ == '__main__':\n    " + LOAD),
        ("celery -A app worker --workers 4", APP.format(LOAD)),
    ],
)
def test_one_model_or_one_gpu_each_is_sound(tmp_path: Path, command: str, app: str) -> None:
    assert found(tmp_path, command, app) == []
