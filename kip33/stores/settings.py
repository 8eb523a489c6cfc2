"""The settings of remote stores, one set per process: Hadoop's own keys, as in Spark.

    fs.s3a.endpoint, fs.s3a.bucket.archive.endpoint, dfs.nameservices, ...

They come from the Spark session if there is one (`kip33.spark.store_settings`), else from
`--conf spark.hadoop.KEY=VALUE`, Spark's `spark-defaults.conf` and Hadoop's `core-site.xml` and
`hdfs-site.xml`, in this order. Without an endpoint in them, that of AWS_ENDPOINT_URL_S3 or
AWS_ENDPOINT_URL is used. For other settings that are in none of them the clients use their own
defaults: the S3 client looks into the environment, `~/.aws` and the machine's role.

A process has one such configuration, as a JVM has one of Hadoop's. If it were part of a `Location`,
secrets would be sent with every path, into closures and messages.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kip33.errors import LocationError, proves_nothing
from kip33.formats.kafka_configs import parse_properties

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

PREFIXES: Final = ("fs.s3a.", "dfs.", "fs.defaultFS", "fs.viewfs.", "hadoop.security.")
SPARK_PREFIX: Final = "spark.hadoop."
_ENDPOINT: Final = "fs.s3a.endpoint"
_ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_INCLUDE: Final = "{http://www.w3.org/2001/XInclude}include"
_SITES: Final = ("core-site.xml", "hdfs-site.xml")


class _Process:
    """The configuration of this process; None until it is set or first used."""

    settings: Mapping[str, str] | None = None
    source: Callable[[], Mapping[str, str]] | None = None
    options: Mapping[str, str] = MappingProxyType({})  # `storage_options`: override the settings
    generation = 0  # filesystems of an earlier generation are not used again


def use_settings(settings: Mapping[str, str]) -> None:
    """Use these Hadoop settings for every store that this process opens from now on."""
    kept = {key: value for key, value in settings.items() if key.startswith(PREFIXES)}
    if not kept.get(_ENDPOINT, "").strip() and (endpoint := _endpoint_of_environment()):
        kept[_ENDPOINT] = endpoint
    if kept != _Process.settings:
        _Process.settings = kept
        _Process.generation += 1


def _endpoint_of_environment() -> str | None:
    """Return the endpoint of S3 that the AWS command and boto3 take from the environment."""
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return None
    found = (os.environ.get(name, "").strip() for name in _ENDPOINT_VARIABLES)
    return next(filter(None, found), None)


def add_options(options: Mapping[str, str]) -> None:
    """Let these Hadoop settings override all others that this process has or will have."""
    merged = {**_Process.options, **options}
    if merged != _Process.options:
        _Process.options = merged
        _Process.generation += 1


def added_options() -> Mapping[str, str]:
    """Return the options given to `add_options`; later values override earlier ones."""
    return _Process.options


def settings_from(source: Callable[[], Mapping[str, str]]) -> None:
    """Call `source` for the settings when the first remote store is opened."""
    _Process.settings, _Process.source = None, source


def settings() -> Mapping[str, str]:
    """Return Hadoop's settings for this process; by default those of its configuration files."""
    if _Process.settings is None:
        use_settings((_Process.source or configured)())
    found = _Process.settings or {}
    return {**found, **_Process.options} if _Process.options else found


def settings_in_use() -> Mapping[str, str] | None:
    """Return the settings if they were used; None: no remote store was opened."""
    return None if _Process.settings is None else settings()


def generation() -> int:
    """Return a number that grows whenever the settings change."""
    settings()
    return _Process.generation


def configured(conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings from files and from `conf`, which has Spark's keys, without Spark.

    Raises LocationError if a file exists but cannot be parsed.
    """
    found: dict[str, str] = {}
    hadoop_conf_dir = os.environ.get("HADOOP_CONF_DIR")
    if hadoop_conf_dir:
        for name in _SITES:
            found |= _site(Path(hadoop_conf_dir) / name)
    return found | hadoop_keys(spark_defaults()) | hadoop_keys(conf or {})


def spark_defaults() -> dict[str, str]:
    """Return the pairs of Spark's `spark-defaults.conf`, where Spark itself looks for it.

    Raises LocationError where the file is there and cannot be understood.
    """
    for spark_conf_dir in _spark_conf_dirs():
        defaults = spark_conf_dir / "spark-defaults.conf"
        if defaults.is_file():
            return _properties(defaults)
    return {}


def require_expanded(key: str, value: str) -> None:
    """Raise LocationError for a value with `${...}`, which only Hadoop can expand."""
    if "${" in value:
        raise LocationError(
            f"{key}: the value has ${{...}}, which kip33 does not expand: write the "
            f"value out, or give --conf {SPARK_PREFIX}{key}=..."
        )


def hadoop_keys(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that Spark passes to Hadoop, by Hadoop's keys."""
    return {
        key.removeprefix(SPARK_PREFIX): value
        for key, value in conf.items()
        if key.startswith(SPARK_PREFIX)
    }


def _spark_conf_dirs() -> list[Path]:
    """Return the directories in which Spark looks for its `spark-defaults.conf`."""
    conf_dir, home = os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME")
    if conf_dir:
        return [Path(conf_dir)]
    return [Path(home) / "conf"] if home else []


def _properties(path: Path) -> dict[str, str]:
    """Return the pairs of a `spark-defaults.conf`, which is a Java property file."""
    try:
        pairs = parse_properties(_text(path))
    except ValueError as error:
        raise LocationError(f"{path}: {error}; fix this line") from error
    return {key: value.strip() for key, value in pairs.items()}  # as Spark does


def _site(path: Path) -> dict[str, str]:
    """Return the properties of one of Hadoop's XML files; empty if there is no such file."""
    if not path.is_file():
        return {}
    from xml.etree import ElementTree

    try:
        root = ElementTree.fromstring(_text(path))
    except ElementTree.ParseError as error:
        raise LocationError(f"{path}: not a valid Hadoop configuration: {error}; fix it") from error
    if root.tag != "configuration":
        raise LocationError(f"{path}: <{root.tag}> found, expected Hadoop's <configuration>")
    if root.find(f".//{_INCLUDE}") is not None:
        raise LocationError(
            f"{path}: xi:include found, which kip33 does not follow: copy the included "
            "settings into this file, or give them by --conf"
        )
    pairs = ((_field(entry, "name"), _field(entry, "value")) for entry in root.iter("property"))
    return {name.strip(): value.strip() for name, value in pairs if name and value}


def _field(entry: "Element", what: str) -> str | None:
    """Return a property's name or value: an element, or an attribute in the short form."""
    return entry.findtext(what) or entry.get(what)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if proves_nothing(error):
            raise
        raise LocationError(f"{path}: cannot be read: {error}; fix it") from error
