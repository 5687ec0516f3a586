"""The shipped sample up to its chunks, and packed in both ways."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.schema import RunConfig
from tasks import chunk, dedup, filter, normalize, pack
from tasks.artifact import Artifact
from tests.conftest import SAMPLE, build_chain

STAGES = (normalize.STAGE, dedup.STAGE, filter.STAGE, chunk.STAGE, pack.STAGE)
SOURCES = ("articles", "records", "troubles")
Pack = Callable[..., list[Artifact]]


def sample_config(workspace: Path, **sections: Any) -> RunConfig:
    """A configuration over the sample; `sections` are merged into its pack section, but for those of a run."""
    run = {
        name: sections.pop(name)
        for name in ("seed", "training", "model", "inputs", "smoke", "pretrain")
        if name in sections
    }
    own = {"seq_length": 64, "tokenizer": {"vocab_size": 1500}}
    inputs = [{"path": str(SAMPLE / name), "source": name} for name in SOURCES]
    given = {"inputs": inputs, "workspace": str(workspace), "normalize": {"shard_bytes": 32768}}
    return RunConfig.model_validate(given | {"pack": own | sections} | run)


@pytest.fixture(scope="session")
def packed_in(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Return a function that packs the sample in one workspace, so that what is there already is taken."""
    workspace = tmp_path_factory.mktemp("packed")

    def build(**sections: Any) -> list[Artifact]:
        return build_chain(sample_config(workspace, **sections), *STAGES)

    return build


@pytest.fixture(scope="session")
def concat(packed_in: Pack) -> list[Artifact]:
    """Documents end to end, as MindRecord, written by MindSpore and read back."""
    return packed_in()


@pytest.fixture(scope="session")
def best_fit(packed_in: Pack) -> list[Artifact]:
    """Every column, Megatron files, held-out documents."""
    return packed_in(
        strategy="best_fit", mindrecord_columns="training", outputs=["mindrecord", "megatron"], held_out_share=0.1,
    )  # fmt: skip
