"""Editors: findings while a file is written, by the Language Server Protocol."""
