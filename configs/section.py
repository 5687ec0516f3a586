"""What all parts of the configuration have in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]


def refuse_rising(learning_rate: float, final_learning_rate: float) -> None:
    """Raise `ValueError` for a schedule that would not fall."""
    if final_learning_rate > learning_rate:
        raise ValueError(
            f"final_learning_rate {final_learning_rate} is above learning_rate {learning_rate}; "
            "the schedule falls from the second to the first"
        )


class Section(BaseModel):
    """A part of the configuration: immutable, strictly typed, closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
