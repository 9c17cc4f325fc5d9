"""A Slurm of its own on nodes of this machine: munge and a controller on the first, munge and slurmd on the others."""

from __future__ import annotations

import glob
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from launch.launching import LAUNCHER, OPEN_MPI
from namespaces import Nodes, lacking

HEAD = "head"
DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
PACKAGES = "apt-get install slurm-wlm munge iproute2"
PMIX = "/usr/lib/*/pmix2/lib/libpmix.so"
"""Debian's Slurm loads it by this name where ranks find each other by pmix."""

CREDENTIAL = 5
"""Seconds that a credential of a job lasts: a requeued job waits for its end, 120 where nobody says otherwise."""

CONFIG = """ClusterName=test
SlurmctldHost=head(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=cred_expire={credential}
MpiDefault={default}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=15
MessageTimeout=60
SlurmctldTimeout=10
KillWait=15
StateSaveLocation={folder}/state
TmpFS=/run/tmp
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=100000,bf_interval=2
NodeName={nodes} CPUs={cores} RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes={nodes} Default=YES MaxTime=INFINITE State=UP
"""

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "PREEMPTED")
LIMIT = 120.0


def missing() -> str:
    """Says what this machine lacks for a Slurm; "" where it lacks nothing."""
    absent = [name for name in DAEMONS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if LAUNCHER.pmi == "pmix" and not glob.glob(PMIX):
        absent.append("libpmix-dev")
    return lacking() or (f"not installed: {', '.join(absent)} (Debian: {PACKAGES})" if absent else "")


class Slurm:
    """The cluster, while the context lasts.  count, cores: nodes that compute, and cores of each.

    It names no way for ranks to find each other where slurm.sh does so, by pmi2.
    folder: for its files, those of the daemons included.  Raises RuntimeError where it does not come up.
    """

    def __init__(self, folder: Path, count: int = 3, cores: int = 4) -> None:
        self.folder, self.cores = folder, cores
        self.names = [f"node{number}" for number in range(1, count + 1)]
        self.nodes = Nodes([HEAD, *self.names], folder)
        self.config = folder / "slurm.conf"
        self.daemons: dict[tuple[str, str], subprocess.Popen[Any]] = {}

    def __enter__(self) -> Slurm:
        own = {"default": "none" if LAUNCHER.pmi == "pmi2" else LAUNCHER.pmi, "credential": CREDENTIAL}
        text = CONFIG.format(folder=self.folder, nodes=",".join(self.names), cores=self.cores, **own)
        self.config.write_text(text)
        (self.folder / "state").mkdir()
        (self.folder / "key").write_bytes(secrets.token_bytes(128))
        (self.folder / "key").chmod(0o600)
        self.nodes.__enter__()
        try:
            self._begin(HEAD, "slurmctld", "-D")
            for name in self.names:
                self.begin_node(name)
            self.until(lambda: self.states() == dict.fromkeys(self.names, "idle"), "idle nodes")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.nodes.__exit__(kind, error, trace)

    def _begin(self, name: str, daemon: str, *words: object) -> None:
        """A daemon of Slurm on a node, and munge before it."""
        if (name, "munged") not in self.daemons:
            self.nodes[name].run("mkdir", "-p", "/run/munge")
            munge = ("munged", "--foreground", f"--key-file={self.folder / 'key'}", "--pid-file=/run/munge/pid")
            munge += ("--log-file=/run/munge/log", "--seed-file=/run/munge/seed", "--force")
            self.daemons[name, "munged"] = self._start(name, munge)
            self.until(lambda: self.nodes[name].run("munge", "-n", check=False) != "", "munge")
        self.daemons[name, daemon] = self._start(name, (daemon, *words))

    def _start(self, name: str, words: Sequence[object]) -> subprocess.Popen[Any]:
        with (self.folder / f"{words[0]}-{name}.out").open("ab") as out:
            return self.nodes[name].start(*words, env=self.environment(), stdout=out, stderr=out)

    def begin_node(self, name: str) -> None:
        """Starts the daemons of a node, or starts them again after its death."""
        if self.nodes.nodes.get(name) is None or self.nodes[name].holder.poll() is not None:
            for key in [key for key in self.daemons if key[0] == name]:
                del self.daemons[key]
            self.nodes.add(name)
        (self.folder / f"spool-{name}").mkdir(exist_ok=True)
        self._begin(name, "slurmd", "-D", "-N", name)

    def end_daemon(self, name: str) -> None:
        """Kills the slurmd of a node, and what it has started there lives on."""
        pid = self.nodes[name].run("cat", "/run/slurmd.pid").strip()
        self.nodes[name].run("kill", "-KILL", pid)
        self.daemons[name, "slurmd"].wait(LIMIT)

    def end_controller(self) -> None:
        """Kills slurmctld: jobs go on."""
        self.nodes[HEAD].run("kill", "-KILL", self.nodes[HEAD].run("cat", "/run/slurmctld.pid").strip())
        self.daemons[HEAD, "slurmctld"].wait(LIMIT)

    def begin_controller(self) -> None:
        """Starts slurmctld again, which knows all jobs."""
        self._begin(HEAD, "slurmctld", "-D")

    def environment(self, **changes: str) -> dict[str, str]:
        """The variables of a shell on the cluster: none of another launcher, Slurm or MPI."""
        own = {k: v for k, v in os.environ.items() if not re.match(r"SLURM|SBATCH|SRUN|PMI|OMPI|MPI|MACMPI_FAULT", k)}
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        return own | OPEN_MPI | {"SLURM_CONF": str(self.config), "PATH": path, "OPENBLAS_NUM_THREADS": "1"} | changes

    def run(self, *words: object, cwd: Path | None = None, check: bool = True, **changes: str) -> str:
        """A command on the first node."""
        return self.nodes[HEAD].run(*words, check=check, cwd=cwd or self.folder, env=self.environment(**changes))

    def states(self) -> dict[str, str]:
        """What Slurm says of each node."""
        said = self.run("sinfo", "-N", "-h", "-o", "%N %T", check=False).split()
        return dict(zip(said[::2], said[1::2], strict=True))

    def submit(self, *words: object, cwd: Path, **changes: str) -> str:
        """The number of a job that is handed to sbatch."""
        return self.run("sbatch", "--parsable", *words, cwd=cwd, **changes).strip().split(";")[0]

    def job(self, number: str) -> dict[str, str]:
        """What Slurm says of a job; nothing of one that it does not know."""
        said = self.run("scontrol", "-o", "show", "job", number, check=False)
        return dict(word.split("=", 1) for word in said.splitlines()[0].split() if "=" in word) if said else {}

    def ended(self, number: str, timeout: float = LIMIT) -> dict[str, str]:
        """What Slurm says of a job once it is over for good.  Raises RuntimeError where it is not within `timeout`."""
        self.until(lambda: self.job(number).get("JobState") in ENDED, f"end of job {number}", timeout)
        return self.job(number)

    def until(self, condition: Callable[[], bool], what: str, timeout: float = LIMIT) -> None:
        """Waits for something to happen.  Raises RuntimeError where it does not within `timeout`."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            with suppress(OSError, subprocess.SubprocessError):
                if condition():
                    return
            time.sleep(0.2)
        raise RuntimeError(f"no {what} within {timeout:g} s")
