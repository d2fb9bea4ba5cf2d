"""Marks what the generation tags of a chat template enclose: makes a copy of the template that
writes a mark at each end of a tag.

transformers takes the assistant mask from these tags. They leave no trace in the rendered text, so where they begin and
end is seen only when the template itself writes something there. The marked copy is rendered and then compared with
the plain text: a template that strips or measures its own output may write something else with marks in it.
"""

from __future__ import annotations

import re

from truetune.render.template import Template

OPEN_MARK, CLOSE_MARK = "\ue000", "\ue001"
"""Characters of Unicode's private use area: no template and no tokenizer writes them"""
# The groups are the tags' own signs for white space. The mark stands in a tag of its own, which
# takes over the sign: `{% generation -%}` strips what follows it, and would strip the mark's line
# instead of the answer's.
OPENING_TAG = re.compile(r"\{%-?\s*generation\s*(-?)%\}\n?")
CLOSING_TAG = re.compile(r"\{%(-?)\s*endgeneration\b")


def insert_marks_at_generation_tags(template: Template) -> Template:
    """The template with OPEN_MARK behind each opening tag and CLOSE_MARK before each closing one."""
    source = OPENING_TAG.sub(
        lambda tag: f"{tag[0]}{{{{ '{OPEN_MARK}' {tag[1]}}}}}", template.source
    )
    source = CLOSING_TAG.sub(lambda tag: f"{{{{{tag[1]} '{CLOSE_MARK}' }}}}{tag[0]}", source)
    return Template(source, template.special)
