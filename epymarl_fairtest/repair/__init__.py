"""Repair: a team is trained on, beside a control, so that it shares more fairly; and what that was worth."""
