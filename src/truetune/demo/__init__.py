"""The demo: a small support chat with planted faults, its mended twin, and the proof that it matters."""
