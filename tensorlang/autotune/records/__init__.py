"""What measurements leave behind: records, and the logs that hold them."""
