"""The page of a rule for its readers: its example as files, what the fix changes, and how sure the
rule is.
"""
