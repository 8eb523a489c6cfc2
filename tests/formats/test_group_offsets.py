"""Committed offsets: the CSV of Kafka's tool, and what its `--describe` prints."""

import re

import pytest

from kip33.formats.kafka_configs import GroupOffset, parse_group_offsets
from tests.cases import each_case

DESCRIBED = """\

Consumer group 'billing' has no active members.

GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     HOST            CLIENT-ID
billing         orders          0          4711            4800            89              -               -               -
billing         orders          1          -               12              -               -               -               -

GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     HOST            CLIENT-ID
audit           a.b_c-d         11         0               0               0               c-1-2f9         /127.0.0.1      c-1
"""  # noqa: E501 - as the tool prints it

SHARED = """\

Share group 'my share' has no active members.

GROUP           TOPIC           PARTITION  LEADER-EPOCH  START-OFFSET  LAG
my share        orders          0          3             4711          89
my share        orders          1          -             -             -
"""

BLANKS = """\

GROUP                TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     HOST            CLIENT-ID
the billing of 2024  orders          0          4711            4800            89              -               -               -
orders 1 2 3 4 5     orders          1          7               12              5               a b-1-2f9       /127.0.0.1      a client
late                 orders          2          8               12              4               c-1             /127.0.0.1
"""  # noqa: E501 - as the tool prints it

CASES = {
    "a share group": (SHARED, [("my share", "orders", 0, 4711)]),
    "a share group of 4.0": (
        "GROUP TOPIC PARTITION START-OFFSET\ng orders 0 5\n",
        [("g", "orders", 0, 5)],
    ),
    "names with blanks": (
        BLANKS,
        [
            ("the billing of 2024", "orders", 0, 4711),
            ("orders 1 2 3 4 5", "orders", 1, 7),
            ("late", "orders", 2, 8),
        ],
    ),
    "names with blanks, columns moved": (
        "\n".join(" ".join(line.split()) for line in BLANKS.splitlines()[1:3]),
        [("the billing of 2024", "orders", 0, 4711)],
    ),
    "a client with blanks, columns moved": (
        f"{' '.join(BLANKS.splitlines()[1].split())}\nlive orders 0 1 40 39 a b-1 /127.0.0.1 a b\n",
        [("live", "orders", 0, 1)],
    ),
    "one group's export": (
        "orders,0,4711\norders,1,0\n",
        [("", "orders", 0, 4711), ("", "orders", 1, 0)],
    ),
    "several groups' export": (
        "g,orders,0,4711\nh,orders,0,5\n",
        [("g", "orders", 0, 4711), ("h", "orders", 0, 5)],
    ),
    "with a header": ("topic,partition,offset\norders,0,1\n", [("", "orders", 0, 1)]),
    "with a header and groups": (
        "group,topic,partition,offset\ng,orders,0,1\n",
        [("g", "orders", 0, 1)],
    ),
    "blanks and empty lines": (" orders , 0 , 7 \n\n", [("", "orders", 0, 7)]),
    "a quoted group": ('"a,b",orders,0,7\n', [("a,b", "orders", 0, 7)]),
    "the largest": (f"t,{2**31 - 1},{2**63 - 1}\n", [("", "t", 2**31 - 1, 2**63 - 1)]),
    "the same twice": ("t,0,7\nt,0,7\n", [("", "t", 0, 7)]),
    "--describe": (DESCRIBED, [("billing", "orders", 0, 4711), ("audit", "a.b_c-d", 11, 0)]),
    "--describe with other columns between": (
        "GROUP TOPIC PARTITION LEADER-EPOCH CURRENT-OFFSET LOG-END-OFFSET LAG\n"
        "g orders 3 7 42 50 8\n",
        [("g", "orders", 3, 42)],
    ),
}


@each_case(("text", "offsets"), CASES)
def test_offsets(text: str, offsets: list[tuple[str, str, int, int]]) -> None:
    assert parse_group_offsets(text).committed == [GroupOffset(*one) for one in offsets]


def test_partitions_without_an_offset_are_named() -> None:
    assert parse_group_offsets(DESCRIBED).without == [("billing", "orders", 1)]
    assert parse_group_offsets(SHARED).without == [("my share", "orders", 1)]
    idle = "GROUP TOPIC PARTITION CURRENT-OFFSET\nidle - - -\ng t 0 5\n"
    assert parse_group_offsets(idle).without == [("idle", "", 0)]


WRONG = {
    "nothing": ("", "no offsets found, expected lines of topic,partition,offset"),
    "two columns": ("orders,0\n", "line 1: 2 columns found, expected topic,partition,offset"),
    "three columns, then four": ("t,0,1\ng,t,1,1\n", "line 2: 4 columns found, but 3 above"),
    "another header": ("topic,part,offset\n", "line 1: partition 'part' found, expected a number"),
    "members described": (
        "GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS\ng c-1 /127.0.0.1 c 2\n",
        "line 1: 1 columns found, expected",
    ),
    "no number": ("orders,0,5\norders,1,x\n", "line 2: offset 'x' found, expected a number up to"),
    "a negative offset": ("orders,0,-1\n", "line 1: offset '-1' found, expected a number up to"),
    "a partition too large": (
        f"orders,{2**31},1\n",
        f"line 1: partition '{2**31}' found, expected a number",
    ),
    "no topic": (",0,1\n", "line 1: the topic is empty"),
    "two offsets of one partition": ("t,0,7\nt,0,8\n", "line 2: t-0 has offset 8, but 7 above"),
    "a line cut short": (DESCRIBED[:-40], "line 9: 6 cells found, expected 9"),
    "only groups without offsets": (
        "GROUP TOPIC PARTITION CURRENT-OFFSET\ng t 0 -\n",
        "no offsets found, expected",
    ),
}


@each_case(("text", "says"), WRONG)
def test_a_line_without_an_offset_is_named(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_group_offsets(text)
