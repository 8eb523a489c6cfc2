"""Policies from files: TOML, output of Kafka's tools, both; and files that are neither."""

from pathlib import Path
from typing import Any

import pytest

from kip33.errors import PolicyError
from kip33.retention.policy_files import load_policies
from kip33.rules.policies import Policies, Policy
from tests.cases import each_case

ROOT = Path(__file__).parents[2]
DAY_MS = 86_400_000

TOOLS = """\
All configs for topic orders are:
  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}
  retention.bytes=5 sensitive=false synonyms={}
  retention.ms=6 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=6}
  vendor.tier.enable=true sensitive=false synonyms={}
Dynamic configs for topic plain are:
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def of_toml(text: str) -> Policies:
    Path("retention.toml").write_text(text)
    return load_policies("retention.toml", None)


def of_both(text: str) -> Policies:
    Path("retention.toml").write_text(text)
    Path("topics.txt").write_text(TOOLS)
    return load_policies("retention.toml", "topics.txt")


WRITTEN = {
    "bare keys": '[defaults]\nretention.ms = 1\nretention.bytes = 2\n[topics."a*"]\nsegment.ms = 3',
    "quoted keys": '[defaults]\n"retention.ms" = 1\n"retention.bytes" = 2\n'
    '[topics."a*"]\n"segment.ms" = 3',
    "tables": '[defaults.retention]\nms = 1\nbytes = 2\n[topics."a*".segment]\nms = 3',
    "texts": '[defaults]\nretention.ms = "1ms"\nretention.bytes = "2"\n'
    '[topics."a*"]\nsegment.ms = "3"',
}  # fmt: skip


@each_case("text", WRITTEN)
def test_ways_to_write_the_same(text: str) -> None:
    policies = of_toml(text)
    assert policies.of("abc") == Policy("a*", 1, 2, segment_ms=3)
    assert policies.of("xyz") == Policy("defaults", 1, 2)


def test_what_the_tools_printed() -> None:
    Path("topics.txt").write_text(TOOLS)
    policies = load_policies(None, "topics.txt")
    assert policies.of("orders") == Policy("orders", 6, 5, ("delete",))
    assert policies.of("plain") == Policy("plain")
    assert policies.of("unknown") == Policy("")


BOTH = {
    "the defaults fill what the tools did not say": (
        "[defaults]\nretention.ms = 1\nsegment.ms = 2\n",
        {
            "orders": Policy("orders", 6, 5, ("delete",), segment_ms=2),
            "plain": Policy("plain", 1, segment_ms=2),
            "unknown": Policy("defaults", 1, segment_ms=2),
        },
    ),
    "a section of the same name goes over it, key by key": (
        '[topics.orders]\nretention.ms = "7d"\n[topics.plain]\nretention.bytes = 3\n',
        {
            "orders": Policy("orders", 7 * DAY_MS, 5, ("delete",)),
            "plain": Policy("plain", -1, 3),
            "unknown": Policy(""),
        },
    ),
    "a glob says nothing of topics that the tools named": (
        '[topics."*"]\nretention.ms = 1\n',
        {
            "orders": Policy("orders", 6, 5, ("delete",)),
            "plain": Policy("plain"),
            "unknown": Policy("*", 1),
        },
    ),
}


@each_case(("text", "expected"), BOTH)
def test_both(text: str, expected: Any) -> None:
    policies = of_both(text)
    assert {topic: policies.of(topic) for topic in expected} == expected


WRONG_TOML = {
    "no TOML": ("retention.ms 7d", "not valid TOML: ", "(at line 1, column 14); fix it"),
    "a section that is none": (
        "[topic.orders]\nretention.ms = 1\n",
        "'topic' found at the top level, ",
        'expected [defaults] and [topics."NAME or GLOB"]; fix it',
    ),
    "a topic that is no table": (
        "[topics]\norders = 5\n",
        '[topics."orders"]: 5 found, ',
        'expected [defaults] and [topics."NAME or GLOB"]; fix it',
    ),
    "a key twice": (
        '[defaults]\nretention.ms = 1\n"retention.ms" = 2\n',
        "[defaults] retention.ms: found twice, with and without quotes, ",
        "expected once; fix it",
    ),
    "a topic with dots that is not quoted": (
        "[topics.orders.eu]\nretention.ms = 1\n",
        '[topics."orders"] eu.retention.ms: not a topic setting of Kafka; for retention.ms, '
        "quote a name ",
        'with dots: [topics."orders.eu"]; fix it',
    ),
    "an unknown key": (
        "[defaults]\nretention.m = 1\n",
        "[defaults] retention.m: not a topic setting of Kafka; ",
        "did you mean retention.ms?; fix it",
    ),
}


@each_case(("text", "begins", "ends"), WRONG_TOML)
def test_wrong_toml(text: str, begins: str, ends: str) -> None:
    with pytest.raises(PolicyError) as raised:
        of_toml(text)
    assert str(raised.value).startswith(f"retention.toml: {begins}")
    assert str(raised.value).endswith(ends)
    assert "\n" not in str(raised.value)


def test_wrong_toml_is_not_blamed_on_the_tools() -> None:
    with pytest.raises(PolicyError, match=r"^retention.toml: .*orders.* retention.ms: -7 found"):
        of_both("[topics.orders]\nretention.ms = -7\n")


WRONG_TOOLS = {
    "another text": ("hello\n", "line 1: 'hello' found, expected the output of kafka-configs.sh"),
    "nothing": ("", "line 1: no topic found"),
    "a value that Kafka has not": (
        "Topic: t\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: retention.ms=soon\n",
        "[topics.\"t\"] retention.ms: 'soon' found, expected 7d",
    ),
}


@each_case(("text", "message"), WRONG_TOOLS)
def test_wrong_output_of_the_tools(text: str, message: str) -> None:
    Path("topics.txt").write_text(text)
    with pytest.raises(PolicyError) as raised:
        load_policies(None, "topics.txt")
    assert str(raised.value).startswith(f"topics.txt: {message}")
    assert str(raised.value).endswith("; save the tool's output again, unchanged")
    assert "\n" not in str(raised.value)


UNREADABLE = [
    ("nowhere", "nowhere: cannot be read: No such file or directory; expected a file"),
    ("folder", "folder: cannot be read: not a regular file; expected a file"),
    ("utf-16", "utf-16: byte 0 is not UTF-8; save the file as UTF-8"),
    ("ftp://host/x", "ftp://host/x: unknown scheme ftp://, expected a local path or one of"),
    ("", "the path is empty: expected a local path or a URI"),
]


@each_case(("file", "message"), UNREADABLE)
@each_case("first", (True, False))
def test_a_file_that_cannot_be_read(file: str, message: str, first: bool) -> None:
    Path("folder").mkdir(exist_ok=True)
    Path("utf-16").write_bytes("[defaults]".encode("utf-16"))
    with pytest.raises(PolicyError) as raised:
        load_policies(*((file, None) if first else (None, file)))
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_the_example_that_is_shipped() -> None:
    policies = load_policies(str(ROOT / "conf" / "retention.toml"), None)
    week = Policy("defaults", 7 * DAY_MS, -1, ("delete",), segment_ms=7 * DAY_MS)
    assert policies.of("orders") == week
    assert policies.of("clicks.web") == week._replace(
        match="clicks.*",
        retention_ms=2 * DAY_MS,
        retention_bytes=50 * 2**30,
        message_timestamp_type="LogAppendTime",
    )
    assert policies.of("accounts-changelog").mode == "compact"
    assert policies.of("accounts-changelog").retention_ms == -1
    assert not policies.keeps_everything()
