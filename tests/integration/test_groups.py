"""The groups that `make integration` runs; `conftest` refuses a mark that they do not see."""

from tests.integration.groups import GROUPS, TESTS, files_of


def test_the_files_that_begin_are_there() -> None:
    for group in GROUPS:
        assert {*group.first} <= {file.name for file in files_of(group)}


def test_github_runs_every_group() -> None:
    workflow = (TESTS.parent / ".github" / "workflows" / "test.yml").read_text()

    assert f"group: [{', '.join(group.name for group in GROUPS)}]\n" in workflow
