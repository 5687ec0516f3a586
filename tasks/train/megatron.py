"""Reads Megatron files by mindformers' own reader: `python -m tasks.train.megatron FOLDER TARGET`.

Writes to TARGET, as JSON, documents and checksum of each pair of `.bin` and `.idx` in FOLDER.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import xxhash

SCRATCH = tempfile.mkdtemp()
HERE = Path.cwd()
os.chdir(SCRATCH)  # mindformers writes ./output while it is imported

from mindformers.dataset.blended_datasets.indexed_dataset import IndexedDataset  # noqa: E402

os.chdir(HERE)


def main(folder: Path, target: Path) -> None:
    found = {}
    for index in sorted(folder.glob("*.idx")):
        dataset = IndexedDataset(str(index.with_suffix("")), multimodal=False, mmap=True)
        digest = xxhash.xxh3_64()
        for number in range(len(dataset)):
            digest.update(dataset[number].tobytes())
        found[index.stem] = [len(dataset), digest.intdigest()]
    target.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
