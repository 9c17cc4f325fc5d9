"""macmpi for Spack."""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyMacmpi(PythonPackage):
    """Trains deeply nested systems by the method of auxiliary coordinates (MAC) on many MPI ranks."""

    # A published version has homepage, pypi and version(..., sha256=...) here.

    license("MIT")

    version("0.2.0")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@65:", type="build")
    depends_on("py-numpy@2.0:", type=("build", "run"))
    depends_on("py-scipy@1.13:", type=("build", "run"))
    depends_on("py-h5py@3.11:~mpi", type=("build", "run"))
    depends_on("py-mpi4py@4.1:", type=("build", "run"))
    depends_on("py-pydantic@2.6:", type=("build", "run"))
    depends_on("py-annotated-types@0.6:", type=("build", "run"))
    depends_on("py-threadpoolctl@3.1:", type=("build", "run"))
