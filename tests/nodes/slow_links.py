"""Links that are slow, narrow and lossy, for kernels without netem: a switch in this process between nodes.

Each node gets a TAP device in addition to its link.  A thread reads every frame, and hands it on when the delay is over
and the link is free again, or not at all.  Delays of a millisecond and more are kept to some tenths of one.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time
from collections.abc import Sequence
from types import TracebackType

from namespaces import NET, Node

TUNSETIFF, TAP, NO_HEADER = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
FRAME = 2048
NAME, SLOW = "slow0", f"{NET.rpartition('.')[0]}.78"
"""The device of each node, and what their addresses begin with."""

OVER = {"UCX_NET_DEVICES": NAME, "FI_TCP_IFACE": NAME}
"""Variables by which MPICH goes this way."""


class SlowLinks:
    """A second network of some nodes, SLOW.1, SLOW.2, ..., while the context lasts.

    delay: seconds that a frame takes from node to node; rate: bytes a second of a node's link; loss: share of frames.
    """

    def __init__(self, nodes: Sequence[Node], rate: float = 1e7, seed: int = 0) -> None:
        self.nodes, self.rate = list(nodes), rate
        self.delay, self.loss = 0.0, 0.0
        self.random, self.over = random.Random(seed), threading.Event()
        self.addresses = {node.name: f"{SLOW}.{number}" for number, node in enumerate(self.nodes, 1)}

    def __enter__(self) -> SlowLinks:
        self.taps = [tap_in(node.pid) for node in self.nodes]
        for node in self.nodes:
            node.run("ip", "addr", "add", f"{self.addresses[node.name]}/24", "dev", NAME)
            node.run("ip", "link", "set", NAME, "up")
            node.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/tcp_slow_start_after_idle", check=False)
        self.thread = threading.Thread(target=self._switch, daemon=True)
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self.thread.join()
        for tap in self.taps:
            os.close(tap)

    def _switch(self) -> None:
        """Frames go where their address was seen last, else everywhere."""
        waiting: list[tuple[float, int, int, bytes]] = []
        free, seen, number = dict.fromkeys(self.taps, 0.0), dict[bytes, int](), 0
        poll = select.epoll()
        for tap in self.taps:
            poll.register(tap, select.EPOLLIN)
        while not self.over.is_set():
            wait = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else 0.05
            for tap, _ in poll.poll(min(wait, 0.05)):
                frame, now = os.read(tap, FRAME), time.monotonic()
                seen[frame[6:12]] = tap
                free[tap] = max(free[tap], now) + len(frame) / self.rate
                goal = seen.get(frame[:6])
                for other in [goal] if goal is not None else [t for t in self.taps if t != tap]:
                    if self.random.random() >= self.loss:
                        number += 1
                        heapq.heappush(waiting, (free[tap] + self.delay, number, other, frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, goal, frame = heapq.heappop(waiting)
                os.write(goal, frame)
        poll.close()


def tap_in(pid: int) -> int:
    """The file of a new TAP device in the network of a process.  Only this thread is there for a moment."""
    libc, made = ctypes.CDLL(None, use_errno=True), list[int]()

    def make() -> None:
        with open(f"/proc/{pid}/ns/net") as there:
            if libc.setns(there.fileno(), CLONE_NEWNET):
                return
        tap = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", NAME.encode(), TAP | NO_HEADER))
        made.append(tap)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not made:
        raise RuntimeError(f"no TAP device could be made for process {pid}")
    return made[0]
