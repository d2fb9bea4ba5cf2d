"""Values that a template prints as Python: what one template does is not said of the other one of a tokenizer."""

from __future__ import annotations

from pathlib import Path

from tests.checks.pages.data import findings
from truetune.checks.rows.values_printed_as_python import ValuesPrintedAsPython

TWO_TEMPLATES = """
files:
  chat_template.jinja: null
  tokenizer_config.json:
    chat_template:
      - name: default
        template: >-
          {% for m in messages %}<|im_start|>{{ m.role }} {{ m.content or '' }}<|im_end|>{% endfor %}
      - name: tool_use
        template: >-
          {% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}
data:
  - messages: &chat
      - {role: user, content: "Is it open?"}
      - {role: assistant, content: null, tool_calls: &calls
          [{type: function, function: {name: opening_hours, arguments: {}}}]}
      - {role: tool, content: "9 to 5"}
      - {role: assistant, content: It is open.}
  - messages: *chat
    tools: [{type: function, function: {name: opening_hours, parameters: {}}}]
"""


def test_each_template_is_asked(tmp_path: Path) -> None:
    (finding,) = findings(ValuesPrintedAsPython, TWO_TEMPLATES, tmp_path)
    assert finding.count == 1
