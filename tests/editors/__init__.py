"""Tests of what editors are served."""
