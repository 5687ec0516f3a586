"""One token dataset for all trainings."""

from pathlib import Path

import pytest

from tests.tasks.train.jobs import repetitive_sequences, store


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(repetitive_sequences(), tmp_path_factory.mktemp("dataset"), "sequences")
