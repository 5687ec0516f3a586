"""Going on with new files, night after night: what is new, what it is trained with, and whether the outcome is taken.

changes.py   new, changed and deleted files, by content
states.py    what every night has left, so that the next can go on from it, or from an earlier one
night.py     the configuration of a night, and its verdict
"""
