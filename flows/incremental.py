"""The flow `incremental`: what is new since the last night goes through the data stages, is mixed with old sequences, and
the last good checkpoint goes on from there; the outcome is taken only if old text has not suffered.
"""

import logging
from datetime import datetime
from pathlib import Path

from prefect import flow
from prefect.artifacts import create_table_artifact

from configs.load import load_config
from configs.schema import ArtifactName, RunConfig
from flows import stages
from flows.hooks import tell
from flows.stages import StageRunner, recorded, run_name
from tasks.artifact import Manifest, Workspace
from tasks.incremental.changes import Changes, find_changes
from tasks.incremental.night import Verdict, check, data_config, judge, refuse_unfit, training_config
from tasks.incremental.states import Lineage, State, States
from tasks.raw import RawCorpus, list_raw_files

logger = logging.getLogger("mindpretrain")

Manifests = dict[ArtifactName, Manifest]


@flow(
    name="incremental", flow_run_name=run_name, retries=0, validate_parameters=True,
    on_failure=[tell], on_crashed=[tell], on_cancellation=[tell],
)  # fmt: skip
def incremental(config: str = "configs/demo.yaml", overrides: tuple[str, ...] = ()) -> State:
    """Train on what is new; return the state that the next night goes on from, which is the old one where nothing was done.

    Args:
        config: YAML file, relative to the project's folder
        overrides: Changes to it, such as incremental.min_new_tokens=1000000

    Raises:
        PipelineError: nothing to go on from, a stage that failed, or a checkpoint that makes old text worse.
    """
    loaded = load_config(config, overrides)
    refuse_unfit(loaded)
    states = States(Workspace(Path(loaded.workspace)))
    with recorded(config, loaded) as run, states.alone():
        line = states.current() or states.begin(loaded)
        found = find_changes(list_raw_files(loaded).files, line.seen(), loaded.incremental.settle_seconds)
        _tell(found, line)
        if not found.new.files:
            logger.info("nothing is new: nothing was done")
            return line.last
        return _go_on(run, loaded, states, line, found.new)


def _go_on(run: StageRunner, loaded: RunConfig, states: States, line: Lineage, new: RawCorpus) -> State:
    config = data_config(loaded, line)
    made: Manifests = {"normalize": run.make(stages.NORMALIZE, config, new)}
    made["dedup"] = run.make(stages.DEDUP, config, made["normalize"])
    made["filter"] = run.make(stages.FILTER, config, made["dedup"])
    if not made["filter"].stats["documents_kept"]:
        logger.info("nothing is left of the new files: they repeat what was there, or are noise; nothing was trained")
        return states.add(_state(line, made, None)).last
    tokens = run.make(stages.TOKENS, config, made["filter"]).stats["tokens"]
    wanted = max(loaded.incremental.min_new_tokens, loaded.training.global_batch * loaded.pack.seq_length + 1)
    if tokens < wanted:
        logger.info("%d new tokens, %d are wanted (incremental.min_new_tokens): they wait for more", tokens, wanted)
        return line.last
    made["chunk"] = run.make(stages.CHUNK, config, made["filter"])
    made["pack"] = run.make(stages.PACK, config, made["chunk"])
    made["mix"], made["pretrain"], verdict = _train(run, config, line, made["pack"])
    return states.add(_state(line, made, verdict)).last


def _train(
    run: StageRunner, config: RunConfig, line: Lineage, packed: Manifest
) -> tuple[Manifest, Manifest, Verdict | None]:
    """Return the mix, the training on it, and what it did to held-out text, once that is good enough."""
    config = training_config(config, line.checkpoint)
    old = [artifact.manifest for artifact in line.artifacts("pack")]
    mixed = run.make(stages.MIX, config, packed, *old)
    run.make(stages.SMOKE, config, mixed)
    holds_out = any(one.stats["sequences_held_out"] for one in (packed, *old))
    if not holds_out:
        logger.warning("no text is held out (pack.held_out_share): the checkpoint is taken without being measured")
        return mixed, run.make(stages.PRETRAIN, config, mixed), None
    before = run.make(stages.EVALUATE, config, packed, *old)
    trained = run.make(stages.PRETRAIN, config, mixed)
    checkpoint = Workspace(Path(config.workspace)).folder("pretrain", trained.key)
    after = run.make(stages.EVALUATE, training_config(config, checkpoint), packed, *old)
    verdict = judge(before, after, [one.key for one in old], [packed.key])
    create_table_artifact(
        verdict.rows(), key="incremental-perplexity", description="Held-out text before and after this night"
    )
    check(verdict, config, checkpoint)
    return mixed, trained, verdict


def _tell(found: Changes, line: Lineage) -> None:
    logger.info(
        "state %d: %d new files, %d of them changed; %d deleted, %d still being written",
        line.last.number, len(found.new.files), len(found.changed), len(found.deleted), len(found.unsettled),
    )  # fmt: skip
    for name in found.deleted:
        logger.info("deleted: %s; what was learnt from it stays", name)
    for path in found.unsettled:
        logger.warning("%s: changed while it was looked at; it waits for the next run", path)


def _state(line: Lineage, made: Manifests, verdict: Verdict | None) -> State:
    kept = {name: manifest.key for name, manifest in made.items()}
    tokens = made["pack"].stats["tokens"] if "pack" in made else 0
    state = State(number=0, parent=line.last.number, made=datetime.now().astimezone(), artifacts=kept, tokens=tokens)
    return state.model_copy(update=verdict.perplexities()) if verdict else state
