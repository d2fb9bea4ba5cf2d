"""Recall: of the ways in which people write one fault, how many are found, and is the healthy look-alike left alone?"""
