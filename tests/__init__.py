"""The tests mirror configs/, tasks/ and flows/. Real text comes from data/sample, and from a larger corpus where one is
present beside the project.
"""
