"""What a user did or met that stops the work: shown as a message, never as a traceback."""


class PipelineError(Exception):
    """An error whose message names the file, key or line, what was found, what was expected and the mend."""


class ConfigError(PipelineError):
    """Everything that is wrong with a configuration, one line a problem."""

    def __init__(self, file: str, problems: list[str]) -> None:
        self.file = file
        self.problems = problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n".join([f"{file}: {count}", *(f"  {problem}" for problem in problems)]))
