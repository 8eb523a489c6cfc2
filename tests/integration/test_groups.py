"""Every integration test is in one of the groups that `make integration` runs."""

import re

from tests.integration.groups import GROUPS, IS_MARKED, MARKS, TESTS, files_of

ANY_MARK = re.compile(rf"{IS_MARKED.pattern}|add_marker\(|getattr\(pytest\.mark")


def test_no_file_is_in_two_groups_or_in_none() -> None:
    files = [file for group in GROUPS for file in files_of(group)]
    marked = [file for file in TESTS.rglob("test_*.py") if IS_MARKED.search(file.read_text())]

    assert sorted(files) == sorted(marked)
    assert all(files_of(group) for group in GROUPS)


def test_a_mark_stands_in_the_file_of_its_tests() -> None:
    """A file is known by this text: a mark from elsewhere would leave its tests out."""
    elsewhere = [
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if not file.name.startswith("test_") and ANY_MARK.search(file.read_text())
    ]

    assert elsewhere == []
    assert set(re.findall(r"\w+", MARKS)) == {"kafka", "integration", "and", "or", "not", "long"}


def test_the_files_that_begin_are_there() -> None:
    for group in GROUPS:
        assert {*group.first} <= {file.name for file in files_of(group)}


def test_github_runs_every_group() -> None:
    workflow = (TESTS.parent / ".github" / "workflows" / "test.yml").read_text()

    assert f"group: [{', '.join(group.name for group in GROUPS)}]\n" in workflow
