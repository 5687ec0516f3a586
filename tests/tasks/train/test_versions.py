"""Versions that belong together, and those that do not."""

import pytest

from tasks.train.versions import MATRIX, check_versions


def test_the_pair_of_the_article_is_refused_and_the_right_one_named() -> None:
    found = check_versions("2.3.0", "0.6.0", "3.10.4")
    assert found.status == "fail"
    assert "released for mindspore 2.0.0 or 1.10.0, found 2.3.0" in found.text
    assert "use mindformers 1.2.0 with CANN 8.0.RC2" in found.text


def test_an_exact_row_is_right_and_the_mindspore_before_it_only_a_warning() -> None:
    assert check_versions("2.7.1", "1.7.0", "3.11.4", "8.3.RC1").status == "ok"
    assert check_versions("2.7.0", "1.7.0", "3.11.4").status == "warn"
    assert check_versions("2.6.0", "1.6.0", "3.11.4").status == "fail"


@pytest.mark.parametrize(
    ("mindspore", "mindformers", "python", "cann", "said"),
    [
        ("2.9.0", "1.9.0", "3.12.1", "", "runs on Python 3.9 or 3.10 or 3.11"),
        ("2.9.0", "1.9.0", "3.11.4", "8.5.0", "was built for CANN 9.0.0"),
        ("2.11.0", "2.1.0", "3.12.4", "", "another product"),
        ("2.9.0", "1.4.0", "3.11.4", "", "not in the version matrix; for mindspore 2.9.0 use mindformers 1.9.0"),
    ],
)
def test_what_is_wrong_is_named(mindspore: str, mindformers: str, python: str, cann: str, said: str) -> None:
    found = check_versions(mindspore, mindformers, python, cann)
    assert (found.status, said in found.text) == ("fail", True)


def test_pre_releases_count_as_their_release() -> None:
    assert check_versions("2.6.0rc1", "1.5.0", "3.11.4", "8.1.RC1.beta1").status == "ok"
    assert len({row.mindformers for row in MATRIX}) == len(MATRIX)
