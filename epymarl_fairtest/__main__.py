"""`python -m epymarl_fairtest`: the `fairtest` command where no script is installed."""

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the current folder, which `fairtest` does not search either: a policy may lie there
    from epymarl_fairtest.commands import main

    raise SystemExit(main())
