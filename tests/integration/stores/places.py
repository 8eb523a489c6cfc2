"""A folder on disk, in a bucket and in HDFS: the same commands run on each."""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import fs

from kip33.stores.hdfs import open_hdfs
from kip33.stores.locations import Location
from tests.cli.console import KIP33
from tests.integration.servers.hdfs import HdfsServer
from tests.integration.servers.s3 import S3Server


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return the objects of `--format json` or `jsonl`."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def record(self) -> dict[str, Any]:
        """Return the only object."""
        [one] = self.records
        return one

    @property
    def line(self) -> str:
        """Return the error, the only line on standard error but for warnings of Spark's start."""
        [line] = [line for line in self.err.splitlines() if line and not line.startswith("WARNING")]
        assert line.startswith("Error: "), self.err
        return line


@dataclass
class Place:
    """A folder of one store and how commands reach it."""

    scheme: str
    uri: str  # of the folder, without a slash at its end
    filesystem: fs.FileSystem
    path: str  # of the folder on the filesystem
    folder: Path  # on this disk, for what the commands need beside
    conf: dict[str, str] = field(default_factory=dict)  # Spark's settings
    environment: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)  # all that commands printed

    def put(self, tree: Path, name: str) -> None:
        """Copy a local tree into the folder, empty files as well."""
        for file in sorted(path for path in tree.rglob("*") if path.is_file()):
            target = f"{self.path}/{name}/{file.relative_to(tree)}"
            if self.scheme != "s3a":
                self.filesystem.create_dir(target.rpartition("/")[0], recursive=True)
            with self.filesystem.open_output_stream(target) as stream:
                stream.write(file.read_bytes())

    def files(self, name: str) -> dict[str, bytes]:
        """Return the bytes of all files below a name, by their paths there."""
        base = f"{self.path}/{name}".rstrip("/")
        selector = fs.FileSelector(base, recursive=True, allow_not_found=True)
        found = {}
        for info in self.filesystem.get_file_info(selector):
            if info.type == fs.FileType.File:
                with self.filesystem.open_input_file(info.path) as file:
                    found[info.path.removeprefix(base + "/")] = bytes(file.read())
        return found

    def run(self, *arguments: Any, conf: dict[str, str] | None = None) -> Ran:
        """Run `kip33`; its standard output and error are kept for those who look for secrets."""
        config = self.folder / "kip33.toml"
        pairs = [f"{key}={value}" for key, value in (self.conf | (conf or {})).items()]
        config.write_text(f"conf = {json.dumps(pairs)}\n")
        config.chmod(0o600)
        command = [KIP33, *map(str, arguments), "--config", config]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ | {"SPARK_LOCAL_DIRS": str(self.folder)} | self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        self.said += [done.stdout, done.stderr]
        return Ran(done.returncode, done.stdout, done.stderr)

    def neutral(self, value: Any) -> Any:
        """Return what a command said without the place it said it of."""
        text = json.dumps(value, default=str).replace(self.uri, "STORE")
        return json.loads(text)


def on_disk(folder: Path) -> Place:
    """Return a place on this disk."""
    base = folder / "store"
    base.mkdir()
    return Place("file", Location.of(base).uri, fs.LocalFileSystem(), str(base), folder)


def in_bucket(folder: Path, server: S3Server, bucket: str, jars: Path | None = None) -> Place:
    """Return a bucket of its own; with `jars` Spark can read it, too."""
    server.make_bucket(bucket)
    conf = {
        "spark.hadoop.fs.s3a.endpoint": f"http://{server.endpoint}",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": server.access_key,
        "spark.hadoop.fs.s3a.secret.key": server.secret_key,
        "spark.eventLog.enabled": "true",  # for those who look for secrets
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": folder.as_uri(),
    }
    if jars:
        conf["spark.jars"] = ",".join(map(str, sorted(jars.glob("*.jar"))))
    return Place("s3a", f"s3a://{bucket}", server.filesystem(), bucket, folder, conf)


def in_hdfs(folder: Path, server: HdfsServer, name: str) -> Place:
    """Return a directory of its own, reached by Hadoop's own configuration files."""
    filesystem = open_hdfs(server.client_options, server.uri)
    filesystem.create_dir(f"/{name}", recursive=True)
    environment = {"HADOOP_CONF_DIR": str(server.conf_dir)}
    return Place(
        "hdfs", f"{server.uri}/{name}", filesystem, f"/{name}", folder, environment=environment
    )
