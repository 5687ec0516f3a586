"""The stages as Prefect tasks, and how one is run within a flow: from the cache where it can be, shown in the run's page."""

import logging
from dataclasses import dataclass
from pathlib import Path

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from configs.errors import PipelineError
from configs.schema import RunConfig, StageName
from tasks import chunk, dedup, evaluate, filter, mix, normalize, pack, smoke
from tasks import pretrain as long_training
from tasks.artifact import Manifest, Workspace
from tasks.cached_task import StageTask, cached_task, run_cached
from tasks.pack import tokens
from tasks.pack.report import PAGE, sample_texts
from tasks.raw import RawCorpus
from tasks.stage import Stage, StageInput
from tasks.summary import headline, removal_table

logger = logging.getLogger("mindpretrain")


@dataclass(frozen=True)
class Link:
    """A stage of the chain, its task, and the stage whose artifact it takes (None: the raw files)."""

    stage: Stage
    task: StageTask
    takes: StageName | None


DATA, TRAINING = {"data"}, {"training"}
NORMALIZE = Link(
    normalize.STAGE, cached_task(normalize.STAGE, "Raw files to clean documents in one script", DATA), None
)
DEDUP = Link(dedup.STAGE, cached_task(dedup.STAGE, "Documents that repeat no earlier one", DATA), "normalize")
FILTER = Link(filter.STAGE, cached_task(filter.STAGE, "Documents without noise", DATA), "dedup")
CHUNK = Link(chunk.STAGE, cached_task(chunk.STAGE, "Documents cut at their headings", DATA), "filter")
TOKENS = Link(tokens.STAGE, cached_task(tokens.STAGE, "Token ids of documents", DATA), "filter")
PACK = Link(pack.STAGE, cached_task(pack.STAGE, "Token dataset of equal sequences", DATA), "chunk")
MIX = Link(mix.STAGE, cached_task(mix.STAGE, "New sequences among old ones", DATA), "pack")
SMOKE = Link(smoke.STAGE, cached_task(smoke.STAGE, "Short training that has to succeed", TRAINING), "pack")
PRETRAIN = Link(long_training.STAGE, cached_task(long_training.STAGE, "Trained checkpoints", TRAINING), "pack")
EVALUATE = Link(evaluate.STAGE, cached_task(evaluate.STAGE, "Perplexity on held-out text", TRAINING), "pack")

CHAIN = (NORMALIZE, DEDUP, FILTER, CHUNK, PACK, SMOKE, PRETRAIN)


def inputs_of(link: Link, raw: RawCorpus, manifests: dict[StageName, Manifest]) -> tuple[StageInput, ...]:
    return (manifests[link.takes],) if link.takes else (raw,)


def make(link: Link, config: RunConfig, *inputs: StageInput) -> Manifest:
    """Return the manifest of a stage's artifact, made or taken from the cache.

    Raises:
        PipelineError: the stage failed.
    """
    state = run_cached(link.stage, link.task, config, inputs)
    manifest = state.result()
    logger.info("%s: %s: %s", link.stage.name, state.name, headline(manifest))
    if rows := removal_table(manifest.stats):
        create_table_artifact(
            rows, key=f"{manifest.stage}-removed", description=f"What {manifest.stage} took out, by rule"
        )
    if manifest.stage == "pack":
        create_markdown_artifact(_samples(config, manifest), key="pack-samples", description="Packed sequences as text")
    return manifest


def existing(link: Link, config: RunConfig, *inputs: StageInput) -> Manifest:
    """Return the manifest of an artifact that is there.

    Raises:
        PipelineError: it is not.
    """
    manifest = Workspace(Path(config.workspace)).find(link.stage.name, link.stage.key(config, inputs))
    if manifest is None:
        raise PipelineError(
            f"{link.stage.name}: there is no artifact of it for this configuration, which the stage that was asked for "
            f"needs; run `mindpretrain run CONFIG --until {link.stage.name}` first"
        )
    return manifest


def _samples(config: RunConfig, manifest: Manifest) -> str:
    """Return sequences as Markdown, document ends marked; the whole report is a page in the artifact."""
    folder = Workspace(Path(config.workspace)).folder(manifest.stage, manifest.key)
    texts = "\n\n".join(f"~~~~~~~~text\n{text}\n~~~~~~~~" for text in sample_texts(folder))
    alarms = "".join(f"**{alarm}**\n\n" for alarm in manifest.stats["alarms"])
    return f"{alarms}Figures, lengths and coloured tokens: `{folder / PAGE}`\n\n{texts}"
