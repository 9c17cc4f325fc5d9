"""`python -m` of what the arguments name, the odd ranks with further variables.

MACMPI_TEST_ODD_RANKS: those, a table in JSON.
"""

import json
import os
import sys

RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")
own = json.loads(os.environ["MACMPI_TEST_ODD_RANKS"])
odd = int(next(os.environ[name] for name in RANKS if name in os.environ)) % 2
os.execve(sys.executable, [sys.executable, "-m", *sys.argv[1:]], os.environ | (own if odd else {}))
