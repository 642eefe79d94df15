"""A campaign: the search for unfair episodes, the steps after it, and the summary of both."""
