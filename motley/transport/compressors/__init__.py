"""Compressors of updates."""
