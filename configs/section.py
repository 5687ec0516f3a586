"""What all parts of the configuration have in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A part of the configuration: immutable, strictly typed, closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
