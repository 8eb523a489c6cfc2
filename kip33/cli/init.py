"""`kip33 init`: the files of a deployment, as they are for the installed version.

After an upgrade it replaces the files that were not edited. For this a file beside them,
`.kip33-init.json`, has the version and the SHA-256 of each file as kip33 wrote it.
"""

import difflib
import hashlib
import json
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, NamedTuple

import click

from kip33 import __version__
from kip33.errors import counted

_FOLDERS: Final = ("conf", "jobs")
_RECORD: Final = ".kip33-init.json"
_STARTER: Final = "starter"  # where a wheel has the folders


def starter_files() -> dict[str, bytes]:
    """Return the files of `conf/` and `jobs/` by their paths, from the wheel or the checkout."""
    package = files("kip33")
    packed = package / _STARTER
    root = packed if packed.is_dir() else Path(str(package)).parent
    return {
        path: file.read_bytes() for name in _FOLDERS for path, file in _files_of(root / name, name)
    }


def _files_of(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for one in sorted(folder.iterdir(), key=lambda one: one.name):
        below = f"{path}/{one.name}"
        if one.is_dir():
            if one.name != "__pycache__":
                yield from _files_of(one, below)
        else:
            yield below, one


@click.command(
    epilog="Example: kip33 init /opt/kip33, then change /opt/kip33/conf/kip33.toml and "
    "/opt/kip33/conf/retention.toml"
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--overwrite", is_flag=True, help="Also replace files that were edited.")
def init(folder: Path, overwrite: bool) -> None:
    """Write the files of a deployment to DIR, as they are for this version of kip33.

    conf/ has defaults of the options, retention policies, settings of Spark, and a Dockerfile for
    Spark on Kubernetes. jobs/ has the scripts for spark-submit, a DAG for Airflow, and a notebook.

    After an upgrade give the command again: it replaces the files that were not edited, leaves
    the others, and shows how they differ from those of this version. DIR/.kip33-init.json has the
    checksums that tell which files were edited.
    """
    if "://" in str(folder) or ":/" in str(folder):
        raise click.UsageError(f"{folder}: a URI found, expected a directory of this machine")
    plan = _InitPlan.of(folder, overwrite=overwrite)
    for path in plan.to_write:
        _publish(folder / path, plan.files[path])
    _publish(folder / _RECORD, plan.record())
    for path in plan.outdated:
        click.echo("\n".join(_difference(folder / path, path, plan.files[path])))
    for path in plan.outdated:
        from kip33.cli.output import warn

        warn(f"{folder / path}: edited, so it is left; what this version has is shown")
    edited = f", {len(plan.edited)} edited and left" if plan.edited else ""
    unchanged = len(plan.files) - len(plan.to_write) - len(plan.edited)
    click.echo(
        f"{counted(len(plan.to_write), 'file')} written to {folder}, {unchanged} unchanged{edited} "
        f"(kip33 {__version__})"
    )
    click.echo(
        f"Next: change {folder}/conf/kip33.toml and {folder}/conf/retention.toml; "
        f"{folder}/jobs/airflow/kip33_nightly.py begins with what Airflow needs"
    )


class _InitPlan(NamedTuple):
    """What an init does to each file of this version."""

    files: dict[str, bytes]
    to_write: list[str]
    edited: list[str]  # that are left
    outdated: list[str]  # of these, what kip33 wrote was not this version's, or is not known
    known: dict[str, str]  # the SHA-256 of each file as kip33 wrote it

    @classmethod
    def of(cls, folder: Path, *, overwrite: bool) -> "_InitPlan":
        """Compare a folder's files with those of this version."""
        files, known = starter_files(), _read_record(folder / _RECORD)
        plan = cls(files, [], [], [], known)
        for path, content in files.items():
            there = (folder / path).read_bytes() if (folder / path).exists() else None
            if there == content:
                known[path] = _checksum(content)
            elif there is None or overwrite or _checksum(there) == known.get(path):
                plan.to_write.append(path)
                known[path] = _checksum(content)
            else:
                plan.edited.append(path)
                if known.get(path) != _checksum(content):
                    plan.outdated.append(path)
        return plan

    def record(self) -> bytes:
        """Return the content of the record; a file that was left keeps its old checksum."""
        known = {path: self.known[path] for path in self.files if path in self.known}
        return (json.dumps({"kip33": __version__, "sha256": known}, indent=1) + "\n").encode()


def _read_record(place: Path) -> dict[str, str]:
    """Return the checksums of an earlier init; empty without one, or if it is damaged."""
    try:
        record = json.loads(place.read_bytes())["sha256"]
        return {str(path): str(checksum) for path, checksum in record.items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _difference(there: Path, path: str, content: bytes) -> Iterator[str]:
    """Yield the lines of a unified diff, from the edited file to that of this version."""
    texts = (there.read_bytes(), content)
    edited, new = (text.decode(errors="backslashreplace").splitlines() for text in texts)
    names = (str(there), f"{path} of kip33 {__version__}")
    yield from difflib.unified_diff(edited, new, *names, lineterm="")


def _publish(target: Path, content: bytes) -> None:
    """Write a file that is complete when its name appears."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.tmp")
    unfinished.write_bytes(content)
    unfinished.replace(target)
