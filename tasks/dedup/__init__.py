"""Documents without those that repeat an earlier one: exact copies, near-duplicates, repeated paragraphs.

The passes, each cut into units that can be done again alone, and that read and write files only:

    sign            by shard: signatures, bands, hashes of texts and paragraphs, into the index
    copies          all: the first document with the same text
    candidates      by band and range of keys: pairs that agree in the band
    estimate        by some shards: the similarity of pairs, as their signatures tell it
    unsure          all: the documents whose shingles are needed to tell
    shingle         by shard: those shingles
    verify          by some shards: the exact similarity
    resolve         all: what becomes of each document, in order
    paragraphs      by range of hashes: what repeats a paragraph of a document that stays
    names           all: ids of the documents that others repeat
    write           by shard
    report          all

The index stays in the artifact: with `dedup.index` a later run compares new documents with those seen before, and decides
exactly as one run over everything would.
"""

from pathlib import Path
from typing import Any

from configs.errors import PipelineError
from configs.schema import RunConfig
from tasks.artifact import UnitRecord, merge_counts
from tasks.dedup.corpus import Corpus, Shard, earlier_shards
from tasks.dedup.owners import ParagraphRange, find_repeated
from tasks.dedup.pairs import (
    BandRange,
    NumberedShard,
    comparisons,
    estimate_pairs,
    find_candidates,
    list_unsure,
    parts_of,
    shingle_shard,
    verify_pairs,
)
from tasks.dedup.report import warn_of_excess, warn_of_unknown, write_report
from tasks.dedup.resolve import WholeCorpus, find_copies, resolve_corpus
from tasks.dedup.sign import SignShard, bands_of, sign_shard
from tasks.dedup.takedown import takedown_ids
from tasks.dedup.write import name_owners, write_shard
from tasks.files import checksum
from tasks.stage import Stage, StageResult, StageRun


def build(run: StageRun) -> StageResult:
    config = run.config.dedup
    documents = run.artifact("normalize").shards
    earlier = earlier_shards(config, STAGE.version, STAGE.library_versions())
    signed = run.map("sign", sign_shard, [SignShard(index, path, config) for index, path in enumerate(documents)])
    corpus = _number(run.draft.folder, earlier, documents, signed)
    corpus.save()
    whole = WholeCorpus(config, takedown_ids(config.takedown_file))
    every = [NumberedShard(place, config) for place in range(len(corpus.shards))]
    compared = comparisons(corpus, config)
    parts = parts_of(corpus.count)
    bands = [BandRange(band, part, parts, config) for band in range(bands_of(config)[0]) for part in range(parts)]
    run.map("copies", find_copies, [whole])
    candidates = run.map("candidates", find_candidates, bands)
    estimated = run.map("estimate", estimate_pairs, compared)
    run.map("unsure", list_unsure, [None])
    run.map("shingle", shingle_shard, every)
    verified = run.map("verify", verify_pairs, compared)
    resolved = run.map("resolve", resolve_corpus, [whole])
    warn_of_unknown(len(whole.takedown), resolved[0].counts["takedown_ids_found"])
    paragraphs = parts_of(sum(shard.array(corpus.draft, "paragraphs").size for shard in corpus.shards))
    run.map("paragraphs", find_repeated, [ParagraphRange(part, paragraphs, config) for part in range(paragraphs)])
    run.map("names", name_owners, [whole])
    written = run.map("write", write_shard, every[len(earlier) :])
    reported = run.map("report", write_report, [whole])
    stats = dict(merge_counts([*candidates, *estimated, *verified, *resolved, *written]))
    warn_of_excess(stats["documents_in"] - stats["documents_kept"], stats["documents_in"])
    files = [file for record in (*written, *signed, *resolved, *reported) for file in record.files]
    return StageResult([file for file in files if not file.name.startswith("work/")], stats)


def _number(draft: Path, earlier: list[Shard], documents: list[Path], signed: list[UnitRecord]) -> Corpus:
    """Return all shards, with the new ones numbered after the earlier ones."""
    shards = list(earlier)
    for index, (path, record) in enumerate(zip(documents, signed, strict=True)):
        first = shards[-1].end if shards else 0
        shards.append(Shard(None, index, str(path.absolute()), first, record.counts["documents"]))
    return Corpus(draft, tuple(shards))


def settings(config: RunConfig) -> dict[str, Any]:
    """Return what decides the output: of the list of documents to take down its content, not its name."""
    file = config.dedup.takedown_file
    if file is not None and not Path(file).is_file():
        raise PipelineError(f"dedup.takedown_file: {file}: no such file; give a text file with one document id a line")
    return config.dedup.model_dump() | {"takedown_file": checksum(Path(file)) if file else None}


def check_index(config: RunConfig) -> None:
    """Raise `PipelineError` when the configured index cannot be used."""
    earlier_shards(config.dedup, STAGE.version, STAGE.library_versions())


STAGE = Stage(
    name="dedup",
    version=3,
    libraries=("datasketch", "numba", "xxhash", "pyarrow"),
    settings=settings,
    build=build,
)
