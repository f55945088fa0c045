"""The SQS front end: what AWS's SDKs say, translated to the broker and back."""
