"""What is almost right: an index directory for its catalog, a topic that is misspelt."""

import json
import shutil
from pathlib import Path

import pytest

import kip33
from kip33.plots import report_facts
from tests.cli.command_lines import CATALOG, OF_CATALOGS, write_offsets
from tests.cli.console import Command

TOOK = "an index directory found, expected a catalog; the catalog in it is used, "


@pytest.fixture
def place(command: Command, built: Path, tmp_path: Path) -> Path:
    """The working directory of commands, with `archive`, `indexes` and `offsets.csv`."""
    (tmp_path / "archive").unlink()
    (tmp_path / "archive").symlink_to(built / "archive")
    (tmp_path / "indexes").symlink_to(built / "indexes")
    write_offsets()
    return tmp_path


def test_an_index_directory_is_taken_for_its_catalog(
    command: Command, place: Path, subtests: pytest.Subtests
) -> None:
    source = (place / "archive").resolve()  # a catalog has one SOURCE, by its path
    lines = [f"{line} --format jsonl" for line in OF_CATALOGS.values()]
    others = (f"catalog snapshots {CATALOG} --path", f"verify quick {source} --catalog {CATALOG}")
    for line in (*lines, *others):
        with subtests.test(line):
            exact = command(*line.split())
            near = command(*line.replace(CATALOG, "indexes").split())

            assert TOOK + f"file://{place}/indexes/_catalog" in near.stderr
            assert TOOK not in exact.stderr
            assert (near.exit_code, _timeless(near.stdout)) == (
                exact.exit_code,
                _timeless(exact.stdout),
            )


def _timeless(output: str) -> list[str]:
    return [line for line in output.splitlines() if "seconds" not in line]


def test_a_program_is_warned(place: Path) -> None:
    with pytest.warns(UserWarning, match=TOOK):
        catalog = kip33.open_catalog("indexes")
    assert catalog.uri == f"file://{place}/indexes/_catalog"
    with pytest.warns(UserWarning, match=TOOK):
        assert kip33.read_arrow("indexes", topic=["orders"], on_error="row").read_all().num_rows
    with pytest.warns(UserWarning, match=TOOK):
        assert report_facts("indexes", now=0).topics


def test_an_archive_with_a_catalog_in_it_is_the_archive(command: Command, place: Path) -> None:
    shutil.copytree((place / "archive").resolve(), place / "both")
    shutil.copytree((place / "indexes/_catalog").resolve(), place / "both/_catalog")
    commit = next((place / "both/_catalog/commits").iterdir())
    record = json.loads(commit.read_text()) | {"source": f"file://{place}/both/broker-1"}
    commit.write_text(json.dumps(record))

    done = command("records", "both", "--topic", "clicks", "--limit", "1", "--format", "jsonl")

    assert TOOK not in done.stderr
    assert done.lines  # of broker-2, which the catalog does not describe


def test_a_misspelt_topic_suggests_the_nearest(
    command: Command, place: Path, subtests: pytest.Subtests
) -> None:
    for line in [
        "build archive --index-dir new --topic oders",
        "verify archive --topic oders",
        "verify quick SOURCE --index-dir indexes --topic oders",
        "repair archive/broker-1 --topic oders",
        "restore archive --to x --dry-run --topic oders",
        "restore indexes/_catalog --to x --dry-run --topic oders",
        "dialects archive --topic oders",
        "roll archive --topic oders",
        "roll indexes/_catalog --topic oders",
        "timestamps archive --topic oders",
        "timestamps indexes/_catalog --topic oders",
        "retention indexes/_catalog --retention-ms 7d --topic oders",
        "search indexes/_catalog --time earliest --topic oders",
        "records archive --topic oders",
        "records indexes/_catalog --topic oders",
        "count archive --topic oders --per 1d",
    ]:
        with subtests.test(f"{line}"):
            done = command(*line.replace("SOURCE", str((place / "archive").resolve())).split())
            assert (done.exit_code, done.stdout) == (2, "")
            assert "; did you mean orders?" in done.stderr


def test_a_repair_that_repairs_nothing_says_so(
    command: Command, place: Path, tmp_path: Path
) -> None:
    shutil.copytree((place / "archive/broker-2").resolve(), tmp_path / "broker-2")
    done = command("repair", "broker-2", "--apply")  # all that is left is a broker's
    assert done.stdout.startswith("nothing is repaired\n")
