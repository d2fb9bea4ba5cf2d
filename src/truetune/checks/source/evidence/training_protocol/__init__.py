"""Training code as a protocol: the states of its objects, the calls that change them, and the orders that break it.

`protocol_records.py` says what a protocol is, `follow_object_states.py` follows the states over a symbolic run, and the
modules `protocols_of_*.py` are the table. docs/training-code-protocol.md is written from the table.
"""
