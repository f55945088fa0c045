"""The REST API, called in process and in virtual time: every endpoint, every answer, every error."""
