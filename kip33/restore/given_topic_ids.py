"""Where the ids of topics come from, beside what is in log directories: a file, or a cluster."""

import importlib
import warnings
from typing import Any, Final
from uuid import UUID

from kip33.errors import LocationError, RestoreError
from kip33.formats.partition_metadata import TOPIC_IDS_EXPECTED, parse_topic_id, parse_topic_ids
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location

_MOST_BYTES: Final = 1 << 30
_TIMEOUT_MS: Final = 30_000


def load_topic_ids(file: str) -> dict[str, str]:
    """Return {topic: id} from a path or URI; LocationError, one line, if it is wrong."""
    place = Location.of(file)
    try:
        return parse_topic_ids(read_whole(place, most_bytes=_MOST_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise LocationError(f"{place.uri}: cannot be read: {one_line(error)}") from error
    except (ValueError, RecursionError) as error:
        why = one_line(error)
        expected = "" if "expected" in why else f", expected {TOPIC_IDS_EXPECTED}"
        raise LocationError(f"{place.uri}: {why}{expected}") from error


def ask_topic_ids(bootstrap_server: str) -> dict[str, str]:
    """Return {topic: id} of a running cluster; RestoreError, one line, if it does not answer."""
    with warnings.catch_warnings():  # the client reads its protocol's files in an old way
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return _asked(importlib.import_module("kafka").KafkaAdminClient, bootstrap_server)
        except ModuleNotFoundError as error:
            raise RestoreError(
                "--bootstrap-server: the Python package kafka-python is not installed; install it "
                "with: pip install 'kip33[kafka]', or give --topic-ids"
            ) from error
        except Exception as error:  # the client's own classes, and OSError
            raise RestoreError(
                f"--bootstrap-server {bootstrap_server}: the cluster does not answer: "
                f"{one_line(error)}; give --topic-ids with the output of kafka-topics.sh --describe"
            ) from error


def _asked(admin: Any, bootstrap_server: str) -> dict[str, str]:
    client = admin(bootstrap_servers=bootstrap_server, request_timeout_ms=_TIMEOUT_MS)
    try:
        topics = client.describe_topics()
    finally:
        client.close()
    found = {}
    for topic in topics:
        topic_id = topic.get("topic_id")
        text = parse_topic_id(str(topic_id) if isinstance(topic_id, UUID) else topic_id or "")
        if text:
            found[topic["name"]] = text
    return found
