"""What each stage does: one package or module a stage, and the rooms that stages share.

Nothing here knows of Prefect but `cached_task.py`; nothing imports `flows`; only `train/` meets mindspore.
"""
