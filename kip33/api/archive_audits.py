"""Audits of an archive from a program, without Spark: timestamps, and KIP-33's index designs."""

from typing import Unpack

import pyarrow as pa

from kip33.api.catalog_options import PolicyTables, policies_in
from kip33.archive.common_options import LocalRun
from kip33.archive.moments import time_or_now
from kip33.audits import dialect_tree
from kip33.audits.dialect_tree import DialectOptions, DialectRequest
from kip33.audits.timestamp_answers import TimestampOptions, TimestampRequest, profile_timestamps
from kip33.builds.build_options import load_topic_settings
from kip33.catalog.catalog import warn_caller
from kip33.catalog.schema import with_time_columns
from kip33.formats.times import Time
from kip33.local.local_engine import LocalEngine
from kip33.options import Path, picked, takes
from kip33.rules.index_builder import IndexSettings
from kip33.stores.filesystem_option import place_on


class LocalDialectOptions(DialectOptions, LocalRun, total=False):
    """The options of `compare_dialects`."""


class LocalTimestampOptions(TimestampOptions, LocalRun, total=False):
    """The options of `timestamp_profile`."""


@takes(LocalTimestampOptions)
def timestamp_profile(
    source: Path,
    *,
    now: Time | None = None,
    policies: PolicyTables | None = None,
    **options: Unpack[LocalTimestampOptions],
) -> pa.Table:
    """Profile the timestamps of an archive or a catalog; return a row for each partition.

    >>> profile = timestamp_profile("archive", topics=["orders"], by="topic")
    >>> profile.select(["topic", "timestamp_type", "out_of_order_batches"]).to_pylist()
    [{'topic': 'orders', 'timestamp_type': 'CreateTime', 'out_of_order_batches': 0}]

    - `now`: for suspicious timestamps and `clock="now"`; None: the current time
    - `policies`: limits and types of topics, where no option gives one
    - `options`: see `TimestampOptions` and `LocalRun`

    The columns are `timestamps` in RESULTS.md. Logs are read, but not decompressed; with
    `catalog_only` none is opened. A log that could not be read to its end is in `problems`. Raises
    LocationError for a missing directory or one without segments, CatalogError for a damaged
    catalog, ValueError for a wrong argument.
    """
    place = place_on(source, options["storage_options"], options["filesystem"])
    engine = LocalEngine.of(options, warn_caller)
    request = picked(TimestampRequest, options, source=place.uri)
    held = None if policies is None else policies_in(policies)
    how = (time_or_now(now), lambda: engine, warn_caller, options["on_progress"])
    return with_time_columns(profile_timestamps(request, held, *how).table())


@takes(LocalDialectOptions)
def compare_dialects(source: Path, **options: Unpack[LocalDialectOptions]) -> pa.Table:
    """Compare index designs on the segments below `source`; return a row for each of them.

    >>> compared = compare_dialects("archive", topics=["orders"], dialects=["recover", "minute"])
    >>> compared.select(["dialect", "entries", "guarantee"]).to_pylist()[0]
    {'dialect': 'recover', 'entries': 224, 'guarantee': True}

    - `options`: see `DialectOptions` and `LocalRun`

    The columns are `dialects` in RESULTS.md. No index is written. What is not compared, because it
    is damaged or cannot be read, is a Python warning. Raises LocationError for a missing directory
    or one without segments, PolicyError for a wrong `kafka_configs`, ValueError for a wrong
    argument.
    """
    place = place_on(source, options["storage_options"], options["filesystem"])
    request = picked(DialectRequest, options, source=place.uri)
    settings = load_topic_settings(IndexSettings.of(request), request["kafka_configs"])
    engine, on_progress = LocalEngine.of(options, warn_caller), options["on_progress"]
    found = dialect_tree.compare_dialects(request, settings, engine, on_progress)
    for line in found.skipped:
        warn_caller(f"{line}; the log is not compared")
    return with_time_columns(found.table())
