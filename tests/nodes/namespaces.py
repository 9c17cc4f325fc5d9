"""Nodes inside this machine: namespaces of network, names, processes, memory and mounts, joined by a bridge.

The bridge is in the namespaces too, on the first node, so nothing of this machine's network is touched, and no packet
leaves.  Every node is one process and what it has started: that process dies with this one, however this one ends,
and the kernel then ends all others of the node and takes links and bridge away.  Root is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

NET = "10.77.0"
"""The addresses of the nodes, NET.1, NET.2, ..."""

TOOLS = ("unshare", "nsenter", "setpriv", "ip", "mount", "hostname")

HOLD = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--net")
HOLD += ("--uts", "--ipc", "--mount", "env", "--ignore-signal=CHLD", "sleep", "infinity")
"""The first process of a node; the children that others leave behind are its own, and it keeps no dead ones."""

INSIDE = """
mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /run && mkdir /run/cgroup /run/tmp &&
mount --rbind /sys/fs/cgroup /run/cgroup && mount -t sysfs sysfs /sys && mount --rbind /run/cgroup /sys/fs/cgroup &&
mount --bind {hosts} /etc/hosts && hostname {name} &&
ip link set lo up
"""

LIMIT = 60.0
"""Seconds that a command on a node may take."""


def lacking() -> str:
    """Says what this machine lacks for nodes; "" where it lacks nothing."""
    if os.geteuid() != 0:
        return "only root may make namespaces"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)} (Debian: apt-get install iproute2 util-linux)" if missing else ""


@dataclass
class Node:
    """One node.  pid: its first process, as this machine numbers it."""

    name: str
    address: str
    holder: subprocess.Popen[bytes]
    pid: int

    def command(self, words: Sequence[object], cwd: Path = Path("/")) -> list[str]:
        """The words, as a command that runs on this node in that folder."""
        enter = ["nsenter", "-t", str(self.pid), "-n", "-u", "-i", "-p", "-m", "env", f"--chdir={cwd}"]
        return [*enter, *(str(word) for word in words)]

    def start(self, *words: object, cwd: Path = Path("/"), **keywords: Any) -> subprocess.Popen[Any]:
        """Starts a command on this node, in a session of its own."""
        line = self.command(words, cwd)
        return subprocess.Popen(line, start_new_session=True, stdin=subprocess.DEVNULL, **keywords)

    def run(self, *words: object, check: bool = True, cwd: Path = Path("/"), **keywords: Any) -> str:
        """Standard output of a command on this node.  Raises RuntimeError where it fails."""
        line, limit = self.command(words, cwd), {"timeout": LIMIT} | keywords
        done = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **limit)
        if check and done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(map(str, words))}: {done.stdout}{done.stderr}")
        return done.stdout

    def kill(self) -> None:
        """Ends the node at once, as a power cut would: all its processes and its link."""
        self.holder.kill()
        self.holder.wait()


class Nodes:
    """Some nodes, while the context lasts.  folder: for their /etc/hosts.  Raises RuntimeError where one fails."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self.names, self.hosts = tuple(names), folder / "hosts"
        self.nodes: dict[str, Node] = {}

    def __enter__(self) -> Nodes:
        if why := lacking():
            raise RuntimeError(why)
        lines = [f"{NET}.{number} {name}" for number, name in enumerate(self.names, 1)]
        self.hosts.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        try:
            for name in self.names:
                self.add(name)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def add(self, name: str) -> Node:
        """Makes a node, or makes it again after its death."""
        number = self.names.index(name) + 1
        holder = subprocess.Popen(HOLD, stdin=subprocess.DEVNULL, start_new_session=True)
        node = Node(name, f"{NET}.{number}", holder, _first_process(holder))
        self.nodes[name] = node
        node.run("sh", "-c", INSIDE.format(hosts=self.hosts, name=name))
        switch = self.nodes[self.names[0]]
        if node is switch:
            node.run("ip", "link", "add", "bridge", "type", "bridge")
            node.run("ip", "addr", "add", f"{node.address}/24", "dev", "bridge")
            node.run("ip", "link", "set", "bridge", "up")
            return node
        link = ["ip", "link", "add", f"to{number}", "type", "veth", "peer", "name", "eth0", "netns", str(node.pid)]
        subprocess.run(["nsenter", "-t", str(switch.pid), "-n", *link], check=True, timeout=LIMIT)  # pid as seen here
        switch.run("ip", "link", "set", f"to{number}", "master", "bridge", "up")
        node.run("ip", "addr", "add", f"{node.address}/24", "dev", "eth0")
        node.run("ip", "link", "set", "eth0", "up")
        return node

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.kill()


def _first_process(holder: subprocess.Popen[bytes]) -> int:
    """The child of `unshare`, once it has become what it shall be."""
    for _ in range(500):
        for pid in _children(holder.pid):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep"):
                return pid
        if holder.poll() is not None:
            break
        time.sleep(0.01)
    raise RuntimeError(f"no node could be made: {' '.join(HOLD)} ended with {holder.poll()}")


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


if __name__ == "__main__":
    print(lacking() or "nodes can be made here", file=sys.stderr)
