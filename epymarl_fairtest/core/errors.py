"""The one error that users see: what was given, what is allowed, what to do next."""


class FairTestError(Exception):
    """A mistake the user can mend. The message is complete; no traceback is needed."""
