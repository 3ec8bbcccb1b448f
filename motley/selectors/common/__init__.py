"""What two papers share."""
