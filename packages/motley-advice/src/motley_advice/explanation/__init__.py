"""Why two results disagree: what differs between two experiments as they are executed, and how much
of the difference of their results each cause carries."""
