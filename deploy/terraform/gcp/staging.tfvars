project     = "YOUR-PROJECT"
environment = "staging"
image       = "ghcr.io/OWNER/penstock:main"
hosts       = ["queues.staging.example.com"]
