"""The tokenizer families, by name."""

from __future__ import annotations

from tests.parts.families import gemma, llama, mistral, others, phi, qwen
from tests.parts.families.pieces import Family

BY_NAME: dict[str, Family] = {
    family.name: family
    for module in (llama, qwen, mistral, gemma, phi, others)
    for family in module.FAMILIES
}
