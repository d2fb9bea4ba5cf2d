"""The same program in other forms: does each rule of source code still find its fault, and stay silent without it?"""
