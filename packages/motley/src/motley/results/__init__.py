"""Tables, measures, plots and the report. No torch."""
