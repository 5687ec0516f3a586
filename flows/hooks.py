"""What happens when a flow ends badly: people are told."""

from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.utilities.urls import url_for

from configs.errors import PipelineError
from configs.load import load_config
from configs.operation import NotifyConfig
from tasks.notify import notify


def tell(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Send name, state, reason and page of a run to the addresses of its configuration."""
    parameters = flow_run.parameters
    try:
        config = load_config(parameters["config"], parameters.get("overrides", ())).notify
    except PipelineError:  # that may be why the run failed; the environment may still name addresses
        config = NotifyConfig()
    page = url_for("flow-run", flow_run.id) or ""
    notify(config, f"{flow.name} {flow_run.name}: {state.name}", f"{state.message or ''}\n{page}".strip())
