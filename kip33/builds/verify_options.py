"""The options of a verification, and its plan.

They are not in `indexing`, because files with topics' settings are read here (`build_options`).
"""

from typing import TYPE_CHECKING, Annotated, TypedDict

from kip33.archive import common_options as common
from kip33.archive.moments import time_ms
from kip33.builds.build_options import load_topic_settings
from kip33.formats.times import Time, milliseconds_of
from kip33.options import Option
from kip33.rules.index_builder import IndexSettings
from kip33.rules.packing import DailyShare
from kip33.stores.progress import OnProgress

if TYPE_CHECKING:
    from kip33.indexing.verify_tree import VerifyPlan


class VerifyOptions(TypedDict, total=False):
    """Which segments are verified, and how their index files were made."""

    share: Annotated[
        str | None,
        Option(
            "Verify another seventh of the segments each day, all of them within 7 days.",
            metavar="1/7",
            parse=lambda text: str(DailyShare.of(text)),
            python="Such as `1/7`: verify another seventh of the segments each day.",
        ),
    ]
    as_of: Annotated[
        Time | None,
        Option(
            "With --share: choose the share of this day, in UTC [default: today].",
            metavar="DATE",
            parse=time_ms,
        ),
    ]
    layout: common.LayoutName
    topics: common.TopicGlobList
    dialect: common.ReadDialect
    untimestamped: common.UntimestampedRule
    index_interval_bytes: common.IndexIntervalBytes
    segment_index_bytes: common.SegmentIndexBytes
    kafka_configs: common.TopicConfigsFile
    check_crc: common.ChecksCrc


class VerifyRequest(VerifyOptions):
    """What a verification is asked."""

    source: str  # a path or URI, like the next
    index_dir: str | None  # None: the index files are beside the logs


def plan_request(
    request: VerifyRequest, *, now_ms: int | None = None, on_progress: OnProgress
) -> "VerifyPlan":
    """Return the plan of a verification; `now_ms` is in the day of a share without `as_of`.

    Raises LocationError for a missing directory or one without segments, PolicyError for a wrong
    `kafka_configs`, ValueError for a wrong argument.
    """
    from kip33.indexing.verify_tree import plan_verify

    share, as_of = request["share"], request["as_of"]
    if as_of is not None:
        now_ms = milliseconds_of(as_of)
        if share is None:
            raise ValueError("as_of requires share")
    if share is not None and now_ms is None:
        raise ValueError("share requires as_of: no clock is read here")
    return plan_verify(
        request["source"],
        request["index_dir"],
        settings=load_topic_settings(IndexSettings.of(request), request["kafka_configs"]),
        topics=request["topics"],
        layout=request["layout"],
        share=None if share is None else DailyShare.of(share),
        now_ms=now_ms or 0,
        on_progress=on_progress,
    )
