project         = "YOUR-PROJECT"
environment     = "production"
image           = "ghcr.io/OWNER/penstock:0.1.0"
hosts           = ["queues.example.com"]
machine_type    = "e2-small"
disk_gb         = 50
memory_limit_mb = 1024
