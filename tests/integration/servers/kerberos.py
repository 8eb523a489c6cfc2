"""A realm of Kerberos on loopback, Hadoop's own KDC, and what puts an HDFS into it.

    with Realm(tmp_path / "realm") as realm:
        server = HdfsServer(tmp_path / "hdfs", **secured(realm))
        environment = realm.environment | {"KRB5CCNAME": str(realm.ticket("alice"))}

There is no `kinit` here. hdfs-native needs libgssapi_krb5, which it loads.
"""

import ctypes
import os
import select
import subprocess
from ctypes.util import find_library
from pathlib import Path
from typing import Any, Final, Self

from tests.integration.servers.hdfs import HADOOP_VERSION, JVM, HdfsServer, hadoop_jars
from tests.integration.servers.maven import resolved_jars
from tests.integration.servers.processes import (
    ServerError,
    ServerMissingError,
    free_port,
    require_program,
    started,
)

PROJECT = Path(__file__).with_name("kerberos")
LOG = f"-Dlog4j.configuration=file:{Path(__file__).with_name('hdfs') / 'log4j.properties'}"
REALM: Final = "EXAMPLE.COM"  # MiniKdc's
SUPERUSER: Final = "hdfs/localhost"  # what all servers log in as
ANSWERS_WITHIN_S = 600
KRB5_CONF = """[libdefaults]
    default_realm = {realm}
    udp_preference_limit = 1
    dns_canonicalize_hostname = false
    rdns = false
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
"""


def require_gssapi() -> None:
    """Raise ServerMissingError unless hdfs-native finds the library that it loads for Kerberos."""
    try:
        ctypes.CDLL(find_library("gssapi_krb5") or "libgssapi_krb5.so.2")
    except OSError as error:
        raise ServerMissingError(f"{error} (Debian: apt-get install libgssapi-krb5-2)") from error


class Realm:
    """A KDC, its files in `folder`; principals live as long as it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.krb5_conf = folder / "krb5.conf"
        self.java_options = [f"-Djava.security.krb5.conf={self.krb5_conf}"]  # for KRB5_CONFIG
        self._port = free_port()
        self._log = folder / "kdc.log"
        self._process: subprocess.Popen[str] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Return what a client must know of the realm; it has neither ticket nor keys."""
        return {
            "KRB5_CONFIG": str(self.krb5_conf),
            "JAVA_TOOL_OPTIONS": " ".join(self.java_options),
            "KRB5CCNAME": str(self.folder / "none.ccache"),
            "KRB5_CLIENT_KTNAME": str(self.folder / "none.keytab"),
        }

    def start(self) -> Self:
        """Start it and return it once it answers; ServerMissingError where a part is missing."""
        require_gssapi()
        require_program("java")
        jars = resolved_jars(PROJECT, f"hadoop-minikdc-{HADOOP_VERSION}")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.krb5_conf.write_text(KRB5_CONF.format(realm=REALM, port=self._port))
        command = [
            *(*JVM, LOG, "-cp", f"{jars}/*", str(PROJECT / "Kdc.java")),
            *(str(self.folder), str(self._port)),
        ]
        self._process = started(command, self._log, self.folder)
        self._expect("ready")
        return self

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def keytab(self, principal: str) -> Path:
        """Return a file with the keys of a principal, which the first call makes."""
        file = self.folder / f"{principal.replace('/', '-')}.keytab"
        if not file.exists():
            self._order(f"keytab {file} {principal}")
        return file

    def ticket(self, principal: str) -> Path:
        """Return a ticket cache with a new ticket of a principal, as kinit leaves one."""
        file = self.folder / f"{principal.replace('/', '-')}.ccache"
        self._order(f"ticket {file} {principal} {self.keytab(principal)}")
        return file

    def _order(self, command: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self._expect("done")

    def _expect(self, answer: str) -> None:
        assert self._process is not None and self._process.stdout is not None
        said = "nothing"
        if select.select([self._process.stdout], [], [], ANSWERS_WITHIN_S)[0]:
            said = self._process.stdout.readline().strip()
        if said != answer:
            self.stop()
            logged = self._log.read_text(errors="replace")
            raise ServerError(f"the KDC says {said!r}, not {answer!r}: {logged[-2000:]}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def secured(realm: Realm) -> dict[str, Any]:
    """Return the arguments of an `HdfsServer` that knows only who is of the realm.

    Whatever goes to name nodes, data nodes and YARN is encrypted.
    """
    keytab, principal = str(realm.keytab(SUPERUSER)), f"{SUPERUSER}@{REALM}"
    properties = {
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": "true",
        "hadoop.rpc.protection": "privacy",
        "dfs.data.transfer.protection": "privacy",
        "dfs.block.access.token.enable": "true",
        "dfs.namenode.kerberos.principal": principal,
        "dfs.namenode.keytab.file": keytab,
        "dfs.datanode.kerberos.principal": principal,
        "dfs.datanode.keytab.file": keytab,
        "yarn.resourcemanager.principal": principal,
        "yarn.resourcemanager.keytab": keytab,
        "yarn.nodemanager.principal": principal,
        "yarn.nodemanager.keytab": keytab,
        # A data node would insist on certificates for its web pages. Who asks for bytes has to log
        # in all the same: `test_data_nodes_want_a_login`.
        "ignore.secure.ports.for.testing": "true",
    }
    return {"properties": properties, "java_options": realm.java_options}


def fetchdt(server: HdfsServer, realm: Realm, ticket_cache: Path, *arguments: str | Path) -> None:
    """Run `hdfs fetchdt`, Hadoop's own tool for files of delegation tokens.

    `-fs URI FILE` has the name nodes of a URI give one, `--cancel FILE` ends it.
    """
    command = [
        *(*JVM, *realm.java_options, LOG, "-cp", f"{server.conf_dir}:{hadoop_jars()}/*"),
        *("org.apache.hadoop.hdfs.tools.DelegationTokenFetcher", *arguments),
    ]
    tool = subprocess.run(
        command,
        env=os.environ | {"KRB5CCNAME": str(ticket_cache)},
        capture_output=True,
        text=True,
        timeout=ANSWERS_WITHIN_S,
        check=False,
    )
    if tool.returncode != 0:
        raise ServerError(f"fetchdt ends with {tool.returncode}: {tool.stderr[-2000:]}")
