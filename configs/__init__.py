"""The typed configuration (`schema.py`), how it is read (`load.py`), and the YAML files that obey it."""
