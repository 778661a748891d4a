"""vag_policy: video-action policies with Temporal-Ratio guidance for bimanual arms."""

import sys

__version__ = "0.1.0"

if sys.argv[:1] == ["-m"]:  # `python -m vag_policy.…`: this runs before the imports of the module it names
    from vag_policy.entry import begin_module

    begin_module()
