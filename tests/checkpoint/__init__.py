"""Tests of the room checkpoint."""
