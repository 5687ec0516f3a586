"""Passwords and keys do not reach people's eyes."""

import pytest

from tasks.masking import mask


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql+asyncpg://prefect:s3cr3t@host:5432/prefect", "postgresql+asyncpg://***@host:5432/prefect"),
        ("s3://AKIA0123:abc/raw is no such address", "s3://AKIA0123:abc/raw is no such address"),
        ("aws_secret_access_key: wJalrXUtnFEMI7MDENG", "aws_secret_access_key: ***"),
        ("API_KEY=abcd1234efgh", "API_KEY=***"),
        ("eos_token: endoftext", "eos_token: endoftext"),
        ("min_new_tokens: 1000000000", "min_new_tokens: 1000000000"),
        ("access_token=abc123def456", "access_token=***"),
        ("http://127.0.0.1:4200/runs", "http://127.0.0.1:4200/runs"),
    ],
)
def test_what_is_hidden_and_what_is_not(text: str, expected: str) -> None:
    assert mask(text) == expected
