"""How a launch ends that one rank cannot go on with."""

from __future__ import annotations

import sys
import time
import traceback
from typing import NoReturn

from macmpi import MacmpiError
from macmpi.team import AnyTeam

INTERNAL = 70


def die(team: AnyTeam, error: BaseException) -> NoReturn:
    """An error in one rank: say which rank, and end all of them.  Collective: no.

    A known error needs no traceback; where several ranks meet the same one, the first of them speaks.
    """
    known = isinstance(error, MacmpiError)
    if known:
        time.sleep(0.3 * min(team.rank, 4))
    text = f" ({error})" if known else f"\n{''.join(traceback.format_exception(error))}"
    print(f"macmpi: rank {team.rank}/{team.size} failed; all ranks end{text}", file=sys.stderr)
    team.abort(error.exit_code if isinstance(error, MacmpiError) else INTERNAL)
