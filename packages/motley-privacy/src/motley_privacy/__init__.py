"""Audits of private runs: worlds that differ in one client, and attacks on what they publish."""
