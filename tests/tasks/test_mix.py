"""A mix has every new sequence once and some old ones, in random order, each traced to its documents."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from configs.errors import PipelineError
from tasks import chunk, dedup, filter, mix, normalize, pack
from tasks.artifact import Artifact, Workspace
from tasks.executor import LocalExecutor
from tasks.pack.dataset import Dataset
from tasks.stage import build_artifact
from tests.conftest import SAMPLE, MakeConfig, build_chain

CHAIN = (normalize.STAGE, dedup.STAGE, filter.STAGE, chunk.STAGE, pack.STAGE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mix")


def packed(folder: Path, name: str, make_config: MakeConfig, seq_length: int = 64, tokenizer: str = "") -> Artifact:
    """Pack the sample's files whose names begin with `name`."""
    raw = folder / f"raw-{name}"
    raw.mkdir(exist_ok=True)
    for file in (SAMPLE / "articles").glob(f"{name}*"):
        shutil.copy(file, raw)
    config = make_config(
        inputs=[{"path": str(raw), "source": "raw"}],
        workspace=str(folder / "runs"),
        pack={"seq_length": seq_length, "tokenizer": {"path": tokenizer} if tokenizer else {"vocab_size": 700}},
    )
    return build_chain(config, *CHAIN)[-1]


@pytest.fixture
def datasets(folder: Path, make_config: MakeConfig) -> list[Artifact]:
    """A new dataset and two older ones, of one tokenizer."""
    first = packed(folder, "d", make_config)
    tokenizer = str(first.folder / "tokenizer")
    return [
        packed(folder, "c", make_config, tokenizer=tokenizer),
        first,
        packed(folder, "m", make_config, tokenizer=tokenizer),
    ]


def mixed(datasets: list[Artifact], folder: Path, make_config: MakeConfig, share: float, **changes: object) -> Artifact:
    config = make_config(
        workspace=str(folder / "runs"), pack={"seq_length": 64} | changes, incremental={"old_share": share}
    )
    made = build_artifact(mix.STAGE, config, [one.manifest for one in datasets], LocalExecutor())
    return Workspace(folder / "runs").open(made)


@pytest.mark.parametrize(("share", "shard_bytes"), [(0.25, 2**20), (0.4, 2**16)])
def test_every_new_sequence_is_there_once_and_old_ones_make_their_share(
    datasets: list[Artifact], folder: Path, make_config: MakeConfig, share: float, shard_bytes: int
) -> None:
    made = mixed(datasets, folder, make_config, share, shard_bytes=shard_bytes)
    rows = [tuple(Dataset(made.folder).sequence(number)) for number in range(len(Dataset(made.folder)))]
    new = [tuple(Dataset(datasets[0].folder).sequence(n)) for n in range(len(Dataset(datasets[0].folder)))]
    old = {tuple(Dataset(one.folder).sequence(n)) for one in datasets[1:] for n in range(len(Dataset(one.folder)))}
    assert made.manifest.stats["sequences"] == len(rows)
    assert sorted(row for row in rows if row not in old) == sorted(new)
    assert len(rows) - len(new) == round(len(new) * share / (1 - share))
    places = [place for place, row in enumerate(rows) if row in old]
    assert np.std(places) == pytest.approx(len(rows) / np.sqrt(12), rel=0.3), "spread over the whole"


def test_each_sequence_is_traced_to_its_documents(
    datasets: list[Artifact], folder: Path, make_config: MakeConfig
) -> None:
    made = Dataset(mixed(datasets, folder, make_config, 0.4).folder)
    known = {
        tuple(reader.sequence(number)): reader.spans(number)
        for reader in (Dataset(one.folder) for one in datasets)
        for number in range(len(reader))
    }
    for number in range(len(made)):
        assert made.spans(number) == known[tuple(made.sequence(number))]


def test_datasets_of_another_length_are_refused(
    datasets: list[Artifact], folder: Path, make_config: MakeConfig
) -> None:
    other = packed(folder, "f", make_config, seq_length=32, tokenizer=str(datasets[1].folder / "tokenizer"))
    with pytest.raises(PipelineError, match="tokens_a_row is 33, but that of the new sequences is 65"):
        mixed([datasets[0], other], folder, make_config, 0.25)
