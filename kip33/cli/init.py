"""`kip33 init`: the files of a deployment, as they are for the installed version."""

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import click

from kip33 import __version__

_FOLDERS: Final = ("conf", "jobs")
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
@click.option("--overwrite", is_flag=True, help="Replace files that have another content.")
def init(folder: Path, overwrite: bool) -> None:
    """Write the files of a deployment to DIR, as they are for this version of kip33.

    conf/ has defaults of the options, retention policies, settings of Spark, and a Dockerfile for
    Spark on Kubernetes. jobs/ has the scripts for spark-submit, a DAG for Airflow, and a notebook.

    A file that exists with another content is an error, and then nothing is written.
    """
    if "://" in str(folder) or ":/" in str(folder):
        raise click.UsageError(f"{folder}: a URI found, expected a directory of this machine")
    written = starter_files()
    there = {path for path in written if (folder / path).exists()}
    changed = [path for path in sorted(there) if (folder / path).read_bytes() != written[path]]
    if changed and not overwrite:
        raise click.UsageError(
            f"{folder / changed[0]}: a file with another content exists, {len(changed)} in all; "
            "nothing is written: give another DIR, or --overwrite"
        )
    for path, content in written.items():
        if path not in there or path in changed:
            _publish(folder / path, content)
    kept = len(there) - len(changed)
    click.echo(
        f"{len(written) - kept} files written to {folder}, {kept} unchanged (kip33 {__version__})"
    )
    click.echo(
        f"Next: change {folder}/conf/kip33.toml and {folder}/conf/retention.toml; "
        f"{folder}/jobs/airflow/kip33_nightly.py begins with what Airflow needs"
    )


def _publish(target: Path, content: bytes) -> None:
    """Write a file that is complete when its name appears."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.tmp")
    unfinished.write_bytes(content)
    unfinished.replace(target)
