"""`--metrics FILE.prom`: the figures of a run as gauges in the text format of Prometheus."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kip33.archive.moments import current_ms
from kip33.cli.options import replaced_file, together

if TYPE_CHECKING:
    import pyarrow as pa

    from kip33.catalog.topic_totals import TopicTotals
    from kip33.search.group_lag import GroupLag
    from kip33.stores.locations import Location


METRICS_SUFFIX: Final = ".prom"
METRICS_START: Final = b"# kip33 "  # a comment, by which the file is recognized
OTHER_TOPICS: Final = "(other)"  # no topic of Kafka has this name
_HEAD_BYTES: Final = 256


class GaugeSamples(NamedTuple):
    """A gauge: its name without `kip33_`, what it says, and its values by their labels."""

    name: str
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]


class MetricsRequest(NamedTuple):
    """The options of `metrics_options`."""

    metrics_file: "Location | None"
    metrics_by: str | None  # `topic`; None: there are no gauges by topic
    metrics_limit: int

    def check(self) -> None:
        """Raise UsageError if gauges by topic have no file."""
        if self.metrics_by and self.metrics_file is None:
            raise click.UsageError("--metrics-by requires --metrics")


def _require_metrics_place(place: "Location") -> None:
    from kip33.archive.output_files import require_replaceable

    require_replaceable(
        place, "--metrics", lambda head: head.startswith(METRICS_START), _HEAD_BYTES
    )


metrics_options: Final = together(
    click.option(
        "--metrics",
        "metrics_file",
        metavar="FILE",
        callback=replaced_file(METRICS_SUFFIX, _require_metrics_place),
        help="Write figures of the run to FILE (*.prom), in the text format of Prometheus, "
        "for node_exporter or a Pushgateway. Written when the command is done, also "
        "before an exit 3. Replaces FILE only if kip33 wrote it.",
    ),
    click.option(
        "--metrics-by",
        type=click.Choice(["topic"]),
        help="With --metrics: also write gauges by topic.",
    ),
    click.option(
        "--metrics-limit",
        type=click.IntRange(1, 10_000),
        default=50,
        show_default=True,
        metavar="N",
        help=f"With --metrics-by: the N topics with the largest figures; {OTHER_TOPICS} has "
        "the sum of the others.",
    ),
)


def publish_metrics(
    request: MetricsRequest, command: str, labels: Mapping[str, str], gauges: Iterable[GaugeSamples]
) -> None:
    """Publish gauges and the time of success, if asked for; PublishError if that fails.

    `labels` are added to every sample: they tell archives apart.
    """
    from kip33.stores.own_files import publish_or_raise

    if request.metrics_file is None:
        return
    _require_metrics_place(request.metrics_file)
    name, now_s = f"{command}_last_success_timestamp_seconds", current_ms() / 1_000
    success = GaugeSamples(name, "When the command was last done.", [({}, now_s)])
    text = metrics_text(command, labels, [*gauges, success])
    what = "the run is complete, only its metrics are missing"
    publish_or_raise(request.metrics_file, text, what)


def metrics_text(command: str, labels: Mapping[str, str], gauges: Iterable[GaugeSamples]) -> bytes:
    """Return the file: a comment, then the gauges."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    for gauge in gauges:
        names = [*labels, *(gauge.samples[0][0] if gauge.samples else ())]
        made = Gauge(f"kip33_{gauge.name}", gauge.help, names, registry=registry)
        for own, value in gauge.samples:
            made.labels(*labels.values(), *own.values()).set(value)
    return METRICS_START + f"{command}\n".encode() + generate_latest(registry)


def topic_gauges(
    request: MetricsRequest,
    figures: Mapping[str, Mapping[str, float]],
    helps: Mapping[str, str],
    largest: Collection[str] = (),
) -> list[GaugeSamples]:
    """Return a gauge for each figure with a sample for each topic, the largest topics only.

    `figures` has the figures of each topic by the gauges' names, as `helps` has what they say.
    Topics are ordered by their figures, the first of `helps` first. The others are summed;
    of the gauges in `largest` they have the maximum.
    """
    if request.metrics_by is None:
        return []
    ordered = sorted(figures, key=lambda topic: (*(-figures[topic][n] for n in helps), topic))
    shown, others = ordered[: request.metrics_limit], ordered[request.metrics_limit :]
    gauges = []
    for name, text in helps.items():
        samples = [({"topic": topic or "?"}, figures[topic][name]) for topic in shown]
        if others:
            of_others = [figures[topic][name] for topic in others]
            rest = max(of_others) if name in largest else sum(of_others)
            samples.append(({"topic": OTHER_TOPICS}, rest))
        gauges.append(GaugeSamples(name, text, samples))
    return gauges


_BUILD: Final = {
    "build_log_bytes": ("log_bytes", "Bytes of all logs."),
    "build_index_bytes": ("index_bytes", "Bytes of the index files that are there."),
    "build_unwritten_segments": ("failed", "Segments with an index file that was not written."),
    "build_healed_segments": ("healed", "Segments whose index files had been changed or removed."),
    "build_orphaned_index_files": ("orphaned", "Index files of kip33 without a log."),
    "build_indexed_segments": ("indexed", "Segments that the build read."),
    "build_read_bytes": ("bytes_read", "Bytes that the build read from logs."),
    "build_missing_offsets": ("missing_offsets", "Offsets missing between segments."),
    "build_duration_seconds": ("seconds", "How long the build took."),
}
_RETENTION: Final = {
    "retention_partitions": ("partitions", "Partitions."),
    "retention_blocked_partitions": (
        "blocked_partitions",
        "Partitions in which an older segment keeps expired ones.",
    ),
    "retention_segments": ("segments", "Segments."),
    "retention_log_bytes": ("bytes", "Bytes of all logs."),
    "retention_deletable_segments": ("deletable_segments", "Segments that can be deleted."),
    "retention_deletable_bytes": ("deletable_bytes", "Bytes of logs that can be deleted."),
    "retention_blocked_segments": ("blocked_segments", "Expired segments that are blocked."),
    "retention_blocked_bytes": ("blocked_bytes", "Bytes of expired logs that are blocked."),
    "retention_missing_offsets": ("missing_offsets", "Offsets missing between segments."),
    "retention_duration_seconds": ("seconds", "How long the evaluation took."),
}
_UNTRUSTED: Final = ("last_modified", "unverified", "doubtful", "tiered")
_HOLES: Final = "Holes between segments, by kind."
_TOPIC_SUMS: Final = {
    "retention_topic_blocked_bytes": ("blocked_bytes", "Bytes of expired logs, blocked."),
    "retention_topic_deletable_bytes": ("deletable_bytes", "Bytes of logs that can be deleted."),
    "retention_topic_log_bytes": ("bytes", "Bytes of all logs."),
}
_MISSING: Final = "Offsets missing between segments."


def build_gauges(
    summary: Mapping[str, Any], topics: Sequence["TopicTotals"], request: MetricsRequest
) -> list[GaugeSamples]:
    """Return the gauges of a build; `topics` are read only if they are asked for."""
    from kip33.rules.offset_holes import HoleKind
    from kip33.rules.segment_summary import SegmentStatus

    figures = {
        one.topic: {
            "build_topic_damaged_segments": float(sum(one.not_ok.values())),
            "build_topic_log_bytes": float(one.log_bytes),
            "build_topic_segments": float(one.segments),
        }
        for one in topics
    }
    helps = {
        "build_topic_damaged_segments": "Segments with a status that is not ok, by topic.",
        "build_topic_log_bytes": "Bytes of logs, by topic.",
        "build_topic_segments": "Segments, by topic.",
    }
    by_status = summary["by_status"]
    return [
        _counted("build_segments", "Segments by status.", "status", SegmentStatus, by_status),
        *_plain(_BUILD, summary),
        _counted("build_holes", _HOLES, "kind", HoleKind, summary["by_hole"]),
        *topic_gauges(request, figures, helps),
    ]


def verify_gauges(
    summary: Mapping[str, Any],
    is_bad_by_topic: Iterable[tuple[str | None, bool]],
    request: MetricsRequest,
) -> list[GaugeSamples]:
    """Return the gauges of a verification, of logs or a quick one.

    `is_bad_by_topic` has the topic of each segment, or of each file with a problem, and whether it
    has one.
    """
    from kip33.formats.index_kinds import IndexKind
    from kip33.indexing.quick_verification import QuickVerdict
    from kip33.rules.index_verdict import IndexVerdict
    from kip33.rules.segment_summary import SegmentStatus

    samples = [
        (
            {"file": kind.suffix, "verdict": verdict},
            float(summary[kind.count_field].get(verdict, 0)),
        )
        for kind in IndexKind
        if kind.count_field in summary
        for verdict in dict.fromkeys([*map(str, IndexVerdict), *map(str, QuickVerdict)])
    ]
    by_status = summary.get("by_log_status", {})
    figures: dict[str, dict[str, float]] = {}
    bad = "verify_topic_problems"
    helps = {bad: "Segments, of verify quick files, whose index files have a problem, by topic."}
    if request.metrics_by is not None:
        for topic, is_bad in is_bad_by_topic:
            figures.setdefault(topic or "", {bad: 0.0})[bad] += is_bad
    return [
        GaugeSamples("verify_index_files", "Index files by verdict.", samples),
        _counted("verify_logs", "Logs by status.", "status", SegmentStatus, by_status),
        *_plain({"verify_segments": ("segments", "Segments.")}, summary),
        *topic_gauges(request, figures, helps),
    ]


def retention_gauges(
    summary: Mapping[str, Any],
    partitions: "pa.Table",
    holes: "pa.Table",
    request: MetricsRequest,
) -> list[GaugeSamples]:
    """Return the gauges of an evaluation; `partitions` and `holes` are for those by topic."""
    from kip33.rules.offset_holes import HoleKind
    from kip33.rules.suspicious_timestamps import Suspicion

    untrusted = {why: summary[f"{why}_segments"] for why in _UNTRUSTED}
    what = "Segments whose decision is less certain: file time, unverified, damaged, tiered."
    suspicious = "Segments with suspicious timestamps."
    suspicions = summary["suspicions"]
    return [
        *_plain(_RETENTION, summary),
        _counted("retention_untrusted_segments", what, "why", _UNTRUSTED, untrusted),
        _counted("retention_suspicious_segments", suspicious, "kind", Suspicion, suspicions),
        _counted("retention_holes", _HOLES, "kind", HoleKind, summary["by_hole"]),
        *_retention_topics(partitions, holes, request),
    ]


def _retention_topics(
    partitions: "pa.Table", holes: "pa.Table", request: MetricsRequest
) -> list[GaugeSamples]:
    from kip33.rules.offset_holes import HoleKind

    if request.metrics_by is None:
        return []
    missing = "retention_topic_missing_offsets"
    helps = {name: f"{text[:-1]}, by topic." for name, (_, text) in _TOPIC_SUMS.items()}
    helps = {missing: f"{_MISSING[:-1]}, by topic."} | helps
    figures: dict[str, dict[str, float]] = {}
    fields = {name: field for name, (field, _) in _TOPIC_SUMS.items()}
    for row in partitions.select(["topic", *fields.values()]).to_pylist():
        of_topic = figures.setdefault(row["topic"] or "", dict.fromkeys(helps, 0.0))
        for name, field in fields.items():
            of_topic[name] += float(row[field])
    for hole in holes.select(["topic", "missing_offsets", "hole"]).to_pylist():
        if hole["hole"] != HoleKind.FILLED:
            figures[hole["topic"]][missing] += hole["missing_offsets"]
    return topic_gauges(request, figures, helps)


def lag_gauges(lags: Sequence["GroupLag"], request: MetricsRequest) -> list[GaugeSamples]:
    """Return the gauges of lag, by group; a group's seconds are those of its worst partition."""
    from kip33.search.group_lag import LagResult

    groups: dict[str, list[GroupLag]] = {}
    for lag in lags:
        groups.setdefault(lag.group, []).append(lag)
    seconds, records, unknown, expires = [], [], [], []
    for group, rows in groups.items():
        own = {"group": group}
        times = [one.lag_ms for one in rows if one.lag_ms is not None]
        counts = [one.lag_records for one in rows if one.lag_records is not None]
        ends = [one.unread_expires_at_ms for one in rows if one.unread_expires_at_ms is not None]
        if times:
            seconds.append((own, max(times) / 1_000))
        if counts:
            records.append((own, float(sum(counts))))
        if ends:
            expires.append((own, min(ends) / 1_000))
        unknown.append((own, float(sum(one.lag_ms is None for one in rows))))
    results = Counter(str(one.result) for one in lags)
    gauges = [
        GaugeSamples("lag_seconds", "Largest lag in time of a group's partitions.", seconds),
        GaugeSamples("lag_records", "Lag of a group in offsets, over its partitions.", records),
        GaugeSamples("lag_unknown_partitions", "Partitions whose lag in time is unknown.", unknown),
        GaugeSamples(
            "lag_unread_expires_timestamp_seconds",
            "When retention may begin to delete unread records.",
            expires,
        ),
        _counted("lag_offsets", "Committed offsets by result.", "result", LagResult, results),
    ]
    return [gauge for gauge in gauges if gauge.samples] + _lag_topics(lags, request)


def _lag_topics(lags: Sequence["GroupLag"], request: MetricsRequest) -> list[GaugeSamples]:
    helps = {
        "lag_topic_seconds": "Largest lag in time of a topic's partitions and groups.",
        "lag_topic_records": "Lag in offsets, over all groups, by topic.",
        "lag_topic_unknown_partitions": "Partitions whose lag in time is unknown, by topic.",
    }
    figures: dict[str, dict[str, float]] = {}
    for lag in lags:
        of_topic = figures.setdefault(lag.topic, dict.fromkeys(helps, 0.0))
        seconds = (lag.lag_ms or 0) / 1_000
        of_topic["lag_topic_seconds"] = max(of_topic["lag_topic_seconds"], seconds)
        of_topic["lag_topic_records"] += lag.lag_records or 0
        of_topic["lag_topic_unknown_partitions"] += lag.lag_ms is None
    return topic_gauges(request, figures, helps, largest=["lag_topic_seconds"])


def _plain(fields: Mapping[str, tuple[str, str]], summary: Mapping[str, Any]) -> list[GaugeSamples]:
    return [
        GaugeSamples(name, text, [({}, float(summary[field]))])
        for name, (field, text) in fields.items()
    ]


def _counted(
    name: str, text: str, label: str, members: Iterable[str], counts: Mapping[str, int]
) -> GaugeSamples:
    """Return a gauge by the members of an enumeration, also of those that do not occur."""
    samples = [({label: str(one)}, float(counts.get(str(one), 0))) for one in members]
    return GaugeSamples(name, text, samples)
