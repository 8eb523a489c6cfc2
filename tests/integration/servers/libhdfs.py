"""libhdfs.so, by which `pyarrow.fs.HadoopFileSystem` asks Hadoop's own client in a JVM.

No package of Python, Maven or Debian carries the library; the sources of Hadoop's come with the
crate `hdfs-sys`, and are compiled here with nothing but a C compiler and a JDK's headers.

    environment = libhdfs_environment(server.conf_dir)  # for a process of its own
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.integration.servers.hdfs import hadoop_jars
from tests.integration.servers.processes import ServerMissingError, cache_folder, require_program

CRATE_VERSION = "0.3.1"
SOURCES = Path("libhdfs") / "hdfs_3_3"  # the newest it carries; it speaks to 3.5's classes, too
MANIFEST = f"""[package]
name = "libhdfs-sources"
version = "0.0.0"
[lib]
path = "/dev/null"
[dependencies]
hdfs-sys = "={CRATE_VERSION}"
"""


def libhdfs_environment(conf_dir: Path) -> dict[str, str]:
    """Return the variables for a process that opens `HadoopFileSystem("default")`.

    They must be there before its first such filesystem, which starts the JVM for good.
    ServerMissingError where the library can be neither found in the cache nor built.
    """
    # libhdfs does not expand `jars/*`: its class path names every jar. The folder of the
    # configuration comes first.
    jars = ":".join(map(str, sorted(hadoop_jars().glob("*.jar"))))
    return {
        "ARROW_LIBHDFS_DIR": str(build_libhdfs().parent),
        "JAVA_HOME": str(java_home()),
        "CLASSPATH": f"{conf_dir}:{jars}",
        "HADOOP_CONF_DIR": str(conf_dir),
        "LIBHDFS_OPTS": "-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }


def java_home() -> Path:
    """Return the folder of the JDK whose `java` is on the PATH; one with headers is needed."""
    java = shutil.which("java")
    home = Path(os.environ.get("JAVA_HOME") or Path(java or "").resolve().parent.parent)
    if not (home / "include" / "jni.h").exists():
        raise ServerMissingError("there is no JDK with the header jni.h")
    return home


def build_libhdfs() -> Path:
    """Return the library; the first call has cargo fetch its sources, and compiles them."""
    folder = cache_folder(f"libhdfs-{CRATE_VERSION}")
    library = folder / "libhdfs.so"
    if library.exists():
        return library
    home = java_home()
    require_program("cc")
    require_program("cargo")
    with tempfile.TemporaryDirectory(dir=folder) as made:
        sources = _crate(Path(made)) / SOURCES
        built = Path(made) / "libhdfs.so"
        command = [
            *("cc", "-shared", "-fPIC", "-O2", "-w", "-fcommon", "-o", built),
            *(f"-I{home / 'include'}", f"-I{home / 'include' / 'linux'}", f"-I{sources.parent}"),
            *(f"-I{sources}", f"-I{sources / 'include'}", f"-I{sources / 'os' / 'posix'}"),
            *sorted(sources.glob("*.c")),
            *sorted((sources / "os" / "posix").glob("*.c")),
            *(f"-L{home / 'lib' / 'server'}", f"-Wl,-rpath,{home / 'lib' / 'server'}", "-ljvm"),
            *("-ldl", "-lpthread"),
        ]
        compiler = subprocess.run(command, capture_output=True, text=True, check=False)
        if compiler.returncode != 0:
            raise ServerMissingError(f"libhdfs does not compile: {compiler.stderr[-500:]}")
        built.replace(library)
    return library


def _crate(folder: Path) -> Path:
    """Return the folder of the crate's sources, as cargo keeps them."""
    (folder / "Cargo.toml").write_text(MANIFEST)
    cargo = subprocess.run(
        ["cargo", "metadata", "--format-version", "1"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if cargo.returncode != 0:
        raise ServerMissingError(f"cargo does not fetch hdfs-sys: {cargo.stderr.strip()[-300:]}")
    packages = json.loads(cargo.stdout)["packages"]
    manifest = next(each["manifest_path"] for each in packages if each["name"] == "hdfs-sys")
    return Path(manifest).parent
