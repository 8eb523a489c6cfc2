"""The golden set: the demo, every command in its forms, wrong usage, segments of real brokers.

A section runs in a folder of its own choice; `prepare` makes what several sections need. A line is
what follows `kip33` on a command line.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from kip33.cli.main import COMMANDS
from kip33.demo import COPIED_MS, START_MS, make_archive, make_sensors, orders, write
from tests.builders.damaged_indexes import random_case
from tests.builders.damaged_logs import damaged as damaged_log
from tests.builders.layouts import WRITERS, Stored
from tests.builders.random_partitions import random_partitions
from tests.formats.real_segments import FOLDER as REAL_SEGMENTS

PROJECT: Final = Path(__file__).parents[2]
DAY_MS: Final = 86_400_000
NOON: Final = START_MS + DAY_MS // 2
NOW: Final = "--now 2023-12-01"
ZEROS: Final = "00000000000000000000"
DEMO: Final = ".demo"  # as in the Makefile

Run = Callable[[str], None]


def prepare(folder: Path) -> None:
    """Make ./work with archives and the files that options name."""
    work = folder / "work"
    work.mkdir()
    os.chdir(work)
    make_archive(work / "archive")
    make_sensors(work / "archive")
    for copy in ("in-place", "later", "expiring", "trashed"):
        shutil.copytree("archive", copy)
    write(work / "second", "broker-9/orders-0", 7000, orders(7000, START_MS, 300))
    write(work / "second", "broker-9/payments-0", 50, orders(50, START_MS, 10))
    write(work / "second", "broker-9/payments-1", 50, orders(50, START_MS, 10))
    write(work / "second", "broker-9/sensors-1", 0, orders(0, START_MS, 100))
    _make_layouts(work / "layouts")
    for name, text in FILES.items():
        Path(name).write_text(text)


FILES: Final = {
    "policy.toml": (PROJECT / "conf/retention.toml").read_text(),
    "kip33.toml": 'index-interval-bytes = 1024\n[build]\noffset-index = true\ntopics = ["pay*"]\n',
    "wrong.toml": "[build]\nno-such-option = 1\n",
    "topics.txt": "Topic: orders\tPartitionCount: 1\tReplicationFactor: 2\t"
    "Configs: index.interval.bytes=1000,retention.ms=172800000,cleanup.policy=delete\n",
    "requests.csv": f"topic,partition,time,log_dir\nsensors,,earliest,\n"
    f"orders,0,{START_MS + DAY_MS},broker-2\norders,7,latest,\nnone,0,2023-11-15,\n"
    "metrics,0,0,\npayments,0,2024-01-01,\nsensors,0,max-timestamp,\n",
    "offsets.csv": "group,topic,partition,offset\nb,orders,0,27\na,sensors,1,107\n"
    "a,orders,0,8500\na,clicks,3,0\na,metrics,0,0\na,payments,0,200\na,audit.v1,0,29\n"
    "a,none,0,5\nc,orders,0,9999\na,sensors,2147483647,5\n",
    "conflicting.csv": "group,topic,partition,offset\na,orders,0,27\na,orders,0,28\n",
    "described.txt": "\nConsumer group 'billing' has no active members.\n\n"
    "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID\n"
    "billing sensors 1 107 1200 1093 - - -\nbilling clicks 3 - 0 - - - -\n",
    "starts.csv": "topic,partition,offset,log_dir\norders,0,4000,broker-1\n",
}


def _make_layouts(root: Path) -> None:
    names = (("payments", 0), ("audit.v1", 0), ("orders", 0))
    stored = [
        Stored(topic, number, int(log.stem), log.read_bytes())
        for topic, number in names
        for log in sorted(Path(f"archive/broker-1/{topic}-{number}").glob("*.log"))
    ]
    for name, (_, write_all, _) in WRITERS.items():
        write_all(root / name.replace(" ", "-"), stored)


def demo(run: Run) -> None:
    """Run `make demo`: its kip33 commands are recorded, its others prepare them."""
    Path("demo").mkdir()
    os.chdir("demo")
    shutil.copytree(PROJECT / "conf", "conf")
    for line in _demo_lines():
        program, _, arguments = line.partition(" ")
        if program == "$(BIN)/kip33":
            run(shlex.join(shlex.split(arguments, comments=True)))
        elif "spark-submit" in line:  # the command does the same without its start
            run(shlex.join(["build", *shlex.split(line.partition(".py ")[2], comments=True)]))
        else:
            subprocess.run(
                ["bash", "-ec", line.replace("$(BIN)/python", sys.executable)],
                check=True,
                stdout=subprocess.DEVNULL,
            )


def _demo_lines() -> Iterator[str]:
    makefile = (PROJECT / "Makefile").read_text().replace("\\\n", " ")
    _, _, recipe = makefile.partition("\ndemo:")
    recipe, _, _ = recipe.partition("\n\n")
    for line in recipe.splitlines()[1:]:
        yield line.lstrip("\t@").replace("$(DEMO)", DEMO)


def helps(run: Run) -> None:
    """Ask for every help text."""
    for line in ("", "-h", "--version", *(f"{name} --help" for name in COMMANDS)):
        run(line)


def builds(run: Run) -> None:
    """Build in every form; later sections read what these leave."""
    os.chdir("work")
    run("build archive --index-dir plain")
    run("build archive --index-dir plain")
    run("build archive --index-dir plain --full --format json --fail-on truncated")
    run("build archive --index-dir indexes --offset-index --format json --summary build.json")
    run("build archive --index-dir own --dialect kip33 --format jsonl --fail-on unwritten")
    live = "--dialect live --index-interval-bytes 512 --no-check-crc"
    run(f"build archive --index-dir live {live} --topic 'orders*' --topic '!sens*'")
    run("build archive --index-dir configured --kafka-configs topics.txt --offset-index --no-fsync")
    run("build archive --index-dir defaults --config kip33.toml --format json")
    run("build archive --index-dir plain --catalog elsewhere --segment-index-bytes 120")
    in_place = "build in-place --in-place --catalog in-place-catalog --offset-index"
    run(f"{in_place} --format json")
    run(f"{in_place} --only damaged --overwrite")
    run("build in-place --index-dir tail --read tail --format json")
    run("build in-place --index-dir tail --read tail")
    run("build in-place --index-dir tail-too --read tail --offset-index --format json")
    run("build second --index-dir second-indexes --format json --parallelism 1")


def verifications(run: Run) -> None:
    """Verify a tree and single files."""
    os.chdir("work")
    run("verify archive")
    run("verify archive --index-dir indexes --format json --summary verify.json")
    run("verify archive --index-dir indexes --format jsonl --topic 'orders*'")
    run("verify archive --index-dir own --dialect kip33")
    run("verify archive --index-dir own")
    run("verify archive --index-dir live --index-interval-bytes 512 --no-check-crc")
    run("verify archive --index-dir configured --kafka-configs topics.txt --format json")
    run("verify in-place --fail-on missing --fail-on wrong")
    run("verify archive --fail-on padded --format json --summary exit-3.json")
    log = f"archive/broker-2/orders-0/{ZEROS}"
    for form in ("table", "json", "jsonl"):
        run(f"verify {log}.log --index-dir indexes/broker-2/orders-0 --format {form}")
    run(f"verify {log}.timeindex --fail-on wrong")
    run(f"verify {log}.index --format json")
    run(f"verify in-place/broker-1/payments-0/{ZEROS}.txnindex")
    run(f"verify in-place/broker-1/payments-0/{ZEROS}.log")
    run(f"verify archive/broker-2/clicks-1/{ZEROS}.log --format json")


def dumps(run: Run) -> None:
    """Show logs and index files."""
    os.chdir("work")
    for partition in ("orders-0", "payments-0", "audit.v1-0"):
        log = f"archive/broker-1/{partition}/{ZEROS}.log"
        run(f"dump {log}")
        run(f"dump {log} --format jsonl")
        run(f"dump {log} --records")
    run(f"dump archive/broker-1/audit.v1-0/{ZEROS}.log --records --format jsonl")
    run(f"dump archive/broker-1/payments-0/{ZEROS}.log --records --format jsonl")
    run(f"dump archive/broker-1/orders-0/{ZEROS[:-4]}4000.log --records --max-batch-bytes 100")
    for partition in range(4):
        run(f"dump archive/broker-2/clicks-{partition}/{ZEROS}.log")
    for kind in ("timeindex", "index", "txnindex"):
        file = f"in-place/broker-1/payments-0/{ZEROS}.{kind}"
        run(f"dump {file}")
        run(f"dump {file} --format jsonl")
    run(f"dump archive/broker-1/orders-0/{ZEROS[:-4]}4000.timeindex")
    run(f"dump archive/broker-2/orders-0/{ZEROS}.timeindex")
    run(f"dump own/broker-1/orders-0/{ZEROS}.timeindex --dialect kip33")
    run(f"dump indexes/broker-1/orders-0/{ZEROS}.timeindex archive/broker-2/metrics-0/{ZEROS}.log")


def layouts(run: Run) -> None:
    """Build and verify an archive in each layout; search one of them."""
    os.chdir("work")
    for name, (layout, _, _) in WRITERS.items():
        folder = name.replace(" ", "-")
        source = f"layouts/{folder} --layout {shlex.quote(layout)}"
        form = "json" if "aiven" in name else "table"
        run(f"build {source} --index-dir {folder}-indexes --offset-index --format {form}")
    run("verify layouts/aiven-zstd --layout aiven --index-dir aiven-zstd-indexes --format json")
    run("verify layouts/aiven-raw --layout aiven --format json")
    run("verify layouts/hdfs-files --layout hdfs-rsm")
    for folder in ("aiven-zstd", "hdfs-both", "local-tiered"):
        run(f"search {folder}-indexes/_catalog --time {NOON} --format jsonl")


def catalogs(run: Run) -> None:
    """Build as an archive changes; show snapshots, what changed, and remove old ones."""
    os.chdir("work")
    build = "build later --index-dir later-indexes --offset-index"
    run(build)
    for log in Path("later/broker-2/clicks-0").glob("*.log"):
        log.unlink()
    write(Path("later"), "broker-1/orders-0", 8500, orders(8500, START_MS + 3 * DAY_MS, 20))
    grown = Path(f"later/broker-1/payments-0/{ZEROS}.log")
    grown.write_bytes(grown.read_bytes() + b"torn")
    run(f"{build} --format json")
    run(f"{build} --topic orders --format jsonl")
    run(build)
    for form in ("table", "json", "jsonl"):
        run(f"catalog later-indexes/_catalog --format {form}")
        run(f"catalog later-indexes/_catalog --snapshot 1 --format {form}")
        run(f"catalog diff later-indexes/_catalog 1 2 --format {form}")
        run(f"catalog diff later-indexes/_catalog 2 4 --format {form}")
    run("catalog snapshots later-indexes/_catalog --path")
    run("catalog snapshots later-indexes/_catalog --path --snapshot 1")
    run("catalog prune later-indexes/_catalog --keep 3")
    _make_old(Path("later-indexes/_catalog"))
    run("catalog prune later-indexes/_catalog --keep 3")
    run("catalog prune later-indexes/_catalog --keep 2 --format json")
    run("catalog prune later-indexes/_catalog --keep 1 --format jsonl")
    run("catalog later-indexes/_catalog")


def _make_old(catalog: Path) -> None:
    """Let every snapshot be of the year 2023, so that --keep removes some."""
    for commit in catalog.glob("commits/*.json"):
        lines = commit.read_text().splitlines(keepends=True)
        commit.write_text(
            "".join(
                f' "created_ms": {COPIED_MS},\n' if '"created_ms"' in line else line
                for line in lines
            )
        )
    for path in catalog.rglob("*"):
        os.utime(path, ns=(0, COPIED_MS * 1_000_000))


def searches(run: Run) -> None:
    """Find offsets for times."""
    os.chdir("work")
    search = "search indexes/_catalog"
    noon = f"{search} --time 2023-11-15T12:00Z"
    for form in ("table", "json", "jsonl", "csv"):
        run(f"{noon} --format {form}")
        run(f"{search} --requests requests.csv --format {form}")
    for time in ("earliest", "latest", "max-timestamp", "-3h", "0", "2030-01-01", str(START_MS)):
        run(f"{search} --time={time} --now {NOON} --format jsonl")
    for emit in ("reset-offsets", "spark", "delete-records"):
        run(f"{noon} --emit {emit}")
        run(f"{noon} --emit {emit} --allow-unsafe --topic 'orders*' --topic 'sens*'")
    run(f"{noon} --until 2023-11-16T12:00Z --format jsonl")
    run(f"{noon} --until 2023-11-16T12:00Z --topic orders")
    for version in ("kafka", "kafka:3.7", "kafka:3.0"):
        run(f"{noon} --time max-timestamp --as {version} --format jsonl")
    run(f"{search} --time earliest --as kafka --log-start-offsets starts.csv --topic orders")
    run(f"{noon} --index-only --format jsonl")
    run(f"{noon} --all-replicas --topic orders --partition 0")
    run(f"{noon} --snapshot 1 --max-batch-bytes 100 --format jsonl")
    run(f"{noon} --topic 'sens*' --topic orders --master 'local[2]' --format jsonl")
    run(f"{search} --time earliest --topic nothing")
    run(f"search plain/_catalog --time {NOON}")
    run(f"search own/_catalog --time {NOON} --format jsonl")
    run(f"search tail/_catalog --time {NOON} --format jsonl")


def lags(run: Run) -> None:
    """Ask how far groups are behind."""
    os.chdir("work")
    for form in ("table", "json", "jsonl", "csv"):
        run(f"lag indexes/_catalog --offsets offsets.csv {NOW} --format {form}")
    lag = f"lag indexes/_catalog --offsets described.txt {NOW}"
    run(f"{lag} --policy policy.toml")
    run(f"{lag} --policy policy.toml --retention-ms 3d --format jsonl")
    run(f"{lag} --kafka-configs topics.txt --snapshot 1 --format jsonl")


def failovers(run: Run) -> None:
    """Ask where groups go on, on another cluster."""
    os.chdir("work")
    catalogs = "--from indexes/_catalog --to second-indexes/_catalog"
    for form in ("table", "json", "jsonl", "csv"):
        run(f"failover {catalogs} --offsets offsets.csv --buffer 3m --format {form}")
    run(f"failover {catalogs} --offsets offsets.csv --buffer 1d --emit reset-offsets")
    run(f"failover {catalogs} --offsets described.txt --buffer 0s --format jsonl")


def retentions(run: Run) -> None:
    """Judge by retention, plan, and carry plans out."""
    os.chdir("work")
    judge = f"retention indexes/_catalog --policy policy.toml {NOW}"
    run(f"{judge} --fail-on blocked --summary retention.json")
    run(f"{judge} --forecast 2d --format jsonl")
    run(f"{judge} --at 2023-11-20,2023-12-01 --ignore-future 1h --format json")
    run(f"{judge} --format csv")
    run(f"{judge} --emit delete-records")
    run(f"{judge} --show-broker-view --format jsonl")
    run(f"{judge} --active-segment kafka --broker-version 4.2 --retention-ms 1d --topic 'orders*'")
    run(f"retention indexes/_catalog --kafka-configs topics.txt {NOW} --topic orders")
    run(f"{judge} --log-start-offsets starts.csv --output results --at 2023-12-01")
    run(f"{judge} --output results")
    for name, trash in (("expiring", ""), ("trashed", " --trash trash")):
        build = f"build {name} --index-dir {name}-indexes --offset-index --format json"
        run(build)
        judge = f"retention {name}-indexes/_catalog --policy policy.toml {NOW} --ignore-future 1h"
        apply = f"retention apply {name}.jsonl{trash}"
        run(f"{judge} --plan {name}.jsonl --trust-last-modified")
        run(f"{apply} --limit 1KiB")
        for form in ("table", "json", "jsonl"):
            run(f"{apply} --dry-run --format {form}")
        gone = Path(f"{name}/broker-1/orders-0/{ZEROS}.log")
        gone.write_bytes(gone.read_bytes() + b"changed")
        run(f"{apply} --fail-on stopped --summary {name}.json" + " --format json" * bool(trash))
        run(f"{apply} --format jsonl")
        run(build)
        run(f"catalog diff {name}-indexes/_catalog 1 2")


def wrong_usage(run: Run) -> None:
    """Ask for what is refused."""
    os.chdir("work")
    for line in WRONG_USAGE:
        run(line)


WRONG_USAGE: Final = (
    "nothing",
    "--nothing",
    *COMMANDS,
    "build archive",
    "build ftp://host/logs --index-dir x",
    "build archive --index-dir x --in-place",
    "build archive --in-place --catalog archive/broker-1/c",
    "build archive --index-dir x --topic 'nothing*'",
    "build archive --index-dir x --config wrong.toml",
    "build second --index-dir plain",
    "verify archive --index-dir nowhere",
    "dump topics.txt",
    "catalog nowhere",
    "catalog indexes/_catalog --snapshot 99",
    "search indexes/_catalog",
    "search indexes/_catalog --time yesterday",
    "search indexes/_catalog --requests topics.txt",
    "lag indexes/_catalog --offsets conflicting.csv",
    "failover --from indexes/_catalog --to nowhere --offsets offsets.csv --buffer 1m",
    "retention indexes/_catalog",
    "retention indexes/_catalog --policy topics.txt",
    "retention indexes/_catalog --retention-ms 7d --at 2023-12-01 --forecast 3d",
    "retention indexes/_catalog --policy policy.toml --output archive",
    "retention apply offsets.csv",
    "repair topics.txt",
)


def real_segments(run: Run) -> None:
    """Build, verify and show segments that real brokers wrote, where this machine has them."""
    if not REAL_SEGMENTS.is_dir():
        print(f"no segments of real brokers in {REAL_SEGMENTS}: they are not recorded")
        return
    shutil.copytree(REAL_SEGMENTS, "segments")  # the same path in every checkout
    run("build segments --index-dir real --offset-index --format json")
    run("build segments --index-dir real --offset-index")
    run("verify segments --format jsonl")
    run("verify segments --index-dir real --format json")
    run(f"retention real/_catalog --retention-ms 7d {NOW} --format jsonl")
    run("search real/_catalog --time max-timestamp --format jsonl")
    for log in sorted(Path("segments").rglob("*.log")):
        run(f"dump {log}")
    for root in ("segments", "real"):
        files = sorted(Path(root).rglob("*index"))
        run(f"dump --format jsonl {' '.join(map(str, files))}")


def random_archive(run: Run) -> None:
    """Run each command on random partitions with every kind of damage, on both engines."""
    os.chdir("work")
    _make_random_archive(Path("random"))
    for engine in ("local", "spark"):
        index_dir, catalog = f"random-{engine}", f"random-{engine}/_catalog"
        how = f"--engine {engine}"
        run(f"build random --index-dir {index_dir} --offset-index {how} --format json")
        run(f"build random --index-dir {index_dir} --offset-index {how}")
        run(f"verify random --index-dir {index_dir} {how} --format jsonl")
        run(f"verify random {how} --format jsonl")
        run(f"retention {catalog} --retention-ms 1h --now 2023-11-15 {how} --format jsonl")
        run(f"retention {catalog} --policy policy.toml {NOW} {how} --format json")
        run(f"roll {catalog} --segment-ms 1h --now 2023-11-15 {how} --format jsonl")
        run(f"roll what-if random --segment-ms 1h --segment-bytes 1KiB {how} --format jsonl")
        run(f"timestamps {catalog} {how} --clock now --now 2023-12-01 --format jsonl")
        run(f"dialects random {how} --format jsonl")
        for time in ("earliest", "max-timestamp", "2023-11-14T20:00Z"):
            run(f"search {catalog} --time {time} {how} --format jsonl")
    run("records random-local/_catalog --format jsonl")
    run("count random --per 1h --format jsonl")
    run("catalog holes random-local/_catalog --format jsonl")
    run("catalog random-local/_catalog --format json")
    run("restore random --to random-broker --dry-run --format json")
    run("restore random --to random-broker --allow-holes")
    run("repair random --format json")
    run("repair random --apply")
    for partition in sorted(Path("random-broker").glob("t*-*")):
        run(f"truncate {partition} --to 20 --format json")


def _make_random_archive(root: Path) -> None:
    """Write random partitions; of half of them a log and its index files are damaged."""
    chance = Random("a golden set")
    for partition in random_partitions(seed="a golden set", count=24):
        directory = (
            root
            / f"broker-{partition.number % 2}"
            / f"t{partition.number // 6}-{partition.number % 6}"
        )
        partition.write_to(directory)
        for log in sorted(directory.glob("*.log")):
            if chance.random() < 0.3 and log.stat().st_size:
                log.write_bytes(damaged_log(chance, log.read_bytes()))
            case = random_case(f"a golden set, {partition.number}, {log.stem}")
            if chance.random() < 0.5:
                log.with_suffix(".timeindex").write_bytes(case.time_index)
                log.with_suffix(".index").write_bytes(case.offset_index)
            for file in directory.glob(f"{log.stem}.*"):
                os.utime(file, (COPIED_MS / 1000, COPIED_MS / 1000))


SECTIONS: Final[tuple[Callable[[Run], None], ...]] = (
    demo,
    helps,
    builds,
    verifications,
    dumps,
    layouts,
    catalogs,
    searches,
    lags,
    failovers,
    retentions,
    wrong_usage,
    random_archive,
    real_segments,
)
"""In this order: a section reads what those before it leave."""
