"""The stages as Prefect tasks, and how one is run within a flow: from the cache where it can be, shown in the run's page."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from configs.errors import PipelineError
from configs.schema import RunConfig, StageName
from tasks import chunk, dedup, evaluate, filter, mix, normalize, pack, smoke
from tasks import pretrain as long_training
from tasks.artifact import Manifest, Workspace
from tasks.cached_task import TRAINING_LIMIT, StageTask, cached_task, run_cached
from tasks.pack import tokens
from tasks.pack.report import PAGE, sample_texts, wrapped
from tasks.raw import RawCorpus
from tasks.record import Recorder
from tasks.report import write_report
from tasks.stage import Stage, StageInput
from tasks.summary import headline, removal_table

logger = logging.getLogger("mindpretrain")


@dataclass(frozen=True)
class Link:
    """A stage of the chain, its task, and the stage whose artifact it takes (None: the raw files)."""

    stage: Stage
    task: StageTask
    takes: StageName | None


DATA, TRAINING = {"data"}, {TRAINING_LIMIT}
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


def run_name() -> str:
    """Return a flow run's name: its configuration, and when it began."""
    return f"{Path(flow_run.parameters['config']).stem} {datetime.now().astimezone():%Y-%m-%d %H:%M:%S}"


def inputs_of(link: Link, raw: RawCorpus, manifests: dict[StageName, Manifest]) -> tuple[StageInput, ...]:
    return (manifests[link.takes],) if link.takes else (raw,)


class StageRunner:
    """Runs the stages of a flow, and keeps the record of the run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def make(self, link: Link, config: RunConfig, *inputs: StageInput) -> Manifest:
        """Return the manifest of a stage's artifact, made or taken from the cache.

        Raises:
            PipelineError: the stage failed.
        """
        with self._recorder.stage(link.stage.name) as timer:
            state = run_cached(link.stage, link.task, config, inputs)
            manifest = state.result()
            timer.key, timer.cached = manifest.key, state.name == "Cached"
        logger.info("%s: %s: %s", link.stage.name, state.name, headline(manifest))
        if rows := removal_table(manifest.stats):
            create_table_artifact(
                rows, key=f"{manifest.stage}-removed", description=f"What {manifest.stage} took out, by rule"
            )
        if manifest.stage == "pack":
            create_markdown_artifact(
                _samples(config, manifest), key="pack-samples", description="Packed sequences as text"
            )
        return manifest


@contextmanager
def recorded(config_file: str, config: RunConfig) -> Iterator[StageRunner]:
    """Give what runs stages. The run's record is kept, and its report written when it ends, well or badly."""
    logger.setLevel(logging.INFO)  # Prefect shows our logs in the run's page, but leaves their level as Python has it
    workspace = Workspace(Path(config.workspace))
    recorder = Recorder(workspace, str(flow_run.flow_name), config_file, config, url_for("flow-run", flow_run.id))
    try:
        with recorder.at_work():
            yield StageRunner(recorder)
    except PipelineError as error:
        recorder.end("failed", str(error))
        _report(recorder, workspace)
        raise
    except (TerminationSignal, KeyboardInterrupt):
        recorder.end("cancelled")  # the report would take time that whoever cancels does not have
        raise
    except Exception as error:
        recorder.end("failed", repr(error))
        raise
    recorder.end("completed")
    _report(recorder, workspace)


def _report(recorder: Recorder, workspace: Workspace) -> None:
    try:
        write_report(recorder.record, workspace, recorder.page)
    except OSError as error:
        logger.warning("%s: the report could not be written: %s", recorder.page, error.strerror or error)
        return
    except Exception:  # a fault of the report must not cost a run that took weeks
        logger.exception("%s: the report could not be written", recorder.page)
        return
    logger.info("report: %s", recorder.page)
    place = f"`{recorder.page.name}` in `{recorder.page.parent.name}/`"
    text = f"The funnel, rules, samples and curves of this run in one page: {place} of the workspace"
    create_markdown_artifact(text, key="report", description="Report of the run")


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
    texts = "\n\n".join(f"~~~~~~~~text\n{wrapped(text)}\n~~~~~~~~" for text in sample_texts(folder))
    alarms = "".join(f"**{alarm}**\n\n" for alarm in manifest.stats["alarms"])
    return f"{alarms}Figures, lengths and coloured tokens: `{PAGE}` of pack artifact `{manifest.key}`\n\n{texts}"
