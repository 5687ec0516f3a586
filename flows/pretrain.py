"""The flow `pretrain`: raw files to checkpoints in seven stages, each a cached task that passes its manifest on."""

import logging

from prefect import flow

from configs.load import load_config
from configs.schema import STAGES, RunConfig, StageName
from flows.hooks import tell
from flows.stages import CHAIN, StageRunner, existing, inputs_of, recorded, run_name
from tasks.artifact import Manifest
from tasks.raw import list_raw_files

logger = logging.getLogger("mindpretrain")


@flow(
    name="pretrain", flow_run_name=run_name, retries=0, validate_parameters=True,
    on_failure=[tell], on_crashed=[tell], on_cancellation=[tell],
)  # fmt: skip
def pretrain(
    config: str = "configs/demo.yaml",
    overrides: tuple[str, ...] = (),
    until: StageName = "pretrain",
    only: StageName | None = None,
) -> dict[StageName, Manifest]:
    """Make every stage's artifact, or take the one that is there; return their manifests.

    Args:
        config: YAML file, relative to the project's folder
        overrides: Changes to it, such as pack.seq_length=256
        until: The last stage to run
        only: Run this stage alone, on artifacts that are there

    Raises:
        PipelineError: a bad configuration or input, or a stage that failed. What was finished is kept.
    """
    loaded = load_config(config, overrides)
    with recorded(config, loaded) as run:
        return make_artifacts(run, loaded, until, only)


def make_artifacts(
    run: StageRunner, config: RunConfig, until: StageName, only: StageName | None
) -> dict[StageName, Manifest]:
    """Go through the chain. With `only`, the stages before it must have their artifacts already."""
    raw = list_raw_files(config)
    logger.info("raw files: %d, %.1f MB", len(raw.files), sum(file.bytes for file in raw.files) / 1e6)
    manifests: dict[StageName, Manifest] = {}
    for name, link in zip(STAGES[: STAGES.index(only or until) + 1], CHAIN, strict=False):
        if only is None or name == only:
            manifests[name] = run.make(link, config, *inputs_of(link, raw, manifests))
        elif name != "smoke":  # a gate, of which nothing is taken
            manifests[name] = existing(link, config, *inputs_of(link, raw, manifests))
    return manifests
