"""`--metrics FILE.prom`: a run's figures in the text format of Prometheus, published whole."""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import click

if TYPE_CHECKING:
    from kip33.stores.locations import Location

METRICS_SUFFIX: Final = ".prom"
METRICS_START: Final = b"# kip33 "  # a comment, by which the file is recognized
OTHER_TOPICS: Final = "(other)"  # no topic of Kafka has this name
_HEAD_BYTES: Final = 256
_Command = TypeVar("_Command", bound=Callable[..., Any])


class GaugeSamples(NamedTuple):
    """A gauge: its name without `kip33_`, what it says, and its values by their labels."""

    name: str
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]


class MetricsRequest(NamedTuple):
    """The options of --metrics."""

    place: "Location | None"
    by_topic: bool
    most_topics: int

    @property
    def asks_for_topics(self) -> bool:
        """Return whether gauges by topic are to be written."""
        return self.place is not None and self.by_topic


def metrics_options(command: _Command) -> _Command:
    """Add --metrics, --metrics-by and --metrics-limit; the command gets a MetricsRequest.

    A wrong place, or a file that must not be replaced, is an error before the work begins.
    """

    @functools.wraps(command)
    def checked(*args: Any, **options: Any) -> Any:
        names = ("metrics_file", "metrics_by", "metrics_limit")
        place, by, most = (options.pop(name) for name in names)
        if by and place is None:
            raise click.UsageError("--metrics-by requires --metrics", click.get_current_context())
        _require_metrics_place(place)
        return command(*args, **options, metrics=MetricsRequest(place, bool(by), most))

    for option in (
        click.option(
            "--metrics-limit",
            type=click.IntRange(1, 10_000),
            default=50,
            show_default=True,
            metavar="N",
            help=f"With --metrics-by: the N topics with the largest figures; {OTHER_TOPICS} has "
            "the sum of the others.",
        ),
        click.option(
            "--metrics-by",
            type=click.Choice(["topic"]),
            help="With --metrics: also write gauges by topic.",
        ),
        click.option(
            "--metrics",
            "metrics_file",
            metavar="FILE",
            callback=_place,
            help="Write figures of the run to FILE (*.prom), in the text format of Prometheus, "
            "for node_exporter or a Pushgateway. Written when the command is done, also "
            "before an exit 3. Replaces FILE only if kip33 wrote it.",
        ),
    ):
        checked = option(checked)
    return cast("_Command", checked)


def _place(ctx: click.Context, param: click.Parameter, text: str | None) -> "Location | None":
    from kip33.stores.locations import Location, without_secrets

    if text is None:
        return None
    if not text.endswith(METRICS_SUFFIX):
        raise click.BadParameter(
            f"{without_secrets(text)!r} found, expected a name that ends in {METRICS_SUFFIX}"
        )
    return Location.of(text)


def _require_metrics_place(place: "Location | None") -> None:
    from kip33.archive.output_files import require_replaceable

    if place:
        is_ours = METRICS_START.__eq__  # of the first bytes
        require_replaceable(
            place, "--metrics", lambda head: is_ours(head[: len(METRICS_START)]), _HEAD_BYTES
        )


def publish_metrics(
    request: MetricsRequest, command: str, labels: Mapping[str, str], gauges: Iterable[GaugeSamples]
) -> None:
    """Publish gauges and the time of success, if asked for; PublishError if that fails.

    `labels` are added to every sample: they tell archives apart.
    """
    from kip33.stores.own_files import publish_or_raise

    if request.place is None:
        return
    _require_metrics_place(request.place)
    text = metrics_text(command, labels, [*gauges, _success(command)])
    publish_or_raise(request.place, text, "the run is complete, only its metrics are missing")


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


def _success(command: str) -> GaugeSamples:
    from kip33.cli.times import current_ms

    name = f"{command}_last_success_timestamp_seconds"
    return GaugeSamples(name, "When the command was last done.", [({}, current_ms() / 1_000)])


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
    if not request.asks_for_topics:
        return []
    ordered = sorted(figures, key=lambda topic: (*(-figures[topic][n] for n in helps), topic))
    shown, others = ordered[: request.most_topics], ordered[request.most_topics :]
    gauges = []
    for name, text in helps.items():
        samples = [({"topic": topic or "?"}, figures[topic][name]) for topic in shown]
        if others:
            of_others = [figures[topic][name] for topic in others]
            rest = max(of_others) if name in largest else sum(of_others)
            samples.append(({"topic": OTHER_TOPICS}, rest))
        gauges.append(GaugeSamples(name, text, samples))
    return gauges
