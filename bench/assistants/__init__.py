"""Does a coding assistant that has only the six tools and a broken project reach the fix within five calls?"""
