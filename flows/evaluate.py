"""The flow `evaluate`: the perplexity of a checkpoint on held-out text."""

from pathlib import Path

from prefect import flow

from configs.load import load_config
from flows import stages
from flows.hooks import tell
from flows.pretrain import make_artifacts
from flows.stages import existing, recorded, run_name
from tasks.artifact import Manifest, Workspace
from tasks.incremental.night import training_config


@flow(
    name="evaluate", flow_run_name=run_name, retries=0, validate_parameters=True,
    on_failure=[tell], on_crashed=[tell], on_cancellation=[tell],
)  # fmt: skip
def evaluate(
    config: str = "configs/demo.yaml",
    overrides: tuple[str, ...] = (),
    checkpoint: str | None = None,
) -> Manifest:
    """Return the manifest of the evaluation on the configuration's token dataset, which is made if it is not there.

    Args:
        config: YAML file, relative to the project's folder
        overrides: Changes to it, such as pretrain.evaluation_sequences=1000
        checkpoint: A checkpoint or a training's folder; the configuration's own training where it is left out

    Raises:
        PipelineError: there is no such checkpoint, or nothing is held out.
    """
    loaded = load_config(config, overrides)
    with recorded(config, loaded) as run:
        packed = make_artifacts(run, loaded, "pack", None)["pack"]
        if checkpoint is None:
            trained = existing(stages.PRETRAIN, loaded, packed)
            checkpoint = str(Workspace(Path(loaded.workspace)).folder("pretrain", trained.key))
        return run.make(stages.EVALUATE, training_config(loaded, Path(checkpoint)), packed)
