"""The SQS front end, called by AWS's own SDK and by hand."""
